#!/usr/bin/env python3
"""The main job as the README gives it: the demo GPT on two workers, of which the second is killed. demo_test.py STEPS LIMIT: so many steps, and
the mean loss of the last 50 has to be below LIMIT (900 steps and 2.5 are the demo's promise)."""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

BUILD, SOURCE = (pathlib.Path(os.environ[name]) for name in ("MUSTER_BUILD", "MUSTER_SOURCE"))
CORPUS = pathlib.Path("/usr/share/games/fortunes")


def check(condition, text, output):
    if not condition:
        sys.exit(f"{text}\n{output[-3000:]}")


def main():
    steps, limit = int(sys.argv[1]), float(sys.argv[2])
    if not CORPUS.is_dir():
        print(f"skipped: {CORPUS} is missing (package fortunes)")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="muster demo ") as folder:
        folder = pathlib.Path(folder)
        every = steps // 5
        settings = {"training.steps": steps, "training.checkpoint_every": every, "training.evaluate_every": every, "training.evaluate_samples": 128}
        run = subprocess.run([SOURCE / "examples/demo.sh", BUILD, folder, *(word for item in settings.items() for word in ("--set", "=".join(map(str, item))))],
                             capture_output=True)
        output = run.stdout.decode(errors="replace") + run.stderr.decode(errors="replace")
        check(run.returncode == 0, f"exit code {run.returncode}", output)
        plan = re.search(r"in (\d+) groups; FULL_SHARD over 2 ranks.* (\d+) gathers in flight", output)
        check(plan and int(plan[1]) >= 4 and int(plan[2]) >= 2, "fewer than 4 groups or 2 gathers in flight", output)
        lines = re.findall(r"^step (\d+)/\d+  loss .* tok/s  .*% of limit  .*comm .* exposed .*  mem .* planned.*  eta \S+$", output, re.M)
        check(sorted(set(map(int, lines))) == list(range(1, steps + 1)), "a step has no progress line", output)
        killed, resumed = re.search(r"^demo: kill -9 (\d+)", output, re.M), re.search(r"^resumed from step (\d+)", output, re.M)
        check(killed and f"(pid {killed[1]} on " in output and resumed and int(resumed[1]) % every == 0, "no worker was killed, or the run began anew", output)
        check(len(lines) < 2 * steps, f"{len(lines)} progress lines for {steps} steps", output)
        evaluated = re.findall(r"^evaluation after step (\d+): loss ([0-9.]+), perplexity", output, re.M)
        check({int(step) for step, _ in evaluated} == set(range(every, steps + 1, every)), f"evaluations {evaluated}", output)
        check(float(evaluated[-1][1]) < limit + 0.3, f"the averaged weights' loss {evaluated[-1][1]} of samples held out", output)
        mean = re.search(r"^mean loss of the last 50 steps: ([0-9.]+)$", output, re.M)
        check(mean and float(mean[1]) < limit, f"the mean loss is not below {limit}", output)
        sample = run.stdout.split(b"sample:\n", 1)[1]
        check(len(sample) == 301 and (folder / "sample.txt").read_bytes() == sample, f"{len(sample) - 1} characters sampled, not 300", output)
        check_model(folder / "model.safetensors", output)
        check_log(folder, steps, output)
        print(f"mean loss {mean[1]} after {steps} steps; {plan[1]} groups, {plan[2]} gathers in flight; killed and resumed from step {resumed[1]}")


def check_model(path, output):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    check(header["wte.weight"]["shape"] == [256, 128] and len(header) == 52, f"tensors: {sorted(header)}", output)
    check(max(t["data_offsets"][1] for t in header.values()) + 8 + length == len(data), "the file's length is wrong", output)


def check_log(folder, steps, output):
    """Files that the demo leaves: the log of both processes, their event files, and checkpoints, the last one among them."""
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    kinds = [entry["kind"] for entry in entries]
    check(kinds[-1] == "end" and entries[-1]["finished"] and "evaluation" in kinds, f"the log ends with {entries[-1]}", output)
    check({entry["step"] for entry in entries if entry["kind"] == "step"} == set(range(1, steps + 1)), "steps are missing in the log", output)
    events = list((folder / "tensorboard").glob("events.out.tfevents.*"))
    check(len(events) == 2, f"event files: {events}", output)
    traces = sorted(path.name for path in (folder / "trace").iterdir())
    check(traces == ["rank-0.perfetto-trace", "rank-1.perfetto-trace"], f"traces: {traces}", output)  # read in compat_trace
    saved = sorted(int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*"))
    check(saved and saved[-1] == steps, f"checkpoints: {saved}", output)


if __name__ == "__main__":
    main()
