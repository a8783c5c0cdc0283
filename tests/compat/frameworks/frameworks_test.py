"""Scripts for Lightning and Ray Train, unmodified, under `muster run` with two ranks; their peer is torchrun of the same PyTorch.

    MUSTER_BUILD=build python3 tests/compat/frameworks/frameworks_test.py

Both packages come from PyPI into .venv-peers/frameworks at the first use, next to the PyTorch of the other tests
(MUSTER_FRAMEWORKS_PYTHON names another interpreter). Where they cannot be installed the test is skipped."""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402

REQUIREMENTS = ["lightning==2.6.6", "ray[train]==2.60.0"]
HOME = pathlib.Path(torch_python.source()) / ".venv-peers" / "frameworks"
SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "scripts"
IMPORTS = "import lightning, ray.train.torch; print(lightning.__version__, ray.__version__)"


def run(*command, **options):
    return subprocess.run([str(each) for each in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, **options)


def install(python):
    """A virtual environment that sees the packages of this interpreter's."""
    for command in (
        [sys.executable, "-m", "venv", "--clear", HOME],
        [python, "-c", "import sysconfig; open(sysconfig.get_path('purelib') + '/torch.pth', 'w').write('" + sysconfig.get_path("purelib") + "')"],
        [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *REQUIREMENTS],
    ):
        done = run(*command)
        if done.returncode:
            torch_python.skip(f"{' '.join(REQUIREMENTS)} cannot be installed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")


def interpreter():
    named = os.environ.get("MUSTER_FRAMEWORKS_PYTHON")
    python = pathlib.Path(named) if named else HOME / "bin" / "python"
    if not named and (not python.exists() or run(python, "-c", IMPORTS).returncode):
        install(python)
    tried = run(python, "-c", IMPORTS)
    if tried.returncode:
        torch_python.skip(f"{python}: {(tried.stderr.strip().splitlines() or ['?'])[-1]}")
    print(f"lightning and ray {tried.stdout.strip()}", flush=True)
    return python


def environment(python):
    drop = ("PET_", "MUSTER_", "TORCHELASTIC_", "TORCH_", "OMP_", "MASTER_", "RAY_", "RANK", "WORLD_SIZE", "LOGLEVEL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
    kept.update(PYTHON_EXEC=str(python), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", RAY_AUTH_MODE="disabled", PYTHONWARNINGS="ignore")
    return kept


class Frameworks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster frameworks ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, name, launcher, script, *arguments):
        """The results of both ranks, which are ranks of one world with gradients that are equal and data that is not."""
        folder = self.folder / name
        folder.mkdir()
        command = [*map(str, launcher), str(SCRIPTS / script), str(folder), *arguments]
        done = torch_python.run(command, folder, env=dict(environment(PYTHON), FRAMEWORKS_TEST=str(self.folder)), timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        first, second = (json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2))
        self.assertEqual([(each["rank"], each["world"]) for each in (first, second)], [(0, 2), (1, 2)])
        self.assertNotEqual(first["pid"], second["pid"])
        self.assertEqual((first["apart"], second["apart"]), (0, 0))
        self.assertEqual(first["weights"], second["weights"])
        self.assertEqual(sorted(first["seen"] + second["seen"]), list(range(512)))  # a half each, nothing twice
        for each in (first, second):
            self.assertLess(each["last"], each["first"] / 100)
        return first, second

    def both(self, script, *arguments):
        """Under muster, and that the peer comes to the same numbers."""
        ours = self.start("muster", [MUSTER, "run", "--standalone", "--nproc_per_node=2"], script, *arguments)
        peer = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
        theirs = self.start("torchrun", peer, script, *arguments)
        self.assertEqual([each["weights"] for each in ours], [each["weights"] for each in theirs])
        self.assertEqual([each["last"] for each in ours], [each["last"] for each in theirs])
        return ours

    def test_lightning(self):
        for result in self.both("lightning_trainer.py"):
            self.assertEqual((result["environment"], result["steps"]), ("TorchElasticEnvironment", 96))
            self.assertEqual(len(result["checkpoints"]), 1)

    def test_ray_train_in_its_local_mode(self):
        for result in self.both("ray_trainer.py", "0"):
            self.assertEqual(result["kind"], "DistributedDataParallel")

    def test_ray_train_with_processes_of_its_own(self):
        """One process of ours, which starts Ray; its two workers make their store themselves, and no process of it is left."""
        launcher = [MUSTER, "run", "--standalone", "--worker-store=worker"]
        for result in self.start("ray", launcher, "ray_trainer.py", "2"):
            self.assertEqual(result["kind"], "DistributedDataParallel")
        left = [
            entry.name
            for entry in pathlib.Path("/proc").iterdir()
            if entry.name.isdigit() and f"FRAMEWORKS_TEST={self.folder}\0".encode() in read(entry / "environ")
        ]
        self.assertEqual(left, [])


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


torch_python.require(load=False)
MUSTER = pathlib.Path(torch_python.build()).resolve() / "bin" / "muster"
PYTHON = interpreter()

if __name__ == "__main__":
    unittest.main(verbosity=2)
