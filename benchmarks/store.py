"""Our store against PyTorch's, as their clients see them: time of a call from its start to its end.

    python3 benchmarks/store.py --build BUILD_DIR [--rounds N] [--clients 1,8,64] [--torch-python PYTHON]

muster: our client (rendezvous/tcpstore/tcpstore_client.h) and our server, over TCP. zeromq: the same engine with a ROUTER and a client that
needs one message for a call, to see what ZeroMQ's hop gives and takes. torch: PyTorch's client and server. c/torch: our client against
torch's server, which shows how much of the difference is the client. The limit is a raw ping-pong over TCP: our client's ADD against a
server that does nothing but one recv and one send. Each server is a process of its own; in each round every row runs in each column,
one after the other in changing order; medians are shown, ratios are medians of the rounds' ratios."""

import argparse
import pathlib
import statistics
import sys

from support import results, store_crew, store_servers, torch_peer

RUN = results.Run("store")

SOURCE = pathlib.Path(__file__).resolve().parent.parent
# Calls of all clients together in one measurement, and the smallest number of clients for which the row has a meaning.
ROWS = {
    "set": (30000, 1), "get": (6000, 1), "add": (6000, 1), "wake": (4000, 2), "barrier": (3200, 8), "gather": (1600, 8),
    "gather_gets": (640, 8),
}
WORDS = {
    "set": "set, no reply", "get": "get of a key that is there", "add": "add", "wake": "set that wakes a wait", "barrier": "barrier",
    "gather": "all-gather at once", "gather_gets": "all-gather, one get a rank",
}
RAW = ("get", "add", "wake", "barrier")  # rows for which one ping-pong of all clients is the limit
# What torch can do for a row, where there is more than one way; the ratio is to the first.
TORCH_WAYS = {"barrier": ("barrier", "barrier_query")}
BARS = {"get": 1.3, "barrier": 3.0, "gather": 3.0}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clients", default="1,8,64")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    return parser.parse_args()


class Columns:
    """All ways to make a call, for one number of clients."""

    def __init__(self, options, build, clients):
        self.servers = {
            "muster": store_servers.muster_server(build), "zeromq": store_servers.zeromq_server(build),
            "torch": store_servers.torch_server(options.torch_python), "raw": store_servers.bare_server(build, 16),
        }
        self.ours = store_crew.c_crew(build, clients, self.servers)
        self.torchs = store_crew.torch_crew(options.torch_python, clients, {"torch": self.servers["torch"]})

    def of(self, row):
        """{column: (crew, server, operation)}"""
        found = {
            "muster": (self.ours, "muster", row), "zeromq": (self.ours, "zeromq", row), "c/torch": (self.ours, "torch", row),
        }
        for way in TORCH_WAYS.get(row, (row,)):
            found["torch" if way == row else f"torch {way}"] = (self.torchs, "torch", way)
        if row in RAW:
            found["raw"] = (self.ours, "raw", "add")
        return found

    def time(self, row, column, calls):
        """Seconds of one call: all clients make it at once."""
        crew, server, operation = self.of(row)[column]
        wall, _, made = crew.run(server, self.servers[server], operation, calls)
        return wall / made if operation == "wake" else wall / (made / crew.clients)  # a token: one client after the other

    def close(self):
        self.ours.close()
        self.torchs.close()
        for server in self.servers.values():
            server.close()


def measure(columns, row, rounds):
    """{column: [seconds, ...]}; a first round is not counted."""
    names = list(columns.of(row))
    found = {name: [] for name in names}
    for turn in range(rounds + 1):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            seconds = columns.time(row, name, ROWS[row][0] if turn else ROWS[row][0] // 10)
            if turn:
                found[name].append(seconds)
    return found


def ratio(found, over, under):
    return statistics.median(a / b for a, b in zip(found[over], found[under]))


def cell(value, width, digits):
    return f"{value:{width}.{digits}f}" if value is not None else f"{'-':>{width}}"


def report(row, clients, found):
    """Prints one row; returns [(bar's text, reached), ...]."""
    plural = "s" if clients > 1 else ""
    names = {"gather": "all-gather", "gather_gets": "all-gather by gets"}
    figure = f"store: {names.get(row, row)} of {clients}" if row in ("barrier", *names) else f"store: {row}, {clients} client{plural}"
    RUN.add(
        figure, "us", [1e6 * each for each in found["muster"]], {"torch's store": [1e6 * each for each in found["torch"]]},
        ("raw TCP ping-pong", [1e6 * each for each in found["raw"]]) if row in RAW and "raw" in found else None,
    )  # fmt: skip
    line = f"  {WORDS[row]:28}"
    for name in ("muster", "zeromq", "torch", "c/torch", "raw"):
        line += cell(statistics.median(found[name]) * 1e6 if name in found else None, 10, 1)
    ours, theirs = (ratio(found, "torch", name) for name in ("muster", "zeromq"))
    for value, width in (ours, 15), (theirs, 10), *((ratio(found, "raw", n) if row in RAW else None, w) for n, w in (("muster", 13), ("zeromq", 10))):
        line += cell(value, width, 2)
    print(line)
    for name in found:
        if name.startswith("torch "):
            print(f"    {name:36}{statistics.median(found[name]) * 1e6:20.1f}{ratio(found, name, 'muster'):35.2f}{ratio(found, name, 'zeromq'):10.2f}")
    if row not in BARS or (row != "get" and clients < 64):
        return []
    return [(f"{row} with {clients}: {ours:.2f}x (zeromq {theirs:.2f}x), bar {BARS[row]}x", max(ours, theirs) >= BARS[row])]


def main():
    options = arguments()
    store_servers.enter_own_network()
    build = pathlib.Path(options.build).resolve()
    version = torch_peer.version(options.torch_python)
    if version is None:
        sys.exit(f"store.py: {options.torch_python} has no torch (MUSTER_TORCH_PYTHON names another interpreter)")
    print(f"store: microseconds of one call while all clients make it; torch {version}; medians of {options.rounds} rounds")
    bars = []
    for clients in map(int, options.clients.split(",")):
        print(f"\n{clients} client{'s' if clients > 1 else ''}")
        print(f"  {'':28}{'muster':>10}{'zeromq':>10}{'torch':>10}{'c/torch':>10}{'raw':>10}   torch/muster   /zeromq   raw/muster   /zeromq")
        columns = Columns(options, build, clients)
        for row, (_, least) in ROWS.items():
            if row == "wake" and clients == 1:
                pair = Columns(options, build, 2)
                bars += report(row, 2, measure(pair, row, options.rounds))
                pair.close()
            elif clients >= least:
                bars += report(row, clients, measure(columns, row, options.rounds))
        columns.close()
    print()
    for text, reached in bars:
        print(f"{'reached' if reached else 'missed '}  {text}")
    RUN.write(options)


if __name__ == "__main__":
    main()
