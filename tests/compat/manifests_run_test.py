"""The PyTorchJobs of k8s/cpu, run by `muster local` with real PyTorch: what k8s/README.md tells people to try first.

usage: manifests_run_test.py [NAME ...]: one-node, master-workers, elastic; all without arguments."""

import os
import pathlib
import re
import sys
import unittest

import torch_python

torch_python.require(load=False)
SOURCE = pathlib.Path(torch_python.source())
MUSTER = pathlib.Path(torch_python.build()).resolve() / "bin" / "muster"
JOBS = {"one-node": (1, 2), "master-workers": (4, 4), "elastic": (4, 4)}  # pods, ranks


class Manifests(unittest.TestCase):
    def run_job(self, name):
        pods, ranks = JOBS[name]
        drop = ("PET_", "MUSTER_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE", "LOGLEVEL")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        kept.update(PYTHON_EXEC=sys.executable, OMP_NUM_THREADS="1")
        done = torch_python.run(
            [str(MUSTER), "local", "-f", str(SOURCE / "k8s" / "cpu" / f"{name}.yaml"), "--env", f"TRAINING={SOURCE}/k8s/training",
             "--env", "STEPS=10", "--keep-going"],
            env=kept, timeout=900,
        )
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        self.assertRegex(said, rf"job {name}-cpu: Succeeded")
        self.assertEqual(sorted(re.findall(r"\brank (\d+) of (\d+) on cpu", said)), [(str(r), str(ranks)) for r in range(ranks)], said)
        table = said[said.rindex("pod  ") :]
        self.assertEqual(len(re.findall(r"(?m)^\S+-\d+\s+succeeded\s+0\s+0\s+0\s", table)), pods, said)
        self.assertEqual(len(re.findall(r"finished at loss 0\.\d+", said)), 1, said)


def add(name):
    setattr(Manifests, "test_" + name.replace("-", "_"), lambda self: self.run_job(name))


if __name__ == "__main__":
    for each in sys.argv[1:] or JOBS:
        add(each)
    unittest.main(argv=sys.argv[:1], verbosity=2)
