"""How fast a world forms: thousands of simulated agents over real sockets, and 32 real ones against torchrun.

    python3 benchmarks/rendezvous.py --build BUILD_DIR [--only crowd|largest|agents] [--agents N,N,...] [--rounds N] [--nodes N]

crowd: N agents in few processes (benchmarks/worlds/crowd.c): the real server, and a real member at each of N - 1 connections, from the
first connect to the last message with the world; against a bare ROUTER that echoes one message to as many DEALERs of the same
libzmq with the same security, and against the same by plain TCP, which is what any protocol pays. The kinds take turns, so that
a noisy machine disturbs all alike; medians are shown, and ratios of medians.

largest: 16,384 agents: the server's processor time an agent against that at 1,000, and with a server that has a quarter of a processor.

agents: 32 `muster run` on this host, each with a worker that does nothing but record when it was started, from the first exec to
the last worker's start and to the end of the last agent; against 32 torchrun with the c10d backend and the same worker."""

import argparse
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from support import results, torch_peer

RUN = results.Run("rendezvous")

SOURCE = pathlib.Path(__file__).resolve().parent.parent
BAR_BARE, BAR_FLAT, BAR_TORCHRUN = 1.3, 1.5, 50
TORCHRUN_MB = 260  # memory for each torchrun


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--only", choices=("crowd", "largest", "agents"))
    parser.add_argument("--agents", default="100,500,1000,2000,4000", help="sizes of the simulated worlds")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind and size")
    parser.add_argument("--hold", type=int, default=10, help="seconds that a world is held to see what its beats cost")
    parser.add_argument("--nodes", type=int, default=32, help="real agents")
    parser.add_argument("--torch-rounds", type=int, default=2, help="runs of torchrun")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    return parser.parse_args()


def verdict(reached):
    return "reached" if reached else "NOT reached"


# --- crowd


def crowd(build, kind, agents, *flags):
    done = subprocess.run([str(build / "benchmarks" / "crowd"), kind, str(agents), *flags], capture_output=True, text=True)
    if done.returncode or done.stderr:
        sys.exit(f"rendezvous.py: crowd {kind} {agents} {' '.join(flags)}: {done.stderr or done.returncode}")
    words = done.stdout.split()
    return dict(zip(words[::2], map(int, words[1::2])))


KINDS = {
    "plain TCP": ("tcp",),
    "bare ROUTER/DEALER": ("bare",),
    "muster, static": ("ours",),
    "muster, elastic": ("ours", "--elastic"),
    "bare, CURVE": ("bare", "--secret"),
    "muster, static, secret": ("ours", "--secret"),
    "muster, elastic, secret": ("ours", "--elastic", "--secret"),
}
PEERS = {
    "muster, static": "bare ROUTER/DEALER",
    "muster, elastic": "bare ROUTER/DEALER",
    "muster, static, secret": "bare, CURVE",
    "muster, elastic, secret": "bare, CURVE",
}


def crowd_size(build, agents, rounds):
    """{kind: {quantity: median}}; quickest_ns is the run that was disturbed least"""
    found = {name: [] for name in KINDS}
    for _ in range(rounds):
        for name, (kind, *flags) in KINDS.items():
            found[name].append(crowd(build, kind, agents, *flags))
    medians = {}
    for name, samples in found.items():
        for sample in samples:
            sample["cpu_ns"] = sample["server_cpu_ns"] + sample["agents_cpu_ns"]
        medians[name] = {quantity: statistics.median(sample[quantity] for sample in samples) for quantity in samples[0]}
        medians[name]["quickest_ns"] = min(sample["wall_ns"] for sample in samples)
    return medians


def show_size(agents, found):
    head = f"{'ms':>9}{'us/agent':>10}{'processors us/agent':>21}{'the server':>12}{'its KB/agent':>14}"
    print(f"\n{agents} agents{'':17}{head}{'ratio':>8}{'of quickest':>13}{'of processors':>15}")
    for name, of in found.items():
        peer, ratios = found.get(PEERS.get(name)), ""
        if peer:
            ratios = "".join(
                f"{of[quantity] / peer[quantity]:{width}.2f}" for quantity, width in (("wall_ns", 8), ("quickest_ns", 13), ("cpu_ns", 15))
            )
        print(
            f"  {name:26}{of['wall_ns'] / 1e6:9.1f}{of['wall_ns'] / agents / 1e3:10.1f}{of['cpu_ns'] / agents / 1e3:21.1f}"
            f"{of['server_cpu_ns'] / agents / 1e3:12.1f}{of['server_kb'] / agents:14.1f}{ratios}"
        )


def show_crowds(build, sizes, rounds, hold):
    print("a world of N agents forms; medians. ratio: against the bare sockets with the same security")
    worlds = {}
    for agents in sizes:
        worlds[agents] = crowd_size(build, agents, rounds)
        show_size(agents, worlds[agents])
    largest = worlds[sizes[-1]]
    print()
    for name, peer in PEERS.items():
        ratio = largest[name]["wall_ns"] / largest[peer]["wall_ns"]
        quickest = largest[name]["quickest_ns"] / largest[peer]["quickest_ns"]
        figure = f"{sizes[-1]:,} simulated agents form a world{name.removeprefix('muster').replace('secret', 'with a secret')}"
        RUN.add(figure, "ms", largest[name]["wall_ns"] / 1e6, limit=("bare ROUTER/DEALER sockets", largest[peer]["wall_ns"] / 1e6))
        print(
            f"  {sizes[-1]} agents, {name}: {ratio:.2f} times {peer} ({quickest:.2f} in the quickest runs); bar {BAR_BARE}: "
            f"{verdict(ratio <= BAR_BARE)}"
        )
    for name in PEERS:
        costs = {agents: worlds[agents][name]["wall_ns"] / agents for agents in sizes}
        flat = costs[sizes[-1]] / statistics.median(costs.values())
        print(
            f"  {name}: {' '.join(f'{cost / 1e3:.0f}' for cost in costs.values())} us an agent; the largest world's is "
            f"{flat:.2f} of the middle one, bar {BAR_FLAT}: {verdict(flat <= BAR_FLAT)}"
        )
    for flags in ((), ("--secret",)):
        held = crowd(build, "ours", sizes[-1], *flags, "--hold", str(hold))["hold_cpu_ns"] / hold / 1e7
        print(f"  {sizes[-1]} agents held{' with a secret' if flags else ''}: the server takes {held:.1f}% of one processor")


LARGEST, SMALL, SLOW = 16384, 1000, 25
BAR_SERVER, BAR_MESSAGES = 1.25, 1.5


def show_largest(build, rounds):
    """The server's processor time an agent at 16,384 against that at 1,000, and a server that has a quarter of a processor."""
    print(f"\n{LARGEST} agents: the server's processor time an agent, and the messages of a server held to {SLOW}% of a processor")
    for name in PEERS:
        _, *flags = KINDS[name]
        found = {
            agents: [crowd(build, "ours", agents, *flags) for _ in range(max(1, rounds // (5 if agents == LARGEST else 1)))]
            for agents in (SMALL, LARGEST)
        }
        cost = {agents: statistics.median(sample["server_cpu_ns"] for sample in samples) / agents for agents, samples in found.items()}
        slow = crowd(build, "ours", LARGEST, *flags, "--slow", str(SLOW))
        ratio = cost[LARGEST] / cost[SMALL]
        messages = slow["messages"] / statistics.median(sample["messages"] for sample in found[LARGEST])
        RUN.add(f"{LARGEST:,} simulated agents{name.removeprefix('muster').replace('secret', 'with a secret')}: server's processor time an agent",
                "us", cost[LARGEST] / 1e3, limit=(f"at {SMALL:,} agents", cost[SMALL] / 1e3))  # fmt: skip
        print(
            f"  {name:26}{cost[SMALL] / 1e3:8.1f} us at {SMALL}{cost[LARGEST] / 1e3:8.1f} us: {ratio:.2f}, bar {BAR_SERVER}: "
            f"{verdict(ratio <= BAR_SERVER)}; slow: {slow['wall_ns'] / 1e9:.1f} s, {messages:.2f} of the messages, bar {BAR_MESSAGES}: "
            f"{verdict(messages <= BAR_MESSAGES)}"
        )


# --- agents


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def clean_environment(scratch):
    drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|PYTHON|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$")
    kept = {name: value for name, value in os.environ.items() if not drop.match(name)}
    kept.update(OMP_NUM_THREADS="1", TMPDIR=scratch)
    return kept


def place(kind, rank, nodes, port):
    endpoint = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", f"--local-addr=127.0.0.{rank + 1}", "--rdzv-id=bench"]
    if kind == "static":
        endpoint = ["--master-addr=127.0.0.1", f"--master-port={port}", f"--node-rank={rank}"]
    return [f"--nnodes={nodes}", "--nproc-per-node=1", *endpoint]


def run_agents(command, kind, nodes, worker, scratch):
    """(ms from the first exec to the last worker's start, ms to the end of the last agent)"""
    port, marks, log = free_port(), pathlib.Path(scratch, "marks"), pathlib.Path(scratch, "log")
    marks.unlink(missing_ok=True)
    with log.open("wb") as out:
        begun = time.monotonic_ns()
        agents = [
            subprocess.Popen(
                [*command, *place(kind, rank, nodes, port), *worker, str(marks)],
                env={**clean_environment(scratch), "MUSTER_HOSTNAME": f"node-{rank}"},
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )
            for rank in range(nodes)
        ]
        codes = [agent.wait() for agent in agents]
        ended = time.monotonic_ns()
    starts = [int(line) for line in marks.read_text().split()] if marks.exists() else []
    if any(codes) or len(starts) != nodes:
        sys.exit(f"rendezvous.py: {kind}: exit codes {codes}, {len(starts)} workers\n{log.read_text()[-2000:]}")
    return (max(starts) - begun) / 1e6, (ended - begun) / 1e6


def available_mb():
    return int(re.search(r"MemAvailable:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1)) // 1024


def spawn_limit(build, processes):
    """ms of a bare loop that starts as many processes and waits for them: a launch without an agent"""
    begun = time.monotonic()
    subprocess.run([str(build / "benchmarks" / "spawn_loop"), str(processes), "/bin/true"], check=True)
    return (time.monotonic() - begun) * 1e3


def show_agents(build, nodes, rounds, torch_rounds, python):
    muster, worker = [str(build / "bin" / "muster"), "run"], [str(build / "benchmarks" / "mark_start")]
    torch_nodes = min(nodes, max(2, (available_mb() - 2048) // TORCHRUN_MB))
    version = torch_peer.version(python) if torch_rounds else None
    print(f"\n{nodes} real agents on this host, a worker each; medians")
    found = {}
    with tempfile.TemporaryDirectory(prefix="muster-rendezvous-") as scratch:
        for round_number in range(rounds + 1):  # the first one warms caches
            for kind in ("static", "elastic"):
                sample = run_agents(muster, kind, nodes, worker, scratch)
                if round_number:
                    found.setdefault(f"muster run, {kind}", []).append(sample)
            if version and 0 < round_number <= torch_rounds:
                torchrun = [python, "-m", "torch.distributed.run"]
                sample = run_agents(torchrun, "c10d", torch_nodes, ["--no-python", *worker], scratch)
                found.setdefault(f"torchrun {version}, c10d", []).append(sample)
    medians = {name: [statistics.median(column) for column in zip(*samples)] for name, samples in found.items()}
    print(f"  {'':30}{'all workers started':>21}{'all agents ended':>18}   from the first exec")
    for name, (started, ended) in medians.items():
        low, high = min(sample[0] for sample in found[name]), max(sample[0] for sample in found[name])
        print(f"  {name:30}{started:18.1f} ms{ended:15.1f} ms   ({low:.0f} to {high:.0f} ms, {len(found[name])} runs)")
    limit = statistics.median(spawn_limit(build, 2 * nodes) for _ in range(rounds))
    print(f"  physical limit: a bare posix_spawn loop over as many processes, agents and workers: {limit:.1f} ms")
    for kind in ("static", "elastic"):
        torchrun = [sample[0] for sample in found.get(f"torchrun {version}, c10d", [])]
        RUN.add(
            f"{nodes} agents on one host start a worker each, {kind}", "ms", [sample[0] for sample in found[f"muster run, {kind}"]],
            {"torchrun": torchrun} if torchrun else {}, ("bare starts of as many processes", limit),
        )  # fmt: skip
    if not version:
        print(f"  torchrun: skipped: --torch-rounds=0, or {python} has no torch (MUSTER_TORCH_PYTHON names another interpreter)")
        return
    if torch_nodes < nodes:
        print(f"  torchrun with {torch_nodes} agents only: there is no memory for more")
    torch_started = medians[f"torchrun {version}, c10d"][0]
    for kind in ("static", "elastic"):
        ratio = torch_started / medians[f"muster run, {kind}"][0]
        print(f"  {kind}: {ratio:.0f} times as fast as torchrun; bar {BAR_TORCHRUN}: {verdict(ratio >= BAR_TORCHRUN)}")


def main():
    options = arguments()
    build = pathlib.Path(options.build).resolve()
    if options.only in (None, "crowd"):
        show_crowds(build, [int(number) for number in options.agents.split(",")], options.rounds, options.hold)
    if options.only in (None, "largest"):
        show_largest(build, options.rounds)
    if options.only in (None, "agents"):
        show_agents(build, options.nodes, options.rounds, options.torch_rounds, options.torch_python)
    RUN.write(options)


if __name__ == "__main__":
    main()
