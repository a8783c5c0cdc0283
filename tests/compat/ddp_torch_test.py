"""Real PyTorch under `muster run`: an unmodified DDP script, torchrun's environment contract, @record, and a restart.

The interpreter with torch is MUSTER_TORCH_PYTHON, else .venv/bin/python of the source tree; without torch the test is
skipped (exit 77). MUSTER_BUILD names the build tree."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import torch_python
from torch_python import free_port

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE", HERE.parent.parent))
MUSTER = pathlib.Path(os.environ.get("MUSTER_BUILD", SOURCE / "build")).resolve() / "bin" / "muster"
PYTHON = os.environ.get("MUSTER_TORCH_PYTHON", str(SOURCE / ".venv" / "bin" / "python"))


def torch_version():
    try:
        command = [PYTHON, "-c", "import importlib.metadata; print(importlib.metadata.version('torch'))"]
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return None, str(error)
    return (done.stdout.strip(), "") if done.returncode == 0 else (None, done.stderr.strip().splitlines()[-1])


def environment(**more):
    drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|OMP_|PYTHON|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$")
    kept = {name: value for name, value in os.environ.items() if not drop.match(name)}
    kept.update(PYTHON_EXEC=PYTHON, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")
    kept.update(more)
    return {name: value for name, value in kept.items() if value is not None}


def command(*arguments):
    return [str(MUSTER), "run", *map(str, arguments)]


def muster(*arguments, timeout=600, folder=None, **more):
    return torch_python.run(command(*arguments), folder, env=environment(**more), timeout=timeout)


class UnderMuster(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster torch ")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def results(self, world):
        found = sorted(self.path.glob("rank-*.json"))
        self.assertEqual([f.name for f in found], [f"rank-{rank}.json" for rank in range(world)])
        return [json.loads(f.read_text()) for f in found]

    def check_training(self, world, restarts):
        for result in self.results(world):
            self.assertEqual((result["world"], result["restarts"]), (world, restarts))
            self.assertTrue(result["equal"], "parameters differ between ranks")
            self.assertTrue(result["launched"])
            self.assertLess(result["last"], result["first"] / 4)

    def test_ddp_trains(self):
        done = muster("--standalone", "--nproc_per_node=2", HERE / "ddp_train.py", self.path, folder=self.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_training(world=2, restarts=0)

    # Where it is not the start that counts, torch is imported once (--warm): fsdp2_checkpoint.py is killed and comes back without it.

    def test_a_killed_worker_brings_all_back(self):
        done = muster(
            "--standalone", "--nproc_per_node=2", "--max-restarts=3", "--warm=torch,torch._dynamo", HERE / "ddp_train.py", self.path, "--kill-rank=1",
            folder=self.path,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("--warm: ", done.stderr)  # no worker started without the template
        self.check_training(world=2, restarts=1)

    def test_a_killed_worker_is_named(self):
        done = muster("--standalone", "--nproc_per_node=2", "--warm=torch,torch._dynamo", HERE / "ddp_train.py", self.path, "--kill-rank=1", folder=self.path)
        self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stderr)
        self.assertRegex(done.stderr, r"failed \(exitcode: -9\) local_rank: 1 \(pid: \d+\) of binary: ")
        self.assertIn("Root Cause (first observed failure):", done.stderr)
        self.assertRegex(done.stderr, r"rank      : 1 \(local_rank: 1\)")
        self.assertIn("(SIGKILL) received by PID", done.stderr)

    def test_record_leaves_its_error_file(self):
        logs = self.path / "logs"
        done = muster("--standalone", "--nproc_per_node=2", f"--log-dir={logs}", HERE / "record_failure.py")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("ChildFailedError", done.stderr)
        self.assertRegex(done.stderr, r"Root Cause \(first observed failure\):\n\[\d\]:\n.*\n.*\n  rank      : 1 ")
        files = [f for f in logs.rglob("error.json") if "the lake is frozen" in f.read_text()]
        self.assertEqual([f.parent.name for f in files], ["1"])
        self.assertIn("ValueError: the lake is frozen", done.stderr)

    def test_a_module_runs(self):
        (self.path / "pkg").mkdir()
        (self.path / "pkg" / "__init__.py").touch()
        (self.path / "pkg" / "probe.py").write_text((HERE / "environment_probe.py").read_text())
        done = muster("--nproc-per-node=2", "-m", "pkg.probe", self.path, PYTHONPATH=str(self.path))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.path / "0.json").exists() and (self.path / "1.json").exists())

    def test_the_environment_contract(self):
        done = muster(
            "--standalone", "--nproc-per-node=3", "--role=trainer", "--max-restarts=2", "--rdzv-id=job7",
            HERE / "environment_probe.py", self.path, "${local_rank}", "$local_rank", "$$x", "--nnodes", RANK="77",
            OMP_NUM_THREADS=None,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        ports = set()
        for rank in range(3):
            probe = json.loads((self.path / f"{rank}.json").read_text())
            self.assertEqual(probe["arguments"], [str(rank), str(rank), "$x", "--nnodes"])
            given = probe["environment"]
            expected = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "3",
                "LOCAL_WORLD_SIZE": "3",
                "GROUP_RANK": "0",
                "GROUP_WORLD_SIZE": "1",
                "ROLE_NAME": "trainer",
                "ROLE_RANK": str(rank),
                "ROLE_WORLD_SIZE": "3",
                "TORCHELASTIC_RESTART_COUNT": "0",
                "TORCHELASTIC_MAX_RESTARTS": "2",
                "TORCHELASTIC_RUN_ID": "job7",
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
                "MUSTER_ROUND": "0",
            }
            self.assertEqual({name: given.get(name) for name in expected}, expected)
            self.assertIn("TORCHELASTIC_ERROR_FILE", given)
            self.assertGreaterEqual(int(given["OMP_NUM_THREADS"]), 1)
            self.assertTrue(given["MUSTER_AGENT_ID"] and given["MASTER_ADDR"])
            ports.add(given["MASTER_PORT"])
        self.assertEqual(len(ports), 1)
        self.assertTrue(0 < int(ports.pop()) < 65536)
        self.assertEqual(done.stderr.count("OMP_NUM_THREADS"), 1)

    def two_agents(self):
        """[(exit code, output)] of two agents of one job."""
        port = free_port()
        common = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
        agents = [
            subprocess.Popen(
                command(*common, f"--node-rank={rank}", HERE / "ddp_train.py", self.path, "--without-compiler"),
                env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for rank in (1, 0)  # the waiting rank comes first
        ]
        try:
            said = [agent.communicate(timeout=600)[0] for agent in agents]
        finally:
            for agent in agents:
                agent.kill()
                agent.wait()
        return [(agent.returncode, text) for agent, text in zip(agents, said)]

    def test_two_agents_form_one_world(self):
        done = torch_python.undisturbed(self.two_agents, lambda ends: "".join(text for _, text in ends), self.path)
        self.assertEqual([code for code, _ in done], [0, 0], "\n".join(text for _, text in done))
        self.check_training(world=2, restarts=0)


if __name__ == "__main__":
    version, reason = torch_version()
    if version is None:
        print(f"skipped: {PYTHON} has no torch ({reason}); set MUSTER_TORCH_PYTHON")
        sys.exit(77)
    print(f"torch {version} of {PYTHON}")
    unittest.main(verbosity=2)
