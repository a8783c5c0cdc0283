"""The node that serves a job is killed, cut off or frozen, and another node takes over: real agents in network namespaces.

    MUSTER_BUILD=build python3 tests/e2e/worlds/takeover_test.py [TestClass.test_name ...]

Workers are small shell programs that write when they start and end, for which round, and wait for a file named finish."""

import json
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import Machine, cluster, namespaces
from harness.cluster import BUILD, wait_until
from harness.shell_job import ShellJob

MUSTER = BUILD / "bin" / "muster"
WORKER = """#!/bin/sh
trap 'echo "end $NODE $MUSTER_ROUND $(date +%s.%N)" >> "$OUT/log"; exit 0' TERM
echo "begin $NODE $MUSTER_ROUND $(date +%s.%N) $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR:$MASTER_PORT" >> "$OUT/log"
while [ ! -e "$OUT/finish" ]; do sleep 0.05; done
"""


class Takeover(ShellJob):
    count, script, arguments = 3, WORKER, []

    def setUp(self):
        super().setUp()
        self.agents = {}

    def place(self, k):
        """The arguments that say which node this is."""
        return [f"--nnodes={self.count}", f"--node-rank={k}", "--master-addr=node0", "--master-port=23456"]

    def host(self, k):
        """The agent's host name; None: the node's."""

    def start(self, *nodes):
        for k in nodes:
            self.agents[k] = self.cluster.nodes[k].start(
                MUSTER, "run", *self.place(k), "--max-restarts=5", "--join-timeout=40", *self.arguments, "--", self.worker,
                OUT=str(self.out), NODE=str(k), MUSTER_HOSTNAME=self.host(k),
            )  # fmt: skip

    def lines(self, kind="begin"):
        path = self.out / "log"
        return [line.split() for line in path.read_text().splitlines() if line.startswith(kind)] if path.exists() else []

    def world(self, round_):
        """The beginnings of a round's workers, by node."""
        return {int(line[1]): line for line in self.lines() if int(line[2]) == round_}

    def newest(self):
        return max((int(line[2]) for line in self.lines()), default=-1)

    def hears(self, k, text, limit=25):
        try:
            self.agents[k].wait_said(text, limit)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    def said(self):
        return "\n".join(f"--- node{k}\n{agent.said()}" for k, agent in self.agents.items())

    def runs_on(self, nodes, after=-1, limit=25):
        """Waits for a round after this one that runs on exactly these nodes; its number."""
        wanted = set(nodes)

        def found():
            for round_ in range(self.newest(), after, -1):
                if set(self.world(round_)) == wanted:
                    return round_ + 1
            return 0

        try:
            return wait_until(found, f"a round after {after} on {sorted(wanted)}", limit) - 1
        except AssertionError:
            raise AssertionError(f"no round after {after} on {sorted(wanted)}: {self.lines('')}\n{self.said()}") from None

    def began(self, round_):
        """When the last worker of a round began."""
        return max(float(line[3]) for line in self.world(round_).values())

    def restarts(self, round_):
        return {int(line[6]) for line in self.world(round_).values()}

    def never_two_worlds(self, *left_out):
        """No two rounds of one node are at the same time, and no two rounds were whole at the same time."""
        begins = {(line[1], line[2]): float(line[3]) for line in self.lines()}
        ends = {(line[1], line[2]): float(line[3]) for line in self.lines("end")}
        rounds = sorted({int(line[2]) for line in self.lines()})
        for first, second in zip(rounds, rounds[1:]):
            stops = [ends[key] for key in begins if int(key[1]) == first and key in ends and int(key[0]) not in left_out]
            starts = [begins[key] for key in begins if int(key[1]) == second]
            if stops:
                self.assertLess(min(stops), min(starts), f"rounds {first} and {second}: {self.lines('')}")

    def finish(self, *nodes):
        (self.out / "finish").touch()
        for k in nodes:
            self.assertEqual(self.agents[k].wait(60), 0, self.said())

    def status(self, k):
        command = self.cluster.nodes[k].pod.command(MUSTER, "status", "--output=json")
        done = subprocess.run(command, capture_output=True, text=True, timeout=cluster.LIMIT)
        return json.loads(done.stdout)


class Static(Takeover):
    def ranks_stay(self, round_):
        self.assertEqual({k: int(line[4]) for k, line in self.world(round_).items()}, {k: k for k in range(self.count)})

    def test_it_is_killed_and_its_pod_comes_back(self):
        nodes = range(self.count)
        self.start(*nodes)
        self.runs_on(nodes)
        self.cluster.nodes[0].restart()
        killed = time.time()
        self.start(0)
        round_ = self.runs_on(nodes, after=0)
        took = self.began(round_) - killed
        print(f"again after {took:.2f} s ", end="", file=sys.stderr)
        self.assertEqual(self.restarts(round_), {1})
        self.ranks_stay(round_)
        self.assertNotIn("node0:", self.world(round_)[0][7])  # the store is on the node that serves now
        self.never_two_worlds(0)
        self.finish(*nodes)

    def test_it_is_cut_off(self):
        nodes = range(self.count)
        self.start(*nodes)
        self.runs_on(nodes)
        self.cluster.nodes[0].cut()
        self.hears(0, "no majority")
        self.assertRegex(self.status(0)["waiting"], rf"^no majority answers: 1 of {min(self.count, 5)} voters answer: node0; waiting for ")
        self.hears(1, "no server: ")
        self.cluster.nodes[0].heal()
        round_ = self.runs_on(nodes, after=0)
        self.ranks_stay(round_)
        self.never_two_worlds()
        self.finish(*nodes)


class ElasticJob(Takeover):
    arguments = ["--last-call-timeout=8"]
    nnodes = "2:3"

    def place(self, k):
        return [f"--nnodes={self.nnodes}", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:23456", "--rdzv-id=job"]

    def lost(self, harm):
        """The serving node is harmed: the others' next round, and the time until all of them run."""
        nodes = range(self.count)
        self.start(*nodes)
        self.runs_on(nodes)
        with Machine() as self.machine:
            begin = time.time()
            harm()
            round_ = self.runs_on(nodes[1:], after=0)
        took = self.began(round_) - begin
        print(f"again after {took:.2f} s ", end="", file=sys.stderr)
        self.assertEqual(self.restarts(round_), {1})
        return round_, took


class Elastic(ElasticJob):
    def test_it_is_killed(self):
        self.arguments = [*self.arguments, f"--state-dir={self.folder}/state"]
        _, took = self.lost(self.cluster.nodes[0].kill_pod)
        status = self.status(1)
        self.assertNotEqual(status["server"]["name"], "node0")
        self.assertIn(status["server"]["name"], status["voters"])
        self.never_two_worlds(0)
        self.finish(*range(1, self.count))
        self.cluster.nodes[0].restart()
        self.start(0)  # the job has ended on another server than it began on
        self.assertEqual(self.agents[0].wait(20), 0, self.said())
        self.assertIn("job job is over, its exit code was 0 (--state-dir)", self.agents[0].said())
        self.assertLess(took, self.machine.bound(2.0), self.machine)

    def test_it_is_cut_off(self):
        round_, took = self.lost(self.cluster.nodes[0].cut)
        self.hears(0, "no majority")
        self.cluster.nodes[0].heal()
        nodes = range(self.count)
        whole = self.runs_on(nodes, after=round_)  # it joins the others
        self.assertEqual(self.restarts(whole), {1})
        self.never_two_worlds(0)
        self.finish(*nodes)
        self.assertLess(took, self.machine.bound(4.0), self.machine)

    def test_it_stands_still_and_comes_back(self):
        round_, _ = self.lost(lambda: self.cluster.nodes[0].freeze(self.agents[0]))
        time.sleep(1)
        self.cluster.nodes[0].thaw()
        nodes = range(self.count)
        self.hears(0, f"stopping the workers: {self.status(1)['server']['name']} serves the job now\n")
        self.runs_on(nodes, after=round_)
        self.never_two_worlds(0)
        self.finish(*nodes)

    def test_it_leaves_in_order(self):
        nodes = range(self.count)
        self.start(*nodes)
        self.runs_on(nodes)
        self.agents[0].signal(signal.SIGTERM)
        round_ = self.runs_on(nodes[1:], after=0)
        self.assertEqual(self.agents[0].wait(30), 143)
        self.assertEqual(self.restarts(round_), {0})
        self.assertNotIn("lost", "".join(self.agents[k].said() for k in nodes[1:]))
        self.never_two_worlds()
        self.finish(*nodes[1:])


class EndpointIsGone(ElasticJob):
    """The endpoint's node is lost for good, and a new node looks for the job."""

    count, nnodes = 4, "2:4"
    endpoint = "node0:23456,node1:23456,node2:23456"

    def place(self, k):
        return [f"--nnodes={self.nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={self.endpoint}", "--rdzv-id=job"]

    def loses_it(self):
        self.arguments = ["--last-call-timeout=1", "--regroup-interval=0.5"]
        self.start(0, 1, 2)
        self.runs_on([0, 1, 2])
        self.cluster.nodes[0].kill_pod()
        return self.runs_on([1, 2], after=0)

    def test_a_new_node_asks_the_list(self):
        round_ = self.loses_it()
        begin = time.time()
        self.start(3)
        self.runs_on([1, 2, 3], after=round_)
        self.assertIn("asking the other entries of --rdzv-endpoint, node1:23456 first", self.agents[3].said())
        self.assertNotIn("no server is known yet", self.agents[1].said() + self.agents[2].said())
        print(f"joined after {time.time() - begin:.2f} s ", end="", file=sys.stderr)
        self.never_two_worlds(0)
        self.finish(1, 2, 3)

    def test_a_port_of_the_list_is_in_use(self):
        holds = "import socket; s = socket.create_server(('', 23456)); print('holds', file=__import__('sys').stderr, flush=True); s.accept()"
        self.cluster.nodes[1].start("python3", "-c", holds, log="holder").wait_said("holds")
        round_ = self.loses_it()
        self.assertRegex(self.agents[1].said(), r"will not find the job at node1:23456, if it moves: .* port 23456 is in use by pid \d+")
        self.assertNotIn("will not find", self.agents[2].said())
        self.start(3)  # node2 leads it there
        self.runs_on([1, 2, 3], after=round_)
        self.finish(1, 2, 3)

    def test_a_new_node_has_another_list(self):
        round_ = self.loses_it()
        self.endpoint = "node0:23456,node2:23456"
        self.start(3)
        self.runs_on([1, 2, 3], after=round_)
        said = "".join(self.agents[k].said() for k in (1, 2))
        self.assertIn('agent "node3" has another list of endpoints than this node', said)
        self.finish(1, 2, 3)

    def test_the_name_of_the_endpoint_is_gone(self):
        round_ = self.loses_it()
        self.endpoint = "gone:23456,node1:23456,node2:23456"
        self.start(3)
        self.runs_on([1, 2, 3], after=round_)
        self.assertIn("the name gone does not resolve: looking for the job at", self.agents[3].said())
        self.finish(1, 2, 3)

    def test_without_a_list_it_waits(self):
        self.endpoint = "node0:23456"
        round_ = self.loses_it()
        self.arguments = [*self.arguments, "--join-timeout=4"]
        self.start(3)
        self.assertEqual(self.agents[3].wait(40), 138, self.said())
        self.assertEqual(self.newest(), round_)
        self.finish(1, 2)


class Siblings(ElasticJob):
    """The endpoint's pod is lost for good, and there is no list: pods derive the names of the others."""

    count, nnodes = 4, "2:4"
    arguments = ["--last-call-timeout=1", "--regroup-interval=0.5"]

    def host(self, k):
        return f"job-worker-{k}"

    def place(self, k):
        return [f"--nnodes={self.nnodes}", "--rdzv-backend=c10d", "--rdzv-endpoint=job-worker-0:23456", "--rdzv-id=job"]

    def name_pods(self, domain=""):
        for k in range(self.count):
            self.cluster.publish(self.host(k) + domain, *self.cluster.nodes[k].addresses)

    def test_a_new_pod_asks_the_others(self):
        self.name_pods()
        self.start(0, 1, 2)
        self.runs_on([0, 1, 2])
        self.cluster.nodes[0].kill_pod()
        round_ = self.runs_on([1, 2], after=0)
        begin = time.time()
        self.start(3)
        self.runs_on([1, 2, 3], after=round_)
        print(f"joined after {time.time() - begin:.2f} s ", end="", file=sys.stderr)
        self.assertIn("asking the job's other pods, job-worker-1 first", self.agents[3].said())
        self.never_two_worlds(0)
        self.finish(1, 2, 3)


class StaticSiblings(Siblings):
    """Pods of a headless service: two are lost, and that of node 0 comes back last."""

    count = 5
    arguments = []

    def host(self, k):
        return f"set-{k}"

    def place(self, k):
        return [f"--nnodes={self.count}", f"--node-rank={k}", "--master-addr=set-0.svc", "--master-port=23456"]

    def test_a_new_pod_asks_the_others(self):
        self.name_pods(".svc")
        self.start(*range(5))
        self.runs_on(range(5))
        for k in (0, 2):
            self.cluster.nodes[k].kill_pod()
        self.hears(1, "no server: ")
        self.cluster.nodes[2].restart()
        self.start(2)
        self.hears(2, "serves the job now")
        self.cluster.nodes[0].restart()
        self.start(0)
        round_ = self.runs_on(range(5), after=0)
        self.assertEqual(self.restarts(round_), {1})
        self.finish(*range(5))


class NoVoterAtTheEntry(ElasticJob):
    count, nnodes = 9, "2:9"
    arguments = ["--last-call-timeout=1", "--regroup-interval=0.5"]
    entries = range(8)

    def place(self, k):
        endpoint = ",".join(f"node{entry}:23456" for entry in self.entries)
        return [f"--nnodes={self.nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=job"]

    def test_it_leads_to_the_job_all_the_same(self):
        self.start(*range(8))
        self.runs_on(range(8))
        voters = {*self.status(1)["voters"]}
        self.cluster.nodes[0].kill_pod()
        round_ = self.runs_on(range(1, 8), after=0)
        voters |= {*self.status(1)["voters"]}
        never = [k for k in range(1, 8) if f"node{k}" not in voters]
        self.assertTrue(never, voters)
        self.entries = [0, never[0]]
        self.start(8)
        self.runs_on(range(1, 9), after=round_)
        self.finish(*range(1, 9))


class StaticEndpointIsGone(Takeover):
    """Another node takes rank 0's place: it opens the endpoint's port for itself, and finds the job elsewhere."""

    count = 4

    def place(self, k):
        return ["--nnodes=3", f"--node-rank={k % 3}", "--rdzv-endpoint=node0:23456,node1:23456,node2:23456"]

    def test_another_node_has_its_rank(self):
        self.start(0, 1, 2)
        self.runs_on([0, 1, 2])
        self.cluster.nodes[0].kill_pod()
        self.start(3)
        round_ = self.runs_on([1, 2, 3], after=0)
        self.assertEqual({k: int(line[4]) for k, line in self.world(round_).items()}, {1: 1, 2: 2, 3: 0})
        self.never_two_worlds(0)
        self.finish(1, 2, 3)


class TwoAndASpare(ElasticJob):
    nnodes = "2"

    def three_vote(self):
        self.start(0, 1)
        self.runs_on([0, 1])
        self.start(2)
        wait_until(lambda: all(len(self.status(n).get("voters", ())) == 3 for n in range(3)), "the spare votes, as all know")

    def loses(self, k):
        self.three_vote()
        self.cluster.nodes[k].kill_pod()
        round_ = self.runs_on({0, 1, 2} - {k}, after=0)
        self.assertEqual(self.restarts(round_), {1})
        self.finish(*({0, 1, 2} - {k}))

    def test_the_serving_node(self):
        self.loses(0)

    def test_the_other_node(self):
        self.loses(1)


class TwoAndASpareOneLeaves(TwoAndASpare):
    """A node gets SIGTERM, and the spare that takes its place is lost before the next round is decided."""

    nnodes = "1:2"

    def leaves(self, k, code):
        self.three_vote()
        self.cluster.nodes[2].cut()  # no agent knows yet that it is lost
        self.agents[k].signal(signal.SIGTERM)
        self.hears(k, "this node has left, and votes until the others have decided")
        self.cluster.nodes[2].kill_pod()
        self.runs_on([1 - k], after=0)
        self.assertEqual(self.agents[k].wait(), code, self.said())
        self.finish(1 - k)

    def test_the_other_node(self):
        self.leaves(1, 143)

    def test_the_serving_node(self):
        self.leaves(0, 143)


class NoMajority(ElasticJob):
    nnodes = "1:3"

    def test_two_of_three_voters_are_lost(self):
        self.arguments = [*self.arguments, "--join-timeout=8", "--log-dir=logs"]
        self.start(0, 1, 2)
        self.runs_on([0, 1, 2])
        for k in (0, 1):
            self.cluster.nodes[k].kill_pod()
        self.hears(2, "1 of 3 voters answer: node2; waiting for one more")
        self.assertEqual(self.agents[2].wait(40), 138)
        self.assertIn("is lost: no other agent could be elected within 8 s (--join-timeout)", self.agents[2].said())
        self.assertIn("verdict: node rank 0 (node0) is lost, no other agent could be elected", self.agents[2].said())
        (report,) = (json.loads(path.read_text()) for path in self.cluster.nodes[2].folder.glob("logs/*/failure.json"))
        self.assertEqual((report["server"], report["voters"]), (None, ["node0", "node1", "node2"]))
        self.assertEqual([change["server"] for change in report["server_changes"]], [None])
        self.assertEqual(self.newest(), 0)  # it trained nothing alone

    def test_the_job_begins_again(self):
        self.arguments = [*self.arguments, "--join-timeout=8"]
        begins_again(self, (0, 1))

    def test_agents_that_came_late_stay_for_the_next_beginning(self):
        """The old round reached them from its last voter, at the endpoint. Only that agent ends."""
        self.arguments = [*self.arguments, "--join-timeout=8"]
        self.start(0, 1, 2)
        self.runs_on([0, 1, 2])
        for k in (1, 2):
            self.cluster.nodes[k].restart()
        killed = time.time()
        self.hears(0, "1 of 3 voters answer: node0; waiting for one more")
        time.sleep(3)
        self.start(1, 2)
        self.assertEqual(self.agents[0].wait(40), 138)
        self.start(0)
        wait_until(lambda: {line[1] for line in self.lines() if float(line[3]) > killed and line[5] == "3"} == {"0", "1", "2"},
                   "all run again", 15)  # fmt: skip
        self.assertEqual([self.agents[k].poll() for k in (1, 2)], [None, None], self.said())
        self.finish(0, 1, 2)


class NoMajorityStatic(Takeover):
    """All ranks are there, so no other world can run: no agent waits for --join-timeout, and none ends."""

    def test_the_serving_node_is_among_the_lost(self):
        begins_again(self, (0, 2), ends=False)

    def test_the_serving_node_is_left(self):
        begins_again(self, (1, 2), ends=False)
        self.hears(0, "this node serves the job now: most voters are lost, and the job begins again at its endpoint")
        self.hears(0, "the first cause: node rank 1 (node1) is lost, and so are most voters of round 0")

    def test_the_endpoint_is_left_and_another_node_served(self):
        nodes = range(self.count)
        self.start(*nodes)
        self.runs_on(nodes)
        self.cluster.nodes[0].restart()
        self.start(0)
        self.runs_on(nodes, after=0)
        self.assertEqual(self.status(0)["server"]["name"], "node1")
        begins_again(self, (1, 2), ends=False, started=True)


class DoneNodesAreLost(Takeover):
    """Nodes whose workers are done are lost while the others go on, the serving node first. Other nodes vote for them."""

    count = 5
    script = WORKER.replace('[ ! -e "$OUT/finish" ]', '[ ! -e "$OUT/finish" ] && [ ! -e "$OUT/done.$NODE" ]')

    def voters(self):
        return set(self.status(4)["voters"])

    def lose(self, k, voters):
        (self.out / f"done.{k}").touch()
        time.sleep(1)
        self.cluster.nodes[k].kill_pod()
        wait_until(lambda: self.voters() == voters, lambda: f"voters {voters}, not {self.voters()}: {self.said()}", 20)

    def test_the_voters_are_replaced(self):
        nodes = range(self.count)
        self.start(*nodes)
        self.runs_on(nodes)
        wait_until(lambda: len(self.voters()) == 5, "five voters")
        self.lose(0, {"node1", "node2", "node4"})
        self.lose(2, {"node1", "node3", "node4"})
        self.assertEqual(self.status(4)["server"]["name"], "node1")
        self.assertEqual(self.newest(), 0)  # nothing was stopped
        self.finish(1, 3, 4)

    def test_each_server_is_lost_when_it_is_done(self):
        """The second server knows the first one only from the others: the third server knows it from them, too."""
        nodes = range(self.count)
        self.start(*nodes)
        self.runs_on(nodes)
        wait_until(lambda: len(self.voters()) == 5, "five voters")
        self.lose(0, {"node1", "node2", "node4"})
        self.lose(1, {"node2", "node3", "node4"})
        self.assertEqual(self.status(4)["server"]["name"], "node2")
        self.assertEqual(self.newest(), 0)  # nothing was stopped
        ended = time.time()
        self.finish(2, 3, 4)
        self.assertLess(time.time() - ended, 10, self.said())  # not --join-timeout


def begins_again(job, lost, ends=True, started=False):
    """Two of three voters are lost, and each agent that ends is started again, as an operator of pods does."""
    nodes = range(job.count)
    if not started:
        job.start(*nodes)
        job.runs_on(nodes)
    for k in lost:
        job.cluster.nodes[k].restart()
    killed = time.time()
    for k in lost:
        job.start(k)
        time.sleep(1.5)

    def runs_again():
        for k in nodes:
            if job.agents[k].poll() is not None:
                job.assertTrue(ends and job.agents[k].poll() == 138, job.said())
                job.start(k)
        return {line[1] for line in job.lines() if float(line[3]) > killed and line[5] == str(job.count)} == {str(k) for k in nodes}

    try:
        wait_until(runs_again, "all run again", 40)  # --join-timeout once, and the next world
    except AssertionError:
        raise AssertionError(f"not again: {job.lines('')}\n{job.said()}") from None
    job.finish(*nodes)


class OnePortOpen(ElasticJob):
    """A network policy that lets the endpoint's port through, and no other."""

    nnodes = "1:3"
    RULES = """table inet one_port { chain input { type filter hook input priority 0; policy accept;
        iifname "eth0" tcp flags & (syn|ack) == syn tcp dport != 23456 drop
    }
    }
    """

    def test_what_does_not_answer_is_named(self):
        self.arguments = [*self.arguments, "--join-timeout=8"]
        for node in self.cluster.nodes:
            namespaces.run(*node.pod.command("nft", "-f", "-"), given=self.RULES)
        self.start(0, 1, 2)
        self.runs_on([0, 1, 2])
        self.hears(1, "the workers' store at node0 port ")
        self.assertRegex(self.agents[1].said(), r"port \d+ does not answer this node: .* must leave all ports open")
        self.assertNotIn("does not answer this node", self.agents[0].said())
        self.cluster.nodes[0].kill_pod()
        self.hears(1, "1 of 3 voters answer: node1; waiting for one more; no answer from node0 (10.66.0.1 port 23456), node2 (10.66.0.3 port ")
        self.assertEqual(self.agents[1].wait(40), 138)


class ElasticOfFive(Elastic):
    count, nnodes = 5, "2:5"


class ElasticOfSixteen(Elastic):
    count, nnodes = 16, "2:16"


class ElasticOfSixtyFour(ElasticJob):
    """More time for all of them: 64 nodes share the machine's cores."""

    count, nnodes, limit = 64, "2:64", 240
    arguments = ["--last-call-timeout=60", "--join-timeout=200"]

    def test_it_is_killed(self):
        nodes = range(self.count)
        self.start(*nodes)
        self.runs_on(nodes, limit=self.limit)
        begin = time.time()
        self.cluster.nodes[0].kill_pod()
        round_ = self.runs_on(nodes[1:], after=0, limit=self.limit)
        print(f"again after {self.began(round_) - begin:.2f} s ", end="", file=sys.stderr)
        self.assertEqual(self.restarts(round_), {1})
        self.never_two_worlds(0)
        self.finish(*nodes[1:])


class Repeated(ElasticJob):
    """The node that serves is killed, again and again, and comes back."""

    count, nnodes, kills = 5, "2:5", 20
    arguments = ["--last-call-timeout=8", "--regroup-interval=1", "--max-restarts=1000", "--restart-backoff=0"]

    def test_it_is_killed(self):
        nodes = range(self.count)
        self.start(*nodes)
        round_ = self.runs_on(nodes)
        for kill in range(1, self.kills + 1):
            names = {self.status(k)["server"]["name"] for k in nodes}
            self.assertEqual(len(names), 1)
            server = int(names.pop().removeprefix("node"))
            self.cluster.nodes[server].restart()
            round_ = self.runs_on([k for k in nodes if k != server], after=round_)
            self.assertEqual(self.restarts(round_), {kill})
            self.start(server)
            round_ = self.runs_on(nodes, after=round_, limit=60)
        self.finish(*nodes)


if __name__ == "__main__":
    cluster.need()
    unittest.main(verbosity=2)
