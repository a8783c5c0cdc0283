"""Random shapes, strategies and types on the device against float64 on one rank: heads, vocabularies and sequences that fit no tile.

    MUSTER_BUILD=build python3 tests/gpu/train/shapes_cuda_test.py [COUNT [FIRST]]

GPT-2 and Llama of random sizes train three steps over the fakes, over NCCL and through the host's memory, on 1 to 4 ranks with every strategy.
There are micro-batches, samples without targets, and documents that share rows. In fp32 losses differ by at most 2e-5. A gradient of a tensor differs
from float64's by at most 1e-4 of its norm, or of a hundredth of the whole gradient's if that is more. In 16 bits the bound is
four times the difference of the CPU's kernels of that type, and some roundings more."""

import os
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "compat"))

import gpt_torch_test as gpt  # noqa: E402
import model_against_torch as model  # noqa: E402
import precision_torch_test as precision  # noqa: E402
from model_against_torch import torch  # noqa: E402

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 80
FIRST = int(sys.argv[2]) if len(sys.argv) > 2 else 1
STEPS = 3
FAKES = pathlib.Path(os.environ["MUSTER_BUILD"]).resolve() / "tests" / "gpu" / "lib"
TYPES = ("cuda", "nc-f32", "cu-bf16", "nc-bf16", "cu-f16", "nc-f16")
VOCABULARIES = (2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 97, 127, 128, 129, 255, 257, 513)
LENGTHS = (1, 2, 3, 7, 15, 16, 17, 31, 33, 47, 63, 65, 100, 129)
HEAD_SIZES = (2, 4, 6, 8, 10, 16, 18, 20, 36, 40)


def a_gpt(r, generator, heads, size, vocabulary, length):
    gpt.LAYERS, gpt.CHANNELS, gpt.HEADS, gpt.VOCAB, gpt.POSITIONS = r.choice((1, 2, 3)), heads * size, heads, vocabulary, length + r.choice((0, 1, 5))
    return ["gpt2", gpt.LAYERS, gpt.CHANNELS, gpt.HEADS, gpt.VOCAB, gpt.POSITIONS], gpt.initial_parameters(generator)


def a_llama(r, generator, heads, size, vocabulary, length):
    llama = precision.Llama(
        layers=r.choice((1, 2, 3)), channels=r.choice((3, 5, 8, 12, 17, 30, 33, 48)), heads=heads, kv_heads=r.choice([n for n in range(1, heads + 1) if heads % n == 0]),
        head_size=size, hidden=r.choice((1, 5, 7, 16, 33, 50, 64)), vocab=vocabulary, positions=length + r.choice((0, 3)), tied=r.choice((0, 1)), bias=r.choice((0, 1)))
    return llama.numbers(), llama.initial_parameters(generator)


def documents(r, shape):
    """Positions that begin again at random places of each row."""
    places = torch.zeros(shape, dtype=torch.int64)
    for row in places.view(-1, shape[-1]):
        for t in range(1, shape[-1]):
            row[t] = 0 if r.random() < 0.2 else row[t - 1] + 1
    return places


def distance(found, exact):
    """The relative difference between losses, and the worst tensor among gradients."""
    whole = torch.cat([value.flatten() for value in exact[2].values()]).norm().item()
    worst = max((found[2][name] - value).norm().item() / max(value.norm().item(), 0.01 * whole) for name, value in exact[2].items())
    return max(abs(a - b) / abs(b) for a, b in zip(found[0], exact[0])), worst


def attempt(seed):
    """A line about the case, and whether it is within its bounds."""
    r, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    heads, size, vocabulary, length = r.choice((1, 2, 3, 5, 6)), r.choice(HEAD_SIZES), r.choice(VOCABULARIES), r.choice(LENGTHS)
    numbers, parameters = r.choice((a_gpt, a_llama))(r, generator, heads, size, vocabulary, length)
    ranks, micro_batches, rows, dtype = r.choice((1, 2, 3, 4)), r.choice((1, 2, 3)), r.choice((1, 2, 3)), r.choice(TYPES)
    strategy = r.choice(("NO_SHARD", "SHARD_OPTIM", "SHARD_GRAD_OP", "FULL_SHARD") + (("HYBRID_SHARD",) if ranks == 4 else ()))
    samples, narrow = ranks * micro_batches * rows, dtype[3:] if dtype.endswith("16") else ""
    tokens, targets = model.batches(generator, vocabulary, samples, length)
    if samples > 1 and r.random() < 0.3:
        targets = targets.clone()  # it shares the tokens' memory
        targets[:, r.randrange(samples)] = -1
    places = documents(r, tuple(tokens.shape)) if r.random() < 0.3 else None
    moves = (narrow, narrow, 1024 if narrow == "f16" else 0) if narrow else ("f32", "f32", 0)
    case = f"{seed}: {' '.join(map(str, numbers))}, {samples} of {length}, {dtype}, {ranks} ranks, {strategy}, {micro_batches} micro-batches{', documents' if places is not None else ''}"
    run = lambda kind, **more: model.ours(numbers, parameters, tokens, targets, precision.Steps(STEPS), dtype=kind, places=places, **more)
    try:
        spread = {"ranks": ranks, "strategy": strategy, "micro_batches": micro_batches, "moves": moves}
        exact = run("f64")
        loss, gradient = distance(run(dtype, **spread), exact)
        bounds = (2e-5, 1e-4)
        if narrow:
            of_cpu = distance(run("v-" + narrow, **spread), exact)
            bounds = (4 * of_cpu[0] + (2e-3 if narrow == "bf16" else 3e-4), 4 * of_cpu[1] + 2e-2)
    except subprocess.CalledProcessError as error:
        return f"{case}: {error}", False
    return f"{case}: loss {loss:.1e} (at most {bounds[0]:.1e}), gradients {gradient:.1e} ({bounds[1]:.1e})", loss <= bounds[0] and gradient <= bounds[1]


def main():
    torch.set_num_threads(1)
    model.STEPS = STEPS
    os.environ.update({"MUSTER_CUDA_MODULE": str(FAKES / "libmuster_cuda.so"), "LD_LIBRARY_PATH": str(FAKES), "FAKE_CUDA_DEVICES": "4"})
    failures = 0
    for seed in range(FIRST, FIRST + COUNT):
        text, fine = attempt(seed)
        failures += not fine
        print(f"{'ok    ' if fine else 'FAILED'} {text}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
