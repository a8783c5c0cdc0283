"""Jobs on nodes that have IPv4 alone, IPv6 alone, or both: the server by address, by name, by another name; static, elastic, trained.

    MUSTER_BUILD=build python3 tests/e2e/network/families_test.py [TestClass.test_name ...]

Every worker reaches the store of its world as PyTorch does, by MASTER_ADDR and MASTER_PORT."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import cluster
from harness.cluster import BUILD, Cluster
from harness.preload import preload

MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
FIRST_PORT = 23456
REACH = """exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT" || exit 5; echo "$RANK of $WORLD_SIZE at $MASTER_ADDR, by $GLOO_SOCKET_IFNAME" """
CONFIG = """\
training: {{steps: 3, micro_batch: 1, global_batch: 2, sequence_length: 16, strategy: FULL_SHARD, threads: 1, output: "{output}"}}
model: {{layers: 1, channels: 16, heads: 2}}
data: {{path: "{text}"}}
logging: {{interval: 1, sample_length: 0}}
"""


class Families(unittest.TestCase):
    def make(self, family, count=2):
        scratch = tempfile.TemporaryDirectory(prefix="muster families ")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.cluster = Cluster(count, self.folder, family)
        self.addCleanup(self.cluster.close)
        self.nodes = self.cluster.nodes
        for k, node in enumerate(self.nodes):  # another name of each
            self.cluster.publish(f"other{k}", *node.addresses)
        self.port = FIRST_PORT
        self.jobs = []

    def begin(self, what, flags, program=("bash", "-c", REACH), expect=None, **environment):
        """A job whose k-th node gets flags(k, port); `what` is for messages. expect: MASTER_ADDR of the workers."""
        self.port += 2  # the store of a static job is at the next port
        agents = [
            node.start(MUSTER, "run", "--nnodes=2", "--join-timeout=30", *flags(k, self.port), "--", *program, MUSTER_HOSTNAME=None, **environment)
            for k, node in enumerate(self.nodes)
        ]
        self.jobs.append((what, agents, expect))

    def static(self, host, *more, **keywords):
        def flags(k, port):
            return [f"--node-rank={k}", f"--master-addr={host}", f"--master-port={port}", *more]

        self.begin(f"static at {host} {more}", flags, expect=host.strip("[]"), **keywords)

    def elastic(self, host, *more, own=("", ""), **keywords):
        def flags(k, port):
            return ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:{port}", *([f"--local-addr={own[k]}"] if own[k] else []), *more]

        self.begin(f"elastic at {host}, {own} {more}", flags, **{"expect": host.strip("[]"), **keywords})

    def train(self, host):
        (self.folder / "text").write_text("the quick fox jumps over the hill and then it rests. " * 50)
        config, output = self.folder / f"{self.port}.yaml", self.folder / f"{self.port}.model"
        config.write_text(CONFIG.format(output=output, text=self.folder / "text"))
        self.static(host, program=(TRAIN, config), OMP_NUM_THREADS="1")

    def finish(self):
        for what, agents, expect in self.jobs:
            for agent in agents:
                self.assertEqual(agent.wait(60), 0, f"{what}\n{agent.said()}")
                self.assertNotIn("the nodes differ", agent.said(), what)
            if agents[0].printed().startswith(("0 of", "1 of")):
                said = sorted(agent.printed().strip() for agent in agents)
                self.assertEqual(said, [f"{rank} of 2 at {expect}, by eth0" for rank in range(2)], f"{what}\n{agents[0].said()}")
            else:
                self.assertIn("step 3/3", "".join(agent.printed() + agent.said() for agent in agents), what)
        self.jobs = []

    def all_modes(self, *hosts):
        for host in hosts:
            self.static(host)
            self.elastic(host)


class Matrix(Families):
    def test_ipv4_alone(self):
        self.make("4")
        self.all_modes("10.66.0.1", "node0", "other0")
        self.train("node0")
        self.finish()

    def test_ipv6_alone(self):
        self.make("6")
        self.all_modes("[fd66::1]", "node0", "other0")
        self.static("fd66::1")
        self.train("node0")
        self.train("[fd66::1]")
        self.finish()

    def test_both(self):
        self.make("both")
        self.all_modes("10.66.0.1", "[fd66::1]", "node0", "other0")
        self.cluster.publish("six", "fd66::1")  # AAAA alone
        self.all_modes("six")
        self.train("six")
        self.finish()


class Six(Families):
    def test_zones(self):
        self.make("6")
        here = next(line.split()[3] for line in self.links() if "fe80::" in line).split("/")[0]
        self.all_modes(f"[{here}%eth0]")
        self.train(f"[{here}%eth0]")
        self.finish()

    def links(self):
        return cluster.namespaces.run(*self.nodes[0].pod.command("ip", "-o", "-6", "addr", "show", "dev", "eth0")).splitlines()

    def test_sockets_are_of_one_family_unless_told(self):
        self.make("both")
        for node in self.nodes:
            cluster.namespaces.run(*node.pod.command("sh", "-c", "echo 1 > /proc/sys/net/ipv6/bindv6only"))
        self.all_modes("10.66.0.1", "[fd66::1]", "node0")
        self.elastic("[::ffff:10.66.0.1]", expect="10.66.0.1")
        self.finish()

    def test_an_address_that_is_not_ready(self):
        """The kernel looks for an IPv6 address's double first: the node has it, and cannot use it for a second or two."""
        self.make("6")
        pod = self.nodes[0].pod
        cluster.namespaces.run(*pod.command("sh", "-c", "for f in all eth0; do echo 1 > /proc/sys/net/ipv6/conf/$f/accept_dad; done"))
        pod.ip("addr", "add", "fd66::77/64", "dev", "eth0")
        self.elastic("[fd66::77]")
        self.finish()

    def test_a_server_for_one_family(self):
        self.make("both")
        self.static("node0", "--bind-addr=[fd66::1]")
        self.elastic("node0", "--bind-addr=fd66::1")
        self.elastic("node0", own=("[fd66::1]", "[fd66::2]"), expect="fd66::1")
        self.finish()


@unittest.skipIf(os.environ.get("MUSTER_SANITIZED"), "a sanitizer's runtime has to be loaded before what is preloaded")
class Refused(Families):
    def test_a_kernel_without_ipv6(self):
        self.make("4")
        library = preload("refuse_six.so")
        for how in ("socket", "denied", "option", "bind"):
            for host in ("node0", "10.66.0.1"):
                self.static(host, LD_PRELOAD=library, REFUSE_SIX=how)
            self.elastic("node0", LD_PRELOAD=library, REFUSE_SIX=how)
        self.finish()


class Identity(Families):
    """The node whose address the endpoint is serves, with any own address for the others."""

    def test_own_addresses(self):
        self.make("both")
        self.elastic("10.66.0.1", own=("node0", "node1"), expect="node0")
        self.elastic("10.66.0.1", own=("fd66::1", "fd66::2"), expect="fd66::1")
        self.elastic("[FD66:0:0::1]", own=("fd66::1", ""), expect="fd66::1")
        self.elastic("node1", own=("10.66.0.1", "10.66.0.2"), expect="10.66.0.2")
        self.elastic("node0", own=("other0", ""), expect="other0")
        self.finish()

    def test_own_address_on_another_network(self):
        """It is the workers' MASTER_ADDR, and every node still names the interface of the route to the server."""
        self.make("4")
        for k, node in enumerate(self.nodes):
            node.pod.ip("link", "add", "side0", "type", "veth", "peer", "name", "side0-end")
            node.pod.ip("addr", "add", f"10.99.{k}.1/24", "dev", "side0")
            for name in ("side0", "side0-end"):
                node.pod.ip("link", "set", name, "up")
            node.pod.ip("route", "add", f"10.99.{1 - k}.0/24", "via", self.nodes[1 - k].address)
        self.elastic("10.66.0.1", own=("10.99.0.1", "10.99.1.1"), expect="10.99.0.1")
        self.finish()

    def test_agents_of_one_machine(self):
        self.make("both", 1)
        self.nodes = self.nodes * 2
        self.elastic("127.0.0.1", own=("localhost", "localhost"), expect="localhost")
        self.elastic("[::1]", own=("localhost", "localhost"), expect="localhost")
        self.elastic("10.66.0.1", own=("node0", "node0"), expect="node0")
        self.elastic("localhost", own=("10.66.0.1", "10.66.0.1"), expect="10.66.0.1")
        for what, agents, expect in self.jobs:
            said = [agent.wait(60) or agent.printed().split(",")[0].strip() for agent in agents]
            self.assertEqual(sorted(said), [f"{rank} of 2 at {expect}" for rank in range(2)], what + "".join(a.said() for a in agents))
            self.assertEqual("".join(a.said() for a in agents).count("the nodes differ"), 0, what)
        self.nodes[0].pod.hosts.write_text("::1 localhost\n")  # IPv4 has a loopback everywhere, and it need not have the name
        self.jobs = []
        self.elastic("localhost")
        self.begin("static", lambda k, port: [f"--node-rank={k}", "--master-addr=localhost", f"--master-port={port}"])
        for what, agents, _ in self.jobs:
            self.assertEqual([agent.wait(60) for agent in agents], [0, 0], what + "".join(a.said() for a in agents))


if __name__ == "__main__":
    cluster.main()
