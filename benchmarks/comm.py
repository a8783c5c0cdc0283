"""all_gather and reduce_scatter between ranks on one machine, over shared memory: ours against gloo, MPICH and Open MPI,
and against the memory's own copies and sums.

    python3 benchmarks/comm.py --build BUILD_DIR [--ranks N,N] [--rounds N] [--repeats N] [--sizes KB,KB]

All run one after the other in each round and each time in another order; a figure is the median over the rounds of a
run's median, from the first rank's start to the last one's end. Our buffers lie in memory that the ranks share, as all of
libmuster's do; an MPI's and gloo's are the program's own. Ratios are the peer's time by ours. all_gather and
reduce_scatter run on the caller's thread, as an MPI's do; the rows "by a stream" are handed to another thread, as a trainer's
are."""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

from support import mpi_peers, results, torch_peer

RUN = results.Run("comm")

SOURCE = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 120
SIZES_KB = {2: [64, 256, 1024, 4096, 16384, 65536], 8: [64, 256, 1024, 4096]}
WHATS = {"all_gather": "copy", "reduce_scatter": "sum"}  # the collective and its limit
STREAM = "stream_"  # before the name of a collective on a stream's thread
BAR_GLOO, BAR_MPI, BAR_LIMIT, LIMIT_FROM_KB = 10, 1, 0.95, 1024


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--ranks", default="2,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=15, help="of each collective in a run")
    parser.add_argument("--sizes", default="", help="a shard's KB; by the number of ranks")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    return parser.parse_args()


def compile_mpi(build, name, peer):
    """The path of comm_mpi.c built with this MPI's compiler; None where it has none that works."""
    program = build / "benchmarks" / f"comm_mpi-{name.replace(' ', '-')}"
    source = SOURCE / "benchmarks" / "comm_mpi.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        compiler = peer.program.parent / "mpicc"
        done = subprocess.run([str(compiler), "-O2", "-o", str(program), str(source)], capture_output=True, text=True)
        if done.returncode:
            print(f"{peer.title}: left out, its mpicc fails: {done.stderr.strip().splitlines()[-1:]}")
            return None
    return str(program)


def commands_of(options, ranks, sizes):
    """{name: command}"""
    build = pathlib.Path(options.build).resolve()
    numbers = [str(options.repeats), *(str(size) for size in sizes)]
    found = {"muster": [str(build / "benchmarks" / "comm_bench"), str(ranks), *numbers]}
    version = torch_peer.version(options.torch_python)
    if version:
        script = str(SOURCE / "benchmarks" / "support" / "comm_gloo.py")
        found[f"gloo {version}"] = [options.torch_python, script, str(ranks), *numbers]
    else:
        print(f"gloo: left out, {options.torch_python} has no torch")
    for name, peer in mpi_peers.find().items():
        program = compile_mpi(build, name, peer)
        if program:
            title = peer.title.replace("hydra", "mpich")
            found[title] = [str(peer.program), *peer.arguments, "-n", str(ranks), program, *numbers]
    return found


def run(command):
    """{(what, bytes): ms}; None where it hangs."""
    environment = {**os.environ, **mpi_peers.ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        sys.exit(f"comm.py: status {done.returncode} from {' '.join(command)}\n{done.stderr}")
    lines = (line.split() for line in done.stdout.splitlines())
    return {(what, int(size)): float(ms) for what, size, ms in lines}


def measure(commands, rounds):
    """{name: {(what, bytes): [ms, ...]}}, and how often each hung"""
    found, hung, order = {name: {} for name in commands}, {}, list(commands)
    for _ in range(rounds):
        for name in order:
            figures = run(commands[name])
            if figures is None:
                hung[name] = hung.get(name, 0) + 1
            for key, ms in (figures or {}).items():
                found[name].setdefault(key, []).append(ms)
        order.append(order.pop(0))
    return found, hung


def report_row(figures, ranks, what, size, peers):
    """Prints one; the ratios (of the limit, gloo's, the best MPI's), None where there is none."""
    key = (what.removeprefix(STREAM), size)
    ours, limit = figures["muster"][what, size], figures["muster"][WHATS[key[0]], size]
    ratios = {name: figures[name][key] / ours for name in peers if key in figures[name]}
    words = "".join(f"{ratio:>{max(9, len(name) + 2)}.2f}" for name, ratio in ratios.items())
    title = f"{key[0]} by a stream" if what.startswith(STREAM) else what
    print(f"{title:>26}{size >> 10:>8} KB{ours:>10.3f} ms{100 * limit / ours:>9.0f}%{words}")
    peers = {"gloo" if name.startswith("gloo") else "best MPI": None for name in ratios}
    best = {name: min(ratios[peer] for peer in ratios if peer.startswith("gloo") == (name == "gloo")) for name in peers}
    volume = f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"
    cores = "" if ranks <= os.cpu_count() else f" on {os.cpu_count()} cores"
    place = f"{ranks} ranks{cores}, {volume}" + (", a stream's thread" if what.startswith(STREAM) else "")
    RUN.add(f"{key[0]}, {place}", "us", 1e3 * ours, {name: 1e3 * ours * best[name] for name in peers}, ("bare copies and sums", 1e3 * limit))
    gloo = [ratio for name, ratio in ratios.items() if name.startswith("gloo")]
    mpi = [ratio for name, ratio in ratios.items() if not name.startswith("gloo")]
    return limit / ours, min(gloo, default=None), min(mpi, default=None)


def verdict(what, values, bar):
    values = [value for value in values if value is not None]
    if values:
        state = "reached" if min(values) >= bar else f"missed in {sum(value < bar for value in values)} of {len(values)}"
        print(f"  {what}: least {min(values):.2f}, median {statistics.median(values):.2f}; bar {bar}: {state}")


def report(ranks, found, hung, sizes):
    figures = {name: {key: statistics.median(ms) for key, ms in values.items()} for name, values in found.items()}
    peers = [name for name in figures if name != "muster"]
    heads = "".join(f"{name:>{max(9, len(name) + 2)}}" for name in peers)
    print(f"{ranks} ranks, {os.cpu_count()} cores\n{'':26}{'shard':>11}{'muster':>13}{'of limit':>10}{heads}   (peer's time by ours)")
    for prefix, words in (("", ""), (STREAM, " by a stream")):
        rows = [(size, report_row(figures, ranks, prefix + what, size, peers)) for what in WHATS for size in sizes]
        verdict(f"limit / ours{words}, from 1 MB", [row[0] for size, row in rows if size >= LIMIT_FROM_KB << 10], BAR_LIMIT)
        verdict(f"gloo / ours{words}", [row[1] for _, row in rows], BAR_GLOO)
        verdict(f"best MPI / ours{words}", [row[2] for _, row in rows], BAR_MPI)
    for name, times in hung.items():
        print(f"  {name}: hung {times} times")


def main():
    options = arguments()
    for ranks in map(int, options.ranks.split(",")):
        kilobytes = [int(text) for text in options.sizes.split(",")] if options.sizes else SIZES_KB.get(ranks, SIZES_KB[8])
        sizes = [size << 10 for size in kilobytes]
        found, hung = measure(commands_of(options, ranks, sizes), options.rounds)
        report(ranks, found, hung, sizes)
    RUN.write(options)


if __name__ == "__main__":
    main()
