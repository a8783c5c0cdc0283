"""The common part of the peers of train_cpu.py and train_gpu.py: GPT-2 124M's sizes, the initial weights that muster wrote, the batches, and the loop
that answers a line with the nanoseconds of one step and its loss."""

import json
import os
import sys
import time

import numpy
from gpt2_sizes import CHANNELS, HEADS, LAYERS, POSITIONS, VOCAB  # noqa: F401: for the peers

RATE, BETAS, EPSILON, DECAY, CLIP = 1e-4, (0.9, 0.95), 1e-8, 0.1, 1.0


def batch(round_, which, sequences, positions):
    """(sequences, positions) of int32, as train_step.c makes them; which: 0 tokens, 1 targets"""
    at = numpy.arange(sequences * positions, dtype=numpy.int64)
    return (((2 * round_ + which) * 1000003 + at * 7919) % VOCAB).astype(numpy.int32).reshape(sequences, positions)


def weights(path):
    """Name to array of a safetensors file; the matrices of blocks lie (in,out), as Hugging Face has them."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()
        header.pop("__metadata__", None)
        arrays = {}
        for name, tensor in header.items():
            first, end = tensor["data_offsets"]
            file.seek(start + first)
            arrays[name] = numpy.frombuffer(file.read(end - first), numpy.float32).reshape(tensor["shape"])
    return arrays


def product_rate(product):
    """GFLOP/s of the largest of product()'s times: (1024,768) times (768,3072)"""
    least = float("inf")
    for _ in range(12):
        start = time.monotonic_ns()
        product()
        least = min(least, time.monotonic_ns() - start)
    return 2 * 1024 * 768 * 3072 / least


def now():
    """Nanoseconds: elapsed, or of this process's processor time, as train_cpu.py --clock asks."""
    return time.process_time_ns() if os.environ.get("MUSTER_BENCH_CLOCK") == "processor" else time.monotonic_ns()


def serve(description, step, sequences, positions):
    """step(tokens, targets) gives the loss as a float, when everything has been done."""
    print(description, flush=True)
    for round_, _ in enumerate(sys.stdin):
        tokens, targets = (batch(round_, which, sequences, positions) for which in (0, 1))
        start = now()
        loss = step(tokens, targets)
        print(now() - start, loss, flush=True)
