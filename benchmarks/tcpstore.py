"""Our TCPStore server and PyTorch's own under PyTorch's own clients: operations per second of the server's processor time, and wall time.

    python3 benchmarks/tcpstore.py --build BUILD_DIR [--rounds N] [--clients 1,8,64] [--only OPERATION,...] [--torch-python PYTHON]

Each server is a process of its own. In each round every operation runs against each server, one after the other in changing order,
so that a noisy machine disturbs all alike; what counts is the median of the rounds' ratios. The bare server is the physical limit: an
epoll loop with one recv and one send for each request and nothing else. The clients are threads of one process (1 client) or of
a few; a client makes one call after the other."""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys

from support import results, store_crew, store_servers, torch_peer

RUN = results.Run("tcpstore")

SOURCE = pathlib.Path(__file__).resolve().parent.parent
SUPPORT = pathlib.Path(__file__).resolve().parent / "support"
VALUE_BYTES = 16
BAR = 1.3
# Calls of all clients together in one measurement: 50 ms of the server's processor time or more.
CALLS = {
    "set": 60000, "get": 4000, "add": 6000, "check": 6000, "compare_set": 6000, "wait": 6000, "append": 60000, "multi_set": 16000,
    "multi_get": 4000, "queue": 4000, "wake": 4000,
}
MORE = {"set": 4, "append": 4, "multi_set": 2}  # times as many for 8 clients and more: no reply, so much is done at once
NOT_BARE = ("wake",)  # the bare server parks no client


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--only", default=",".join(CALLS), help="operations to measure")
    parser.add_argument("--ranks", type=int, default=64, help="of init_process_group; 0: not measured")
    parser.add_argument("--rank-rounds", type=int, default=5, help="runs of init_process_group with each server")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    return parser.parse_args()


def measure(crew, servers, operations, rounds):
    """{(operation, server): [(calls per second, calls per processor second), ...]}; a first round is not counted."""
    found = {(operation, name): [] for operation in operations for name in servers}
    for turn in range(rounds + 1):
        for operation in operations:
            names = [name for name in servers if name != "bare" or operation not in NOT_BARE]
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                calls = CALLS[operation] * (MORE.get(operation, 1) if crew.clients >= 8 else 1) // (1 if turn else 10)
                wall, cpu, made = crew.run(name, servers[name], operation, calls)
                if turn:
                    found[operation, name].append((made / wall, made / cpu))
    return found


def ratio(found, operation, ours, theirs, column):
    pairs = zip(found[operation, ours], found[operation, theirs])
    return statistics.median(a[column] / b[column] for a, b in pairs)


def report(clients, found, operations):
    """Prints one table; returns [(what, ours/theirs per processor second, ours/theirs in wall time, limit/theirs or None), ...]."""
    print(f"\n{clients} client{'s' if clients > 1 else ''}: calls a second of the server's processor time (and of wall time), medians")
    print(f"  {'':12}{'muster':>18}{'torch':>18}{'bare':>18}   muster/torch: cpu  wall   bare/torch: cpu")
    ratios = []
    for operation in operations:
        line = f"  {operation:12}"
        for name in ("muster", "torch", "bare"):
            samples = found[operation, name]
            rates = [statistics.median(s[i] for s in samples) for i in (1, 0)] if samples else None
            line += f"{rates[0]:9.0f} ({rates[1]:6.0f})" if rates else f"{'-':>18}"
        cpu, wall = (ratio(found, operation, "muster", "torch", column) for column in (1, 0))
        limit = ratio(found, operation, "bare", "torch", 1) if found[operation, "bare"] else None
        print(f"{line}{cpu:20.2f}{wall:6.2f}{limit:17.2f}" if limit else f"{line}{cpu:20.2f}{wall:6.2f}{'-':>17}")
        ratios.append((f"{operation} {clients}", cpu, wall, limit))
    return ratios


def report_bars(ratios):
    mean = [statistics.geometric_mean(r[i] for r in ratios) for i in (1, 2)]
    server, bare = "torch's server", "a server without a store"
    limits = [cpu and limit / cpu for _, cpu, _, limit in ratios if limit]
    RUN.add(
        "TCPStore server, requests a second of CPU time", "times", None, {server: None}, (bare, None) if limits else None,
        ratios={server: mean[0], **({bare: statistics.geometric_mean(limits)} if limits else {})}, note=f"{len(ratios)} rows",
    )  # fmt: skip
    RUN.add("TCPStore server, requests a second", "times", None, {server: None}, ratios={server: mean[1]}, note=f"{len(ratios)} rows")
    missed = [r for r in ratios if r[1] < BAR]
    beyond = [r for r in missed if r[3] and r[3] < BAR]
    slower = [r for r in ratios if r[2] < 1]
    print(f"\nall rows together (geometric mean): {mean[0]:.2f}x per processor second, {mean[1]:.2f}x in wall time")
    print(f"bar of {BAR}x per processor second: reached in {len(ratios) - len(missed)} of {len(ratios)} rows")
    for text, rows in (
        ("missed, and so does the bare server, which only receives and sends", beyond),
        ("missed", [r for r in missed if r not in beyond]),
    ):
        if rows:
            print(f"  {text}: {', '.join(f'{what} {cpu:.2f}' for what, cpu, _, _ in rows)}")
    print(f"no slower in wall time: {len(ratios) - len(slower)} of {len(ratios)} rows")
    if slower:
        print(f"  slower: {', '.join(f'{what} {wall:.2f}' for what, _, wall, _ in slower)}")


def init_groups(options, build):
    """{server: [(seconds until all ranks have a group, seconds of the server's processor time), ...]}"""
    found = {"muster": [], "torch": []}
    starters = {
        "muster": lambda: store_servers.muster_server(build), "torch": lambda: store_servers.torch_server(options.torch_python)
    }
    for turn in range(options.rank_rounds):
        for name in list(starters)[:: 1 if turn % 2 else -1]:
            server = starters[name]()
            command = [options.torch_python, str(SUPPORT / "store_ranks.py"), str(options.ranks), str(server.port)]
            done = subprocess.run(command, env=store_servers.quiet_environment(), stdout=subprocess.PIPE, text=True, check=True)
            found[name].append((int(done.stdout) / 1e9, server.cpu_ns() / 1e9))
            server.close()
    return found


def report_groups(ranks, found):
    print(f"\ninit_process_group (gloo) of {ranks} ranks, forked after the import, until all have it; {len(found['torch'])} runs each")
    for name, samples in found.items():
        walls = sorted(wall for wall, _ in samples)
        print(
            f"  {name:8}{statistics.median(walls):7.2f} s  ({walls[0]:.2f} to {walls[-1]:.2f})   the server's processor time "
            f"{statistics.median(cpu for _, cpu in samples) * 1e3:.1f} ms"
        )
    walls = {name: [wall for wall, _ in samples] for name, samples in found.items()}
    RUN.add(f"init_process_group of {ranks} ranks", "s", walls["muster"], {"torch's server": walls["torch"]})
    wall, cpu = (statistics.median(b[i] / a[i] for a, b in zip(found["muster"], found["torch"])) for i in (0, 1))
    print(f"  torch / muster: {wall:.2f}x wall time, bar 1; {cpu:.2f}x processor time of the server")


def main():
    options = arguments()
    store_servers.enter_own_network()
    build = pathlib.Path(options.build).resolve()
    version = torch_peer.version(options.torch_python)
    if version is None:
        sys.exit(f"tcpstore.py: {options.torch_python} has no torch (MUSTER_TORCH_PYTHON names another interpreter)")
    operations = [name for name in re.split("[, ]+", options.only) if name in CALLS]
    print(f"tcpstore: our server and torch {version}'s (libuv) under torch's clients; {options.rounds} rounds; bar {BAR}x a processor second")
    ratios = []
    for clients in map(int, filter(None, options.clients.split(","))):
        servers = {
            "muster": store_servers.muster_server(build),
            "torch": store_servers.torch_server(options.torch_python),
            "bare": store_servers.bare_server(build, VALUE_BYTES),
        }
        crew = store_crew.torch_crew(options.torch_python, clients, servers)
        alone = [name for name in operations if clients > 1 or name != "wake"]
        found = measure(crew, servers, alone, options.rounds)
        crew.close()
        if clients == 1 and "wake" in operations:  # a client that wakes another
            crew = store_crew.torch_crew(options.torch_python, 2, servers)
            found |= measure(crew, servers, ["wake"], options.rounds)
            crew.close()
        for server in servers.values():
            server.close()
        ratios += report(clients, found, operations)
    if ratios:
        report_bars(ratios)
    if options.ranks:
        report_groups(options.ranks, init_groups(options, build))
    RUN.write(options)


if __name__ == "__main__":
    main()
