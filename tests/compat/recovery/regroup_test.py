"""muster.Regroup under real torch: DDP over gloo whose ranks keep their processes when another one is killed (examples/torch_regroup.py).

Two ranks: the sum of two gradients has the same bits in any order, so that the parameters are those of a run without a loss."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch_python  # noqa: E402
from torch_python import free_port  # noqa: E402

torch = torch_python.require()
MUSTER = pathlib.Path(torch_python.build()) / "bin" / "muster"
SOURCE = pathlib.Path(torch_python.source())
LIMIT = 120  # seconds


class Ddp(unittest.TestCase):
    def start(self, name, *arguments):
        log = open(self.folder / f"{name}.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [MUSTER, "run", "--standalone", "--nproc-per-node=2", "--max-restarts=3", "--restart-backoff=0", SOURCE / "examples" / "torch_regroup.py",
             "--steps=300", f"--out={self.folder / name}", *arguments],
            stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": str(SOURCE / "python"), "PYTHON_EXEC": sys.executable})
        self.addCleanup(lambda: (process.kill(), process.wait()))
        return process

    def said(self, name, text):
        deadline = time.monotonic() + LIMIT
        while not (found := re.search(text, (self.folder / f"{name}.log").read_text())):
            self.assertLess(time.monotonic(), deadline, (self.folder / f"{name}.log").read_text()[-3000:])
            time.sleep(0.01)
        return found

    def test_a_killed_rank_is_replaced_and_the_other_stays(self):
        with tempfile.TemporaryDirectory(prefix="muster regroup ") as folder:
            self.folder = pathlib.Path(folder)
            job = self.start("killed")
            pids = dict(re.findall(r"rank (\d) is process (\d+)", self.said("killed", r"(?s)rank \d is process \d+.*rank \d is process \d+\n").group(0)))
            self.said("killed", "step 60: ")
            os.kill(int(pids["1"]), signal.SIGKILL)
            self.said("killed", "regrouped at step")
            self.assertTrue(pathlib.Path(f"/proc/{pids['0']}").exists())
            self.assertEqual(job.wait(timeout=LIMIT), 0)
            self.assertEqual(len(re.findall("is process", (self.folder / "killed.log").read_text())), 3)
            self.assertEqual(self.start("undisturbed").wait(timeout=LIMIT), 0)
            one, other = (torch.load(self.folder / name, weights_only=True) for name in ("killed", "undisturbed"))
            self.assertTrue(all(torch.equal(one[key], other[key]) for key in other))

    def node(self, number, port):
        log = open(self.folder / f"node-{number}.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [MUSTER, "run", "--nnodes=1:2", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", f"--local-addr=127.0.0.{number + 1}",
             "--max-restarts=3", "--restart-backoff=0", "--last-call-timeout=1", SOURCE / "examples" / "torch_regroup.py", "--steps=100000"],
            stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": str(SOURCE / "python"), "PYTHON_EXEC": sys.executable, "MUSTER_HOSTNAME": f"node-{number}"})
        self.addCleanup(lambda: (process.kill(), process.wait()))
        return process

    def test_a_node_is_lost_and_none_takes_its_place(self):
        """The ranks of the other node go on as a world of two, at the step where they were."""
        with tempfile.TemporaryDirectory(prefix="muster regroup ") as folder:
            self.folder = pathlib.Path(folder)
            port = free_port()
            nodes = [self.node(0, port), self.node(1, port)]
            pids = re.findall(r"rank \d is process (\d+)", self.said("node-0", r"(?s)rank \d is process \d+.*rank \d is process \d+\n").group(0))
            self.said("node-0", "step 60: ")
            nodes[1].kill()
            step = int(self.said("node-0", r"regrouped at step (\d+)").group(1))
            self.assertGreater(step, 59)
            self.said("node-0", f"step {step - step % 20 + 40}: ")
            self.assertEqual([pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()], pids)
            nodes[0].kill()


if __name__ == "__main__":
    unittest.main()
