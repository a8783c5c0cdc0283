"""--pre-flight between nodes: a path that drops packets of full size and reports nothing is named, with the size that passes.

    MUSTER_BUILD=build python3 tests/e2e/network/paths_test.py [TestClass.test_name ...]"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import cluster
from harness.cluster import BUILD, Cluster

MUSTER = BUILD / "bin" / "muster"
PORT = 23456


class Paths(unittest.TestCase):
    def make(self, count, family="4"):
        scratch = tempfile.TemporaryDirectory(prefix="muster paths ")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.cluster = Cluster(count, self.folder, family)
        self.addCleanup(self.cluster.close)
        for node in self.cluster.nodes:  # packets leave as they are sent, not joined for the wire to divide
            node.pod.ip("link", "set", "dev", "eth0", "gso_max_segs", "1")

    def narrow(self, node, mtu):
        """Larger packets to the node are lost on the way, and no router reports it."""
        rules = f"table inet narrow {{ chain to {{ type filter hook prerouting priority -300; meta length > {mtu} drop; }}; }}"
        cluster.namespaces.run(*node.pod.command("nft", "-f", "-"), given=rules)

    def run_job(self, *more, expect="", seconds=30):
        """Output of all agents; workers end when it is there, or at once where nothing is expected."""
        script = 'while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done'
        agents = [
            node.start(
                MUSTER, "run", f"--nnodes={len(self.cluster.nodes)}", f"--node-rank={k}", "--master-addr=node0", f"--master-port={PORT}",
                "--join-timeout=30", *more, "--", "sh", "-c", script, FOLDER=str(self.folder), MUSTER_HOSTNAME=None,
            )
            for k, node in enumerate(self.cluster.nodes)
        ]  # fmt: skip
        if expect:
            cluster.wait_until(lambda: any(expect in agent.said() for agent in agents) or any(not agent.runs() for agent in agents), expect, seconds)
        else:
            cluster.wait_until(lambda: all("pre-flight: the paths" in agent.said() for agent in agents), "the paths are checked", seconds)
        (self.folder / "go").touch()
        for agent in agents:
            self.assertEqual(agent.wait(60), 0, agent.said())
        return "".join(agent.said() for agent in agents)

    def test_a_black_hole(self):
        self.make(2)
        self.narrow(self.cluster.nodes[1], 1400)
        lost = "from node0 (10.66.0.1) to node1 (10.66.0.2) packets of 1500 bytes are lost and no router reports it, packets of 1400 bytes arrive"
        said = self.run_job("--pre-flight=0", expect=lost)
        self.assertIn(lost, said)
        self.assertNotIn("from node1", said)  # the other way nothing is lost

    def test_a_black_hole_of_ipv6(self):
        self.make(2, "6")
        self.narrow(self.cluster.nodes[0], 1350)
        self.run_job("--pre-flight=0", expect="from node1 (fd66::2) to node0 (fd66::1) packets of 1500 bytes are lost and no router reports it, packets of 1350 ")

    def test_a_narrow_path_that_is_reported(self):
        """The kernel makes packets smaller by itself, and nothing hangs."""
        self.make(2)
        self.cluster.nodes[0].pod.ip("route", "change", "10.66.0.0/16", "dev", "eth0", "mtu", "1400")
        self.narrow(self.cluster.nodes[1], 1400)
        self.assertNotIn("are lost", self.run_job("--pre-flight=0"))

    def test_nothing_is_wrong(self):
        self.make(3)
        secret = self.folder / "secret"  # the agents prove that the keys by which they find each other are theirs
        secret.write_bytes(subprocess.run([MUSTER, "secret"], check=True, capture_output=True).stdout)
        secret.chmod(0o600)
        said = self.run_job("--pre-flight=0", f"--secret-file={secret}")
        self.assertNotIn("has not proven", said)
        self.assertNotIn("are lost", said)
        self.assertNotIn("no connection opens", said)

    def test_a_firewall(self):
        self.make(2)
        rules = f"table ip f {{ chain in {{ type filter hook input priority 0; tcp dport != {{ {PORT}, {PORT + 1} }} ct state new drop; }}; }}"
        cluster.namespaces.run(*self.cluster.nodes[0].pod.command("nft", "-f", "-"), given=rules)
        self.run_job("--pre-flight=0", expect="from node1 (10.66.0.2) to node0 (10.66.0.1) no connection opens")


if __name__ == "__main__":
    cluster.main()
