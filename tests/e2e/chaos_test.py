"""A job whose nodes are harmed at random, again and again, and then left in peace.

    MUSTER_BUILD=build python3 tests/e2e/chaos_test.py [--mode static|elastic] [--nodes N] [--seconds S] [--seed N] [--keep FOLDER]

Workers and agents are killed, pods replaced under another address, nodes frozen, cut off (one way or both), slowed, delayed and
made to lose frames, the server's node too; an agent that ended is started again, as Kubernetes would. At no time may two worlds
train at once; nothing may end the job; in peace all nodes must train together again and the job must end with 0 everywhere. The
seed is printed, and gives the same harm in the same order (not the same instants: the machine has a say in that)."""

import argparse
import pathlib
import random
import shutil
import sys
import tempfile
import time

from harness import cluster
from harness.job import Job

CALM = (0.1, 3.0)  # seconds between two deeds
FLAGS = ("--max-restarts=100000", "--restart-backoff=0.1")
# An elastic job that has lost most voters in one election begins again after --join-timeout, a static one at once.
JOIN_TIMEOUT = {"static": 300, "elastic": 60}


class Chaos:
    def __init__(self, job, seed):
        self.job, self.random = job, random.Random(seed)
        self.harmed = {}  # node: what undoes it
        self.deeds = []
        self.addresses = 0

    # harm: each returns what undoes it, None where it is over at once

    def kill_worker(self, node):
        for rank in node.workers():
            node.kill_worker(rank)

    def kill_agent(self, node):
        self.job.agents[node].signal(9)
        self.job.agents[node].wait()

    def replace_pod(self, node):
        node.kill_pod(silently=self.random.random() < 0.5)
        self.addresses += 1
        node.restart(f"10.66.8.{self.addresses % 250 + 1}")

    def lose_power(self, node):
        node.kill_pod(silently=True)
        return node.restart

    def freeze(self, node):
        node.freeze()
        return node.thaw

    def freeze_agent(self, node):
        if self.job.agents[node].runs():
            node.freeze(self.job.agents[node])
        return node.thaw

    def cut(self, node):
        node.cut(self.random.choice(("both", "from", "to")))
        return node.heal

    def lose(self, node):
        node.lose(self.random.choice((2, 10, 40)))
        return node.heal

    def delay(self, node):
        node.delay(self.random.choice((20, 200, 700)))
        return node.heal

    def slow(self, node):
        node.slow(self.random.choice(("200kbit", "1mbit")))
        return node.heal

    KINDS = ("kill_worker", "kill_agent", "replace_pod", "lose_power", "freeze", "freeze_agent", "cut", "lose", "delay", "slow")

    def deed(self):
        node = self.random.choice(self.job.members)
        kind = self.random.choice(self.KINDS)
        if node in self.harmed:
            self.note("undo", node)
            self.harmed.pop(node)()
        else:
            self.note(kind, node)
            undo = getattr(self, kind)(node)
            if undo:
                self.harmed[node] = undo

    def note(self, what, node):
        self.deeds.append(f"{time.monotonic_ns()} {what} {node.name}")

    def start_what_ended(self):
        for node in self.job.members:
            agent = self.job.agents.get(node)
            powered = node.pod.holder.poll() is None
            if powered and (agent is None or not agent.runs()):
                if agent:
                    assert agent.poll() != 0, f"the job ended by itself\n{self.job.tails()}"
                self.note(f"start (the last one left with {agent.poll() if agent else None})", node)
                self.job.start(node)

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            wake = time.monotonic() + self.random.uniform(*CALM)
            self.deed()
            while time.monotonic() < wake:
                self.start_what_ended()
                time.sleep(0.05)
            self.check()
        for node, undo in self.harmed.items():
            self.note("undo", node)
            undo()

    def check(self):
        breaches = self.job.observer.breaches()
        assert not breaches, "\n".join(breaches)

    def peace(self):
        """All train together, and the job ends."""
        since = time.monotonic_ns()

        def whole():
            self.start_what_ended()
            worlds = self.job.observer.worlds()
            return any(w.size == self.job.count and w.steps >= 3 and w.last >= since for w in worlds)

        self.job.until(whole, "all train together again")
        self.job.finish()
        last = [self.job.agents[node] for node in self.job.members]
        codes = [agent.wait(self.job.limit) for agent in last]
        assert codes == [0] * len(codes), f"exit codes {codes}\n{self.job.tails()}"
        self.check()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--mode", choices=("static", "elastic"), default="elastic")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep")
    options = parser.parse_args()
    cluster.need()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="muster-chaos-"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"seed {seed}, {options.mode}, {options.nodes} nodes, {options.seconds:g} s", flush=True)
    try:
        with cluster.Cluster(options.nodes, folder) as nodes:
            job = Job(nodes, options.mode, options.nodes, (*FLAGS, f"--join-timeout={JOIN_TIMEOUT[options.mode]}"), lowest=max(1, options.nodes // 2), limit=180)
            chaos = Chaos(job, seed)
            try:
                chaos.start_what_ended()
                chaos.run(options.seconds)
                chaos.peace()
            except Exception:
                print("\n".join([*chaos.deeds[-60:], *map(str, job.observer.worlds())]))
                raise
        worlds = [world for world in job.observer.worlds() if world.steps]
        print(f"{len(chaos.deeds)} deeds, {len(worlds)} worlds trained, {sum(world.steps for world in worlds)} steps, "
              f"{worlds[-1].restarts} restarts")  # fmt: skip
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
