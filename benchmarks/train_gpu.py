"""A GPT-2 124M optimizer step on one GPU: muster against PyTorch eager and torch.compile, in the same precision.

    python3 benchmarks/train_gpu.py --build BUILD_DIR [--rounds N] [--shape SEQUENCESxPOSITIONS] [--precisions fp32,tf32,bf16,fp16]
                                    [--peers eager,compile] [--torch-python PYTHON] [--rehearse]

In every round one step of each, one after the other, on the same weights and batches; medians over the rounds, and the losses are
compared. Also shown: tokens a second, and the share of the time that the step's matrix products would take at the rate of large
products (8192 x 8192 x 8192, by PyTorch) in that precision. In bf16 and fp16 muster's values and weights are of 16 bits; PyTorch has
autocast to bf16. Needs the module (MUSTER_CUDA_MODULE, or ./dev build cuda), cuBLASLt on the loader's path or
in .cuda/lib (cmake/cuda_headers.sh .cuda --libraries), and for the peers an interpreter whose PyTorch has CUDA; where there is no GPU
it ends with a line. --rehearse goes through the same on the fakes, of a small model, whose sizes MUSTER_BENCH_GPT2 has ("layers channels
heads vocabulary"), and with PyTorch on the CPU: nothing that it prints is a speed."""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from support import results, torch_peer
from support.gpt2_sizes import CHANNELS, HEADS, LAYERS, VOCAB
from train_cpu import RESULT_NAMES, Server, loss_difference

RUN = results.Run("train_gpu")

HERE = pathlib.Path(__file__).resolve().parent
MATRICES = LAYERS * 12 * CHANNELS * CHANNELS + VOCAB * CHANNELS
# Relative, over the rounds of a benchmark; tf32 and bf16 round the factors of products.
LOSS_BOUND = {"fp32": 1e-4, "tf32": 1e-3, "bf16": 1e-2, "fp16": 1e-2}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(HERE.parent / "build"))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--shape", default="8x1024", help="SEQUENCESxPOSITIONS of a step; %(default)s")
    parser.add_argument("--precisions", default="fp32,tf32,bf16", help="some of them; %(default)s")
    parser.add_argument("--peers", default="eager,compile", help="some of them, or none; %(default)s")
    parser.add_argument("--rehearse", action="store_true", help="on the fakes; measures nothing")
    torch_peer.add_argument(parser)
    results.add_argument(parser)
    return parser.parse_args()


def environment():
    """The output of `./dev build cuda` and the libraries next to it, unless the environment names others."""
    root, variables = HERE.parent, dict(os.environ)
    variables.setdefault("MUSTER_CUDA_MODULE", str(root / "build-cuda" / "lib" / "libmuster_cuda.so"))
    paths = [variables.get("LD_LIBRARY_PATH"), str(root / ".cuda" / "lib")]
    variables["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    return variables


def peers_of(options):
    """The kinds that there are; without a PyTorch with CUDA none, and a line."""
    program = "import torch" if options.rehearse else "import sys, torch; sys.exit(not torch.cuda.is_available())"
    wanted = [name for name in options.peers.split(",") if name and name != "none"]
    if wanted and subprocess.run([options.torch_python, "-c", program], capture_output=True).returncode != 0:
        print(f"torch: {options.torch_python} has none with CUDA; --torch-python names another interpreter")
        return []
    return wanted


def product_flops(tokens, positions):
    """Operations of a step, forward and backward, attention's scores and values (causal: half of them) included."""
    return 6 * tokens * MATRICES + 6 * LAYERS * tokens * positions * CHANNELS


def measure(options, peers, precision, folder):
    """The servers after all rounds; muster's two are first."""
    sequences, positions = options.shape.split("x")
    program, weights = pathlib.Path(options.build).resolve() / "benchmarks" / "train_step", folder / "weights.safetensors"
    ours = [program, "--batch", sequences, "--positions", positions, "--device", "cuda"]
    ours += ["--layers", str(LAYERS), "--channels", str(CHANNELS), "--heads", str(HEADS), "--vocab", str(VOCAB)]
    servers, variables = [], environment()
    if not weights.exists():  # of fp32, for all
        maker = Server("muster", [*ours, "--weights", weights], variables)
        maker.close()
    for name, graphs in ("muster", 0), ("muster, graphs", 1):
        servers.append(Server(name, [*ours, "--matmul", precision, "--graphs", graphs], variables))
    for kind in peers if precision != "fp16" else ():
        command = [options.torch_python, HERE / "support" / "gpt2_torch.py", weights, sequences, positions, 8, kind, "cpu" if options.rehearse else "cuda", precision]
        servers.append(Server(f"torch {kind}", command, dict(os.environ)))
    for _ in range(options.rounds + 2):  # two to warm up: kernels are loaded, layers recorded, code compiled
        for server in servers:
            server.ask()
    for server in servers:
        server.close()
    return servers


def report(options, precision, servers):
    sequences, positions = map(int, options.shape.split("x"))
    tokens, first = sequences * positions, servers[0]
    rates = [re.search(r"products at (\d+) TFLOP/s", server.description) for server in servers]
    rate = max((int(found[1]) for found in rates if found), default=0)
    least = 1e3 * product_flops(tokens, positions) / (rate * 1e12) if rate else float("nan")
    if rate:
        print(f"{precision}: products alone would take {least:.1f} ms at {rate} TFLOP/s")
    times = {server.name: [taken[0] for taken in server.times[2:]] for server in servers}
    peers = {RESULT_NAMES[name]: values for name, values in times.items() if name in RESULT_NAMES}
    for name, words in ("muster", f"{sequences} x {positions:,} tokens"), ("muster, graphs", "with --cuda-graphs"):
        if name in times:
            RUN.add(f"GPT-2 124M step, {precision}, {words}", "ms", times[name], peers, ("products at the rate of large ones", least) if rate else None)
    for server in servers:
        times = [taken[0] for taken in server.times[2:]]
        step = statistics.median(times)
        share = f"  products' share {least / step:4.0%}" if rate else ""
        ratio = statistics.median(taken[0] / own[0] for taken, own in zip(server.times[2:], first.times[2:]))
        print(
            f"  {precision:4} {server.name:16} {step:8.2f} ms ({min(times):.2f} to {max(times):.2f})  {1e3 * tokens / step:8.0f} tokens/s"
            f"{share}  / {first.name} = {ratio:.2f}; first step {server.times[0][0] / 1e3:.1f} s;"
            f" losses differ by {loss_difference(first, server, LOSS_BOUND[precision]):.1e}"
        )


def gpu():
    """The name of the first one, as nvidia-smi has it."""
    done = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    return done.stdout.splitlines()[0] if done.stdout else "unknown"


def main():
    options = arguments()
    if not options.rehearse:
        if not shutil.which("nvidia-smi"):
            sys.exit("train_gpu.py: there is no GPU here (no nvidia-smi): nothing to measure")
        RUN.about["processor"] = f"one {gpu()}, {RUN.about['cores']} cores of {RUN.about['processor']}"
    print(f"GPT-2 124M, {options.shape} tokens a step, median of {options.rounds} rounds")
    peers = peers_of(options)
    with tempfile.TemporaryDirectory() as folder:
        for precision in options.precisions.split(","):
            servers = measure(options, peers, precision, pathlib.Path(folder))
            for server in servers:
                print(f"{server.name}: {server.description}")
            report(options, precision, servers)
    RUN.write(options)


if __name__ == "__main__":
    main()
