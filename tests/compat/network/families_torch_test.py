"""A PyTorch job on two nodes that have IPv4 alone, IPv6 alone, or both: its own store client, gloo, a sum.

    MUSTER_BUILD=build MUSTER_TORCH_PYTHON=.venv/bin/python python3 tests/compat/network/families_torch_test.py

Needs root, for namespaces."""

import os
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "e2e")]

import torch_python

torch_python.require(load=False)

from harness import cluster

MUSTER = cluster.BUILD / "bin" / "muster"
LIMIT = 300
JOB = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.full((100000,), float(dist.get_rank() + 1))
dist.all_reduce(value)
print("sum", value.sum().item(), "at", os.environ["MASTER_ADDR"], flush=True)
dist.destroy_process_group()
"""


class Families(unittest.TestCase):
    def check(self, family, *hosts):
        scratch = tempfile.TemporaryDirectory(prefix="muster torch families ")
        self.addCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        (folder / "job.py").write_text(JOB)
        nodes = cluster.Cluster(2, folder, family)
        self.addCleanup(nodes.close)
        for number, host in enumerate(hosts):
            port = 23456 + 4 * number
            static = [f"--master-addr={host}", f"--master-port={port}"]
            elastic = ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:{port + 2}"]
            for way in (static, elastic):
                agents = [
                    node.start(
                        MUSTER, "run", "--nnodes=2", *way, *([f"--node-rank={k}"] if way is static else []), folder / "job.py",
                        OMP_NUM_THREADS="1", PYTHON_EXEC=sys.executable, MUSTER_HOSTNAME=None, GLOO_SOCKET_IFNAME=None,
                    )
                    for k, node in enumerate(nodes.nodes)
                ]  # fmt: skip
                for agent in agents:
                    self.assertEqual(agent.wait(LIMIT), 0, f"{way}\n{agent.said()}")
                    self.assertEqual(agent.printed(), f"sum 300000.0 at {host.strip('[]')}\n")

    def test_ipv4_alone(self):
        self.check("4", "node0")

    def test_ipv6_alone(self):
        self.check("6", "node0", "[fd66::1]")

    def test_both(self):
        self.check("both", "node0", "[fd66::1]")


if __name__ == "__main__":
    cluster.need()
    unittest.main(verbosity=2)
