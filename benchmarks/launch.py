"""Start and finish workers that do nothing: muster run against MPICH's hydra, Open MPI, torchrun and a bare posix_spawn
loop; on an idle machine and with one busy process.

    python3 benchmarks/launch.py --build BUILD_DIR [--workers N,N] [--rounds N] [--beside idle,busy] [--peers hydra,"open mpi"]

All run in the same rounds, one after the other and each time in another order, so that a noisy machine disturbs all alike;
medians are compared. The bare loop is the physical limit: those processes must be started and waited for by anything. Peak
memory is that of the launching processes (the worker, a static program, is smaller). A launch that does not end within a
minute is killed and counted.

Our programs are copied first, as an installation does: a linker writes its output piece by piece, the page cache then holds it
in small pieces, and each page fault maps less of it (0.1 ms of a launch, measured on ext4 with Linux 6.18). The peers are installed."""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from support import mpi_peers, results, torch_peer

RUN = results.Run("launch")

SOURCE = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 60

# rounds by number of workers, unless --rounds is given
ROUNDS = {1: 41, 8: 41, 64: 21, 256: 11}
# by number of workers: at most so many times the bare loop, at least so many times as quick as hydra
BARS = {1: (2.0, 1.4), 8: (1.3, 1.6), 64: (1.15, 1.2), 256: (1.15, 1.2)}
BAR_SPREAD = 1.5  # with a busy process: the 90th percentile by the median, at most
BAR_TORCHRUN, BAR_MEMORY_MB = 100, 10

BARE, MUSTER, TORCHRUN, HYDRA = "posix_spawn loop", "muster run", "torchrun", "hydra"
RESULT_NAMES = {TORCHRUN: "torchrun", HYDRA: "MPICH hydra", "open mpi": "Open MPI"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--workers", default="1,8,64,256", help="numbers of workers")
    parser.add_argument("--beside", default="idle,busy", help="idle: nothing; busy: one process that never waits")
    parser.add_argument("--peers", default=",".join(mpi_peers.PEERS), help="MPI launchers; Open MPI's may hang, a minute each time")
    parser.add_argument("--rounds", type=int, default=0, help="runs of each; by the number of workers")
    parser.add_argument("--torch-rounds", type=int, default=3, help="of those, runs of torchrun as well")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    return parser.parse_args()


def clean_environment():
    drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|PYTHON|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$|OMPI_|PRTE_|HYDRA_")
    kept = {name: value for name, value in os.environ.items() if not drop.match(name)}
    kept.update(mpi_peers.ENVIRONMENT)
    kept.pop("TMPDIR", None)
    kept.update(OMP_NUM_THREADS="1")
    return kept


def environment_of(name, environment, scratch):
    """torchrun and Open MPI leave folders in place; the others get the default."""
    return environment if name in (BARE, MUSTER, HYDRA) else {**environment, "TMPDIR": scratch}


class Sample:
    def __init__(self, text, command):
        wall_ns, peak_kb, status, cpu_us = map(int, text.split())
        self.ms, self.mb, self.cpu_ms = wall_ns / 1e6, peak_kb / 1024, cpu_us / 1e3
        self.hung = status != 0 and self.ms >= LIMIT_S * 1e3
        if status != 0 and not self.hung:
            sys.exit(f"launch.py: wait status {status} from: {' '.join(command)}")


def run_once(build, command, environment):
    done = subprocess.run(
        [str(build / "benchmarks" / "run_once"), "-t", str(LIMIT_S), *command],
        env=environment, capture_output=True, text=True, check=True,
    )
    return Sample(done.stdout, command)


def measure(build, commands, rounds, torch_rounds, environment, scratch):
    """{name: [Sample, ...]}; the first round warms caches and is not counted."""
    found = {name: [] for name in commands}
    order = list(commands)
    for number in range(rounds + 1):
        for name in order:
            if name == TORCHRUN and number > torch_rounds:
                continue
            sample = run_once(build, commands[name], environment_of(name, environment, scratch))
            if number > 0:
                found[name].append(sample)
        order.append(order.pop(0))
    return found


def install(build, folder):
    """Copies of the measured programs, as an installation writes them: {name: path}."""
    programs = {"muster": build / "bin" / "muster"}
    programs.update({name: build / "benchmarks" / name for name in ("spawn_loop", "do_nothing")})
    return {name: shutil.copy(path, folder) for name, path in programs.items()}


# ends with this program, however that ends: 1 is PR_SET_PDEATHSIG
BUSY = "import ctypes, signal\nctypes.CDLL(None).prctl(1, signal.SIGKILL)\nwhile True: pass"


@contextlib.contextmanager
def beside(what):
    busy = subprocess.Popen([sys.executable, "-c", BUSY]) if what == "busy" else None
    try:
        yield
    finally:
        if busy:
            busy.kill()
            busy.wait()


def describe_cost(build, rounds, environment):
    """Reading the machine without NVML and deciding NCCL's environment, which a launch does once: [(ms, ms), ...]."""
    found = []
    for _ in range(rounds + 1):
        done = subprocess.run(
            [str(build / "benchmarks" / "describe_once")], env=environment, capture_output=True, text=True, check=True
        )
        found.append(tuple(int(ns) / 1e6 for ns in done.stdout.split()))
    return found[1:]


def check_starts(build, muster, workers, environment, scratch):
    """What starts no workers is fast too: each of them must leave a file."""
    mark = [
        muster, "run", "--standalone", f"--nproc-per-node={workers}", "sh", "-c",
        ': > "$0/started-$RANK"', scratch,
    ]
    run_once(build, mark, environment)
    started = sorted(file.name for file in pathlib.Path(scratch).glob("started-*"))
    if started != sorted(f"started-{rank}" for rank in range(workers)):
        sys.exit(f"launch.py: muster run was to start {workers} workers, but these ran: {started}")


def percentile_90(values):
    return sorted(values)[min(len(values) - 1, int(0.9 * len(values)))]


def verdict(name, value, bar, at_most):
    reached = value <= bar if at_most else value >= bar
    return f"{name} {value:.2f}x (bar {'<=' if at_most else '>='} {bar:g}x: {'reached' if reached else 'MISSED'})"


def show(workers, what, found, titles):
    """The table of one number of workers, and whether the bars are reached."""
    ended = {name: [sample for sample in samples if not sample.hung] for name, samples in found.items()}
    middle = {name: statistics.median(s.ms for s in samples) for name, samples in ended.items() if samples}
    plural = "s" if workers > 1 else ""
    print(f"\n{workers} worker{plural}, {'idle' if what == 'idle' else 'beside a busy process'}"
          f" (load {os.getloadavg()[0]:.1f})")
    print(f"  {'':22}{'median':>10}{'p90':>10}{'least':>10}{'x limit':>9}{'x muster':>10}{'cpu ms':>9}{'peak MB':>9}{'runs':>6}")
    for name, samples in ended.items():
        hung = len(found[name]) - len(samples)
        if not samples:
            print(f"  {titles[name]:22}  none of {hung} runs ended within {LIMIT_S} s")
            continue
        wall = [sample.ms for sample in samples]
        print(
            f"  {titles[name]:22}{middle[name]:10.2f}{percentile_90(wall):10.2f}{min(wall):10.2f}"
            f"{middle[name] / middle[BARE]:9.2f}{middle[name] / middle[MUSTER]:10.2f}"
            f"{statistics.median(s.cpu_ms for s in samples):9.2f}{statistics.median(s.mb for s in samples):9.1f}"
            f"{len(samples):6}{f'  {hung} HUNG' if hung else ''}"
        )
    RUN.add(
        f"start and finish {workers} worker{plural}" + (", a busy process beside it" if what == "busy" else ""), "ms", [s.ms for s in ended[MUSTER]],
        {RESULT_NAMES[name]: [s.ms for s in ended[name]] for name in middle if name not in (BARE, MUSTER)}, ("bare posix_spawn loop", middle[BARE]),
    )  # fmt: skip
    limit_bar, hydra_bar = BARS.get(workers, (None, None))
    words = []
    if limit_bar:
        words.append(verdict("muster / limit", middle[MUSTER] / middle[BARE], limit_bar, True))
    if hydra_bar and HYDRA in middle:
        words.append(verdict("hydra / muster", middle[HYDRA] / middle[MUSTER], hydra_bar, False))
    if what == "busy":
        spread = {name: percentile_90([sample.ms for sample in ended[name]]) / middle[name] for name in (BARE, MUSTER)}
        words.append(f"{verdict('p90 / median', spread[MUSTER], BAR_SPREAD, True)}, the bare loop's {spread[BARE]:.2f}x")
    if TORCHRUN in middle and workers == 8 and what == "idle":
        words.append(verdict("torchrun / muster", middle[TORCHRUN] / middle[MUSTER], BAR_TORCHRUN, False))
    for word in words:
        print(f"  {word}")


def commands_of(programs, workers, peers, torch_python):
    """{name: command}; without torchrun where torch_python is None."""
    worker = programs["do_nothing"]
    commands = {
        BARE: [programs["spawn_loop"], str(workers), worker],
        MUSTER: [programs["muster"], "run", "--standalone", f"--nproc-per-node={workers}", worker],
    }
    commands.update({name: peer.command(workers, worker) for name, peer in peers.items()})
    if torch_python:
        commands[TORCHRUN] = [
            torch_python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", "--no-python", worker,
        ]
    return commands


def measure_all(options, build, programs, peers, titles, version):
    torch_python = options.torch_python if version is not None and options.torch_rounds > 0 else None
    for what in options.beside.split(","):
        for workers in map(int, options.workers.split(",")):
            commands = commands_of(programs, workers, peers, torch_python)
            rounds = options.rounds or ROUNDS.get(workers, 15)
            with tempfile.TemporaryDirectory(prefix="muster-launch-") as scratch, beside(what):
                environment = clean_environment()
                check_starts(build, programs["muster"], workers, environment, scratch)
                found = measure(build, commands, rounds, options.torch_rounds, environment, scratch)
            show(workers, what, found, titles)
            if workers == 8 and what == "idle":
                peak = statistics.median(sample.mb for sample in found[MUSTER])
                print(f"  agent's peak memory: {peak:.1f} MB, bar {BAR_MEMORY_MB} MB")


def main():
    options = arguments()
    build = pathlib.Path(options.build).resolve()
    version = torch_peer.version(options.torch_python)
    print("launch: start and finish workers that do nothing, one node")
    if version is None:
        print(f"torchrun: left out, {options.torch_python} has no torch (MUSTER_TORCH_PYTHON names another interpreter)")
    peers = mpi_peers.find(options.peers.split(","))
    titles = {BARE: BARE, MUSTER: MUSTER, TORCHRUN: f"{TORCHRUN} {version}"}
    titles.update({name: peer.title for name, peer in peers.items()})
    with tempfile.TemporaryDirectory(prefix="muster-launch-") as folder:
        measure_all(options, build, install(build, folder), peers, titles, version)
    costs = describe_cost(build, 15, clean_environment())
    reading, deciding = (statistics.median(cost[i] for cost in costs) for i in (0, 1))
    print(
        f"\nNCCL's environment, without NVML: reading the machine {reading:.2f} ms, deciding {deciding:.2f} ms "
        f"({min(map(sum, costs)):.2f} to {max(map(sum, costs)):.2f} together, {len(costs)} runs), bar 2 ms"
    )
    RUN.write(options)


if __name__ == "__main__":
    main()
