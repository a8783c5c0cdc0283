"""A GPT-2 124M optimizer step on CPU: muster against its own matrix products alone and against PyTorch.

    python3 benchmarks/train_cpu.py --build BUILD_DIR [--rounds N] [--threads N] [--torch-python PYTHON] [--compile]

For 256 and 1,024 tokens (4 sequences of 64 and of 256): in every round one step of muster's trainer, its products alone
(the physical limit here: same calls, shapes and threads, distinct cold weights, in the same process) and one step of
PyTorch, one after the other, so that a noisy machine disturbs all alike. Medians over the rounds are shown; the first
round warms up and is not counted. Without torch the comparison with it is left out."""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

from support import torch_peer

SOURCE = pathlib.Path(__file__).resolve().parent.parent
LAYERS, CHANNELS, HEADS, VOCAB, POSITIONS = 12, 768, 12, 50257, 1024


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--compile", action="store_true", help="PyTorch by torch.compile instead of eager")
    torch_peer.add_argument(parser)
    parser.add_argument("--serve-torch", nargs=2, type=int, metavar=("BATCH", "POSITIONS"), help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- PyTorch, in a process of its own: answers every line with the nanoseconds of one step ----


def serve_torch(batch, positions, threads, compiled):
    import time

    import torch
    import torch.nn as nn
    import torch.nn.functional as functional

    torch.set_num_threads(threads)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
            self.attention, self.project = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
            self.widen, self.narrow = nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(4 * CHANNELS, CHANNELS)

        def forward(self, x):
            b, t, c = x.shape
            qkv = self.attention(self.ln_1(x)).split(CHANNELS, dim=2)
            q, k, v = (part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in qkv)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.project(y.transpose(1, 2).reshape(b, t, c))
            return x + self.narrow(functional.gelu(self.widen(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(VOCAB, CHANNELS), nn.Embedding(POSITIONS, CHANNELS)
            self.blocks, self.ln_f = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(CHANNELS)
            nn.init.normal_(self.wte.weight, std=0.02)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.ln_f(x), self.wte.weight)
            return functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))

    model = Gpt()
    step_model = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    print(torch.__version__, flush=True)
    for _ in sys.stdin:
        tokens, targets = torch.randint(VOCAB, (2, batch, positions))
        start = time.monotonic_ns()
        optimizer.zero_grad(set_to_none=True)
        step_model(tokens, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(time.monotonic_ns() - start, flush=True)


# ---- the comparison ----


class Server:
    """A process that answers each line with a line of numbers."""

    def __init__(self, command):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )

    def ask(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"train_cpu.py: {self.process.args[0]} ended with {self.process.wait()}")
        return [int(word) / 1e6 for word in line.split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def start_torch(options, batch, positions):
    if not os.path.exists(options.torch_python):
        return None, None
    command = [options.torch_python, __file__, "--serve-torch", str(batch), str(positions), "--threads", str(options.threads)]
    server = Server(command + (["--compile"] if options.compile else []))
    version = server.process.stdout.readline().strip()
    return (server, version) if version else (None, None)


def compare(options, batch, positions):
    program = pathlib.Path(options.build).resolve() / "benchmarks" / "train_cpu"
    ours = Server([str(program), "--batch", str(batch), "--positions", str(positions), "--threads", str(options.threads)])
    torch, version = start_torch(options, batch, positions)
    steps, products, torch_steps = [], [], []
    for _ in range(options.rounds + 1):
        step, product = ours.ask()
        steps.append(step)
        products.append(product)
        if torch:
            torch_steps += torch.ask()
    ours.close()
    if torch:
        torch.close()
    tokens = batch * positions
    step, product = statistics.median(steps[1:]), statistics.median(products[1:])
    ratio = statistics.median(s / p for s, p in zip(steps[1:], products[1:]))
    print(f"{tokens:5} tokens  muster step      {step:8.0f} ms  {1e3 * tokens / step:6.0f} tokens/s")
    print(f"              products alone   {product:8.0f} ms  step / products = {ratio:.3f}")
    if torch_steps:
        reference = statistics.median(torch_steps[1:])
        faster = statistics.median(t / s for s, t in zip(steps[1:], torch_steps[1:]))
        kind = "compiled" if options.compile else "eager"
        print(f"              torch {version} {reference:8.0f} ms  torch ({kind}) / muster = {faster:.3f}")
    else:
        print("              torch            not there: ./dev bench installs it")


def main():
    options = arguments()
    if options.serve_torch:
        return serve_torch(*options.serve_torch, options.threads, options.compile)
    print(f"GPT-2 124M, fp32, {options.threads} threads, median of {options.rounds} rounds")
    for batch, positions in ((4, 64), (4, 256)):
        compare(options, batch, positions)


if __name__ == "__main__":
    main()
