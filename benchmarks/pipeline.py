"""A step of a GPT-2 124M in stages of a pipeline, against PyTorch's Schedule1F1B with gloo: the same cut, 1F1B, AdamW, the norm clipped.

    python3 benchmarks/pipeline.py --build BUILD_DIR [--rounds N] [--stages 4] [--micro 8] [--positions N] [--layers N]

Each stage is a rank of one thread. Both are started once and then step in turns; a step takes as long as its slowest rank. PyTorch's head
has a table of its own, whose gradient no stage shares: less work than ours, which is tied. The limit is the same step of one rank for each
processor without stages, over the same samples, by NO_SHARD."""

import argparse
import os
import pathlib
import statistics

from fsdp import Ranks
from support import results, torch_peer

RUN = results.Run("pipeline")

SOURCE = pathlib.Path(__file__).resolve().parent.parent
WARM_UP, BAR = 1, 0.9


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--micro", type=int, default=8, help="micro-batches of a sequence")
    parser.add_argument("--positions", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--layers", type=int, default=12)
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    return parser.parse_args()


def command(options, micro, stages):
    program = str(pathlib.Path(options.build).resolve() / "benchmarks" / "fsdp_step")
    words = {"strategy": "NO_SHARD", "positions": options.positions, "layers": options.layers, "micro": micro, "pipeline": stages}
    return [program, *(str(word) for name, value in words.items() for word in (f"--{name}", value))]


def main():
    options = arguments()
    cores = len(os.sched_getaffinity(0))
    worlds = {"muster": Ranks(command(options, options.micro, options.stages), options.stages)}
    cut = worlds["muster"].first[0][2:]
    if torch_peer.version(options.torch_python):
        script = str(SOURCE / "benchmarks" / "support" / "pipeline_torch.py")
        blocks = ",".join(str(int(layer) - 1) for layer in cut)
        worlds["Schedule1F1B, gloo"] = Ranks([options.torch_python, script, str(options.positions), str(options.micro), str(options.layers), blocks], options.stages)
    worlds["without stages"] = Ranks(command(options, options.micro // cores, 1), cores)
    taken, order = {name: [] for name in worlds}, list(worlds)
    for number in range(options.rounds + WARM_UP):
        for name in order:
            seconds = worlds[name].step()[0] / 1e9
            if number >= WARM_UP:
                taken[name].append(seconds)
        order.append(order.pop(0))
    for world in worlds.values():
        world.close()
    middle = {name: statistics.median(steps) for name, steps in taken.items()}
    print(f"{options.stages} stages, cut at layers {', '.join(cut)}, {options.micro} micro-batches of {options.positions} tokens, {cores} processors; "
          f"medians of {options.rounds} steps in turns")
    for name, value in middle.items():
        print(f"  {name:20}{value:8.2f} s ({min(taken[name]):.2f} to {max(taken[name]):.2f})")
    peers = {name: value for name, value in middle.items() if name.startswith("Schedule")}
    for name, value in peers.items():
        share = statistics.median(ours / theirs for ours, theirs in zip(taken["muster"], taken[name]))
        print(f"  {share:.2f} of {name}'s step; bar {BAR}: {'reached' if share <= BAR else 'missed'}")
    RUN.add(f"step of GPT-2 124M in {options.stages} stages", "s", taken["muster"], peers, ("without stages", middle["without stages"]),
            note=None if (options.layers, options.micro) == (12, 8) else f"{options.layers} layers, {options.micro} micro-batches")  # fmt: skip
    RUN.write(options)


if __name__ == "__main__":
    main()
