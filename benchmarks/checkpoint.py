#!/usr/bin/env python3
"""A checkpoint of GPT-2 124M (masters and two moments, 1.5 GB of random bits) written and read, on one rank.

In the same rounds: one copy of the state in memory, the same bytes written and read plainly past the page cache as dd does with
oflag=direct and iflag=direct (the limits), and torch.distributed.checkpoint: save, async_save and load. Prints medians and ratios. A stall is the
time in which training waits. For muster it is the time of its calls and of the optimizer's wait, during steps of 1,024 tokens on two threads. For
async_save it is the time until it returns. The concurrent step takes longer, because threads share processors and memory; that is printed too.

--demo N: in place of that N pairs of the demo on two ranks, with averages, with a checkpoint after every step and with none, in turns."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

from support import results, torch_peer

RUN = results.Run("checkpoint")

SUPPORT = pathlib.Path(__file__).resolve().parent / "support"
DEMO = pathlib.Path(__file__).resolve().parent.parent / "k8s" / "configs" / "gpt-demo.yaml"
WARM_UP = 20  # steps of the demo that do not count


def figures(command):
    words = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout.split()
    return {name: float(value) for name, value in zip(words[::2], words[1::2], strict=True)}


def medians(rounds):
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]} if rounds else {}


def demo_step(options, every):
    """Milliseconds from one step's end to the next, in the mean."""
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="demo-") as folder:
        subprocess.run([options.build / "bin" / "muster", "run", "--standalone", "--nproc_per_node=2", options.build / "bin" / "muster-train", DEMO,
                        "--set", f"logging.dir={folder}", "--set", f"training.output={folder}/model.safetensors", "--set", f"training.steps={options.steps}",
                        "--set", f"training.checkpoint_dir={folder}/checkpoints", "--set", f"training.checkpoint_every={every}",
                        "--set", "training.ema_decay=0.99"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (pathlib.Path(folder) / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    times = [line["time"] for line in lines if line["kind"] == "step" and line["step"] >= WARM_UP]
    return (times[-1] - times[0]) * 1e3 / (len(times) - 1)


def demo(options):
    pairs = []
    for turn in range(options.demo):
        pair = {}
        for every in (1, 10 * options.steps) if turn % 2 else (10 * options.steps, 1):
            pair[every == 1] = demo_step(options, every)
            os.sync()
        pairs.append((pair[False], pair[True]))
        print(f"{pair[False]:7.2f} ms a step without, {pair[True]:7.2f} with a checkpoint of each: {pair[True] / pair[False]:.3f}", flush=True)
    ratios = [after / before for before, after in pairs]
    step = "the step without"
    RUN.add(
        "demo step with a checkpoint after each", "ms", [after for _, after in pairs], limit=(step, [before for before, _ in pairs]),
        ratios={step: statistics.median(ratios)},
    )  # fmt: skip
    RUN.write(options)
    without, after = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{without:.2f} and {after:.2f} ms, ratios of {options.demo} pairs: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, help="chooses the disk; the build folder unless given")
    parser.add_argument("--demo", type=int, metavar="N", help="pairs of the demo with and without checkpoints")
    parser.add_argument("--steps", type=int, default=150, help="of a run of the demo")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    options = parser.parse_args()
    options.folder = options.folder or options.build  # git ignores it, with the remains of a killed run
    if options.demo:
        demo(options)
        return
    version = torch_peer.version(options.torch_python)
    ours, theirs = [], []
    for turn in range(options.rounds):
        ours.append(figures([options.build / "benchmarks" / "checkpoint_once", options.folder, *(["plain-first"] if turn % 2 else [])]))
        os.sync()  # removed blocks are given back now, not in the next round's time
        if version:
            theirs.append(figures([options.torch_python, SUPPORT / "checkpoint_torch.py", options.folder]))
            os.sync()
    m, t = medians(ours), medians(theirs)
    rate = m["bytes"] / 1e6
    print(f"{m['bytes'] / 1e9:.2f} GB, medians of {options.rounds} rounds")
    print(f"save, synced     {m['save']:7.3f} s {rate / m['save']:7.0f} MB/s; dd oflag=direct {rate / m['direct']:7.0f} MB/s: {m['direct'] / m['save']:.2f} of it")
    print(f"stall            {m['stall'] * 1e3:7.1f} ms; one copy of the state {m['copy'] * 1e3:.0f} ms: {m['stall'] / m['copy']:.3f} copies")
    print(f"the step beside  {m['stepped']:7.3f} s, another one {m['step']:.3f} s: {m['stepped'] / m['step']:.3f} times")
    print(f"load, from disk  {m['load']:7.3f} s {rate / m['load']:7.0f} MB/s; dd iflag=direct {rate / m['read']:7.0f} MB/s: {m['read'] / m['load']:.2f} of it")
    peer = "torch.distributed.checkpoint"
    for figure, unit, own, peers, limit in (
        ("checkpoint of GPT-2 124M saved", "s", m["save"], {peer: t.get("save")}, ("dd oflag=direct", m["direct"])),
        ("training waits for a checkpoint", "s", m["stall"], {f"{peer} async_save": t.get("async")}, ("one copy of the state", m["copy"])),
        ("checkpoint of GPT-2 124M loaded", "s", m["load"], {peer: t.get("load")}, ("dd iflag=direct", m["read"])),
    ):
        RUN.add(figure, unit, own, peers if version else {}, limit)
    RUN.write(options)
    if not version:
        print(f"{options.torch_python} has no torch: no peer")
        return
    print(f"torch {version}   save {t['save']:.3f} s: {t['save'] / m['save']:.2f} times ours; async_save stalls for {t['async']:.3f} s: "
          f"{t['async'] / m['copy']:.1f} copies; load {t['load']:.3f} s: {t['load'] / m['load']:.2f} times ours")


if __name__ == "__main__":
    main()
