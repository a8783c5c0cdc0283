"""Agents in network namespaces of their own: which interface leads to the master, and differences between 2 to 8 nodes.

    MUSTER_BUILD=build python3 tests/e2e/namespaces_test.py

A hub routes between the nodes' networks, as switches do between the nodes of a cluster; every node has another interface with
the default route, by which nothing is reached. Needs root; skipped (exit 77) elsewhere."""

import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from harness import namespaces
from harness import MUSTER, environment

LIMIT = 240
PORT = 29521


class Cluster(unittest.TestCase):
    def make(self, count):
        scratch = tempfile.TemporaryDirectory(prefix="muster-nodes-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.hub = namespaces.Node(99, self.folder)
        self.addCleanup(self.hub.close)
        namespaces.run(*self.hub.command("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"))
        self.nodes = []
        for number in range(count):
            node = namespaces.Node(number, self.folder)
            self.addCleanup(node.close)
            self.nodes.append(node)
            node.ip("link", "add", "data0", "type", "veth", "peer", "name", f"n{number}", "netns", str(self.hub.holder.pid))
            node.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0-end")
            for name, address in (("lo", None), ("data0", f"10.77.{number}.2/24"), ("eth0", f"10.88.{number}.2/24"), ("eth0-end", None)):
                if address:
                    node.ip("addr", "add", address, "dev", name)
                node.ip("link", "set", name, "up")
            self.hub.ip("addr", "add", f"10.77.{number}.1/24", "dev", f"n{number}")
            self.hub.ip("link", "set", f"n{number}", "up")
            node.ip("route", "add", "10.77.0.0/16", "via", f"10.77.{number}.1")
            node.ip("route", "add", "default", "via", f"10.88.{number}.1", "dev", "eth0")

    def log(self, node):
        return (self.folder / f"stderr.{node.number}").read_text()

    def start(self, node):
        with open(self.folder / f"stderr.{node.number}", "w") as log:
            return subprocess.Popen(
                node.command(
                    MUSTER, "run", f"--nnodes={len(self.nodes)}", f"--node-rank={node.number}", "--master-addr=10.77.0.2",
                    f"--master-port={PORT}", "sh", "-c",
                    'echo "$GLOO_SOCKET_IFNAME"; while [ ! -e "$FOLDER/go" ]; do sleep 0.02; done',
                ),
                env=environment(FOLDER=str(self.folder), TMPDIR=str(self.folder)),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def check(self, count):
        self.make(count)
        odd = self.nodes[-1]
        odd.ip("link", "set", "data0", "mtu", "1400")
        agents = [self.start(node) for node in self.nodes]
        deadline = time.monotonic() + LIMIT
        while "MTU" not in self.log(self.nodes[0]) and time.monotonic() < deadline:
            time.sleep(0.02)
        (self.folder / "go").touch()
        for agent, node in zip(agents, self.nodes):
            out, _ = agent.communicate(timeout=LIMIT)
            self.assertEqual((agent.returncode, out), (0, "data0\n"), self.log(node))
        rest = ", ".join(f"node{number}" for number in range(count - 1))
        lines = [line for line in self.log(self.nodes[0]).splitlines() if "the nodes differ" in line]
        self.assertEqual(len([line for line in lines if "MTU" in line]), 1, lines)
        self.assertIn(f"MTU 1500 (data0) on {rest}; 1400 (data0) on node{odd.number}: ", "".join(lines))
        self.assertIn("network 10.77.0.0/24 on node0; 10.77.1.0/24 on node1", "".join(lines))
        for node in self.nodes[1:]:
            self.assertNotIn("the nodes differ", self.log(node))

    def test_2_nodes(self):
        self.check(2)

    def test_8_nodes(self):
        self.check(8)


if __name__ == "__main__":
    if not namespaces.can_be_made():
        print("skipped: network namespaces cannot be made here (root, iproute2, veth interfaces)")
        sys.exit(77)
    unittest.main()
