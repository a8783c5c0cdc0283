"""The node that serves a static job is killed, frozen or cut off, and comes back: real agents in network namespaces.

    MUSTER_BUILD=build python3 tests/e2e/server_lost_test.py [TestClass.test_name ...]

Workers are small shell programs that say which round they are of and wait for a file named finish, or finish.RANK."""

import json
import os
import subprocess
import sys
import time

from harness import cluster
from harness.cluster import BUILD, wait_until
from harness.shell_job import ShellJob

MUSTER = BUILD / "bin" / "muster"
PORT = 23456
WORKER = """#!/bin/sh
trap 'exit 0' TERM
text="$RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR"
echo "$text" > "$OUT/seen.$MUSTER_ROUND.$RANK.new" && mv "$OUT/seen.$MUSTER_ROUND.$RANK.new" "$OUT/seen.$MUSTER_ROUND.$RANK"
while [ ! -e "$OUT/finish" ] && [ ! -e "$OUT/finish.$RANK" ]; do sleep 0.05; done
"""


class ServerLost(ShellJob):
    script, restarts = WORKER, 1

    def setUp(self):
        begin = time.monotonic()
        super().setUp()
        self.addCleanup(lambda: print(f"{time.monotonic() - begin:.1f} s ", end="", file=sys.stderr))

    def agent(self, k, *more):
        return self.cluster.nodes[k].start(
            MUSTER, "run", f"--nnodes={self.count}", f"--node-rank={k}", "--master-addr=node0", f"--master-port={PORT}",
            f"--max-restarts={self.restarts}", "--join-timeout=60", *more, "--", self.worker,
            OUT=str(self.out), MUSTER_HOSTNAME=None,
        )  # fmt: skip

    def agents(self, *more):
        return [self.agent(k, *more) for k in range(self.count)]

    def seen(self, round_, restarts):
        """Waits for the workers of a round; all of them must have got the same."""
        names = [self.out / f"seen.{round_}.{rank}" for rank in range(self.count)]
        wait_until(lambda: all(name.exists() for name in names), lambda: f"round {round_} runs: {sorted(os.listdir(self.out))}")
        for rank, name in enumerate(names):
            self.assertEqual(name.read_text().split(), [str(rank), str(self.count), str(restarts), "node0"])

    def finish(self, agents, code=0):
        if not code:
            (self.out / "finish").touch()
        for agent in agents:
            self.assertEqual(agent.wait(), code, agent.said())

    def no_round(self, round_):
        self.assertFalse((self.out / f"seen.{round_}.0").exists() or (self.out / f"seen.{round_}.1").exists())


class Returns(ServerLost):
    def test_its_pod_is_killed_and_has_another_address(self):
        agents = self.agents()
        self.seen(0, 0)
        self.cluster.nodes[0].restart("10.66.9.9")
        agents[1].wait_said("stopping the workers: the server node0 (10.66.0.1:23456) has not answered")
        agents[0] = self.agent(0)
        self.seen(1, 1)
        self.finish(agents)
        self.assertIn("the server's name node0 resolves to 10.66.9.9 now", agents[1].said())

    def test_its_power_goes(self):
        agents = self.agents()
        self.seen(0, 0)
        self.cluster.nodes[0].kill_pod(silently=True)
        agents[1].wait_said("server lost: no message from node0 (10.66.0.1:23456)")
        agents[1].wait_said("stopping the workers: the server node0")  # no server has announced that it leaves
        self.cluster.nodes[0].restart()
        agents[0] = self.agent(0)
        self.seen(1, 1)
        self.finish(agents)

    def test_it_is_cut_off(self):
        agents = self.agents()
        self.seen(0, 0)
        self.cluster.nodes[0].cut()
        for agent in agents:
            agent.wait_said("stopping the workers")  # the server's node too's: it has lost the other one
        self.cluster.nodes[0].heal()
        self.seen(1, 1)
        self.finish(agents)

    def test_it_stands_still(self):
        agents = self.agents()
        self.seen(0, 0)
        self.cluster.nodes[0].freeze(agents[0])
        agents[1].wait_said("accepts connections but does not complete the handshake")
        time.sleep(5)  # how long it lasts
        self.cluster.nodes[0].thaw()
        agents[1].wait_said("is back")
        self.assertNotIn("stopping the workers", agents[0].said() + agents[1].said())
        self.finish(agents)
        self.no_round(1)


class Forming(ServerLost):
    count, restarts = 3, 0

    def test_it_is_killed_while_the_world_forms(self):
        agents = [self.agent(0), self.agent(1)]
        wait_until(lambda: self.waits_with(agents[0]), "both are in")
        self.cluster.nodes[0].restart("10.66.9.9")
        agents[0], last = self.agent(0), self.agent(2)
        self.seen(0, 0)
        self.finish([*agents, last])

    def waits_with(self, agent):
        return "2 of 3 nodes, missing rank 2" in agent.said()


class Done(ServerLost):
    count, restarts = 3, 0

    def is_done(self, node):
        done = subprocess.run(node.pod.command(MUSTER, "status", "--output=json"), capture_output=True, text=True, timeout=cluster.LIMIT)
        status = json.loads(done.stdout) if done.returncode == 0 and done.stdout.startswith("{") else {}
        return status.get("state") == "DONE" and not status["waiting"]

    def test_it_is_killed_at_the_exit_barrier(self):
        agents = self.agents()
        self.seen(0, 0)
        for rank in (0, 1):
            (self.out / f"finish.{rank}").touch()
        wait_until(lambda: all(map(self.is_done, self.cluster.nodes[:2])), "two agents are done, and the server knows it")
        time.sleep(4)  # the last one learns it with its next beat, and shows that nowhere; one without a beat for 2.5 s is lost
        self.cluster.nodes[0].restart("10.66.9.9")
        agents[2].wait_said("no server: ")
        agents[0] = self.agent(0)
        agents[0].wait_said("serves the job now")  # another one does
        time.sleep(1)  # it joins that one
        self.finish(agents)
        self.no_round(1)


class DoneElastic(Done):
    def agent(self, k, *more):
        return self.cluster.nodes[k].start(
            MUSTER, "run", f"--nnodes=2:{self.count}", "--rdzv-backend=c10d", f"--rdzv-endpoint=node0:{PORT}",
            f"--max-restarts={self.restarts}", f"--node-rank={k}", *more, "--", self.worker,
            OUT=str(self.out), MUSTER_HOSTNAME=None,
        )  # fmt: skip


class Stays(ServerLost):
    """Two nodes without a spare: neither may go on alone."""

    def test_it_never_comes_back(self):
        agents = self.agents("--join-timeout=12")
        self.seen(0, 0)
        self.cluster.nodes[0].kill_pod()
        self.finish(agents[1:], 138)
        self.assertIn("the node that serves the job's world is lost: node0 (10.66.0.1:23456) did not come back within 12 s", agents[1].said())
        self.assertNotIn("a spare node would do", agents[1].said())  # a static job has none
        self.assertIn("verdict: node rank 0 (node0) is lost, node0 (10.66.0.1:23456) did not come back within 12 s", agents[1].said())


class LastOfThree(ServerLost):
    count, restarts = 3, 0

    def test_no_restart_is_left(self):
        agents = [self.agent(k, f"--log-dir={self.folder}/logs{k}") for k in range(self.count)]
        self.seen(0, 0)
        self.cluster.nodes[0].kill_pod()
        self.finish(agents[1:], 138)
        for agent in agents[1:]:
            self.assertIn("verdict: node rank 0 (node0) is lost, it served the job in round 0", agent.said())
        for k in (1, 2):
            (report,) = (json.loads(path.read_text()) for path in self.folder.glob(f"logs{k}/*/failure.json"))
            cause = report["first_cause"]
            self.assertEqual([report["exit_code"], cause["class"], cause["node_rank"], cause["host"]], [138, "lost node", 0, "node0"])
            self.assertEqual([report["server"], report["voters"]], ["node1", ["node0", "node1", "node2"]])
            self.assertEqual([change["server"] for change in report["server_changes"]], [None, "node1"])
            self.assertEqual(report["server_changes"][0]["reason"], "the connection to the server is broken")


class Last(ServerLost):
    restarts = 0

    def test_no_restart_is_left(self):
        agents = self.agents()
        self.seen(0, 0)
        self.cluster.nodes[0].kill_pod()
        self.finish(agents[1:], 138)
        self.assertIn("the node that serves the job's world is lost: no message from node0 (10.66.0.1:23456) for", agents[1].said())
        self.assertIn("and no restart is left (0 of 0 used)", agents[1].said())


if __name__ == "__main__":
    cluster.main()
