#!/usr/bin/env python3
"""muster-train as a worker of others: under real torchrun, and as two processes that only have the environment (as mpirun or srun
scripts set it). Both runs have to print the very losses of `muster run`."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import torch_python
from torch_python import free_port

BUILD = pathlib.Path(torch_python.build()).resolve()
TRAIN = BUILD / "bin" / "muster-train"
STEPS = 8
CONFIG = """\
training: {{steps: {steps}, micro_batch: 2, global_batch: 4, sequence_length: 32, warmup_steps: 2, threads: 1}}
model: {{layers: 2, channels: 32, heads: 2}}
data: {{path: "{data}"}}
logging: {{sample_length: 0}}
"""


def losses(output):
    return re.findall(r"step \d+/\d+  loss ([0-9.]+)", output)


def clean_environment(**more):
    kept = {k: v for k, v in os.environ.items() if not re.match(r"PET_|TORCHELASTIC|MASTER_|(LOCAL_)?RANK$|(LOCAL_)?WORLD_SIZE$", k)}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


class Train(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="muster torchrun ")
        path = pathlib.Path(cls.folder.name)
        (path / "text").write_text("".join(f"line {i} of a text that is read as bytes\n" for i in range(400)))
        cls.config = path / "config.yaml"
        cls.config.write_text(CONFIG.format(steps=STEPS, data=path / "text"))
        run = cls.run_program(BUILD / "bin" / "muster", "run", "--standalone", "--nproc_per_node=2", TRAIN, cls.config)
        cls.expected = losses(run.stdout)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @staticmethod
    def run_program(*command):
        run = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, env=clean_environment())
        if run.returncode:
            raise AssertionError(f"{command}: exit code {run.returncode}\n{run.stderr}")
        return run

    def test_under_muster_run(self):
        self.assertEqual(len(self.expected), STEPS)

    def test_under_torchrun(self):
        run = self.run_program(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python", TRAIN,
                               self.config)
        self.assertEqual(losses(run.stdout), self.expected)

    def test_with_nothing_but_the_environment(self):
        port = free_port()
        ranks = [subprocess.Popen([TRAIN, self.config], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=clean_environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
                                                        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))) for rank in range(2)]
        outputs = [rank.communicate(timeout=600) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
        self.assertEqual(losses(outputs[0][0]), self.expected)
        self.assertEqual(losses(outputs[1][0]), [])


if __name__ == "__main__":
    torch_python.require(load=False)
    unittest.main(verbosity=2)
