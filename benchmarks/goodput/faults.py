"""Faults of a run: which comes at which step, drawn from a seed and therefore the same for every row, and the harm itself."""

import os
import random
import signal

KINDS = ("worker", "agent", "node", "serving node")


def schedule(steps, every, seed):
    """[(step, kind)]: one fault in each window of `every` steps, never in its first or last eighth. Each kind comes equally often."""
    draw = random.Random(seed * 1000 + every)
    kinds, found = [], []
    for begin in range(0, steps - every + 1, every):
        if not kinds:
            kinds = list(KINDS)
            draw.shuffle(kinds)
        found.append((begin + draw.randint(every // 8, every - every // 8), kinds.pop()))
    return found


def harm(run, kind, draw):
    """Does it, and returns the node's name; None where there is nothing to harm at the moment."""
    workers = {node: node.workers() for node in run.nodes}
    busy = [node for node, pids in workers.items() if pids]
    serving = run.serving(workers)
    if not busy or serving is None:
        return None
    others = [node for node in busy if node is not serving] or busy
    node = serving if kind == "serving node" else draw.choice(busy if kind == "worker" else others)
    if kind == "worker":
        try:
            os.kill(draw.choice(sorted(workers[node].values())), signal.SIGKILL)
        except ProcessLookupError:
            return None
    elif kind == "agent":
        run.agents[node.number].signal(signal.SIGKILL)
    else:
        run.lose(node)  # its power goes: no connection is closed
    return node.name
