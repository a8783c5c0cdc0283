"""Thousands of launches of 1 to 256 workers, two at a time: none hangs, none loses a worker, an exit code or a line, and none
leaves anything after.

    MUSTER_BUILD=build python3 tests/e2e/launch_soak_test.py [--count N] [--seed N]

Most workers do nothing, so that starts and ends meet in every order that the machine has; some write their rank, in some launches a
worker fails, and some cannot be started. The seed is printed."""

import argparse
import concurrent.futures
import ctypes
import glob
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", "build")).resolve()
MUSTER, NOTHING = str(BUILD / "bin" / "muster"), str(BUILD / "benchmarks" / "do_nothing")
LIMIT_S = 300  # one launch's: on a machine that starves all processes 256 shells take long
WORKERS_LIMIT = 256
PR_SET_CHILD_SUBREAPER = 36

DROP = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|OMP_|PYTHON|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$|CUDA_VISIBLE|SLURM|TMPDIR$")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not DROP.match(name)} | {"OMP_NUM_THREADS": "1"}


class Launch:
    """One launch that is drawn: its command, and its required result."""

    def __init__(self, draw):
        self.workers = int(WORKERS_LIMIT ** draw.random())  # as many of 1 to 16 as of 16 to 256
        self.code, self.lines, self.says = 0, set(), ""
        self.program = [NOTHING]
        kind = draw.choices(("nothing", "speak", "fail", "missing"), (90, 6, 3, 1))[0]
        self.title = f"{self.workers} workers, {kind}"
        if kind == "speak":
            self.program = ["sh", "-c", "echo rank $RANK"]
            self.lines = {f"rank {rank}" for rank in range(self.workers)}
        elif kind == "fail":
            rank, self.code = draw.randrange(self.workers), draw.randrange(1, 120)
            self.program = ["sh", "-c", f"test $RANK != {rank} || exit {self.code}"]
        elif kind == "missing":
            self.program, self.code, self.says = ["/no/such/program"], 127, "/no/such/program"

    def run(self):
        """The fault; None: none."""
        command = [MUSTER, "run", "--standalone", f"--nproc-per-node={self.workers}", "--", *self.program]
        process = subprocess.Popen(
            command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, error = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            where = look_at(process.pid)
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"did not end within {LIMIT_S} s: {where}"
        if process.returncode != self.code:
            return f"exit code {process.returncode} and not {self.code}: {error}"
        if self.lines and set(out.splitlines()) != self.lines:
            return f"lines are missing: {sorted(self.lines ^ set(out.splitlines()))}"
        if self.says not in error or (self.code == 0 and error):
            return f"it said: {error!r}"
        return None


def look_at(pid):
    """Where each thread of a process stands, to find the cause of a hang."""
    told = []
    for task in glob.glob(f"/proc/{pid}/task/*"):
        for file in ("wchan", "syscall"):
            try:
                told.append(pathlib.Path(task, file).read_text().strip())
            except OSError as problem:
                told.append(str(problem))
    return "; ".join(told)


def left_behind():
    """Orphans of a launch become our children. Ending ones get a moment."""
    for _ in range(100):
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return []
        time.sleep(0.1)
    shown = subprocess.run(["ps", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [f"left behind: {line}" for line in shown.stdout.splitlines()[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("prctl: cannot become the reaper of orphans")
    print(f"launch soak: {options.count} launches, seed {options.seed}", flush=True)
    draw, begin = random.Random(options.seed), time.monotonic()
    launches = [Launch(draw) for _ in range(options.count)]
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number, (launch, why) in enumerate(zip(launches, pool.map(Launch.run, launches))):
            if why:
                wrong.append(f"launch {number} ({launch.title}): {why}")
            if number % 1000 == 999:
                print(f"{number + 1} launches, {time.monotonic() - begin:.0f} s, {len(wrong)} wrong", flush=True)
    wrong += left_behind()
    workers = sum(launch.workers for launch in launches)
    print(f"{len(launches)} launches of {workers} workers in {time.monotonic() - begin:.0f} s: {len(wrong)} wrong")
    for line in wrong[-20:]:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
