"""One job over the nodes of a cluster: its agents, its phases, its workers' actions. Used by fault_matrix_test.py, and by whatever
else wants a job that can be harmed.

Workers are step_worker unless `program` names another; the observer (steps.py) watches them. Node 0 serves; `victim` is the last
node of the world. A static job gives ranks and node 0's name, an elastic one meets there and takes `lowest` to `count` nodes,
and has a secret by default."""

import json
import os
import re
import signal
import subprocess
import time

from harness import cluster
from harness.steps import Observer

MUSTER = str(cluster.BUILD / "bin" / "muster")
WORKER = str(cluster.BUILD / "tests" / "step_worker")
PORT = 23456
STEPS = 3  # that a world must take to be seen at work
FLAGS = ("--max-restarts=3", "--join-timeout=200", "--last-call-timeout=5", "--regroup-interval=1", "--shutdown-timeout=5",
         "--exit-barrier-timeout=60", "--termination-log=")  # fmt: skip


class Job:
    def __init__(self, nodes, mode, count, flags=(), lowest=None, program=(WORKER,), step_ms=20, limit=100,
                 secret=True):
        self.cluster, self.mode, self.count, self.limit = nodes, mode, count, limit
        self.lowest = lowest if lowest is not None else max(1, count - 1)
        if mode == "elastic" and secret:
            flags = (*flags, f"--secret-file={self.make_secret()}")
        self.flags, self.program, self.step_ms = (*FLAGS, *flags), program, step_ms
        self.records = nodes.folder / "records"
        self.records.mkdir(exist_ok=True)
        self.observer = Observer(self.records)
        self.agents = {}  # node: the agent that was started there last
        self.all_agents = []

    def make_secret(self):
        path = self.cluster.folder / "secret"
        path.write_bytes(subprocess.run([MUSTER, "secret"], check=True, capture_output=True).stdout)
        path.chmod(0o600)
        return path

    # the nodes and their roles

    @property
    def elastic(self):
        return self.mode == "elastic"

    @property
    def server(self):
        return self.cluster.nodes[0]

    @property
    def victim(self):
        return self.cluster.nodes[self.count - 1]

    @property
    def members(self):
        return self.cluster.nodes[: self.count]

    # its agents

    def place(self, node, rank=None):
        """The flags that say where a node belongs."""
        rank = node.number if rank is None else rank
        if self.elastic:
            return [f"--nnodes={self.lowest}:{self.count}", "--rdzv-backend=c10d", f"--rdzv-endpoint=node0:{PORT}"]
        return [f"--nnodes={self.count}", f"--node-rank={rank}", "--master-addr=node0", f"--master-port={PORT}"]

    def environment(self):
        drop = r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|LOGLEVEL|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$"
        dropped = {name: None for name in os.environ if re.match(drop, name)}
        return {**dropped, "OMP_NUM_THREADS": "1", "STEP_FOLDER": str(self.records), "STEP_MS": str(self.step_ms)}

    def start(self, node, *flags, rank=None, launcher=(MUSTER, "run"), log="agent"):
        logs = f"--log-dir={node.folder / 'logs'}"
        agent = node.start(*launcher, *self.place(node, rank), *self.flags, logs, *flags, *self.program, log=log, **self.environment())
        self.agents[node] = agent
        self.all_agents.append(agent)
        return agent

    def start_all(self, nodes=None):
        for node in nodes or self.members:
            self.start(node)

    def status(self, node):
        """Its agent's status; {} where none answers."""
        done = subprocess.run(
            node.pod.command(MUSTER, "status", "--output=json"), capture_output=True, text=True, timeout=cluster.LIMIT, check=False
        )
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout.startswith("{") else {}

    def said(self):
        return "\n".join(agent.said() for agent in self.all_agents)

    # its phases, each waited for

    def until(self, condition, what):
        def failed():
            return "\n".join([f"{what}: not within {self.limit} s", *map(str, self.observer.worlds()), self.tails()])

        try:
            return cluster.wait_until(condition, what, self.limit)
        except AssertionError:
            raise AssertionError(failed()) from None

    def tails(self):
        """The last lines of each agent."""
        found = []
        for agent in self.all_agents:
            words = "\n    ".join(agent.said().splitlines()[-12:])
            found.append(f"  {agent.log.name} (exit code {agent.poll()}):\n    {words}")
        return "\n".join(found)

    def trains(self, size, since=0):
        """The first world of so many nodes that has trained since."""

        def found():
            for world in self.observer.worlds():
                if world.steps >= STEPS and world.size == size and world.first >= since:
                    return world
            return None

        return self.until(found, f"a world of {size} trains")

    def moves(self, size, since):
        """A world of so many nodes that has taken steps since, new or not."""

        def found():
            for world in self.observer.worlds():
                if world.steps >= STEPS and world.size == size and world.last >= since:
                    return world
            return None

        return self.until(found, f"a world of {size} goes on")

    def waits(self, nodes, text=""):
        """Their agents are up and wait for the world, and say so with the text."""

        def wait(node):
            status = self.status(node)
            return status.get("state") == "WAITING" and text in (status.get("waiting") or "")

        self.until(lambda: all(map(wait, nodes)), f"the agents wait for the world {text}")

    def stopped(self, nodes):
        self.until(lambda: not any(node.workers() for node in nodes), f"no workers on {[node.name for node in nodes]}")

    def to_exit_barrier(self):
        """Every node but the victim is done, and its agent waits for the end."""
        rank = self.trains(self.count).size - 1
        (self.records / f"linger.{rank}").touch()
        (self.records / "finish").touch()
        self.lingerer = self.until(lambda: next((n for n in self.members if self.lingers(n, rank)), None), "one rank lingers")
        others = [node for node in self.members if node != self.lingerer]

        def done(node):
            status = self.status(node)
            return status.get("state") == "DONE" and not status["waiting"]  # and the server knows it

        self.until(lambda: all(map(done, others)), "the others are done")

    def lingers(self, node, rank):
        ended = [r for r in self.observer.records.values() if r.end and r.about["host"] == node.name and int(r.about["rank"]) == rank]
        return bool(self.observer.worlds() and ended)

    def let_go(self):
        for path in self.records.glob("linger.*"):
            path.unlink()

    def finish(self):
        (self.records / "finish").touch()
        self.let_go()

    # its end

    def end(self):
        """{agent's log name: exit code}, when all have ended."""
        deadline = time.monotonic() + self.limit
        for agent in self.all_agents:
            try:
                agent.wait(max(0.1, deadline - time.monotonic()))
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.tails()}") from None
        return {agent.log.name: agent.poll() for agent in self.all_agents}

    def terminate(self, node):
        self.agents[node].signal(signal.SIGTERM)

    def failure(self, node):
        """The failure.json of its agent, None where there is none."""
        found = sorted(node.folder.glob("logs/*/failure.json"))
        return json.loads(found[-1].read_text()) if found else None
