"""Start and finish 1 and 8 workers that do nothing: muster run against torchrun and against a bare posix_spawn loop.

    python3 benchmarks/launch.py --build BUILD_DIR [--rounds N] [--torch-python PYTHON]

All three run in the same rounds, one after the other, so that a noisy machine disturbs all alike; medians are shown. The
bare loop is the physical limit: those processes must be started and waited for by anything. Peak memory is that of the
launching process (the workers, /bin/true, are smaller)."""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from support import torch_peer

SOURCE = pathlib.Path(__file__).resolve().parent.parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--rounds", type=int, default=15, help="runs of muster and of the bare loop")
    parser.add_argument("--torch-rounds", type=int, default=3, help="of those, runs of torchrun as well")
    torch_peer.add_argument(parser)
    return parser.parse_args()


def clean_environment(scratch):
    drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|PYTHON|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$")
    kept = {name: value for name, value in os.environ.items() if not drop.match(name)}
    kept.update(OMP_NUM_THREADS="1", TMPDIR=scratch)  # torchrun leaves a folder in TMPDIR at each run
    return kept


def run_once(build, command, environment):
    done = subprocess.run(
        [str(build / "benchmarks" / "run_once"), *command], env=environment, capture_output=True, text=True, check=True
    )
    wall_ns, peak_kb, status = map(int, done.stdout.split())
    if status != 0:
        sys.exit(f"launch.py: wait status {status} from: {' '.join(command)}")
    return wall_ns / 1e6, peak_kb / 1024


def measure(build, commands, rounds, torch_rounds, environment):
    """{name: [(ms, MB), ...]}, the commands alternated; the first round warms caches and is not counted."""
    found = {name: [] for name in commands}
    for round_number in range(rounds + 1):
        for name, command in commands.items():
            if name == "torchrun" and round_number > torch_rounds:
                continue
            sample = run_once(build, command, environment)
            if round_number > 0:
                found[name].append(sample)
    return found


def describe_cost(build, rounds, environment):
    """Reading the machine without NVML and deciding NCCL's environment, which a launch does once: [(ms, ms), ...]."""
    found = []
    for _ in range(rounds + 1):
        done = subprocess.run(
            [str(build / "benchmarks" / "describe_once")], env=environment, capture_output=True, text=True, check=True
        )
        found.append(tuple(int(ns) / 1e6 for ns in done.stdout.split()))
    return found[1:]


def check_starts(build, workers, environment, scratch):
    """What starts no workers is fast too: each of them must leave a file."""
    mark = [
        str(build / "bin" / "muster"), "run", "--standalone", f"--nproc-per-node={workers}", "sh", "-c",
        ': > "$0/started-$RANK"', scratch,
    ]
    run_once(build, mark, environment)
    started = sorted(file.name for file in pathlib.Path(scratch).glob("started-*"))
    if started != [f"started-{rank}" for rank in range(workers)]:
        sys.exit(f"launch.py: muster run was to start {workers} workers, but these ran: {started}")


def main():
    options = arguments()
    build = pathlib.Path(options.build).resolve()
    version = torch_peer.version(options.torch_python)
    true = shutil.which("true") or "/bin/true"
    print("launch: start and finish workers that do nothing, one node; medians")
    if version is None:
        print(f"torchrun: skipped, {options.torch_python} has no torch (MUSTER_TORCH_PYTHON names another interpreter)")
    for workers in (1, 8):
        commands = {
            "posix_spawn loop": [str(build / "benchmarks" / "spawn_loop"), str(workers), true],
            "muster run": [
                str(build / "bin" / "muster"), "run", "--standalone", f"--nproc-per-node={workers}", true,
            ],
        }
        if version is not None:
            commands["torchrun"] = [
                options.torch_python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}",
                "--no-python", true,
            ]
        with tempfile.TemporaryDirectory(prefix="muster-launch-") as scratch:
            environment = clean_environment(scratch)
            check_starts(build, workers, environment, scratch)
            found = measure(build, commands, options.rounds, options.torch_rounds, environment)
        wall = {name: statistics.median(ms for ms, _ in samples) for name, samples in found.items()}
        peak = {name: statistics.median(mb for _, mb in samples) for name, samples in found.items()}
        print(f"\n{workers} worker{'s' if workers > 1 else ''}")
        for name, samples in found.items():
            label = f"{name} {version}" if name == "torchrun" else name
            low, high = min(ms for ms, _ in samples), max(ms for ms, _ in samples)
            print(
                f"  {label:20}{wall[name]:10.2f} ms  ({low:.2f} to {high:.2f}, {len(samples)} runs)"
                f"{peak[name]:9.1f} MB peak"
            )
        limit = wall["muster run"] / wall["posix_spawn loop"]
        print(f"  muster run / physical limit (posix_spawn loop): {limit:.2f}x time, bar for 8 workers 2.5x")
        if "torchrun" in wall:
            print(
                f"  torchrun / muster run: {wall['torchrun'] / wall['muster run']:.0f}x time, bar for 8 workers 100x; "
                f"{peak['torchrun'] / peak['muster run']:.0f}x memory"
            )
        print(f"  agent's peak memory: {peak['muster run']:.1f} MB, bar 10 MB")
    with tempfile.TemporaryDirectory(prefix="muster-launch-") as scratch:
        costs = describe_cost(build, options.rounds, clean_environment(scratch))
    reading, deciding = (statistics.median(cost[i] for cost in costs) for i in (0, 1))
    print(
        f"\nNCCL's environment, without NVML: reading the machine {reading:.2f} ms, deciding {deciding:.2f} ms "
        f"({min(map(sum, costs)):.2f} to {max(map(sum, costs)):.2f} together, {len(costs)} runs), bar 2 ms"
    )


if __name__ == "__main__":
    main()
