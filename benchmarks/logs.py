"""Tee of 64 loud workers against cat that moves the same bytes, and the agent's cost of a plain redirect.

    python3 benchmarks/logs.py --build BUILD_DIR [--rounds N] [--workers N] [--megabytes N]

tee: the workers' lines go to their log files and, with a prefix, to a console that is a pipe; its reader counts,
and nothing may be missing in the files. cat: the same workers write to one pipe that cat copies into a file. Both in the same rounds, one
after the other. cat makes one copy of its input and tee two, so that half of its rate is the bar. Files are in a folder
under TMPDIR."""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from support import results

RUN = results.Run("logs")
SOURCE = pathlib.Path(__file__).resolve().parent.parent
LINE = 100
TICK = os.sysconf("SC_CLK_TCK")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--megabytes", type=int, default=16, help="of each worker")
    results.add_argument(parser)
    return parser.parse_args()


def clean_environment(scratch):
    drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$")
    kept = {name: value for name, value in os.environ.items() if not drop.match(name)}
    kept.update(OMP_NUM_THREADS="1", TMPDIR=scratch)
    return kept


def cpu_seconds(pid):
    """Processor time of the process alone, without its children; None after its end."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / TICK if fields[0] != "Z" else None


def run_muster(build, flags, workers, size, scratch, console, measured=False):
    """(wall seconds, agent's own CPU seconds)"""
    command = [str(build / "bin" / "muster"), "run", "--standalone", f"--nproc-per-node={workers}", *flags]
    command += ["--", str(build / "benchmarks" / "shout"), str(size), str(LINE)]
    start, used = time.monotonic(), 0.0
    process = subprocess.Popen(command, stdout=console, stderr=subprocess.PIPE, env=clean_environment(scratch), text=True)
    while measured and process.poll() is None:
        used = cpu_seconds(process.pid) or used
        time.sleep(0.005)
    process.wait()
    wall = time.monotonic() - start
    err = process.stderr.read()
    if process.returncode != 0 or "missing" in err:
        sys.exit(f"logs.py: muster run left with {process.returncode} and said:\n{err}")
    return wall, used


def check_files(scratch, workers, size):
    files = list(pathlib.Path(scratch).glob("logs/*/attempt_0/*/stdout.log"))
    if len(files) != workers or any(file.stat().st_size != size for file in files):
        sys.exit("logs.py: the log files do not hold what the workers wrote")


def tee(build, workers, size):
    with tempfile.TemporaryDirectory(prefix="muster-logs-") as scratch:
        start = time.monotonic()
        counter = subprocess.Popen(["wc", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        flags = ["--log-dir", f"{scratch}/logs", "--tee=1"]
        run_muster(build, flags, workers, size, scratch, counter.stdin)
        counter.stdin.close()
        shown = int(counter.stdout.read())
        counter.wait()
        wall = time.monotonic() - start
        check_files(scratch, workers, size)
        prefixes = sum(len(f"[default{rank}]:") * (-(-size // LINE)) for rank in range(workers))
    return wall, min(1.0, shown / (workers * size + prefixes))  # a line that is cut in two has two prefixes


def cat(build, workers, size):
    with tempfile.TemporaryDirectory(prefix="muster-logs-") as scratch:
        reader, writer = os.pipe()
        start = time.monotonic()
        with open(f"{scratch}/all", "wb") as file:
            copy = subprocess.Popen(["cat"], stdin=reader, stdout=file)
        os.close(reader)
        shouts = [
            subprocess.Popen([str(build / "benchmarks" / "shout"), str(size), str(LINE)], stdout=writer)
            for _ in range(workers)
        ]
        os.close(writer)
        for process in (*shouts, copy):
            if process.wait() != 0:
                sys.exit("logs.py: cat or a worker of its own failed")
        wall = time.monotonic() - start
        if os.path.getsize(f"{scratch}/all") != workers * size:
            sys.exit("logs.py: cat lost something")
    return wall


def redirect(build, workers, size):
    with tempfile.TemporaryDirectory(prefix="muster-logs-") as scratch:
        wall, used = run_muster(
            build, ["--log-dir", f"{scratch}/logs", "--redirects=1"], workers, size, scratch, subprocess.DEVNULL, True
        )
        check_files(scratch, workers, size)
    return wall, used


def main():
    options = arguments()
    build = pathlib.Path(options.build).resolve()
    workers, size = options.workers, options.megabytes << 20
    total = workers * size / 1e6
    print(f"logs: {workers} workers write {options.megabytes} MiB each in lines of {LINE} bytes; medians of {options.rounds}")
    walls, costs = {"cat": [], "tee": [], "redirect": []}, {"much": [], "nothing": []}
    shares = []
    for _ in range(options.rounds):
        walls["cat"].append(cat(build, workers, size))
        wall, share = tee(build, workers, size)
        walls["tee"].append(wall)
        shares.append(share)
        wall, used = redirect(build, workers, size)
        walls["redirect"].append(wall)
        costs["much"].append(used)
        costs["nothing"].append(redirect(build, workers, LINE)[1])
    rates = {name: total / statistics.median(times) for name, times in walls.items()}
    for name, label in (("cat", "cat into one file"), ("tee", "muster run --tee=1"), ("redirect", "muster run --redirects=1")):
        low, high = total / max(walls[name]), total / min(walls[name])
        print(f"  {label:26}{rates[name]:8.0f} MB/s  ({low:.0f} to {high:.0f})")
    ratio = statistics.median(c / t for c, t in zip(walls["cat"], walls["tee"]))
    quickest = min(walls["cat"]) / min(walls["tee"])
    print(f"  tee / cat: {ratio:.2f} in the median round, {quickest:.2f} of the quickest of each, bar 0.50; every byte in the files, {min(shares):.1%} or more on the console")
    print(f"  redirect / tee: {rates['redirect'] / rates['tee']:.1f}; redirect is the physical limit: the workers write their files themselves")
    RUN.add(
        f"tee of {workers} workers with heavy output", "MB/s", [total / wall for wall in walls["tee"]],
        {"cat into one file": [total / wall for wall in walls["cat"]]}, more_is_better=True, ratios={"cat into one file": ratio},
    )  # fmt: skip
    RUN.write(options)
    much, nothing = statistics.median(costs["much"]), statistics.median(costs["nothing"])
    print(
        f"  agent's processor time with --redirects: {much * 1e3:.0f} ms for {total:.0f} MB, "
        f"{nothing * 1e3:.0f} ms for {workers} lines"
    )


if __name__ == "__main__":
    main()
