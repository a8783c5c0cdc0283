"""all_reduce between ranks over TCP on this machine's loopback: processor time a rank and elapsed time, against gloo.

    python3 benchmarks/comm_tcp.py --build BUILD_DIR [--ranks N,N] [--sizes BYTES,BYTES] [--rounds N] [--repeats N]

All ranks share this machine's cores, so elapsed time is about the sum of their processor times. Processor time is what
remains where each rank has a core of its own. Ours are threads that run the operation themselves; gloo's are processes,
with its threads counted. Both run one after the other in each round; a figure is the median over the rounds."""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

from support import results, torch_peer

RUN = results.Run("comm_tcp")
SOURCE = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 300


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--ranks", default="4,32,64")
    parser.add_argument("--sizes", default="8,65536,1048576", help="bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=30, help="of each size in a run")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    return parser.parse_args()


def run(command):
    """{bytes: (processor us, elapsed us)}; {} where it hangs or fails."""
    try:
        done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"left out, no end after {LIMIT_S} s: {' '.join(command)}")
        return {}
    if done.returncode:
        print(f"left out, status {done.returncode}: {' '.join(command)}\n{done.stderr[-500:]}")
        return {}
    rows = (line.split() for line in done.stdout.splitlines())
    return {int(size): (float(processor), float(elapsed)) for size, processor, elapsed in rows}


def measure(options, ranks, sizes):
    """{name: {bytes: [(processor us, elapsed us), ...]}}"""
    numbers = [str(ranks), str(options.repeats), *map(str, sizes)]
    commands = {"muster": [str(pathlib.Path(options.build).resolve() / "benchmarks" / "comm_tcp_ranks"), *numbers]}
    if torch_peer.version(options.torch_python):
        commands["gloo"] = [options.torch_python, str(SOURCE / "benchmarks" / "support" / "comm_tcp_gloo.py"), *numbers]
    else:
        print(f"gloo: left out, {options.torch_python} has no torch")
    found = {name: {} for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            for size, figures in run(command).items():
                found[name].setdefault(size, []).append(figures)
    return found


def report(ranks, sizes, found):
    if not found["muster"]:
        sys.exit("comm_tcp.py: comm_tcp_ranks gave no figures")
    for size in sizes:
        median = {name: [statistics.median(column) for column in zip(*figures[size])] for name, figures in found.items() if size in figures}
        ours, gloo = median["muster"], median.get("gloo")
        words = f"   gloo {gloo[0]:>10.1f} us{gloo[1]:>12.1f} us, {gloo[0] / ours[0]:.1f} and {gloo[1] / ours[1]:.1f} times" if gloo else ""
        print(f"{ranks:>4} ranks{size:>10} bytes: processor {ours[0]:>9.1f} us a rank, elapsed {ours[1]:>10.1f} us{words}")
        volume = f"{size} bytes" if size < 1024 else f"{size >> 10} KB" if size < 1 << 20 else f"{size >> 20} MB"
        for column, what in enumerate(("processor time a rank", "elapsed")):
            RUN.add(f"all_reduce over TCP, {ranks} ranks, {volume}: {what}", "us", ours[column], {"gloo": gloo[column]} if gloo else None)


def main():
    options = arguments()
    sizes = [int(text) for text in options.sizes.split(",")]
    for ranks in map(int, options.ranks.split(",")):
        report(ranks, sizes, measure(options, ranks, sizes))
    RUN.write(options)


if __name__ == "__main__":
    main()
