"""Losses and gradients of the CUDA back end against PyTorch in float64: against_float64.py STEPS fp32|tf32, with MUSTER_BUILD and a program's
variables for finding the device. tests/compat has the models and the comparison.

fp32 is held to the bounds of the CPU; tf32 rounds the factors of products to 10 bits, relatively 2^-11 each. Values of fp16 and, where tf32 is, of
bf16 are rounded at each store, to 2^-11 and 2^-8."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "compat"))

import gpt_torch_test as gpt  # noqa: E402
import llama_torch_test as llama  # noqa: E402
from model_against_torch import Comparison, Variant, adam, batches, ours, reference, torch  # noqa: E402

# First loss, gradients (of all together but for fp32), all losses.
BOUNDS = {"cuda": (1e-6, 1e-5, 1e-5), "tf32": (1e-3, 1e-2, 1e-3), "cu-f16": (1e-4, 5e-3, 1e-3), "cu-bf16": (1e-3, 4e-2, 4e-3)}
NAMES = {"cuda": "fp32", "tf32": "tf32", "cu-f16": "values of fp16", "cu-bf16": "values of bf16"}
MOVES = {"cu-f16": ("f16", "f32", 1024), "cu-bf16": ("bf16", "f32", 0)}


def whole_difference(found, wanted):
    everything = lambda gradients: torch.cat([value.flatten() for value in gradients.values()])
    return (everything(found) - everything(wanted)).norm().item() / everything(wanted).norm().item()


def models(generator):
    parameters = gpt.initial_parameters(generator)
    numbers = ["gpt2", gpt.LAYERS, gpt.CHANNELS, gpt.HEADS, gpt.VOCAB, gpt.POSITIONS]
    yield "GPT-2", numbers, parameters, gpt.loss_of, batches(generator, gpt.VOCAB, gpt.B, gpt.T)
    model = llama.Llama()
    yield "Llama", model.numbers(), model.initial_parameters(generator), model.loss_of, batches(generator, model.vocab, llama.SAMPLES, llama.T)


def main():
    comparison = Comparison()
    variant = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=int(sys.argv[1]))
    for name, numbers, parameters, loss_of, (tokens, targets) in models(torch.Generator().manual_seed(7)):
        losses, _, gradients, _ = reference(loss_of, parameters, tokens, targets, variant)
        for dtype, (first, slope, whole) in BOUNDS.items():
            if dtype in ("tf32", "cu-bf16") and sys.argv[2] != "tf32":
                continue
            found, _, grads, _ = ours(numbers, parameters, tokens, targets, variant, dtype=dtype, moves=MOVES.get(dtype, ("f32", "f32", 0)))
            what = f"{name}, {NAMES[dtype]}"
            comparison.check(f"{what}: first loss", abs(found[0] - losses[0]) / abs(losses[0]), first)
            if dtype != "cuda":
                comparison.check(f"{what}: gradients", whole_difference(grads, gradients), slope)
            else:
                comparison.check_gradients(f"{what}: ", grads, gradients, slope, lambda name: 3 if name.endswith("c_attn.bias") else 1)
            comparison.check(f"{what}: losses", max(abs(a - b) / abs(b) for a, b in zip(found, losses)), whole)
    return 1 if comparison.failures else 0


sys.exit(main())
