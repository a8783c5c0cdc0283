"""A DDP script that saves at a notice, under an elastic job that grows and shrinks: both ranks save at the same step, and the
next round goes on from it. Skipped (exit 77) without torch: MUSTER_TORCH_PYTHON, else .venv/bin/python of the source tree."""

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
from torch_python import free_port

torch_python.require(load=False)

HERE = pathlib.Path(__file__).resolve().parent
MUSTER = pathlib.Path(torch_python.build()).resolve() / "bin" / "muster"
LIMIT = 300  # for any wait; a test that needs it has failed
ATTEMPTS = 5


class Saving(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster torch ")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.port = free_port()

    def node(self, k):
        drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|OMP_|PYTHON|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$")
        environment = {name: value for name, value in os.environ.items() if not drop.match(name)}
        environment |= {"PYTHON_EXEC": sys.executable, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MUSTER_HOSTNAME": f"node-{k}"}
        words = ["--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}",
                 f"--local-addr=127.0.0.{k + 1}", "--last-call-timeout=0.5", "--regroup-interval=0.5", "--shutdown-timeout=300"]
        with open(self.path / f"said-by.{k}", "w") as said:
            process = subprocess.Popen([MUSTER, "run", *words, HERE / "notice_train.py", self.path], env=environment,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
        process.said_by = self.path / f"said-by.{k}"
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()

    def said(self, what, round_, ranks, process):
        """[step, sum of parameters, world size] of each rank."""
        files = [self.path / f"{what}.{round_}.{rank}" for rank in range(ranks)]
        deadline = time.monotonic() + LIMIT
        while not all(file.exists() for file in files):
            if process.poll() is not None or time.monotonic() > deadline:
                self.fail(f"{what}.{round_} was not said: {os.listdir(self.path)}\n{self.all_said()}")
            time.sleep(0.01)
        return [json.loads(file.read_text()) for file in files]

    def all_said(self):
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')}" for path in sorted(self.path.glob("said-by.*")))

    def finish(self, process, code):
        process.wait(timeout=LIMIT)
        self.assertEqual(process.returncode, code, self.all_said())
        return process.said_by.read_text(errors="replace")

    def test_a_job_that_grows_and_shrinks_loses_no_step(self):
        """Again where a gloo thread ended a process after its script (torch_python.undisturbed)."""
        for attempt in range(ATTEMPTS):
            try:
                return self.grow_and_shrink()
            except AssertionError:
                if attempt == ATTEMPTS - 1 or torch_python.GLOO_ABORT not in self.all_said():
                    raise
            self.doCleanups()
            self.setUp()

    def grow_and_shrink(self):
        first = self.node(0)
        self.said("trained", 0, 1, first)
        second = self.node(1)
        begun = self.said("begun", 1, 2, first)
        saved = self.said("saved", 0, 1, first)
        self.assertEqual(saved[0][2], 1)
        self.assertEqual([row[:2] for row in begun], [saved[0][:2]] * 2)  # both go on from it, bit by bit
        self.said("trained", 1, 2, first)
        second.send_signal(signal.SIGTERM)
        self.finish(second, 143)
        begun = self.said("begun", 2, 1, first)
        saved = self.said("saved", 1, 2, first)
        self.assertEqual(saved[0], saved[1])  # at the same step, with the same parameters
        self.assertEqual(begun[0], [*saved[0][:2], 1])
        self.said("trained", 2, 1, first)
        first.send_signal(signal.SIGTERM)
        err = self.finish(first, 143)
        self.said("saved", 2, 1, first)
        self.assertNotIn("still runs", err)
        self.assertNotIn("restart 1", err)

    def test_the_document_has_the_class_that_is_tested_here(self):
        document = (HERE.parent.parent / "launcher" / "docs" / "notice.md").read_text()

        def tested(text):
            return re.search(r"^class Notice:\n(?:(?: .*)?\n)*", text, re.M).group().rstrip()

        self.assertEqual(tested(document), tested((HERE / "notice_train.py").read_text()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
