"""Our fp32 runtime against PyTorch in float64: the same GPT-2, the same weights, the same tokens, with each optimizer.

QKV biases are compared as three slices. Bounds and how to find torch: model_against_torch.py."""

import ctypes.util
import pathlib
import sys

from model_against_torch import ADAMW, SGD_LR, Comparison, Variant, adam, batches, ours, reference, sgd, torch

import torch.nn.functional as functional

LAYERS, CHANNELS, HEADS, VOCAB, POSITIONS = 3, 64, 4, 160, 40
B, T = 4, 32


def shapes():
    c = CHANNELS
    yield "wte.weight", (VOCAB, c)
    yield "wpe.weight", (POSITIONS, c)
    for i in range(LAYERS):
        for name, shape in [
            ("ln_1.weight", (c,)), ("ln_1.bias", (c,)),
            ("attn.c_attn.weight", (3 * c, c)), ("attn.c_attn.bias", (3 * c,)),
            ("attn.c_proj.weight", (c, c)), ("attn.c_proj.bias", (c,)),
            ("ln_2.weight", (c,)), ("ln_2.bias", (c,)),
            ("mlp.c_fc.weight", (4 * c, c)), ("mlp.c_fc.bias", (4 * c,)),
            ("mlp.c_proj.weight", (c, 4 * c)), ("mlp.c_proj.bias", (c,)),
        ]:
            yield f"h.{i}.{name}", shape
    yield "ln_f.weight", (c,)
    yield "ln_f.bias", (c,)


def initial_parameters(generator):
    """Values that float32 holds exactly; biases and norms away from their usual 0 and 1."""
    parameters = {}
    for name, shape in shapes():
        value = 0.02 * torch.randn(shape, generator=generator, dtype=torch.float32)
        if ".ln_" in "." + name and name.endswith("weight"):
            value += 1
        parameters[name] = value
    return parameters


def loss_of(p, tokens, targets, places=None):
    """places (B, T): of documents in a row, see `ours`."""
    B, T = tokens.shape
    places = torch.arange(T).expand(B, T) if places is None else places
    begins = torch.arange(T) - places
    unseen = torch.ones(T, T, dtype=torch.bool).triu(1) | (torch.arange(T) < begins[:, :, None])
    x = p["wte.weight"][tokens] + p["wpe.weight"][places]
    for i in range(LAYERS):
        w = {name.split(f"h.{i}.")[1]: value for name, value in p.items() if name.startswith(f"h.{i}.")}
        h = functional.layer_norm(x, (CHANNELS,), w["ln_1.weight"], w["ln_1.bias"], 1e-5)
        qkv = functional.linear(h, w["attn.c_attn.weight"], w["attn.c_attn.bias"])
        q, k, v = (part.view(B, T, HEADS, -1).transpose(1, 2) for part in qkv.split(CHANNELS, dim=2))
        scores = q @ k.transpose(2, 3) / (CHANNELS // HEADS) ** 0.5
        scores = scores.masked_fill(unseen[:, None], float("-inf"))
        attention = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, CHANNELS)
        x = x + functional.linear(attention, w["attn.c_proj.weight"], w["attn.c_proj.bias"])
        h = functional.layer_norm(x, (CHANNELS,), w["ln_2.weight"], w["ln_2.bias"], 1e-5)
        h = functional.gelu(functional.linear(h, w["mlp.c_fc.weight"], w["mlp.c_fc.bias"]), approximate="tanh")
        x = x + functional.linear(h, w["mlp.c_proj.weight"], w["mlp.c_proj.bias"])
    x = functional.layer_norm(x, (CHANNELS,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    logits = functional.linear(x, p["wte.weight"])
    return functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


VARIANTS = [
    ADAMW,
    Variant("Adam, all decay but wpe", 1, adam(torch.optim.Adam), decay_all=1, spared="wpe.*"),
    Variant("SGD", 2, sgd(), rate=SGD_LR),
    Variant("SGD with momentum", 2, sgd(momentum=0.9, dampening=0.1), momentum=0.9, dampening=0.1, rate=SGD_LR),
    Variant("SGD with Nesterov's", 2, sgd(momentum=0.9, nesterov=True), momentum=0.9, nesterov=1, rate=SGD_LR),
    Variant("AdamW, block 1 frozen", 0, adam(torch.optim.AdamW), frozen="h.1.*"),
    Variant("AdamW, the tied embedding frozen", 0, adam(torch.optim.AdamW), frozen="wte.*"),
]


def compare(comparison, variant, parameters, tokens, targets):
    wanted = reference(loss_of, parameters, tokens, targets, variant)
    found = ours(["gpt2", LAYERS, CHANNELS, HEADS, VOCAB, POSITIONS], parameters, tokens, targets, variant)
    print(f"{variant.name}: loss {wanted[0][0]:.4f} -> {wanted[0][-1]:.4f} in {variant.steps} steps")
    comparison.check_run("", found, wanted, slices=lambda name: 3 if name.endswith("c_attn.bias") else 1)
    comparison.check_parameters(variant, parameters, found[3], wanted[3])


def compare_libraries(comparison, steps):
    """Products so deep that each library adds up in an order of its own."""
    global CHANNELS
    if not ctypes.util.find_library("dnnl"):
        print("skipped: products by oneDNN: libdnnl is not installed")
        return
    kept, CHANNELS = CHANNELS, 256
    generator = torch.Generator().manual_seed(11)
    parameters, (tokens, targets) = initial_parameters(generator), batches(generator, VOCAB, B, T)
    variant = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=steps)
    wanted = reference(loss_of, parameters, tokens, targets, variant)
    runs = {name: ours(["gpt2", LAYERS, CHANNELS, HEADS, VOCAB, POSITIONS], parameters, tokens, targets, variant, dtype)
            for name, dtype in (("OpenBLAS", "f32"), ("oneDNN", "onednn"))}
    for name, found in runs.items():
        comparison.check_run(f"{CHANNELS} channels, {name}: ", found, wanted, slices=lambda name: 3 if name.endswith("c_attn.bias") else 1)
    if " avx512f" in pathlib.Path("/proc/cpuinfo").read_text():  # elsewhere both may add up alike
        comparison.check("the same bits by both libraries", float(runs["OpenBLAS"][0] == runs["oneDNN"][0]), 0)
    CHANNELS = kept


def compare_packed(comparison, parameters, tokens, targets):
    """Documents of 11 and 21, of 32, and of 1, 5, 1 and 25 positions in rows; the rest is documents of one."""
    places = torch.zeros((B, T), dtype=torch.int64)
    for row, at, length in (0, 0, 11), (0, 11, 21), (1, 0, 32), (2, 1, 5), (2, 7, 25), (3, 0, 9):
        places[row, at:at + length] = torch.arange(length)
    for dtype, ranks, micro_batches in ("f32", 1, 1), ("f64", 2, 2):
        variant = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=20)
        wanted = reference(lambda p, t, wanted: loss_of(p, t, wanted, places), parameters, tokens, targets, variant)
        found = ours(["gpt2", LAYERS, CHANNELS, HEADS, VOCAB, POSITIONS], parameters, tokens, targets, variant, dtype, ranks, "FULL_SHARD",
                     micro_batches, places=places.expand(variant.steps, B, T))
        comparison.check_run(f"documents in rows, {dtype}, {ranks} ranks: ", found, wanted, slices=lambda name: 3 if name.endswith("c_attn.bias") else 1)


def main():
    torch.set_num_threads(1)  # tiny products, and other tests run next to this one
    generator = torch.Generator().manual_seed(7)
    parameters = initial_parameters(generator)
    tokens, targets = batches(generator, VOCAB, B, T)
    print(f"torch {torch.__version__}")
    comparison = Comparison()
    for variant in VARIANTS:
        compare(comparison, variant, parameters, tokens, targets)
    compare_packed(comparison, parameters, tokens, targets)
    compare_libraries(comparison, 100 if "--full" in sys.argv else 10)
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
