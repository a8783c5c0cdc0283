"""Training under faults: time over the undisturbed run's, steps made again, goodput and final loss of muster with checkpoints, with memory
copies and with replicas, of torchrun with torch.distributed.checkpoint, and of TorchFT.

    python3 benchmarks/goodput.py --build BUILD_DIR [--models demo,124m] [--every 50,200,1000] [--steps N] [--modes muster,torchrun,TorchFT]

Four nodes of one rank and a spare are network namespaces of this machine (goodput/README.md). One fault comes in every window of k steps:
a worker, an agent, a node or the serving node is killed. All rows get the same faults at the same steps, and each is held against its own
undisturbed run of as many steps. Each fault is printed with its pause. Goodput is the page's (launcher/policy/goodput.h); a fault's longest
pause ends a round, also where workers keep their state and no step is made again. Needs root, for the namespaces."""

import argparse
import os
import pathlib
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(SOURCE / "tests" / "e2e"), str(SOURCE / "benchmarks" / "goodput")]

import faults  # noqa: E402
import job  # noqa: E402
import modes  # noqa: E402
from harness import cluster  # noqa: E402
from support import results, torch_peer  # noqa: E402

RUN = results.Run("goodput")
STEPS = {"demo": 2000, "124m": 200}
BAR_GOODPUT, BAR_EVERY, BAR_TORCHRUN = 0.97, 200, 5
PROSE = "/usr/share/games/fortunes"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--models", default="demo,124m", help="demo, 124m, or both; %(default)s")
    parser.add_argument("--every", default="50,200,1000", help="steps between two faults; %(default)s")
    parser.add_argument("--steps", type=int, help=f"of every run; {STEPS['demo']} of the demo model, {STEPS['124m']} of the other")
    parser.add_argument("--modes", default="", help="only rows whose name has one of these words: muster, copies, torchrun, ...")
    parser.add_argument("--text", default=PROSE, help="a file or folder of text; %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900, help="seconds of one run")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    options = parser.parse_args()
    check(parser, options)
    return options


def check(parser, options):
    """Ends with usage and the wrong option, before a run of minutes is begun."""
    names = [mode.name for mode in modes.MODES]
    for model in options.models.split(","):
        if model not in modes.MODELS:
            parser.error(f"--models: '{model}' is not one of {', '.join(modes.MODELS)}")
    for word in options.every.split(","):
        if not word.isdecimal() or int(word) < 1:
            parser.error(f"--every: '{word}' is not a number of steps from 1 on")
    for word in options.modes.split(","):
        if not any(word in name for name in names):
            parser.error(f"--modes: no row's name has '{word}': {'; '.join(names)}")
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps: {options.steps} is not a number of steps from 1 on")
    if not options.limit > 0:
        parser.error(f"--limit: {options.limit:g} is not a number of seconds above 0")
    if not pathlib.Path(options.text).exists():
        parser.error(f"--text: {options.text} does not exist")
    if not (pathlib.Path(options.build) / "bin" / "muster").exists():
        parser.error(f"--build: {options.build} has no bin/muster: ./dev build makes it")


class Bench:
    working = 4

    def __init__(self, options, folder):
        self.options, self.build, self.folder, self.port = options, pathlib.Path(options.build).resolve(), folder, 29600
        self.torch, self.text = torch_peer.version(options.torch_python), pathlib.Path(options.text)
        self.empty = folder / "empty.yaml"
        self.empty.write_text("training: {}\n")
        self.cluster = cluster.Cluster(self.working + 1, folder)
        self.name_nodes()
        self.runs = 0

    def name_nodes(self):
        """torch asks for names of addresses, and waits long for an unknown name."""
        names = "".join(f"{node.address} {node.name}\n" for node in self.cluster.nodes)
        for node in self.cluster.nodes:
            node.pod.hosts.write_text("127.0.0.1 localhost\n" + names)

    def run(self, mode, steps, plan):
        self.runs += 1
        folder = self.folder / f"run{self.runs}"
        folder.mkdir()
        result = job.Run(self, mode, steps, folder).go(plan, self.options.limit)
        if result.said:
            print(f"    {mode.name}: step {result.steps} of {steps} after {result.seconds:.0f} s; the agents said:\n{result.said}")
        return result


def show(label, result, base, steps):
    if result.steps < steps:
        print(f"  {label:44}not finished: step {result.steps} of {steps} in {result.seconds:.0f} s, {len(result.faults)} faults")
        return
    print(
        f"  {label:44}{result.seconds:9.1f} s{result.seconds / base.seconds:8.2f}{result.seconds - base.seconds:9.1f} s{result.again:7}"
        f"{result.goodput:10.3f}{result.loss:9.4f}   {', '.join(told(*pair) for pair in zip(result.faults, result.pauses))}"
    )


def told(fault, pause):
    step, kind = fault[:2]
    return f"{step} {kind}" + (f" {pause / 1000:.1f} s" if pause is not None else "")


def measure(bench, model, every_list, steps):
    bench.model = modes.MODELS[model]
    wanted = bench.options.modes.split(",")
    rows, found = [], {}
    for mode in modes.MODES:
        if not any(word in mode.name for word in wanted):
            continue
        missing = mode.absent(bench)
        if missing:
            print(f"  {mode.name:44}absent: {missing}")
        else:
            rows.append(mode)
    print(f"  {'':44}{'time':>11}{'times':>8}{'lost':>11}{'again':>7}{'goodput':>10}{'loss':>9}   faults")
    for mode in rows:
        base = bench.run(mode, steps, [])
        show(f"{mode.name}, undisturbed", base, base, steps)
        if base.steps < steps:
            continue
        for every in every_list:
            plan = faults.schedule(steps, every, bench.options.seed)
            if not plan:
                continue
            result = bench.run(mode, steps, plan)
            show(f"{mode.name}, one in {every}", result, base, steps)
            found[mode.name, every] = (mode, base, result)
    return found


def record(model, found, every_list, steps):
    """A figure a row and rate of faults: seconds lost to the faults, against the peers' of the same faults."""
    title = {"demo": "demo GPT", "124m": "GPT-2 124M"}[model]
    for every in every_list:
        theirs = {}
        for (_, of), (mode, base, result) in found.items():
            if of == every and mode.peer:
                theirs[mode.peer] = result.seconds - base.seconds if result.steps >= steps else None
        for (name, of), (mode, base, result) in found.items():
            if of != every or mode.peer or result.steps < steps:
                continue
            lost = result.seconds - base.seconds
            more = {
                "faults": len(result.faults), "steps": steps, "again": result.again, "goodput": result.goodput, "seconds": result.seconds,
                "undisturbed": base.seconds, "loss": result.loss, "undisturbed_loss": base.loss,
            }  # fmt: skip
            figure = f"{title}, a fault in {every} steps, {name.removeprefix('muster with ')}: time lost"
            RUN.add(figure, "s", lost, theirs, more=more)
            share = base.seconds / result.seconds
            bar = f"; bar {BAR_GOODPUT}: {reached(share >= BAR_GOODPUT)}" if every >= BAR_EVERY else f"; the bar is for one in {BAR_EVERY} and rarer"
            print(f"  {name}, one in {every}: {share:.3f} of the undisturbed speed{bar}")
            if theirs.get("torchrun") and lost > 0:
                times = theirs["torchrun"] / lost
                print(f"    {times:.1f} times less time lost than torchrun; bar {BAR_TORCHRUN}: {reached(times >= BAR_TORCHRUN)}")


def reached(is_it):
    return "reached" if is_it else "NOT reached"


def main():
    options = arguments()
    why = cluster.why_not()
    if why:
        sys.exit(f"goodput.py: {why}")
    every_list = [int(number) for number in options.every.split(",")]
    with tempfile.TemporaryDirectory(prefix="muster-goodput-") as scratch:
        folder = pathlib.Path(scratch)
        os.environ["XDG_RUNTIME_DIR"] = str(folder)
        bench = Bench(options, folder)
        try:
            for model in options.models.split(","):
                steps = options.steps or STEPS[model]
                print(f"\n{model}: {steps} steps on {bench.working} nodes and a spare; times: of the undisturbed run", flush=True)
                record(model, measure(bench, model, every_list, steps), every_list, steps)
        finally:
            bench.cluster.close()
    RUN.write(options)


if __name__ == "__main__":
    main()
