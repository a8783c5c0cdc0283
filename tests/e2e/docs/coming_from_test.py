"""Runs every command of launcher/docs/coming_from.md: hosts are loopback addresses, ssh and srun are fakes that run their command on
this machine.

    MUSTER_BUILD=build python3 tests/e2e/docs/coming_from_test.py"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "local")]

from harness import MUSTER, AgentTest, environment, free_port  # noqa: E402
from manifest_test import SRUN  # noqa: E402

PAGE = (pathlib.Path(os.environ.get("MUSTER_SOURCE") or HERE.parents[2]) / "launcher/docs/coming_from.md").read_text()
SSH = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'
SCRIPT = """
import os, sys
get = os.environ.get
precision = get("ACCELERATE_MIXED_PRECISION")
print(f"rank {get('RANK')} of {get('WORLD_SIZE')} local {get('LOCAL_RANK')} {precision} args {sys.argv[1:]}\\n", end="", flush=True)
"""


def commands():
    return [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines() if not line.startswith("#")]


class ComingFrom(AgentTest):
    def setUp(self):
        super().setUp()
        self.script("train.py", SCRIPT)
        tools = self.folder / "bin"
        tools.mkdir()
        for name, text in (("srun", SRUN), ("fake_ssh", SSH)):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        (tools / "muster").symlink_to(MUSTER)
        (self.folder / "hosts").write_text("127.0.0.1 slots=2\n127.0.0.2 slots=2\n")
        (self.folder / "ds.json").write_text("{}")
        (self.folder / "default_config.yaml").write_text("distributed_type: MULTI_CPU\nnum_processes: 2\nmixed_precision: bf16\n")
        (self.folder / "two_machines.yaml").write_text(
            "distributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 4\nmain_process_ip: 127.0.0.1\nmachine_rank: 0\n"
        )
        self.variables = environment(
            PATH=f"{tools}:{os.environ['PATH']}", MUSTER_SSH="fake_ssh", PET_MASTER_PORT=str(free_port()), SLURM_JOB_NUM_NODES="2",
            SLURM_JOB_ID=str(os.getpid()), E2E_FOLDER=str(self.folder),
        )  # fmt: skip

    def start_line(self, line):
        line = re.sub(r"(?<=[=,])a(?=[ :]|$)", "127.0.0.1", re.sub(r"(?<=[=,])b(?=[ :]|$)", "127.0.0.2", line))
        line = re.sub(r"--master-port=\d+", "--master-port=" + self.variables["PET_MASTER_PORT"], line)
        process = subprocess.Popen(
            ["sh", "-c", line], env=self.variables, cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def test_every_command(self):
        found = commands()
        self.assertEqual(len(found), 20)
        for line in found:
            with self.subTest(line):
                started = [self.start_line(line)]
                if "node-rank=0" in line or "node_rank=0" in line:
                    started.append(self.start_line(re.sub(r"(node.rank=)0", r"\g<1>1", line)))
                texts = [self.finish(process, 0) for process in started]
                out = "".join(text[0] for text in texts)
                if "manifest" in line:
                    self.assertIn("srun --kill-on-bad-exit=0 --wait=0 muster run -- train.py", out)
                    continue
                if line.startswith("muster env"):
                    self.assertRegex(out, r"ACCELERATE_MIXED_PRECISION +bf16 +default_config.yaml:3\n")
                    continue
                world = 4 if re.search(r"nnodes|host|srun|two_machines", line) else 1 if "per-node=1 train" in line else 2
                precision = re.search(r"PRECISION=(\w+)", line)
                expected = precision[1] if precision else "bf16" if "default_config" in line else "no" if "accelerate" in line else "None"
                self.assertEqual(set(re.findall(r"local \d (\w+) args", out)), {expected}, texts)
                ranks = sorted(re.findall(r"rank (\d) of (\d) local (\d)", out))
                self.assertEqual(ranks, [(str(rank), str(world), str(rank % 2)) for rank in range(world)], texts)
                for word in re.findall(r"train.py (.*)$", line):
                    self.assertIn(f"args {word.split()}", out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
