"""One run of goodput.py: a job on all nodes until the last step, with faults, and an operator that starts ended agents again."""

import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import faults
import rounds

AGENT_BACK, NODE_BACK = 1.0, 5.0  # seconds until an agent, and a lost node, is started again
LEAVE = 20.0  # seconds that a finished job has to end by itself


class Log:
    """The file of steps that rank 0 appends to: JSON lines with kind, time (s since 1970), step and loss."""

    def __init__(self, path):
        self.path, self.at, self.rest = path, 0, b""
        self.steps, self.highest, self.loss = [], 0, None  # steps: (number, ms) as they were made

    def read(self):
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            file.seek(self.at)
            data = file.read()
        self.at += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # a line that a killed writer has begun
            if entry.get("kind") == "step":
                self.steps.append((entry["step"], int(entry["time"] * 1000)))
                self.highest, self.loss = max(self.highest, entry["step"]), entry["loss"]


@dataclasses.dataclass
class Result:
    seconds: float  # from the first start to the last step
    steps: int  # the highest
    again: int
    goodput: float
    loss: float
    faults: list  # (step, kind, node, ms)
    pauses: list  # ms without a step, a fault
    said: str = ""


class Run:
    def __init__(self, bench, mode, steps, folder):
        self.bench, self.mode, self.steps, self.folder = bench, mode, steps, pathlib.Path(folder)
        self.nodes, self.agents, self.due = bench.cluster.nodes, {}, {}
        self.idle = set() if mode.spare_waits else {len(self.nodes) - 1}  # nodes without an agent, for the next lost one's
        self.log = Log(self.folder / "log.jsonl")
        self.back = {}  # when a lost node is there again
        bench.port += 10
        self.port = bench.port

    def start(self, number):
        command, environment = self.mode.command(self, number)
        self.agents[number] = self.nodes[number].start(*command, **environment)

    def serving(self, workers):
        """The node whose loss takes the rendezvous with it."""
        return self.mode.serving(self, workers)

    def lose(self, node):
        node.kill_pod(silently=True)
        self.agents.pop(node.number, None)
        now, number = time.monotonic(), node.number
        self.back[number] = now + NODE_BACK
        if self.idle and number != 0:  # the endpoint's name stays with its node
            self.due[self.idle.pop()] = now + AGENT_BACK
            self.idle.add(number)
        else:
            self.due[number] = now + NODE_BACK

    def operate(self):
        """As a job's operator: lost nodes and ended agents are started again."""
        now = time.monotonic()
        for number, when in list(self.back.items()):
            if now >= when:
                del self.back[number]
                self.nodes[number].restart()
                self.bench.name_nodes()
        for number, agent in self.agents.items():
            if agent.poll() is not None and number not in self.due:
                self.due[number] = now + AGENT_BACK
        for number, when in list(self.due.items()):
            if now >= when and number not in self.back:
                del self.due[number]
                self.start(number)

    def go(self, plan, limit):
        """A Result; the steps that were reached where `limit` seconds are not enough."""
        plan, done, draw = list(plan), [], random.Random(len(plan))
        begun, deadline = time.time(), time.monotonic() + limit
        self.mode.prepare(self)
        for number in sorted(set(range(len(self.nodes))) - self.idle):
            self.start(number)
        while self.log.highest < self.steps and time.monotonic() < deadline:
            time.sleep(0.02)
            self.log.read()
            if self.log.highest < self.steps:
                self.operate()
            if plan and self.log.steps and self.log.highest >= plan[0][0]:
                at = int(time.time() * 1000)
                if node := faults.harm(self, plan[0][1], draw):
                    done.append((*plan.pop(0), node, at))
        said = "" if self.log.highest >= self.steps else "\n".join(
            f"{self.nodes[number].name}: {agent.said()[-300:]}" for number, agent in sorted(self.agents.items())
        )  # fmt: skip
        result = self.result(begun, done, said)
        self.close()
        return result

    def result(self, begun, done, said):
        steps, at = self.log.steps, [fault[3] for fault in done]
        started, ended = int(begun * 1000), steps[-1][1] if steps else int(time.time() * 1000)
        lines = "".join(" ".join(map(str, row)) + "\n" for row in rounds.of(steps, at))
        answer = subprocess.run(
            [str(self.bench.build / "benchmarks" / "goodput_of"), str(started), str(ended)],
            input=lines, capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        return Result(
            (ended - started) / 1000, self.log.highest, int(answer[3]), float(answer[1]), self.log.loss, done, rounds.pauses(steps, at), said
        )  # fmt: skip

    def close(self):
        deadline = time.monotonic() + LEAVE
        while time.monotonic() < deadline and any(agent.poll() is None for agent in self.agents.values()):
            time.sleep(0.05)
        self.mode.end(self)
        for node in self.nodes:
            if node.pod.holder.poll() is not None:  # it was lost a moment ago
                node.restart()
            while pids := node.pids():
                for pid in pids:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                time.sleep(0.01)
            node.heal()
        self.bench.name_nodes()
