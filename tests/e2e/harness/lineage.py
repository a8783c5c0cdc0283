"""The samples that a run of muster-train trained on, from its own files: the log of samples (logging.samples) and the log of steps (logging.json).

A step may be in them more than once: a run that was killed takes the steps after its last checkpoint again. The last run that took a step
is the run whose work is in the final weights."""

import json
import struct


def json_lines(path):
    """The whole lines of a file that is still being written."""
    try:
        text = path.read_text()
    except OSError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1]]


def sample_lines(folder):
    return [line for path in sorted(folder.glob("rank-*.jsonl")) for line in json_lines(path)]


def latest(folder):
    """(run, ranks, steps that its rank 0 has begun) of the newest run."""
    lines = json_lines(folder / "rank-0.jsonl")
    newest = lines[-1]["run"] if lines else 0
    mine = [line for line in lines if line["run"] == newest]
    return newest, mine[-1]["ranks"] if mine else 0, len(mine)


def check_samples(test, folder, steps, batch, stages=1):
    """No gap and no double: each step of the lineage has its own batch, each sample once. The runs in their order. Of the stages of a
    pipeline, which take the same samples, the first one logs them."""
    by_step = {}
    for line in sample_lines(folder):
        by_step.setdefault(line["step"], {}).setdefault(line["run"], []).append(line)
    test.assertEqual(sorted(by_step), list(range(1, steps + 1)))
    before = 0
    for step, runs in sorted(by_step.items()):
        lines = runs[max(runs)]
        test.assertGreaterEqual(max(runs), before, step)  # no run goes on from a later run's work
        before = max(runs)
        test.assertEqual(sorted(line["rank"] for line in lines), list(range(lines[0]["ranks"] // stages)), step)
        found = sorted(sample for line in lines for sample in line["samples"])
        test.assertEqual(found, list(range((step - 1) * batch, step * batch)), step)
    return by_step


def losses(path):
    """For each step, by the last run that took it."""
    found = {}
    for line in json_lines(path):
        if line["kind"] == "start":
            found = {step: loss for step, loss in found.items() if step <= line["step"]}
        elif line["kind"] == "step":
            found[line["step"]] = line["loss"]
    return [found[step] for step in sorted(found)]


def deviation(some, others):
    assert len(some) == len(others), (len(some), len(others))
    return max(abs(a - b) / abs(b) for a, b in zip(some, others))


def tensors(path):
    """The bytes of a safetensors file after its header, which names the world."""
    data = path.read_bytes()
    return data[8 + struct.unpack("<Q", data[:8])[0]:]
