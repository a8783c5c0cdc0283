"""A GPT-2 124M optimizer step on CPU: muster against its own matrix products alone, PyTorch and JAX.

    python3 benchmarks/train_cpu.py --build BUILD_DIR [--rounds N] [--threads N] [--tokens 256,1024] [--peers eager,compile,jax]
                                    [--matmul fp32|openblas|onednn|bf16|values]
                                    [--clock elapsed|processor] [--keep-environment] [--torch-python PYTHON] [--jax-python PYTHON]

For 256 and 1,024 tokens (4 sequences of 64 and of 256): in every round one step of muster's trainer, its products alone
(the physical limit here: same calls, shapes and threads, distinct cold weights, in the same process), and one step of
each peer, one after the other, so that a noisy machine disturbs all alike. Medians over the rounds are shown; the first
round warms up and compiles, and is not counted.

On a machine that others use, --clock processor takes each process's processor time of a step in place of the elapsed time. It is for
one thread: threads that spin would count.

All begin with the weights that muster wrote and get the same batches, and their losses are compared in every round: a
peer that computes something else ends the benchmark. Variables that choose the code of a library (OPENBLAS_CORETYPE and
its like) are taken out of the environment of all, unless --keep-environment; and then the code that each uses is printed. A peer that
is not there is left out, and a line names the reason. llm.c is no peer here: it has no package or release to install."""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from support import jax_peer, results, torch_peer

RUN = results.Run("train_cpu")
RESULT_NAMES = {"torch eager": "PyTorch eager", "torch compile": "torch.compile", "jax": "JAX"}

HERE = pathlib.Path(__file__).resolve().parent
SEQUENCES = 4
CHOOSING = re.compile("(OPENBLAS|GOTO|MKL|NVPL|BLIS|OMP|GOMP|KMP|ATEN|TORCH|TORCHINDUCTOR|ONEDNN|DNNL|XLA|JAX|EIGEN)_")
PAUSE = 0.5  # seconds: threads of the peer before stop to spin
LOSS_BOUND = 1e-4  # relative: float in another order, over the rounds of a benchmark
BF16_BOUND = 1e-2  # the same of factors or values in bf16
MATMULS = {"fp32": "fp32", "openblas": "fp32 by OpenBLAS", "onednn": "fp32 by oneDNN", "bf16": "products of bf16", "values": "values of bf16"}
NARROW = ("bf16", "values")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(HERE.parent / "build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tokens", default="256,1024", help="multiples of 4; %(default)s")
    parser.add_argument("--peers", default="eager,compile,jax", help="some of them, or none; %(default)s")
    parser.add_argument("--matmul", choices=list(MATMULS), default="fp32", help="ours; bf16 and values are beside PyTorch's autocast; %(default)s")
    parser.add_argument("--clock", choices=["elapsed", "processor"], default="elapsed", help="processor: with one thread; %(default)s")
    parser.add_argument("--keep-environment", action="store_true", help="variables that choose a library's code stay")
    torch_peer.add_argument(parser)
    jax_peer.add_argument(parser)
    results.add_argument(parser)
    options = parser.parse_args()
    if options.clock == "processor" and options.threads != 1:
        parser.error(f"--clock processor with {options.threads} threads: use --threads 1")
    return options


def environment(options):
    """For all programs that are measured; and a line about removed and kept variables."""
    choosing = {name: value for name, value in os.environ.items() if CHOOSING.match(name)}
    listed = ", ".join(f"{name}={value}" for name, value in sorted(choosing.items())) or "none"
    os.environ["MUSTER_BENCH_CLOCK"] = options.clock
    if options.keep_environment:
        return dict(os.environ), f"variables that choose a library's code, kept: {listed}"
    kept = {name: value for name, value in os.environ.items() if name not in choosing}
    return kept, f"variables that choose a library's code, taken out: {listed}"


class Server:
    """A process that describes itself in one line, then answers each line with the times of a round, and its loss."""

    def __init__(self, name, command, variables):
        self.name, self.times, self.losses = name, [], []
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=variables,
        )
        self.description = self.process.stdout.readline().strip()
        if not self.description:
            sys.exit(f"{name} ended with {self.process.wait()}")

    def ask(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().split()
        if not line:
            sys.exit(f"{self.name} ended with {self.process.wait()}")
        self.times.append([int(word) / 1e6 for word in line[:-1]])
        self.losses.append(float(line[-1]))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def peer_commands(options, weights, positions):
    """Name and command of each peer that is there."""
    shape = [weights, SEQUENCES, positions, options.threads]
    wanted = [name for name in options.peers.split(",") if name and name != "none"]
    for kind in ("eager", "compile"):
        if kind not in wanted:
            continue
        if torch_peer.version(options.torch_python):
            yield f"torch {kind}", [options.torch_python, HERE / "support" / "gpt2_torch.py", *shape, kind, *(["cpu", "bf16"] if options.matmul in NARROW else [])]
        else:
            print(f"torch {kind}: {options.torch_python} has no torch; ./dev bench installs it")
    if "jax" in wanted and options.matmul in NARROW:
        print("jax: left out: it has no autocast, so its bf16 would be another computation")
    elif "jax" in wanted:
        missing = jax_peer.install(options.jax_python)
        if missing:
            print(f"jax: {missing}")
        else:
            yield "jax", [options.jax_python, HERE / "support" / "gpt2_jax.py", *shape]


def loss_difference(ours, peer, bound=LOSS_BOUND):
    """The largest relative one; beyond the bound the benchmark ends."""
    worst = max(abs(a - b) / abs(a) for a, b in zip(ours.losses, peer.losses))
    if not worst <= bound:
        sys.exit(f"{peer.name} computes something else: losses {peer.losses} beside {ours.losses}")
    return worst


def report(tokens, ours, peers, matmul, place):
    steps, products = zip(*ours.times[1:])
    step, product = statistics.median(steps), statistics.median(products)
    ratio = statistics.median(s / p for s, p in zip(steps, products))
    print(f"{tokens:5} tokens  muster step      {step:8.0f} ms  {1e3 * tokens / step:6.0f} tokens/s")
    print(f"              products alone   {product:8.0f} ms  step / products = {ratio:.3f}")
    medians = {RESULT_NAMES[peer.name]: [taken for (taken,) in peer.times[1:]] for peer in peers}
    faster = {name: statistics.median(t / s for s, t in zip(steps, times)) for name, times in medians.items()}
    limit = "its matrix products alone"
    bound = BF16_BOUND if matmul in NARROW else LOSS_BOUND
    RUN.add(f"GPT-2 124M step, {MATMULS[matmul]}, {tokens:,} tokens{place}", "ms", list(steps), medians, (limit, list(products)), ratios={limit: ratio, **faster})
    for peer in peers:
        times = [taken for (taken,) in peer.times[1:]]
        faster = statistics.median(t / s for s, t in zip(steps, times))
        print(
            f"              {peer.name:16} {statistics.median(times):8.0f} ms  its step / muster's = {faster:.2f};"
            f" first step {peer.times[0][0] / 1e3:.1f} s; losses differ by {loss_difference(ours, peer, bound):.1e}"
        )


def place_of(options):
    """Part of a figure's name, where it is not elapsed time on all processors."""
    threads = "" if options.threads == len(os.sched_getaffinity(0)) else f", {options.threads} thread{'s' * (options.threads > 1)}"
    return threads + (", processor time" if options.clock == "processor" else "")


def compare(options, variables, tokens, describe):
    program, positions = pathlib.Path(options.build).resolve() / "benchmarks" / "train_step", tokens // SEQUENCES
    sizes = ["--batch", SEQUENCES, "--positions", positions, "--threads", options.threads, "--matmul", options.matmul]
    with tempfile.TemporaryDirectory() as folder:
        weights = pathlib.Path(folder) / "weights.safetensors"
        ours = Server("muster", [program, *sizes, "--weights", weights], variables)
        peers = [Server(name, command, variables) for name, command in peer_commands(options, weights, positions)]
    if describe:
        for server in [ours, *peers]:
            print(f"{server.name}: {server.description}")
    for _ in range(options.rounds + 1):
        for server in [ours, *peers]:
            time.sleep(PAUSE if peers else 0)
            server.ask()
    for server in [ours, *peers]:
        server.close()
    report(tokens, ours, peers, options.matmul, place_of(options))


def main():
    options = arguments()
    variables, line = environment(options)
    print(f"GPT-2 124M, {MATMULS[options.matmul]}, {options.threads} threads, median of {options.rounds} rounds")
    print(line)
    for index, tokens in enumerate(int(word) for word in options.tokens.split(",")):
        compare(options, variables, tokens, describe=index == 0)
    RUN.write(options)


if __name__ == "__main__":
    main()
