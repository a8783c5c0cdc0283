"""The scripts of scripts/, unmodified, under `muster run` with two workers; their peer is torchrun of the same PyTorch.

The interpreter is MUSTER_TORCH_PYTHON, else .venv/bin/python of the source tree; without torch everything is skipped (exit
77), without transformers or accelerate their cases are (never in CI). With --warm workers are forked from a template that has
imported torch, transformers and accelerate: all scripts; with --warm-keep of one template for all of them. Started cold, half a minute of a processor goes into imports: without
--full those alone that are killed, or next to torchrun. A worker's environment is the same (tests/e2e/warm_test.py)."""

import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import torch_python

torch_python.require(load=False)
HERE = pathlib.Path(__file__).resolve().parent
MUSTER = pathlib.Path(torch_python.build()).resolve() / "bin" / "muster"
KEEP, FULL = "--warm-keep" in sys.argv, "--full" in sys.argv
WARM = KEEP or "--warm" in sys.argv
warm_or_full = unittest.skipUnless(WARM or FULL, "started warm, and cold by --full")
MODULES = "torch,torch._dynamo,transformers,accelerate"
IN_CI = os.environ.get("CI") == "true"


def environment():
    drop = ("PET_", "MUSTER_", "TORCHELASTIC_", "TORCH_", "OMP_", "MASTER_", "ACCELERATE_", "RANK", "WORLD_SIZE", "LOGLEVEL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
    kept.update(PYTHON_EXEC=sys.executable, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", HF_HUB_OFFLINE="1")
    if WARM:
        kept["MUSTER_WARM"] = MODULES
    if KEEP:
        kept.update(MUSTER_WARM_KEEP="600", XDG_RUNTIME_DIR=RealScripts.runtime.name)
    return kept


def needs(module):
    missing = importlib.util.find_spec(module) is None
    if missing and IN_CI:
        sys.exit(f"{module} is not there, and in CI its test must run")
    return unittest.skipIf(missing, f"{sys.executable} has no {module}")


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class RealScripts(unittest.TestCase):
    templates = set()  # with --warm-keep: templates that jobs were forked from

    @classmethod
    def setUpClass(cls):
        cls.runtime = tempfile.TemporaryDirectory(prefix="muster runtime ")
        cls.addClassCleanup(cls.runtime.cleanup)
        cls.addClassCleanup(subprocess.run, [str(MUSTER), "warm", "--stop"], env=dict(os.environ, XDG_RUNTIME_DIR=cls.runtime.name), check=True)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster scripts ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_script(self, script, *arguments, launcher=(str(MUSTER), "run"), workers=("--nproc_per_node=2",), flags=(), folder=None):
        command = [*launcher, "--standalone", *workers, *flags, str(HERE / "scripts" / script)]
        folder = folder or self.folder
        done = torch_python.run([*command, str(folder), *arguments], folder, env=environment(), timeout=900)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("--warm: ", done.stderr)  # nothing was left out, no worker started cold
        if KEEP and workers:  # by a configuration file, which sets variables, it is another
            self.templates.update(re.findall(r"--warm-keep: template (\d+), ", done.stderr))
            self.assertEqual(len(self.templates), 1, done.stderr)
        return self.results(folder)

    def results(self, folder):
        found = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]
        self.assertEqual([(each["rank"], each["world"]) for each in found], [(0, 2), (1, 2)])
        return found

    def test_fsdp2_saves_and_resumes_after_a_kill(self):
        first, second = self.run_script("fsdp2_checkpoint.py", "--kill-rank=1", flags=["--max-restarts=1"])
        self.assertEqual((first["resumed_at"], second["resumed_at"]), (10, 10))
        self.assertEqual(first["checksum"], second["checksum"])
        self.assertAlmostEqual(first["held"] + second["held"], 1, places=6)  # each keeps its shards, nothing twice
        self.assertLess(max(first["held"], second["held"]), 0.51)
        if WARM:
            return
        beside = self.folder / "torchrun"
        beside.mkdir()
        torchrun = (sys.executable, "-m", "torch.distributed.run")
        peer, _ = self.run_script("fsdp2_checkpoint.py", launcher=torchrun, folder=beside)
        self.assertEqual(peer["resumed_at"], 0)
        self.assertEqual(first["checksum"], peer["checksum"])  # killed and resumed or not, the numbers are the same
        self.assertEqual(first["last"], peer["last"])

    @warm_or_full
    @needs("transformers")
    @needs("accelerate")
    def test_transformers_trainer(self):
        for result in self.run_script("transformers_trainer.py"):
            self.assertEqual((result["mode"], result["steps"]), ("ParallelMode.DISTRIBUTED", 20))
            self.assertLess(result["last"], 0.7 * result["first"])
        self.assertTrue((self.folder / "out" / "checkpoint-20").is_dir())

    @warm_or_full
    @needs("accelerate")
    def test_accelerate(self):
        first, second = self.run_script("accelerate_train.py")
        self.assertEqual((first["kind"], first["batches"]), ("DistributedType.MULTI_CPU", 16))  # half of 32 each
        self.assertEqual(first["last"], second["last"])
        self.assertLess(first["last"], first["first"] / 10)

    @warm_or_full
    @needs("accelerate")
    def test_accelerate_by_its_configuration_file(self):
        file = self.folder / "cpu.yaml"
        file.write_text("distributed_type: MULTI_CPU\nmixed_precision: bf16\nnum_processes: 2\nuse_cpu: true\n")
        results = self.run_script("accelerate_train.py", "--configured", flags=[f"--accelerate-config={file}"], workers=())
        for result in results:
            self.assertEqual((result["kind"], result["precision"]), ("DistributedType.MULTI_CPU", "bf16"))
            self.assertLess(result["last"], result["first"] / 10)

    @warm_or_full
    def test_dataloader_workers(self):
        for result in self.run_script("dataloader_workers.py"):
            self.assertEqual((result["loaders"], result["samples"], result["distinct"]), (2, 256, 256))

    @warm_or_full
    def test_object_collectives(self):
        for result in self.run_script("object_collectives.py"):
            self.assertEqual(result["sizes"], [100_000, 200_000])
            self.assertEqual(result["told"], {"from": 0, "words": ["a", "b"]})
            self.assertEqual((result["alone"], result["answers"]), ([float(result["rank"])] * 4, [0, 1]))

    def test_loaders_do_not_outlive_a_killed_agent(self):
        command = [str(MUSTER), "run", "--standalone", "--nproc_per_node=2", str(HERE / "scripts" / "dataloader_workers.py")]
        agent = subprocess.Popen(
            [*command, str(self.folder), "--hang"], env=environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        marks = [self.folder / f"loading-{rank}.json" for rank in range(2)]
        try:
            self.wait_for(lambda: all(mark.exists() and mark.stat().st_size for mark in marks) or agent.poll() is not None)
            self.assertIsNone(agent.poll(), "the agent ended before its workers loaded")
            pids = [pid for mark in marks for pid in json.loads(mark.read_text())]
            self.assertGreaterEqual(len(pids), 4)  # two workers, and of each at least one loader
            self.assertTrue(all(alive(pid) for pid in pids))
        finally:
            agent.send_signal(signal.SIGKILL)
            agent.wait()
        self.wait_for(lambda: not any(alive(pid) for pid in pids))
        self.assertEqual([pid for pid in pids if alive(pid)], [])

    def wait_for(self, condition, seconds=300):
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main(argv=[each for each in sys.argv if each not in ("--warm", "--warm-keep", "--full")], verbosity=2)
