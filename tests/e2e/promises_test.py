"""Promises in seconds are kept, on a machine that is as slow as it is now (harness.Machine): one test a promise.

    MUSTER_BUILD=build python3 tests/e2e/promises_test.py [TestClass.test_name ...]"""

import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

from harness import cluster
from harness import BUILD, LIMIT, MUSTER, AgentTest, Machine, alive, environment, free_port, wait_until

WORKER = BUILD / "benchmarks" / "recovery_worker"  # records when it starts and when it is sent SIGTERM
SANITIZED = os.environ.get("MUSTER_SANITIZED")

LOST_TOLD = 2.5  # the survivors' workers are sent SIGTERM so long after a node is cut off
SURVIVORS_RUN = 4.0  # and new ones run
FORMING_ENDS = 1.0  # an agent that waits for its world ends on SIGTERM
ORPHANS_GONE = 1.0  # after their agent was killed
SERVER_FOUND = 1.0  # by nodes that have waited for it; a job of up to 62 asks each 0.25 s
LAUNCH_OF_8 = 0.050  # 8 workers that end at once, from the command to its end
BARE_LOOP_OF_8 = 0.005  # a loop of posix_spawn's time for the same where the machine keeps LAUNCH_OF_8


class PromiseTest(AgentTest):
    def holds(self, machine, took, promised, what):
        text = f"{what}: {took * 1000:.1f} ms of {promised * 1000:.0f} ms; {machine}"
        print(text, file=sys.stderr, flush=True)
        self.assertLessEqual(took, machine.bound(promised), text)


@unittest.skipIf(cluster.why_not(), cluster.why_not())
class Lost(PromiseTest):
    """A node of three is cut off, silently and for good."""

    NODES, PORT = 3, 29600

    def reports(self):
        """[(start or stop, host, world size, ns)] of the workers."""
        lines = (self.folder / "reports").read_text().splitlines()
        return [(what, host, int(size), int(ns)) for what, host, _, size, ns in map(str.split, lines)]

    def reported(self, what, hosts, size, since):
        """{host: ns} of the first such report of each since then, once all have reported."""

        def read():
            found = {}
            for word, host, world, ns in self.reports():
                if (word, world) == (what, size) and host in hosts and ns > since:
                    found.setdefault(host, ns)
            return len(found) == len(hosts) and found

        return wait_until(read, f"{what} on {hosts}")

    def test_survivors_are_told_and_run(self):
        (self.folder / "reports").touch()
        with cluster.Cluster(self.NODES, pathlib.Path(tempfile.mkdtemp(dir=self.folder))) as nodes:
            endpoint = f"{nodes.nodes[0].address}:{self.PORT}"
            for node in nodes.nodes:
                node.start(MUSTER, "run", f"--nnodes={self.NODES - 1}:{self.NODES}", "--rdzv-backend=c10d",
                           f"--rdzv-endpoint={endpoint}", f"--local-addr={node.address}", "--max-restarts=3", "--termination-log=",
                           "--", str(WORKER), str(self.folder / "reports"))  # fmt: skip
            everybody = {node.name for node in nodes.nodes}
            self.reported("start", everybody, self.NODES, 0)
            survivors = everybody - {nodes.nodes[-1].name}
            with Machine() as machine:
                nodes.nodes[-1].cut()
                begin = time.monotonic_ns()
                told = self.reported("stop", survivors, self.NODES, begin)
                again = self.reported("start", survivors, self.NODES - 1, begin)
        self.holds(machine, (max(told.values()) - begin) / 1e9, LOST_TOLD, "a lost node is told of")
        self.holds(machine, (max(again.values()) - begin) / 1e9, SURVIVORS_RUN, "the survivors run again")


class Ends(PromiseTest):
    def test_term_while_the_world_forms(self):
        for rank, words in ((0, "missing rank 1"), (1, "no answer yet from the server")):
            with self.subTest(rank=rank):
                agent = self.start("--nnodes=2", f"--node-rank={rank}", f"--master-port={free_port()}", "true")
                self.waits(agent, words)
                with Machine() as machine:
                    begin = time.monotonic()
                    agent.send_signal(signal.SIGTERM)
                    agent.wait()
                    took = time.monotonic() - begin
                self.assertEqual(agent.returncode, 143)
                self.holds(machine, took, FORMING_ENDS, f"an agent of rank {rank} that waits for its world ends")

    def test_orphans(self):
        path = self.script("family.sh", 'setsid sh -c \'echo $$ >"$E2E_FOLDER/hidden.$RANK"; exec sleep 1000\' &\n'
                           'trap "" TERM\necho $$ >"$E2E_FOLDER/self.$RANK"\nwhile :; do sleep 1000; done\n')  # fmt: skip
        agent = self.start("--standalone", "--nproc-per-node=4", "--", "sh", path)
        family = self.pids("self", 4) + self.pids("hidden", 4)
        with Machine() as machine:
            begin = time.monotonic()
            agent.kill()
            wait_until(lambda: not any(map(alive, family)), "the orphans are gone")
            took = time.monotonic() - begin
        self.holds(machine, took, ORPHANS_GONE, "workers and their descendants whose agent was killed are gone")


class Found(PromiseTest):
    def test_a_server_that_comes_late(self):
        """As a pod that is scheduled after the others, or restarted after a while."""
        late, port = 6, free_port()

        def node(rank):
            return self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", "true")

        waiting = node(1)
        self.waits(waiting, "nothing listens there")
        time.sleep(late)
        with Machine() as machine:
            begin = time.monotonic()
            serving = node(0)
            self.finish(waiting, 0)
            took = time.monotonic() - begin
        self.finish(serving, 0)
        self.holds(machine, took, SERVER_FOUND, f"a server that comes {late} s late is found, and a job that does nothing is over")


class Starts(PromiseTest):
    @unittest.skipIf(SANITIZED, "no promise is made for a program with a sanitizer")
    def test_launch_of_eight(self):
        # A launch is a chain of short turns of many processes, and next to one busy process each may wait for a slice of the scheduler: a
        # canary, which is one process, does not see it. So the machine's factor is that of the same work without a launcher.
        launch = [MUSTER, "run", "--standalone", "--nproc-per-node=8", "--", "true"]
        loop = [BUILD / "benchmarks" / "spawn_loop", "8", "true"]
        seconds = {"launch": [], "loop": []}
        for _ in range(11):
            for name, command in (("launch", launch), ("loop", loop)):
                begin = time.monotonic()
                done = subprocess.run(command, env=environment(E2E_FOLDER=str(self.folder)), capture_output=True, text=True, timeout=LIMIT)
                seconds[name].append(time.monotonic() - begin)
                self.assertEqual(done.returncode, 0, done.stderr)
        took, bare = (statistics.median(seconds[name]) for name in ("launch", "loop"))
        factor = max(1.0, bare / BARE_LOOP_OF_8)
        text = f"8 workers start and end: {took * 1000:.1f} ms of {LAUNCH_OF_8 * 1000:.0f} ms; a bare loop is {factor:.2f} times slower than idle"
        print(text, file=sys.stderr, flush=True)
        self.assertLessEqual(took, LAUNCH_OF_8 * factor, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
