"""The server's name: late, wrong, slow, never, more than one address; and what workers get as MASTER_ADDR.

    MUSTER_BUILD=build python3 tests/e2e/names_test.py [TestClass.test_name ...]"""

import pathlib
import signal
import tempfile
import unittest

from harness import cluster
from harness.cluster import BUILD, Cluster

MUSTER = BUILD / "bin" / "muster"
PORT = 23456
# the store of its world answers under the address that it was given
REACH = """exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT" || exit 5; echo "$MASTER_ADDR" > "$OUT/reached.$RANK" """


class NamesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster names ")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.cluster = Cluster(2, self.folder)
        self.addCleanup(self.cluster.close)
        self.here, self.there = self.cluster.nodes

    def agent(self, k, *more, name="node0", program=("true",)):
        return self.cluster.nodes[k].start(
            MUSTER, "run", "--nnodes=2", f"--node-rank={k}", f"--master-addr={name}", f"--master-port={PORT}",
            "--join-timeout=60", *more, "--", *program, MUSTER_HOSTNAME=None,
        )  # fmt: skip

    def finish(self, agents, code=0):
        for agent in agents:
            self.assertEqual(agent.wait(), code, agent.said())
        return [agent.said() for agent in agents]


class Static(NamesTest):
    def test_it_comes_late(self):
        self.cluster.unpublish("node0")
        agents = [self.agent(k) for k in range(2)]
        agents[1].wait_said("waiting for the world: the name node0 does not resolve yet")
        self.cluster.publish("node0", self.here.address)
        self.finish(agents)

    def test_it_is_wrong_at_first(self):
        self.cluster.publish("node0", "10.66.0.77")
        agents = [self.agent(k) for k in range(2)]
        agents[1].wait_said("no answer yet from the server node0 (10.66.0.77:23456)")
        self.cluster.publish("node0", self.here.address)
        said = self.finish(agents)[1]
        self.assertIn("the server's name node0 resolves to 10.66.0.1 now", said)

    def test_one_of_its_addresses_is_dead(self):
        with open(self.there.pod.hosts, "a") as hosts:
            hosts.write(f"10.66.0.77 job\n{self.here.address} job\n")
        with open(self.here.pod.hosts, "a") as hosts:
            hosts.write(f"{self.here.address} job\n")
        self.finish([self.agent(k, name="job") for k in range(2)])

    def test_it_is_slow_and_nobody_waits_for_it(self):
        self.cluster.publish("node0", self.here.address, delay=1000)
        with open(self.cluster.resolver, "a") as settings:
            settings.write("options timeout:30 attempts:5\n")  # the C library does not give up before 150 s are over
        agent = self.agent(1)
        agent.wait_said("resolving the name node0")
        agent.signal(signal.SIGTERM)
        self.finish([agent], 143)  # which waits for far less

    def its_own_name_is_slow(self, delay):
        """The interface that the serving node's worker gets; the other node knows the address."""
        self.cluster.publish("job", self.here.address, delay=delay)  # node0 is in the node's own file
        program = ("sh", "-c", "echo interface $GLOO_SOCKET_IFNAME.")
        agents = [self.agent(0, name="job", program=program), self.agent(1, name=self.here.address, program=program)]
        said = self.finish(agents)[0]
        self.assertIn("interface eth0.", agents[1].printed())
        return agents[0].printed(), said

    def test_the_serving_node_awaits_its_own_name_for_a_moment(self):
        self.assertIn("interface eth0.", self.its_own_name_is_slow(0.3)[0])

    def test_the_serving_node_awaits_its_own_name_no_longer(self):
        printed, said = self.its_own_name_is_slow(1000)
        self.assertIn("interface .", printed)
        self.assertIn("job has no address yet on this node, which serves", said)

    def test_it_never_comes(self):
        self.cluster.unpublish("node0")
        said = self.finish([self.agent(1, "--join-timeout=10")], 138)[0]
        self.assertRegex(said, "the host name node0 could not be resolved: (Name or service not known|No address).*; asked for 10 s .--join-timeout.")

    def test_it_stands_for_nobody(self):
        self.cluster.publish("node0", "10.66.0.77")
        said = self.finish([self.agent(1, "--join-timeout=15")], 138)[0]
        self.assertIn("the server of the job's world at node0 (10.66.0.77:23456) did not respond within 15 s (--join-timeout); no response from that", said)


class Elastic(NamesTest):
    def elastic(self, k, endpoint):
        return self.cluster.nodes[k].start(
            MUSTER, "run", "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}:{PORT}",
            "--", "bash", "-c", REACH, MUSTER_HOSTNAME=None, OUT=str(self.folder),
        )  # fmt: skip

    def reached(self):
        return {(self.folder / f"reached.{rank}").read_text().strip() for rank in range(2)}

    def test_master_addr_is_what_all_have_reached(self):
        # the serving node is neither the first to come nor the first by name
        agents = [self.elastic(k, "node1") for k in range(2)]
        self.finish(agents)
        self.assertEqual(self.reached(), {"node1"})
        self.assertIn("serving the job", agents[1].said())

    def test_no_name_is_needed(self):
        for name in ("node0", "node1"):
            self.cluster.unpublish(name)
        self.finish([self.elastic(k, self.there.address) for k in range(2)])
        self.assertEqual(self.reached(), {self.there.address})

    def test_its_own_name_is_a_loopback_address(self):
        self.here.pod.hosts.write_text("127.0.0.1 localhost\n127.0.1.1 node0\n")  # as Debian's installer writes it
        self.finish([self.elastic(k, "node0") for k in range(2)])
        self.assertEqual(self.reached(), {"node0"})


if __name__ == "__main__":
    cluster.main()
