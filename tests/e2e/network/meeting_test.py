"""Nodes that start in an odd way: a name of several nodes, a run next to another one, more nodes than there are places.

    MUSTER_BUILD=build python3 tests/e2e/network/meeting_test.py [TestClass.test_name ...]"""

import pathlib
import shutil
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import cluster
from harness.cluster import BUILD, Cluster, hardware_of

MUSTER = BUILD / "bin" / "muster"
PORT = 23456
SECOND_RUN = 200  # EXIT_CODE_SECOND_RUN


class Meeting(unittest.TestCase):
    def make(self, count):
        scratch = tempfile.TemporaryDirectory(prefix="muster meeting ")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.cluster = Cluster(count, self.folder)
        self.addCleanup(self.cluster.close)
        self.nodes = self.cluster.nodes

    def elastic(self, k, endpoint, nnodes="2", script="true", muster=MUSTER, **environment):
        return self.nodes[k].start(
            muster, "run", f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}:{PORT}", "--rdzv-id=job",
            "--join-timeout=30", "--last-call-timeout=1", "--termination-log=", "--", "sh", "-c", script, FOLDER=str(self.folder),
            **{"MUSTER_HOSTNAME": None, **environment},
        )  # fmt: skip

    def ends(self, agents, code=0):
        for agent in agents:
            self.assertEqual(agent.wait(60), code, agent.said())
        return [agent.said() for agent in agents]


WAIT = 'echo "rank $RANK of $WORLD_SIZE"; while [ ! -e "$FOLDER/go" ]; do sleep 0.02; done'


class NameOfSeveral(Meeting):
    """A headless Service has the addresses of all its pods."""

    def test_one_serves(self):
        self.make(3)
        self.cluster.publish("job", *[node.address for node in self.nodes])
        agents = [self.elastic(k, "job", "3") for k in (2, 0, 1)]
        said = "".join(self.ends(agents))
        self.assertEqual(said.count("the name job is that of several nodes: this one serves the job"), 1, said)
        self.assertEqual(said.count("the name job is that of several nodes: 10.66.0.1 serves the job"), 2, said)
        self.assertNotIn("refused", said)  # a node that looks for a server is no unknown peer

    def test_the_lowest_is_not_there(self):
        self.make(3)
        self.cluster.publish("job", *[node.address for node in self.nodes])
        agents = [self.elastic(k, "job") for k in (2, 1)]
        said = self.ends(agents)
        self.assertIn("this one serves the job", said[1])
        self.assertIn("10.66.0.2 serves the job", said[0])

    def test_the_lowest_comes_late(self):
        self.make(3)
        self.cluster.publish("job", *[node.address for node in self.nodes])
        agents = [self.elastic(k, "job", "3") for k in (2, 1)]
        agents[1].wait_said("this one serves the job")
        agents.append(self.elastic(0, "job", "3"))
        self.assertIn("10.66.0.2 serves the job", self.ends(agents)[2])

    def test_a_lost_packet_makes_no_second_server(self):
        """The kernel sends a SYN again after 1 s, and again 2 s later."""
        self.make(2)
        self.cluster.publish("job", *[node.address for node in self.nodes])
        agents = [self.elastic(1, "job")]
        agents[0].wait_said("this one serves the job")
        self.nodes[1].cut("to")
        agents.append(self.elastic(0, "job"))
        time.sleep(1.5)
        self.nodes[1].heal()
        self.assertIn("10.66.0.2 serves the job", self.ends(agents)[1])

    def connected(self, agent, state):
        """Whether a socket of the agent's node is in this state: 0A listens at the port, 01 has a connection to it."""
        end = 1 if state == "0A" else 2
        for table in ("tcp", "tcp6"):
            rows = [row.split() for row in pathlib.Path(f"/proc/{agent.pid}/net/{table}").read_text().splitlines()[1:]]
            if any(row[3] == state and row[end].endswith(f":{PORT:04X}") for row in rows):
                return True
        return False

    def test_two_searches_see_each_other_and_give_way(self):
        """The later node has claimed the port and is suspended: its kernel listens, so the earlier node gives way after two seconds. The
        later node has found the claim of the earlier one, and goes on before it learns that it was closed: it gives way, too."""
        self.make(2)
        early, late = self.nodes
        for node, other in ((early, late), (late, early)):  # the link is cut: names and neighbours are known without it
            with open(node.pod.hosts, "a") as hosts:
                hosts.write("".join(f"{one.address} job\n" for one in self.nodes))
            node.pod.ip("neigh", "replace", other.address, "lladdr", hardware_of(other.address), "dev", "eth0", "nud", "permanent")
        early.delay(1000)
        early.cut()
        agents = [self.elastic(1, "job")]
        cluster.wait_until(lambda: self.connected(agents[0], "0A"), "the later node claims the port", step=0.005)
        late.freeze(agents[0])
        # The kernel of the frozen node sends its SYN again 1, 3 and 7 s after the first. The earlier node claims 3.5 s after its start,
        # for three seconds. The SYN is to come in their middle, after a second on the way.
        time.sleep(2.9)
        agents.append(self.elastic(0, "job"))
        cluster.wait_until(lambda: self.connected(agents[1], "0A"), "the earlier node claims the port", step=0.005)
        early.cut_ways.clear()
        self.cluster.apply_harm()
        cluster.wait_until(lambda: self.connected(agents[0], "01"), "the later node's kernel has found that claim", step=0.005)
        cluster.wait_until(lambda: not self.connected(agents[1], "0A"), "the earlier node gives way", step=0.005)
        self.assertTrue(self.connected(agents[0], "01") and self.connected(agents[0], "0A"))
        late.thaw()
        cluster.wait_until(lambda: not self.connected(agents[0], "0A"), "the later node gives way", step=0.005)
        early.heal()
        said = "".join(self.ends(agents))
        self.assertEqual(said.count("this one serves the job"), 1, said)

    def test_no_other_node_has_it(self):
        self.make(2)
        self.cluster.publish("job", self.nodes[0].address, "10.66.0.77")  # an earlier pod's
        said = "".join(self.ends([self.elastic(k, "job") for k in (0, 1)]))
        self.assertIn("this one serves the job", said)


class SecondRun(Meeting):
    def start_first(self, **more):
        first = [self.elastic(k, self.nodes[0].address, script=WAIT, **more) for k in (0, 1)]
        self.train(first, "the first run trains")
        return first

    def train(self, agents, what):
        cluster.wait_until(
            lambda: all(agent.printed() or not agent.runs() for agent in agents),
            lambda: f"{what}: {[agent.said() for agent in agents]}",
        )

    def finish(self, first, second, code):
        for agent in second:
            agent.wait_said("the world has its 2 nodes")
        (self.folder / "go").touch()
        self.ends(first)
        return self.ends(second, code)

    def test_on_the_same_nodes(self):
        self.make(2)
        first = self.start_first()
        for said in self.finish(first, [self.elastic(k, self.nodes[0].address, script=WAIT) for k in (0, 1)], SECOND_RUN):
            self.assertIn("nothing was run: the job job at 10.66.0.1 port 23456 was another run's, which has ended well", said)
            self.assertIn("exit code 200", said)

    def test_on_the_same_node_after_an_upgrade(self):
        self.make(2)
        program, new = self.folder / "muster", self.folder / "new"
        shutil.copy(MUSTER, program)
        first = self.start_first(muster=program)
        shutil.copy(MUSTER, new)
        new.rename(program)
        said = self.finish(first, [self.elastic(0, self.nodes[0].address, script=WAIT, muster=program)], SECOND_RUN)
        self.assertIn("is served by another agent", said[0])

    def test_a_spare_is_none(self):
        self.make(3)
        first = self.start_first()
        said = self.finish(first, [self.elastic(2, self.nodes[0].address, script=WAIT)], 0)
        self.assertIn("the job has ended well without this node, a spare: nothing was run here", said[0])

    def test_one_place(self):
        """One node of 1:1 trains; a second one waits for its place, and does not train the job once more."""
        self.make(2)
        first = self.elastic(0, "node0", "1:1", WAIT)
        self.train([first], "the first node trains")
        second = self.elastic(1, "node0", "1:1", WAIT)
        second.wait_said("the world has its 1 node")
        (self.folder / "go").touch()
        self.ends([first, second])
        self.assertEqual((first.printed(), second.printed()), ("rank 0 of 1\n", ""))

    def test_one_node_alone_needs_no_network(self):
        self.make(1)
        agents = [self.elastic(0, "node0", "1"), self.elastic(0, "localhost", "1")]
        self.ends(agents)


class Mistakes(Meeting):
    def test_the_name_leads_back_here(self):
        """/etc/hosts of a node that has the server's name next to localhost."""
        self.make(2)
        with open(self.nodes[1].pod.hosts, "a") as hosts:
            hosts.write("127.0.1.1 master\n")
        agent = self.nodes[1].start(MUSTER, "run", "--nnodes=2", "--node-rank=1", "--master-addr=master", "--join-timeout=2", "--", "true")
        self.assertEqual(agent.wait(60), 138)
        self.assertIn("the name master leads to 127.0.1.1 here, which is this machine itself", agent.said())


if __name__ == "__main__":
    cluster.main()
