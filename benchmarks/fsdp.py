"""FULL_SHARD of a GPT-2 124M against NO_SHARD on the same ranks, against PyTorch's FSDP2 with gloo, and against the copies that sharding
adds; and how much of its communication is hidden where that costs time and no processor.

    python3 benchmarks/fsdp.py --build BUILD_DIR [--rounds N] [--positions N] [--layers N] [--parts shard,hidden]

Two ranks of one thread. All are started once and then step in turns, in another order each round; a step takes as long as its slowest
rank. The limit of FULL_SHARD is NO_SHARD's step and the copies of the bytes that it receives more, measured with each step; differences are of one round. `hidden`
runs one rank against a delay line, whose rate makes communication as long as --share of the step without any."""

import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys

from support import results, torch_peer

RUN = results.Run("fsdp")

SOURCE = pathlib.Path(__file__).resolve().parent.parent
RANKS, WARM_UP = 2, 2
BAR_COPIES, BAR_HIDDEN = 1.2, {1: 0.80, 8: 0.95}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--positions", type=int, default=256, help="tokens of a sequence; a micro-batch is one")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--share", type=float, default=0.58, help="of a step, the delay line's communication")
    parser.add_argument("--parts", default="shard,hidden")
    parser.add_argument("--micro", type=int, nargs="+", default=list(BAR_HIDDEN), help="of hidden: micro-batches of a step")
    parser.add_argument("--threads", type=int, default=1, help="of hidden")
    parser.add_argument("--dense", action="store_true", help="of hidden: the embedding's gradient with its table's, not as rows")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    return parser.parse_args()


class Ranks:
    """Processes of one world that step on request."""

    def __init__(self, command, ranks=RANKS):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.processes = []
        for rank in range(ranks):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            sizes = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
            pipe = subprocess.PIPE
            self.processes.append(subprocess.Popen(command, env={**os.environ, **place, **sizes}, stdin=pipe, stdout=pipe, text=True))
        self.first = [self.read(process) for process in self.processes]

    def read(self, process):
        line = process.stdout.readline()
        if not line:
            sys.exit(f"fsdp.py: status {process.wait()} from {' '.join(process.args)}")
        return line.split()

    def step(self):
        """The figures of the slowest rank's line."""
        for process in self.processes:
            process.stdin.write("\n")
            process.stdin.flush()
        return max([int(word) for word in self.read(process)] for process in self.processes)

    def processor_ns(self):
        """Processor time of the first rank's threads so far: other work of the machine does not disturb it."""
        tasks = pathlib.Path(f"/proc/{self.processes[0].pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def close(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()


def step_command(options, **settings):
    program = pathlib.Path(options.build).resolve() / "benchmarks" / "fsdp_step"
    settings = {"positions": options.positions, "layers": options.layers, **settings}
    return [str(program), *(word for name, value in settings.items() for word in (f"--{name}", str(value)))]


def shard(options):
    ranks = {name: Ranks(step_command(options, strategy=name)) for name in ("NO_SHARD", "FULL_SHARD")}
    version = torch_peer.version(options.torch_python)
    if version:
        script = str(SOURCE / "benchmarks" / "support" / "fsdp_torch.py")
        ranks["FSDP2, gloo"] = Ranks([options.torch_python, script, str(options.positions), "1", str(options.layers)])
    else:
        print(f"FSDP2: left out, {options.torch_python} has no torch")
    taken, order = {name: [] for name in ranks}, list(ranks)
    begun = {}
    for number in range(options.rounds + WARM_UP):
        if number == WARM_UP:
            begun = {name: world.processor_ns() for name, world in ranks.items()}
        for name in order:
            figures = ranks[name].step()
            if number >= WARM_UP:
                taken[name].append(figures)
        order.append(order.pop(0))
    processor = {name: (world.processor_ns() - begun[name]) / options.rounds / 1e6 for name, world in ranks.items()}
    for world in ranks.values():
        world.close()
    print(f"{RANKS} ranks of one thread, {options.positions} tokens a rank, {options.layers} blocks; medians of {options.rounds} steps in turns")
    ms = {name: statistics.median(figures[0] for figures in steps) / 1e6 for name, steps in taken.items()}
    RUN.add(
        f"FULL_SHARD step of GPT-2 124M, {RANKS} ranks", "ms", [figures[0] / 1e6 for figures in taken["FULL_SHARD"]],
        {"FSDP2 with gloo": ms["FSDP2, gloo"]} if version else {}, ("NO_SHARD", ms["NO_SHARD"]), note=None if options.layers == 12 else f"{options.layers} layers",
    )  # fmt: skip
    copies = statistics.median(figures[3] for figures in taken["FULL_SHARD"]) / 1e6
    for name, value in ms.items():
        print(f"  {name:12}{value:9.0f} ms{value / ms['FULL_SHARD']:8.2f} times FULL_SHARD's, {processor[name]:6.0f} ms of a rank's processor time")
    if int(ranks["FULL_SHARD"].first[0][1]) <= 0:
        print("  FULL_SHARD receives no more bytes than NO_SHARD: use more --layers")
        return
    pairs = [(full[0] - none[0]) / 1e6 for full, none in zip(taken["FULL_SHARD"], taken["NO_SHARD"])]
    more, quarters = statistics.median(pairs), statistics.quantiles(pairs, n=4)
    print(f"  FULL_SHARD less NO_SHARD of the same round: {more:+.0f} ms (median; quarters {quarters[0]:+.0f} to {quarters[2]:+.0f}); more bytes "
          f"copied alone {copies:.0f} ms: {more / copies:.2f} times; bar {BAR_COPIES}: {'reached' if more <= BAR_COPIES * copies else 'missed'}")


def hidden(options):
    settings = {"threads": options.threads, "dense": int(options.dense)}
    for micro, bar in BAR_HIDDEN.items():
        if micro not in options.micro:
            continue
        bare = Ranks(step_command(options, micro=micro, delay=0, **settings), 1)
        received = int(bare.first[0][0])
        without = statistics.median([bare.step()[0] for _ in range(2 + WARM_UP)][WARM_UP:])
        bare.close()
        rate = round(options.share * without / received * 1000)  # picoseconds a byte
        line = Ranks(step_command(options, micro=micro, delay=rate, **settings), 1)
        steps = [line.step() for _ in range(max(2, options.rounds // micro) + WARM_UP)][WARM_UP:]
        line.close()
        shares = [1 - exposed / comm for _, comm, exposed, _ in steps]
        RUN.add(f"communication hidden, {micro} micro-batch{'es' if micro > 1 else ''}", "%", [100 * value for value in shares])
        share, worst, best = statistics.median(shares), min(shares), max(shares)
        print(f"  {micro} micro-batches: a step {without / 1e6:.0f} ms, communication {statistics.median(s[1] for s in steps) / 1e6:.0f} ms, "
              f"{100 * share:.1f}% of it hidden ({100 * worst:.1f} to {100 * best:.1f}, {len(steps)} steps); bar {100 * bar:.0f}%: {'reached' if share >= bar else 'missed'}")


def main():
    options = arguments()
    if "shard" in options.parts.split(","):
        shard(options)
    if "hidden" in options.parts.split(","):
        print("one rank beside a delay line")
        hidden(options)
    RUN.write(options)


if __name__ == "__main__":
    main()
