"""Results of benchmarks as data: benchmarks/results/NAME.json, one file a benchmark, one entry a run.

A program makes a Run as it starts, adds its figures, and calls write(). `--record` puts the run into the tree's file; without it the run is
written to build/benchmarks/results/. README's table and the charts are made from the tree's files by report.py (`./dev bench --report`).

    {"benchmark": "launch", "command": "./dev bench launch", "runs": [
      {"date": "2026-11-28 15:41", "processor": "AMD EPYC", "cores": 2, "beside": "nothing", "source": "measured", "figures": [
        {"figure": "start and finish 8 workers", "unit": "ms", "muster": 6.1, "least": 5.7, "most": 9.0,
         "peers": {"torchrun": {"median": 2650.0, "ratio": 435.0}},
         "limit": {"name": "bare posix_spawn loop", "median": 4.5, "ratio": 1.35}}]}]}

A peer's ratio is how many times as fast muster is. The limit's ratio is muster's time by the shortest possible time. `beside` is "nothing" or
the other work of that time. `source` is "measured" by a program, or "recorded": taken from notes of that day."""

import datetime
import json
import os
import pathlib
import re
import signal
import statistics
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = SOURCE / "benchmarks" / "results"
QUIET_LOAD = 1.0  # a load of more than this at the start is other work
KEPT_RUNS = 8  # measured runs of a benchmark in the tree, and more where a figure would go with a run


def unwind_at_signals():
    """SIGTERM and SIGHUP end this process through every `with` and `finally` on the way: folders, namespaces and processes go."""
    owner = os.getpid()

    def end(number, _):
        if os.getpid() != owner:  # a fork, which owns nothing
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        for each in (signal.SIGTERM, signal.SIGHUP):  # timeout(1) sends it to the process, and to its group
            signal.signal(each, lambda *_: None)
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, end)


def add_argument(parser):
    """--record. A program with it also cleans up where a signal asks it to end."""
    unwind_at_signals()
    parser.add_argument("--record", action="store_true", help="put the figures into benchmarks/results, for README's table and the charts")


def processor():
    """The name of the processor, as short as README's table writes it."""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = re.sub(r"\((?:R|TM|r|tm)\)|@.*", "", line.split(":", 1)[1])
            return re.sub(r" +", " ", re.sub(r"\b(?:CPU|Processor|\d+-Core)\b", "", name)).strip()
    return os.uname().machine


def ratio(value, by, digits=4):
    return None if not value or not by else float(f"{value / by:.{digits}g}")


class Run:
    """One run of one benchmark: figures with their peers and limit."""

    def __init__(self, benchmark):
        self.benchmark, load = benchmark, os.getloadavg()[0]
        self.about = {
            "date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}", "processor": processor(), "cores": len(os.sched_getaffinity(0)),
            "beside": "nothing" if load < QUIET_LOAD else f"other work (load {load:.1f})", "source": "measured",
        }  # fmt: skip
        self.figures = []

    def add(self, figure, unit, muster, peers=None, limit=None, more_is_better=False, ratios=None, note=None, more=None):
        """Values are medians, or lists of samples, or None where only a ratio is known. `limit` is (name, value). With more_is_better they
        are rates and not times. `ratios` has ratios that are not median by median: {peer or limit: ratio}. `more` has further fields of
        the figure."""
        ratios = ratios or {}
        entry = {"figure": figure, "unit": unit, "muster": self.median(muster)}
        if isinstance(muster, (list, tuple)):
            entry.update(least=self.median(min(muster)), most=self.median(max(muster)))
        if note:
            entry["note"] = note
        entry.update({name: self.median(value) for name, value in (more or {}).items()})
        by = (lambda ours, theirs: ratio(ours, theirs)) if more_is_better else (lambda ours, theirs: ratio(theirs, ours))

        def against(name, value, backwards):
            value = self.median(value)
            pair = (value, entry["muster"]) if backwards else (entry["muster"], value)
            return {"median": value, "ratio": ratio(ratios[name], 1) if name in ratios else by(*pair)}

        entry["peers"] = {name: against(name, value, False) for name, value in (peers or {}).items()}
        if limit:
            entry["limit"] = {"name": limit[0], **against(limit[0], limit[1], True)}
        self.figures.append(entry)

    @staticmethod
    def median(value):
        middle = statistics.median(value) if isinstance(value, (list, tuple)) and value else value
        return float(f"{middle:.5g}") if isinstance(middle, (int, float)) else None

    def write(self, options):
        """options: build, record. Writes nothing if no figure was added. Prints the file's name."""
        if not self.figures:
            return
        target = (RESULTS if options.record else pathlib.Path(options.build) / "benchmarks" / "results") / f"{self.benchmark}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        held = json.loads(target.read_text()) if target.exists() else {"runs": []}
        runs = held["runs"] + [{**self.about, "figures": self.figures}]
        drop_old(runs)
        target.write_text(text_of({
            "benchmark": self.benchmark, "command": f"./dev bench {self.benchmark.replace('_', '-')}", "runs": runs,
        }))  # fmt: skip
        print(f"results: {target}")


def is_replaced(run, later):
    """Whether later runs on this processor have each figure of the run, and were as quiet."""
    return all(any(other["processor"] == run["processor"] and (other["beside"] == "nothing" or run["beside"] != "nothing")
                   and figure["figure"] in [entry["figure"] for entry in other["figures"]] for other in later)
               for figure in run["figures"])  # fmt: skip


def drop_old(runs):
    """The oldest measured runs go, but for the last one of a figure on a processor: README's table has a row for each kind of processor."""
    while len([run for run in runs if run["source"] == "measured"]) > KEPT_RUNS:
        old = next((run for i, run in enumerate(runs) if run["source"] == "measured" and is_replaced(run, runs[i + 1:])), None)
        if old is None:
            break
        runs.remove(old)


def text_of(result):
    """One line a figure, so that a change of one is one line of a diff."""
    lines = [f'{{"benchmark": {json.dumps(result["benchmark"])}, "command": {json.dumps(result["command"])}, "runs": [']
    for number, run in enumerate(result["runs"]):
        about = json.dumps({key: value for key, value in run.items() if key != "figures"})
        lines.append(f'{about[:-1]}, "figures": [')
        lines.append(",\n".join("  " + json.dumps(figure) for figure in run["figures"]))
        lines.append("]}" + ("," if number + 1 < len(result["runs"]) else ""))
    return "\n".join(lines) + "\n]}\n"


def read_all():
    """{benchmark: its file's content}"""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
