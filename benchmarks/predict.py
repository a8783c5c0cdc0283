"""The prediction of `muster-train --plan --predict` for a step against the steps that muster-train then takes.

    python3 benchmarks/predict.py --build BUILD_DIR [--rounds N] [--steps N] [--cases NAME,...] [--busy ROUNDS]

Each case is predicted and then run for --steps, and for as many more as last SECONDS; a step's time is that between two progress lines, the
median of all but the first ones. The error is the predicted time over the measured one, in the median of --rounds, since a shared machine's
rate moves by a tenth from one half minute to the next, and in brackets the least and the largest; the bar is 10%. The share of the limit is taken from the
progress line: the plan's products and bytes at the rates that a rank measured at its start.

--order measures something else: whether four meshes of two ranks are as fast in the order in which they are predicted, each predicted and
run in turns. --busy, too: the same steps on all processors alone and with a process that only counts, in turns; bar 2.5 times. That
process takes half of a processor from them, so that of C processors C / (C - 1/2) of the time alone is the least."""

import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from support import results

RUN = results.Run("predict")

SOURCE = pathlib.Path(__file__).resolve().parent.parent
WARM_UP, BAR, BAR_BUSY = 2, 0.10, 2.5
SECONDS = 4  # short steps are measured in the middle of a run, too
CORES = len(os.sched_getaffinity(0))
DEMO = {"model.layers": 4, "model.channels": 128, "model.heads": 4, "training.sequence_length": 128, "training.micro_batch": 4,
        "training.global_batch": 8}
GPT2 = {"model.layers": 12, "model.channels": 768, "model.heads": 12, "model.vocabulary": 50257, "training.sequence_length": 256,
        "training.micro_batch": 1, "training.global_batch": 1}
LLAMA = {"model.architecture": "llama", "model.layers": 6, "model.channels": 384, "model.heads": 6, "model.vocabulary": 8192,
         "training.sequence_length": 256, "training.micro_batch": 2, "training.global_batch": 2}
TWO = {"training.global_batch": 2}
CASES = {  # name: ranks, settings
    "demo": (1, DEMO),
    "demo, 2 ranks": (2, DEMO),
    "124M, 256 tokens": (1, GPT2),
    "124M, 1,024 tokens": (1, {**GPT2, "training.micro_batch": 4, "training.global_batch": 4}),
    "124M, 2 ranks": (2, {**GPT2, **TWO}),
    "124M, 2 ranks, bf16": (2, {**GPT2, **TWO, "training.dtype": "bf16"}),
    "124M, recompute all": (1, {**GPT2, "training.recompute": "all"}),
    "Llama small": (1, LLAMA),
    "Llama small, 2 ranks": (2, {**LLAMA, "training.micro_batch": 1}),
}

MESHES = {  # settings of two ranks, over the same samples
    "two replicas": {"training.strategy": "NO_SHARD"},
    "two stages, four micro-batches": {"training.strategy": "NO_SHARD", "mesh.pipeline": 2, "training.micro_batch": 4},
    "two stages, gpipe, all recomputed": {"training.strategy": "NO_SHARD", "mesh.pipeline": 2, "mesh.schedule": "gpipe", "training.recompute": "all"},
    "two stages, two micro-batches, all recomputed": {"training.strategy": "NO_SHARD", "mesh.pipeline": 2, "training.micro_batch": 8, "training.recompute": "all"},
}
ORDER = {**DEMO, "model.vocabulary": 4096, "training.micro_batch": 1, "training.global_batch": 16, "training.threads": 1}
BUSY = {  # name: ranks, settings
    "demo, a rank of all cores": (1, {**DEMO, "training.threads": CORES}),
    "demo, a rank a core": (CORES, {**DEMO, "training.micro_batch": 1, "training.threads": 1}),
    "demo, twice as many threads": (2, {**DEMO, "training.threads": CORES}),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--cases", default="", help="the first letters of those to run")
    parser.add_argument("--order", type=int, default=0, help="rounds of four meshes")
    parser.add_argument("--busy", type=int, default=0, help="rounds of steps alone and beside a busy process")
    results.add_argument(parser)
    return parser.parse_args()


def command(options, folder, settings, steps):
    words = [str(pathlib.Path(options.build).resolve() / "bin" / "muster-train"), str(folder / "empty.yaml")]
    common = {"data.path": folder / "text", "training.steps": steps + WARM_UP, "logging.interval": 1, "logging.sample_length": 0}
    for name, value in {**common, **settings}.items():
        words += ["--set", f"{name}={value}"]
    return words


def predict(options, folder, ranks, settings):
    words = [*command(options, folder, settings, options.steps), "--plan", "--predict", "--output=json", "--world-size", str(ranks)]
    run = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)["prediction"]


def measure(options, folder, ranks, settings, steps):
    """Seconds of a step, and the last progress line's share of the limit."""
    launcher = [str(pathlib.Path(options.build).resolve() / "bin" / "muster"), "run", "--standalone", f"--nproc_per_node={ranks}"]
    words = (launcher if ranks > 1 else []) + command(options, folder, settings, steps)
    run = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ)
    times, share = [], None
    for line in run.stdout:
        if line.startswith("step "):
            times.append(time.monotonic())
            found = re.search(r"(\d+)% of limit", line)
            share = int(found.group(1)) if found else None
    if run.wait() or len(times) < WARM_UP + 2:
        sys.exit(f"predict.py: status {run.returncode} from {' '.join(words)}")
    steps = [after - before for before, after in zip(times, times[1:])][WARM_UP:]
    return statistics.median(steps), min(steps), share


def compare(options, folder, case, ranks, settings):
    """Prints a case's row; the median of its errors."""
    rounds = []
    for _ in range(options.rounds):
        predicted = predict(options, folder, ranks, settings)
        steps = max(options.steps, math.ceil(SECONDS / predicted["step_s"]))
        taken, best, share = measure(options, folder, ranks, settings, steps)
        rounds.append((predicted["step_s"], taken, best, predicted["step_s"] / taken - 1, share, predicted["measured_s"]))
    expected, taken, best, error, share, seconds = (statistics.median(values) for values in zip(*rounds))
    errors = [100 * values[3] for values in rounds]
    RUN.add(f"predicted step against the steps taken: {case}", "% too long", errors)
    between = f"{min(errors):+.1f} to {max(errors):+.1f}"
    print(f"{case:24}{expected * 1e3:9.1f} ms{taken * 1e3:9.1f} ms{best * 1e3:7.1f} ms{100 * error:+8.1f}%  ({between:14}){share:7.0f}%"
          f"{seconds:9.1f} s", flush=True)
    return error


def beside_a_busy_process(work):
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        return work()
    finally:
        other.kill()
        other.wait()


def in_order(options, folder):
    """Prints the meshes by their predicted steps, and whether the measured steps have the same order."""
    rounds = {name: [] for name in MESHES}
    for _ in range(options.order):
        for name, mesh in MESHES.items():
            settings = {**ORDER, **mesh}
            rounds[name].append((predict(options, folder, 2, settings)["step_s"] * 1e3, measure(options, folder, 2, settings, options.steps)[0] * 1e3))
    expected, taken = ({name: statistics.median(pair[i] for pair in pairs) for name, pairs in rounds.items()} for i in range(2))
    for name in sorted(MESHES, key=expected.get):
        print(f"{name:46}{expected[name]:9.1f} ms predicted{taken[name]:9.1f} ms measured", flush=True)
        RUN.add(f"order of meshes: {name}", "ms", [pair[1] for pair in rounds[name]], note=f"predicted {expected[name]:.1f} ms")
    same = sorted(MESHES, key=expected.get) == sorted(MESHES, key=taken.get)
    print(f"the measured order is {'that of the prediction' if same else 'another one: ' + ', '.join(sorted(MESHES, key=taken.get))}")


def busy(options, folder, wanted):
    """Prints the time of steps alone and with a busy process, and the largest ratio."""
    worst = 0
    print(f"{CORES} processors; the limit is {CORES / (CORES - 0.5):.2f}")
    for case, (ranks, settings) in BUSY.items():
        if wanted and not any(case.startswith(word) for word in wanted):
            continue
        alone, beside = [], []
        for _ in range(options.busy):
            alone.append(measure(options, folder, ranks, settings, options.steps)[0] * 1e3)
            beside.append(beside_a_busy_process(lambda: measure(options, folder, ranks, settings, options.steps)[0]) * 1e3)
        ratio = statistics.median(beside) / statistics.median(alone)
        worst = max(worst, ratio)
        RUN.add(f"demo step, a busy process beside it: {case}", "ms", beside, limit=("the step alone", alone))
        print(f"{case:30}{statistics.median(alone):8.1f} ms alone{statistics.median(beside):9.1f} ms beside a busy process: {ratio:.2f} times "
              f"({min(beside) / max(alone):.2f} to {max(beside) / min(alone):.2f})", flush=True)
    print(f"largest ratio {worst:.2f}; bar {BAR_BUSY}: {'reached' if worst <= BAR_BUSY else 'missed'}")


def main():
    options = arguments()
    wanted = [word for word in options.cases.split(",") if word]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "empty.yaml").write_text("training:\n  seed: 1\n")
        (folder / "text").write_text("All of it is measured, none of it is guessed. " * 2000)
        if options.order:
            in_order(options, folder)
            return RUN.write(options)
        if options.busy:
            busy(options, folder, wanted)
            return RUN.write(options)
        worst = 0
        print(f"{'':24}{'predicted':>12}{'measured':>12}{'(best)':>10}{'error':>9}{'least, largest':>18}{'of limit':>10}{'measuring':>11}")
        for case, (ranks, settings) in CASES.items():
            if wanted and not any(case.startswith(word) for word in wanted):
                continue
            worst = max(worst, abs(compare(options, folder, case, ranks, settings)))
    RUN.write(options)
    print(f"largest error {100 * worst:.1f}%; bar {100 * BAR:.0f}%: {'reached' if worst <= BAR else 'missed'}")


if __name__ == "__main__":
    main()
