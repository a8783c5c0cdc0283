"""What `muster-train --plan --predict` expects of a step against the steps that muster-train then takes.

    python3 benchmarks/predict.py --build BUILD_DIR [--steps N] [--cases NAME,...]

Each case is predicted and then run; a step's time is that between two progress lines, the median of all but the first ones. The error is
the predicted time over the measured one; the bar is 10%. The share of the limit is what the progress line shows: the plan's products and
bytes at the rates that a rank measured at its start."""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
WARM_UP, BAR = 2, 0.10
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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--cases", default="", help="the first letters of those to run")
    return parser.parse_args()


def command(options, folder, settings):
    words = [str(pathlib.Path(options.build).resolve() / "bin" / "muster-train"), str(folder / "empty.yaml")]
    common = {"data.path": folder / "text", "training.steps": options.steps + WARM_UP, "logging.interval": 1, "logging.sample_length": 0}
    for name, value in {**common, **settings}.items():
        words += ["--set", f"{name}={value}"]
    return words


def predict(options, folder, ranks, settings):
    words = [*command(options, folder, settings), "--plan", "--predict", "--output=json", "--world-size", str(ranks)]
    run = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)["prediction"]


def measure(options, folder, ranks, settings):
    """Seconds of a step, and the last progress line's share of the limit."""
    launcher = [str(pathlib.Path(options.build).resolve() / "bin" / "muster"), "run", "--standalone", f"--nproc_per_node={ranks}"]
    words = (launcher if ranks > 1 else []) + command(options, folder, settings)
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


def main():
    options = arguments()
    wanted = [word for word in options.cases.split(",") if word]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "empty.yaml").write_text("training:\n  seed: 1\n")
        (folder / "text").write_text("All of it is measured, none of it is guessed. " * 2000)
        worst = 0
        print(f"{'':24}{'predicted':>12}{'measured':>12}{'(best)':>10}{'error':>9}{'of limit':>10}{'measuring':>11}")
        for case, (ranks, settings) in CASES.items():
            if wanted and not any(case.startswith(word) for word in wanted):
                continue
            predicted = predict(options, folder, ranks, settings)
            taken, best, share = measure(options, folder, ranks, settings)
            error = predicted["step_s"] / taken - 1
            worst = max(worst, abs(error))
            print(f"{case:24}{predicted['step_s'] * 1e3:9.1f} ms{taken * 1e3:9.1f} ms{best * 1e3:7.1f} ms{100 * error:+8.1f}%{share:9}%"
                  f"{predicted['measured_s']:9.1f} s", flush=True)
    print(f"largest error {100 * worst:.1f}%; bar {100 * BAR:.0f}%: {'reached' if worst <= BAR else 'missed'}")


if __name__ == "__main__":
    main()
