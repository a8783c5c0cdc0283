"""GPT-2 124M in PyTorch, for train_cpu.py and train_gpu.py:

    gpt2_torch.py WEIGHTS SEQUENCES POSITIONS THREADS eager|compile [cuda fp32|tf32|bf16]

bf16 is autocast with fp32 parameters."""

import contextlib
import os
import re
import subprocess
import sys

import gpt2_peer as peer
import torch
import torch.nn as nn
import torch.nn.functional as functional


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(peer.CHANNELS), nn.LayerNorm(peer.CHANNELS)
        self.attention, self.project = nn.Linear(peer.CHANNELS, 3 * peer.CHANNELS), nn.Linear(peer.CHANNELS, peer.CHANNELS)
        self.widen, self.narrow = nn.Linear(peer.CHANNELS, 4 * peer.CHANNELS), nn.Linear(4 * peer.CHANNELS, peer.CHANNELS)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.attention(self.ln_1(x)).split(c, dim=2)
        q, k, v = (part.view(b, t, peer.HEADS, c // peer.HEADS).transpose(1, 2) for part in qkv)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(b, t, c))
        return x + self.narrow(functional.gelu(self.widen(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(peer.VOCAB, peer.CHANNELS), nn.Embedding(peer.POSITIONS, peer.CHANNELS)
        self.h, self.ln_f = nn.ModuleList(Block() for _ in range(peer.LAYERS)), nn.LayerNorm(peer.CHANNELS)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        return functional.cross_entropy(logits.view(-1, peer.VOCAB), targets.view(-1))


# Our names for Hugging Face's
NAMES = {"attention": "attn.c_attn", "project": "attn.c_proj", "widen": "mlp.c_fc", "narrow": "mlp.c_proj"}


def fill(model, arrays):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            theirs = re.sub(r"\b(%s)\b" % "|".join(NAMES), lambda found: NAMES[found[1]], name)
            value = torch.from_numpy(arrays[theirs].copy())
            parameter.copy_(value.T if theirs.startswith("h.") and value.dim() == 2 else value)


def mkl():
    """The instructions that MKL has chosen, which it prints in verbose mode only."""
    program = "import torch; torch.ones(64, 64) @ torch.ones(64, 64)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "MKL_VERBOSE": "1"}, capture_output=True, text=True
    )
    found = re.search(r"MKL_VERBOSE (?:oneMKL|Intel\(R\) MKL) (.*?) Product.* architecture (.*?) processors", done.stdout)
    return f"MKL {found[1]} for {found[2]} processors" if found else "BLAS unknown"


def describe_cpu():
    a, b = torch.ones(1024, 768), torch.ones(3072, 768)
    rate = peer.product_rate(lambda: a @ b.T)
    return f"{mkl()}, own loops {torch.backends.cpu.get_cpu_capability()}; products at {rate:.0f} GFLOP/s"


def describe_cuda(precision):
    """And the rate of large products, from events around ten of them; zeros would run faster than real data do."""
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=kind) for _ in range(2))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for count in (3, 10):
        begin.record()
        for _ in range(count):
            a @ b
        end.record()
        end.synchronize()
    rate = 10 * 2 * 8192**3 / (begin.elapsed_time(end) * 1e-3) / 1e12
    return f"{torch.cuda.get_device_name()}, cuBLAS; products at {rate:.0f} TFLOP/s of {precision}"


def main():
    path, sequences, positions, threads, kind, *rest = sys.argv[1:]
    device, precision = rest or ("cpu", "fp32")
    torch.set_num_threads(int(threads))
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    model = Gpt()
    fill(model, peer.weights(path))
    model.to(device)
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": peer.DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peer.RATE, betas=peer.BETAS, eps=peer.EPSILON, fused=True)
    run = torch.compile(model) if kind == "compile" else model
    cast = torch.autocast(device, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()

    def step(tokens, targets):
        optimizer.zero_grad(set_to_none=True)
        with cast:
            loss = run(torch.from_numpy(tokens).to(device).long(), torch.from_numpy(targets).to(device).long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), peer.CLIP)
        optimizer.step()
        return loss.item()

    description = describe_cpu() if device == "cpu" else describe_cuda(precision)
    peer.serve(f"torch {torch.__version__}, {description}", step, int(sequences), int(positions))


if __name__ == "__main__":
    main()
