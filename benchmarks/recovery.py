"""How long a job is down when a worker, an agent or the serving agent is killed, or when a node is cut off: muster run against
torchrun, on nodes that are network namespaces of this machine.

    python3 benchmarks/recovery.py --build BUILD_DIR [--nodes 2,16] [--rounds N] [--torch-rounds N] [--torch-python PYTHON]

Each sample begins right before the fault and ends with the main function of the last worker of the new world (recovery_worker.c records
both by one clock). Launchers take turns in every round, and medians are shown. The workers are small C programs that die at SIGTERM,
so that launchers are measured and nothing else; in the case `torch` they are scripts that import PyTorch (support/recovery_torch.py). Needs
root, for the namespaces."""

import argparse
import os
import pathlib
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tests" / "e2e"))

from harness import cluster  # noqa: E402
from support import results, torch_peer  # noqa: E402

RUN = results.Run("recovery")

LIMIT = 240  # seconds of any wait for a world that must come
SETTLED = 0.3  # so long without a line from any worker, and a world is there to stay


class Reports:
    """What workers report: [(start or stop, host, rank, world size, ns)], in the order of its arrival."""

    def __init__(self, folder):
        self.path = folder / "reports"
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self.rest = b""
        self.lines = []

    def read(self, seconds):
        """Whether anything was reported within so many seconds."""
        if not select.select([self.fd], [], [], max(0.0, seconds))[0]:
            return False
        self.rest += os.read(self.fd, 1 << 16)
        *whole, self.rest = self.rest.split(b"\n")
        for line in whole:
            what, host, rank, world, ns = line.decode().split()
            self.lines.append((what, host, int(rank), int(world), int(ns)))
        return True

    def world(self, size, since_ns, limit, hoped_for=lambda: True):
        """{rank: ns} of the last start of each rank since then, when all of a world of this size have started and no worker has reported
        anything more for a while; None where this does not come, or is not hoped for any more."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline and hoped_for():
            starts = {}
            for what, _, rank, world, ns in self.lines:
                if what == "start" and ns > since_ns and world == size:
                    starts[rank] = ns
            if len(starts) < size:
                self.read(min(1, deadline - time.monotonic()))
            elif not self.read(SETTLED):
                return starts
        return None

    def groups(self, size, since_ns, limit):
        """The last rank's ns of its process group since then, when all of a world of this size have one."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            found = {rank: ns for what, _, rank, world, ns in self.lines if what == "group" and ns > since_ns and world == size}
            if len(found) == size:
                return max(found.values())
            self.read(deadline - time.monotonic())
        return None

    def stops(self, since_ns, hosts):
        return [ns for what, host, *_, ns in self.lines if what == "stop" and ns > since_ns and host in hosts]

    def close(self):
        os.close(self.fd)


class Bench:
    def __init__(self, options, count, folder):
        self.build = pathlib.Path(options.build).resolve()
        self.options, self.count = options, count
        self.cluster = cluster.Cluster(count, folder)
        self.nodes = self.cluster.nodes
        names = "".join(f"{node.address} {node.name}\n" for node in self.nodes)
        for node in self.nodes:  # torch asks for names of addresses, and waits long for an unknown name
            node.pod.hosts.write_text("127.0.0.1 localhost\n" + names)
        self.reports = Reports(folder)
        self.port = 29600
        runtime = folder / "runtime"  # folder of the kept templates, which end with their nodes
        runtime.mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)

    def close(self):
        self.reports.close()
        self.cluster.close()


class Job:
    """One launcher on all nodes; kind is a row of KINDS."""

    def __init__(self, bench, kind):
        self.bench, self.kind, self.agents = bench, kind, {}
        bench.port += 10
        self.port = bench.port
        self.begun = time.monotonic_ns()
        for number in range(bench.count):
            self.start(number)
        if not bench.reports.world(self.size(bench.count), self.begun, LIMIT, self.runs):
            raise OSError(f"{kind} on {bench.count} nodes does not start:\n{self.agents[0].said()}")

    def runs(self):
        return all(agent.poll() is None for agent in self.agents.values())

    def size(self, nodes):
        return nodes * self.bench.options.nproc

    def address(self, number=0):
        return self.bench.nodes[number].address

    def hosts_but(self, number=None):
        return {node.name for node in self.bench.nodes if node.number != number}

    def start(self, number):
        self.agents[number] = self.bench.nodes[number].start(*KINDS[self.kind](self, number))

    def worker(self):
        if self.kind in TORCH_KINDS:
            return [SOURCE / "benchmarks" / "support" / "recovery_torch.py", self.bench.reports.path]
        return [self.bench.build / "benchmarks" / "recovery_worker", self.bench.reports.path]

    def close(self):
        """All of it at once: torchrun's workers outlive it."""
        for node in self.bench.nodes:
            while pids := [pid for pid in node.pids() if KEPT not in cluster.environment_of(pid)]:
                for pid in pids:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
        while self.bench.reports.read(0):
            pass
        self.bench.reports.lines.clear()


def muster(job, *flags):
    return [
        str(job.bench.build / "bin" / "muster"), "run", f"--nproc-per-node={job.bench.options.nproc}", "--max-restarts=100",
        *flags, "--", *job.worker(),
    ]  # fmt: skip


def muster_static(job, number, *flags):
    return muster(
        job, f"--nnodes={job.bench.count}", f"--node-rank={number}", f"--master-addr={job.address()}",
        f"--master-port={job.port}", *flags,
    )  # fmt: skip


def muster_elastic(job, number, *flags):
    return muster(
        job, f"--nnodes={job.bench.count - 1}:{job.bench.count}", "--rdzv-backend=c10d",
        f"--rdzv-endpoint={job.address()}:{job.port}", f"--local-addr={job.address(number)}", *flags,
    )  # fmt: skip


def torchrun(job, number, nodes):
    return [
        job.bench.options.torch_python, "-m", "torch.distributed.run", f"--nnodes={nodes}",
        f"--nproc-per-node={job.bench.options.nproc}", "--max-restarts=100", "--rdzv-backend=c10d", "--rdzv-id=recovery",
        f"--rdzv-endpoint={job.address()}:{job.port}", f"--local-addr={job.address(number)}",
        f"--rdzv-conf=is_host={int(number == 0)},read_timeout={LIMIT}", "--log-dir=/dev/null", "--no-python", *job.worker(),
    ]  # fmt: skip


KINDS = {
    "muster, static": muster_static,
    "muster, elastic": muster_elastic,
    "torchrun": lambda job, number: torchrun(job, number, job.bench.count),
    "torchrun, elastic": lambda job, number: torchrun(job, number, f"{job.bench.count - 1}:{job.bench.count}"),
}  # fmt: skip


KEPT = "MUSTER_TEMPLATE_KEPT"  # in the environment of a template that outlives its jobs
TORCH_KINDS = {
    "muster --warm-keep, torch": lambda job, number: muster_static(job, number, "--warm=torch", "--warm-keep"),
    "muster --warm, torch": lambda job, number: muster_static(job, number, "--warm=torch"),
    "muster, torch": muster_static,
    "torchrun, torch": lambda job, number: [
        each for each in torchrun(job, number, job.bench.count) if each != "--no-python"
    ],
}
KINDS.update(TORCH_KINDS)


# --- faults: the result of each, in seconds, as a dictionary; None where the job did not come back in time ---


def outcome(job, begin, nodes, hosts, limit):
    world = job.bench.reports.world(job.size(nodes), begin, limit)
    if not world:
        return None
    first, last = min(world.values()), max(world.values())
    stops = [ns for ns in job.bench.reports.stops(begin, hosts) if ns < last]
    return {
        "running": (last - begin) / 1e9,
        "stopped": (max(stops) - begin) / 1e9 if stops else None,
        "first": (first - begin) / 1e9,
    }


def kill_torch_worker(job, turn, limit):
    """As below. Also the times of the process groups: of the new world, and of the first world, counted from the launch."""
    first = job.bench.reports.groups(job.size(job.bench.count), job.begun, limit)
    begin = time.monotonic_ns()
    sample = kill_worker(job, turn, limit)
    group = job.bench.reports.groups(job.size(job.bench.count), begin, limit)
    if sample and first and group:
        sample.update(group=(group - begin) / 1e9, launch=(first - job.begun) / 1e9)
        return sample
    return None


def kill_worker(job, turn, limit):
    node = job.bench.nodes[turn * 7 % job.bench.count]  # another one each time
    pid = node.workers()[turn % job.bench.options.nproc]
    begin = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    return outcome(job, begin, job.bench.count, job.hosts_but(), limit)


def not_serving(job, turn):
    return 1 + turn % (job.bench.count - 1)


def kill_agent(job, turn, limit):
    """Elastic, so that the others go on without it."""
    number = not_serving(job, turn)
    begin = time.monotonic_ns()
    job.agents[number].signal(signal.SIGKILL)
    return outcome(job, begin, job.bench.count - 1, job.hosts_but(number), limit)


def replace_agent(job, turn, limit):
    """The same, and a new agent is started in its place at once, as a pod's container is."""
    return replace(job, not_serving(job, turn), limit)


def replace_server(job, turn, limit):
    return replace(job, 0, limit)


def replace(job, number, limit):
    workers = job.bench.nodes[number].workers()
    begin = time.monotonic_ns()
    for pid in (job.agents[number].pid, *workers.values()):  # in a container they go together
        os.kill(pid, signal.SIGKILL)
    job.agents[number].wait()
    job.start(number)
    return outcome(job, begin, job.bench.count, job.hosts_but(number), limit)


def cut_off(job, turn, limit):
    number = not_serving(job, turn)
    begin = time.monotonic_ns()
    job.bench.nodes[number].cut()
    found = outcome(job, begin, job.bench.count - 1, job.hosts_but(number), limit)
    job.bench.nodes[number].heal()
    return found


# --- the tables ---


def shown(seconds):
    return f"{seconds:.2f} s" if seconds >= 10 else f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.3f} s"


def median(samples, part="running"):
    return statistics.median(sample[part] for sample in samples)


def print_samples(kind, samples, limit):
    good = [sample for sample in samples if sample]
    label = f"  {kind:38}"
    if not good:
        print(f"{label}   not within {limit:.0f} s ({len(samples)} tried)")
        return None
    times = [sample["running"] for sample in good]
    text = f"{label}{shown(median(good)):>11}  ({shown(min(times))} to {shown(max(times))}, {len(good)} of {len(samples)})"
    stops = [sample for sample in good if sample["stopped"] is not None]
    if stops:
        text += f"; all told to stop after {shown(median(stops, 'stopped'))}, first new worker after {shown(median(good, 'first'))}"
    print(text)
    return median(good)


def record(bench, figure, found, part="running", kinds=("muster, static", "muster, elastic"), peer="torchrun", limit=None):
    """Adds the medians of one fault, in milliseconds; a peer that did not come back has no time."""
    theirs = found.get(peer)
    value = median(list(filter(None, theirs)), part) if theirs and any(theirs) else None
    for kind in kinds:
        good = list(filter(None, found.get(kind, [])))
        times = [sample[part] * 1e3 for sample in good if sample[part] is not None]
        if times:
            name = f"{figure}, {bench.count} node{'s' if bench.count > 1 else ''}" + (kind.removeprefix("muster") if len(kinds) > 1 else "")
            RUN.add(name, "ms", times, {"torchrun": value * 1e3 if value else None} if theirs is not None else {}, limit)


def bar(text, reached):
    print(f"  bar: {text}: {'reached' if reached else 'NOT reached'}")


def measure(bench, fault, plan, limit):
    """{kind: samples}; plan is {kind: (jobs, faults a job)}. Jobs of all kinds take turns."""
    found = {kind: [] for kind in plan}
    for turn in range(max(jobs for jobs, _ in plan.values())):
        for kind, (jobs, faults) in plan.items():
            if turn >= jobs:
                continue
            job = Job(bench, kind)
            try:
                for again in range(faults):
                    found[kind].append(fault(job, turn * faults + again, limit))
                    if found[kind][-1] is None:
                        break
            finally:
                job.close()
    return found


def bare_start(bench):
    """Seconds that a bare loop of posix_spawn takes to start as many workers, all on this machine, and to see them end."""
    command = [
        str(bench.build / "benchmarks" / "run_once"), str(bench.build / "benchmarks" / "spawn_loop"),
        str(bench.count * bench.options.nproc), str(bench.build / "benchmarks" / "recovery_worker"), str(bench.reports.path), "once",
    ]  # fmt: skip
    found = []
    for _ in range(7):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(int(done.stdout.split()[0]) / 1e9)
        while bench.reports.read(0):
            pass
    bench.reports.lines.clear()
    return statistics.median(found)


def show_killed_worker(bench, torch):
    plan = {kind: (bench.options.rounds, 1) for kind in KINDS if kind.startswith("muster")}
    if torch:
        plan["torchrun"] = (bench.options.torch_rounds, 3)
    found = measure(bench, kill_worker, plan, LIMIT)
    print(f"\n{bench.count} nodes: a worker is killed -> all {bench.count * bench.options.nproc} workers run again")
    medians = {kind: print_samples(kind, samples, LIMIT) for kind, samples in found.items()}
    limit = bare_start(bench)
    record(bench, "a worker is killed, all run again", found, limit=("bare loop of as many starts", limit * 1e3))
    print(f"  physical limit: a bare loop starts as many workers in {shown(limit)}")
    if medians.get("torchrun"):
        for kind in ("muster, static", "muster, elastic"):
            ratio = medians["torchrun"] / medians[kind]
            bar(f"{kind}: at least 20 times faster than torchrun; it is {ratio:.1f} times", ratio >= 20)
        quickest = min(sample["running"] for sample in found["torchrun"] if sample)
        print(f"  torchrun's quickest against our median: {quickest / medians['muster, static']:.0f} times")


def show_torch(bench, torch):
    """Workers that import PyTorch, before and after a worker is killed."""
    workers = bench.count * bench.options.nproc
    print(f"\n{bench.count} nodes, {workers} workers that import torch")
    if not torch:
        print("  skipped: no torch")
        return
    rounds = {"torchrun, torch": bench.options.torch_rounds}
    Job(bench, "muster --warm-keep, torch").close()  # the job that imports, and leaves the template for the measured jobs
    found = measure(bench, kill_torch_worker, {kind: (rounds.get(kind, bench.options.rounds), 1) for kind in TORCH_KINDS}, LIMIT)
    parts = {"running": "killed -> all in their scripts", "group": "killed -> process group", "launch": "launch -> process group"}
    for part, what in parts.items():
        medians = {kind: median(list(filter(None, samples)), part) for kind, samples in found.items() if any(samples)}
        for kind, value in medians.items():
            print(f"  {what:32}{kind:30}{shown(value):>11}")
        figure = {"running": "a killed worker is back", "group": "its process group is back", "launch": "launch to process group"}[part]
        record(bench, f"--warm-keep, scripts that import torch: {figure}", found, part, ("muster --warm-keep, torch",), "torchrun, torch")
        warm, peer = medians.get("muster --warm-keep, torch"), medians.get("torchrun, torch")
        if warm and peer:
            bars = {"running": (25, 0.15), "group": (25, None), "launch": (10, None)}[part]
            bar(f"at least {bars[0]} times faster than torchrun; it is {peer / warm:.1f} times", peer / warm >= bars[0])
            if bars[1]:
                bar(f"within {shown(bars[1])}; it is {shown(warm)}", warm <= bars[1])
    print("  physical limit: fork of an interpreter that has imported torch, 6 ms a worker")


def show_cut(bench, torch):
    kinds = {"muster, elastic": (bench.options.rounds, 1)}
    found = measure(bench, cut_off, kinds, 30)["muster, elastic"]
    print(f"\n{bench.count} nodes: one is cut off (its packets vanish) -> the others run again; workers die at SIGTERM")
    print_samples("muster, elastic", found, 30)
    good = [sample for sample in found if sample and sample["stopped"] is not None]
    if good:
        detected, running = median(good, "stopped"), median(good)
        print("  physical limit: a heartbeat each 0.5 s, lost after 2.5 s of silence, which began up to 0.5 s before the cut")
        bar(f"detected in 2.5 s (and the last worker told to stop); it is {shown(detected)}", detected <= 2.5)
        bar(f"running in 4 s; it is {shown(running)}", running <= 4)
    both = {"muster, elastic": found}
    if torch and bench.count == 2:
        bound = bench.options.torch_bound
        both |= measure(bench, cut_off, {"torchrun, elastic": (1, 1)}, bound)
        print_samples("torchrun, elastic", both["torchrun, elastic"], bound)
    record(bench, "a node is cut off, the others run again", both, kinds=("muster, elastic",), peer="torchrun, elastic", limit=("2.5 s without a heartbeat", 2500))


def show_killed_agent(bench, torch):
    bound = bench.options.torch_bound
    rounds = (bench.options.rounds, 1)
    gone = measure(bench, kill_agent, {"muster, elastic": rounds}, 30)
    print(f"\n{bench.count} nodes: an agent is killed -> the others run again without it")
    print_samples("muster, elastic", gone["muster, elastic"], 30)
    print("  physical limit: none but the start of workers; a connection that broke is given 1 s to come back")
    plan = {"muster, static": rounds, "muster, elastic": rounds}
    if torch and bench.count == 2:
        gone |= measure(bench, kill_agent, {"torchrun, elastic": (1, 1)}, bound)
        print_samples("torchrun, elastic", gone["torchrun, elastic"], bound)
        plan["torchrun"] = (1, 1)
    record(bench, "an agent is killed, the others go on", gone, kinds=("muster, elastic",), peer="torchrun, elastic")
    found = measure(bench, replace_agent, plan, bound)
    print(f"\n{bench.count} nodes: an agent is killed, and another starts in its place at once -> all run again")
    record(bench, "an agent is killed and replaced", found)
    for kind, samples in found.items():
        print_samples(kind, samples, bound)


def show_killed_server(bench, torch):
    bound = bench.options.torch_bound
    rounds = (bench.options.rounds, 1)
    plan = {"muster, static": rounds, "muster, elastic": rounds}
    if torch and bench.count == 2:
        plan["torchrun"] = (1, 1)
    found = measure(bench, replace_server, plan, bound)
    print(f"\n{bench.count} nodes: the agent that serves the job is killed, and another starts in its place at once -> all run again")
    record(bench, "the serving agent is killed and replaced", found)
    for kind, samples in found.items():
        print_samples(kind, samples, bound)
    print("  physical limit: none but the start of workers; the others try to reach the server again after 10 ms, then twice as long each time")


CASES = {"worker": show_killed_worker, "torch": show_torch, "cut": show_cut, "agent": show_killed_agent, "server": show_killed_server}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--nodes", default="2,16", help="numbers of nodes")
    parser.add_argument("--nproc", type=int, default=2, help="workers of each node")
    parser.add_argument("--cases", default=",".join(CASES), help="some of " + ", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=9, help="jobs of muster in each row")
    parser.add_argument("--torch-rounds", type=int, default=2, help="jobs of torchrun, with three faults each")
    parser.add_argument("--torch-bound", type=float, default=60, help="seconds to wait for torchrun where it may not come back")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    return parser.parse_args()


def main():
    options = arguments()
    cluster.BUILD = pathlib.Path(options.build).resolve()
    if cluster.why_not():
        sys.exit(f"recovery.py: {cluster.why_not()}")
    foreign = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|PYTHON|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$")
    for name in filter(foreign.match, list(os.environ)):
        del os.environ[name]
    os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", PYTHON_EXEC=options.torch_python)
    version = torch_peer.version(options.torch_python)
    print(f"recovery: {options.nproc} workers a node, nodes are network namespaces of this machine; medians")
    print(f"torchrun: {version or f'skipped, {options.torch_python} has no torch (MUSTER_TORCH_PYTHON names another interpreter)'}")
    for count in map(int, options.nodes.split(",")):
        with tempfile.TemporaryDirectory(prefix="muster-recovery-") as folder:
            bench = Bench(options, count, pathlib.Path(folder))
            try:
                for case in options.cases.split(","):
                    CASES[case](bench, version is not None)
                    sys.stdout.flush()
            finally:
                bench.close()
    RUN.write(options)


if __name__ == "__main__":
    main()
