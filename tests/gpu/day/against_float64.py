"""Losses and gradients of the CUDA back end against PyTorch in float64: against_float64.py STEPS fp32|tf32, with MUSTER_BUILD and a program's
variables for finding the device. tests/compat has the models and the comparison.

fp32 is held to the bounds of the CPU; tf32 rounds the factors of products to 10 bits, relatively 2^-11 each."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "compat"))

import gpt_torch_test as gpt  # noqa: E402
import llama_torch_test as llama  # noqa: E402
from model_against_torch import Comparison, Variant, adam, batches, ours, reference, torch  # noqa: E402

BOUNDS = {"cuda": (1e-6, 1e-5, 1e-5), "tf32": (1e-3, 1e-2, 1e-3)}  # first loss, gradients (tf32: of all together), all losses


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
            if dtype not in ("cuda", sys.argv[2]):
                continue
            found, _, grads, _ = ours(numbers, parameters, tokens, targets, variant, dtype=dtype)
            what = f"{name}, {'fp32' if dtype == 'cuda' else dtype}"
            comparison.check(f"{what}: first loss", abs(found[0] - losses[0]) / abs(losses[0]), first)
            if dtype == "tf32":
                comparison.check(f"{what}: gradients", whole_difference(grads, gradients), slope)
            else:
                comparison.check_gradients(f"{what}: ", grads, gradients, slope, lambda name: 3 if name.endswith("c_attn.bias") else 1)
            comparison.check(f"{what}: losses", max(abs(a - b) / abs(b) for a, b in zip(found, losses)), whole)
    return 1 if comparison.failures else 0


sys.exit(main())
