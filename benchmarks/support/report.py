"""README's measured table and one chart a benchmark, made of benchmarks/results/*.json. Standard library only.

    python3 benchmarks/support/report.py           writes README.md between its markers, and benchmarks/results/NAME.svg
    python3 benchmarks/support/report.py --check   writes nothing; prints the names that are not equal, and exits 1 then"""

import html
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support.results import RESULTS, SOURCE, read_all  # noqa: E402

README = SOURCE / "README.md"
BEGIN, END = "<!-- measured: ./dev bench --report writes these lines -->\n", "<!-- end of measured -->\n"
FAULTS = """
Training under faults, on four nodes and a spare in network namespaces of one machine. Each fault kills a worker, an agent, a node or the
serving node. `speed` is the undisturbed run's time divided by the time with faults. A silent node costs 2.5 s until it counts as lost.

"""

# How README writes a peer's name where the result's is long
SHORT = {
    "PyTorch eager": "eager", "torch.compile": "compiled", "cat into one file": "cat", "MPICH hydra": "hydra", "FSDP2 with gloo": "FSDP2",
    "torch.distributed.checkpoint async_save": "DCP async_save", "torch.distributed.checkpoint": "DCP",
    "fully_shard with gloo": "fully_shard", "tokenizers 0.23.3": "tokenizers", "sentencepiece 0.2.3": "sentencepiece",
}  # fmt: skip

# README's rows: benchmark, figure, and a part of the processor's name where the figure is shown for one kind
ROWS = (
    ("launch", "start and finish 8 workers", ""),
    ("logs", "tee of 64 workers with heavy output", ""),
    ("rendezvous", "4,000 simulated agents form a world, elastic", ""),
    ("recovery", "a worker is killed, all run again, 2 nodes, elastic", ""),
    ("recovery", "a worker is killed, all run again, 16 nodes, elastic", ""),
    ("recovery", "--warm-keep, scripts that import torch: a killed worker is back", ""),
    ("tcpstore", "TCPStore server, requests a second of CPU time", ""),
    ("train_cpu", "GPT-2 124M step, fp32, 256 tokens", "EPYC"),
    ("train_cpu", "GPT-2 124M step, fp32, 256 tokens", "Xeon"),
    ("train_cpu", "GPT-2 124M step, fp32, 1,024 tokens", "EPYC"),
    ("train_cpu", "GPT-2 124M step, fp32, 1,024 tokens", "Xeon"),
    ("train_cpu", "GPT-2 124M step, products of bf16, 256 tokens", "EPYC"),
    ("train_cpu", "GPT-2 124M step, products of bf16, 256 tokens", "Xeon"),
    ("train_cpu", "GPT-2 124M step, products of bf16, 1,024 tokens", "EPYC"),
    ("train_cpu", "GPT-2 124M step, products of bf16, 1,024 tokens", "Xeon"),
    ("train_cpu", "GPT-2 124M step, values of bf16, 256 tokens", "EPYC"),
    ("train_cpu", "GPT-2 124M step, values of bf16, 256 tokens", "Xeon"),
    ("train_cpu", "GPT-2 124M step, values of bf16, 1,024 tokens", "EPYC"),
    ("train_cpu", "GPT-2 124M step, values of bf16, 1,024 tokens", "Xeon"),
    ("train_gpu", "GPT-2 124M step, tf32, 8 x 1,024 tokens", ""),
    ("train_gpu", "GPT-2 124M step, fp32, 8 x 1,024 tokens", ""),
    ("checkpoint", "checkpoint of GPT-2 124M saved", ""),
    ("checkpoint", "checkpoint of GPT-2 124M loaded", ""),
    ("fsdp", "FULL_SHARD step of GPT-2 124M, 2 ranks", ""),
    ("torch_fsdp", "PyTorch GPT of 124M sharded, 2 ranks", ""),
    ("comm", "all_gather, 2 ranks, 16 MB", ""),
)


def quiet(run):
    return run["beside"] == "nothing"


def cells(figure):
    return len(figure.get("peers", {})) + ("limit" in figure)


def newest(result, name, processor=""):
    """(run, figure) of the newest quiet run; among runs of one day the run with the most cells."""
    found = [(run, figure) for run in result["runs"] for figure in run["figures"] if figure["figure"] == name and processor in run["processor"]]
    return max(found, key=lambda pair: (quiet(pair[0]), pair[0]["date"][:10], cells(pair[1]), pair[0]["date"]), default=None)


def number(value):
    """Three digits, as a table has them; 0.005 stays."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def kind(run):
    """The processor's kind, as the table writes it."""
    return next((word for word in ("H100", "EPYC", "Xeon") if word in run["processor"]), run["processor"])


def day(run):
    return f"{kind(run)}, {run['date'][:10]}" + ("" if quiet(run) else ", busy")


def peers_of(figure):
    """How many times as fast muster is, peer by peer."""
    return ", ".join(
        f"{SHORT.get(peer, peer)} {number(entry['ratio'])}" if entry["ratio"] is not None else f"{peer} not finished"
        for peer, entry in figure["peers"].items()
    )  # fmt: skip


def rows_of(head, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, *rows]).replace("\n", "\n|" + "---|" * len(head) + "\n", 1) + "\n"


def table(results):
    rows = []
    for benchmark, name, processor in ROWS:
        found = newest(results[benchmark], name, processor) if benchmark in results else None
        if not found:
            raise SystemExit(f"report.py: benchmarks/results/{benchmark}.json has no figure '{name}' {processor}")
        run, figure = found
        rows.append([name, benchmark.replace("_", "-"), day(run), peers_of(figure), number(figure.get("limit", {}).get("ratio"))])
    return rows_of(["figure", "`./dev bench`", "processor, day", "times as fast as", "limit"], rows)


def faults_table(result):
    """Training under faults: each figure of goodput.json, in the order of models and rates."""
    names = dict.fromkeys(figure["figure"] for run in result["runs"] for figure in run["figures"])
    rows = []
    for name in sorted(names, key=lambda name: [len(name.split(", ")[1]), *name.split(", ")]):  # by rates of faults
        run, figure = newest(result, name)
        model, rate, state = name.removesuffix(": time lost").split(", ", 2)
        rows.append([
            f"{model}, {rate}", state, day(run), f"{figure['undisturbed'] / figure['seconds']:.3f}", number(figure["muster"] / figure["faults"]),
            str(int(figure["again"])), peers_of(figure)
        ])  # fmt: skip
    return rows_of(["training", "state is kept in", "processor, day", "speed", "s a fault", "steps again", "times less lost than"], rows)


WIDTH, LEFT, BAR, GAP = 940, 440, 16, 6
LOW, HIGH = 0.1, 2000.0  # ends of the axis, times
COLOURS = ("#3465a4", "#75507b", "#4e9a06", "#c17d11", "#cc0000", "#06989a")


def place(value):
    """Where a ratio lies on the axis, which is logarithmic."""
    share = (math.log10(min(max(value, LOW), HIGH)) - math.log10(LOW)) / (math.log10(HIGH) - math.log10(LOW))
    return LEFT + share * (WIDTH - LEFT - 70)


def chart(result):
    """A bar a peer and figure: how many times as fast muster is. A tick: muster's time by the limit's."""
    names = list(dict.fromkeys(figure["figure"] for run in result["runs"] for figure in run["figures"]))
    peers, rows = {}, []
    for name in names:
        run, figure = newest(result, name)
        bars = [(peer, entry["ratio"]) for peer, entry in figure["peers"].items() if entry["ratio"] is not None]
        limit = figure.get("limit", {}).get("ratio")
        if bars or limit is not None:
            rows.append((name, run, bars, limit))
            for peer, _ in bars:
                peers.setdefault(peer, COLOURS[len(peers) % len(COLOURS)])
    body, y = [], 64
    for name, run, bars, limit in rows:
        title = f"{name} ({kind(run)}, {run['date'][:10]})"
        body.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{html.escape(title)}</text>')
        for peer, value in bars:
            begin, end = sorted((place(1), place(value)))
            body.append(f'<rect x="{begin:.1f}" y="{y}" width="{max(end - begin, 1):.1f}" height="{BAR}" fill="{peers[peer]}"/>')
            body.append(f'<text x="{end + 4:.1f}" y="{y + 12}">{number(value)}</text>')
            y += BAR + 2
        if limit is not None:
            body.append(f'<path d="M{place(limit):.1f} {y} v10" stroke="#888" stroke-width="3"/>')
            body.append(f'<text x="{place(limit) + 6:.1f}" y="{y + 10}" fill="#888">limit {number(limit)}</text>')
            y += BAR
        y += GAP
    key, x = [], 8
    for peer, colour in peers.items():
        key.append(f'<rect x="{x}" y="28" width="12" height="12" fill="{colour}"/><text x="{x + 16}" y="38">{html.escape(peer)}</text>')
        x += 32 + 7 * len(peer)
    title = f"{result['command']}: times as fast as the peer (bars), muster's time by the limit's (ticks)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 8}" font-family="sans-serif" font-size="11" fill="#777">\n'
        f'<text x="8" y="18" font-size="13">{html.escape(title)}</text>\n' + "\n".join(key)
        + f'\n<path d="M{place(1):.1f} 50 V{y}" stroke="#aaa"/><text x="{place(1) - 3:.1f}" y="58">1</text>\n' + "\n".join(body) + "\n</svg>\n"
    )  # fmt: skip


def made(root=SOURCE):
    """{path: text} of everything that is made of the results."""
    results = read_all()
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, marker, after = rest.partition(END)
    if not marker:
        raise SystemExit("report.py: README.md lacks the markers of its measured table")
    files = {README: before + BEGIN + table(results) + FAULTS + faults_table(results["goodput"]) + END + after}
    for name, result in results.items():
        if any(figure["peers"] or "limit" in figure for run in result["runs"] for figure in run["figures"]):
            files[RESULTS / f"{name}.svg"] = chart(result)
    return files


def main():
    wrong = []
    for path, text in made().items():
        if not path.exists() or path.read_text() != text:
            wrong.append(path.relative_to(SOURCE).as_posix())
            if "--check" not in sys.argv:
                path.write_text(text)
    for name in wrong:
        print(f"{name} {'is not what ./dev bench --report writes' if '--check' in sys.argv else 'is written'}")
    sys.exit(1 if wrong and "--check" in sys.argv else 0)


if __name__ == "__main__":
    main()
