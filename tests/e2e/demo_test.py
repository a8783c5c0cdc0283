#!/usr/bin/env python3
"""The main job as the README gives it: the demo GPT on two workers. demo_test.py STEPS LIMIT: so many steps, and the mean loss of
the last 50 has to be below LIMIT (900 steps and 2.5 are what the demo promises)."""
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
        model = pathlib.Path(folder) / "model.safetensors"
        run = subprocess.run([BUILD / "bin/muster", "run", "--standalone", "--nproc_per_node=2", BUILD / "bin/muster-train",
                              SOURCE / "k8s/configs/gpt-demo.yaml", "--set", f"training.steps={steps}", "--set",
                              f"training.output={model}"], capture_output=True, cwd=folder)
        output = run.stdout.decode(errors="replace") + run.stderr.decode(errors="replace")
        check(run.returncode == 0, f"exit code {run.returncode}", output)
        plan = re.search(r"in (\d+) groups; FULL_SHARD over 2 ranks.* (\d+) gathers in flight", output)
        check(plan and int(plan[1]) >= 4 and int(plan[2]) >= 2, "fewer than 4 groups or 2 gathers in flight", output)
        lines = re.findall(r"^step \d+/\d+  loss .* tok/s  [\d.]+ ms  (?:\d+% MFU  )?\d+% of limit  data [\d.]+ ms  comm .* exposed .*  mem .* planned.*  eta \S+$", output, re.M)
        check(len(lines) == steps, f"{len(lines)} progress lines for {steps} steps", output)
        mean = re.search(r"^mean loss of the last 50 steps: ([0-9.]+)$", output, re.M)
        check(mean and float(mean[1]) < limit, f"the mean loss is not below {limit}", output)
        sample = run.stdout.split(b"sample:\n", 1)[1]
        check(len(sample) == 301, f"{len(sample) - 1} characters sampled, not 300", output)
        data = model.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__")
        check(header["wte.weight"]["shape"] == [256, 128] and len(header) == 52, f"tensors: {sorted(header)}", output)
        check(max(t["data_offsets"][1] for t in header.values()) + 8 + length == len(data), "the file's length is wrong", output)
        print(f"mean loss {mean[1]} after {steps} steps; {plan[1]} groups, {plan[2]} gathers in flight")


if __name__ == "__main__":
    main()
