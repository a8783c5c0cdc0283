"""Our fp32 runtime against PyTorch in float64: the same GPT-2, the same weights, the same tokens.

Bounds: one step's loss 1e-6 relative; every gradient, per tensor, an L2 norm of the difference of at most 1e-5 of the
reference's (QKV biases as three slices; a slice whose norm is below 1e-6 of the global gradient norm, as the gradient of
K's bias is by symmetry, is held to 1e-6 of the global norm); losses and gradient norms over 100 AdamW steps 1e-5, and over 40 steps of the other optimizers, with frozen and undecayed parameters.

The interpreter with torch is MUSTER_TORCH_PYTHON, else .venv/bin/python of the source tree; without torch the test is
skipped (exit 77). MUSTER_BUILD names the build tree."""

import fnmatch
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE", HERE.parent.parent))
BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", SOURCE / "build")).resolve()
PYTHON = os.environ.get("MUSTER_TORCH_PYTHON", str(SOURCE / ".venv" / "bin" / "python"))

try:
    import torch
except ImportError as missing:
    if os.environ.get("MUSTER_TORCH_TRIED") or not os.path.exists(PYTHON):
        print(f"skipped: no torch ({missing}); set MUSTER_TORCH_PYTHON to an interpreter that has it")
        sys.exit(77)
    os.environ["MUSTER_TORCH_TRIED"] = "1"
    os.execv(PYTHON, [PYTHON, __file__])

import torch.nn.functional as functional

LAYERS, CHANNELS, HEADS, VOCAB, POSITIONS = 3, 64, 4, 160, 40
B, T, STEPS = 4, 32, 100
LR, SGD_LR, DECAY, BETA1, BETA2, EPSILON, CLIP = 1e-3, 0.1, 0.1, 0.9, 0.95, 1e-8, 1.0


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


def batches(generator):
    """Sequences that can be learnt: mostly the next token is a fixed function of this one."""
    follow = torch.randperm(VOCAB, generator=generator)
    tokens = torch.empty((STEPS, B, T + 1), dtype=torch.int64)
    tokens[:, :, 0] = torch.randint(VOCAB, (STEPS, B), generator=generator)
    for t in range(T):
        noise = torch.randint(VOCAB, (STEPS, B), generator=generator)
        keep = torch.rand((STEPS, B), generator=generator) < 0.8
        tokens[:, :, t + 1] = torch.where(keep, follow[tokens[:, :, t]], noise)
    return tokens[:, :, :-1], tokens[:, :, 1:]


def loss_of(p, tokens, targets):
    x = p["wte.weight"][tokens] + p["wpe.weight"][:T]
    for i in range(LAYERS):
        w = {name.split(f"h.{i}.")[1]: value for name, value in p.items() if name.startswith(f"h.{i}.")}
        h = functional.layer_norm(x, (CHANNELS,), w["ln_1.weight"], w["ln_1.bias"], 1e-5)
        qkv = functional.linear(h, w["attn.c_attn.weight"], w["attn.c_attn.bias"])
        q, k, v = (part.view(B, T, HEADS, -1).transpose(1, 2) for part in qkv.split(CHANNELS, dim=2))
        scores = q @ k.transpose(2, 3) / (CHANNELS // HEADS) ** 0.5
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
        attention = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, CHANNELS)
        x = x + functional.linear(attention, w["attn.c_proj.weight"], w["attn.c_proj.bias"])
        h = functional.layer_norm(x, (CHANNELS,), w["ln_2.weight"], w["ln_2.bias"], 1e-5)
        h = functional.gelu(functional.linear(h, w["mlp.c_fc.weight"], w["mlp.c_fc.bias"]), approximate="tanh")
        x = x + functional.linear(h, w["mlp.c_proj.weight"], w["mlp.c_proj.bias"])
    x = functional.layer_norm(x, (CHANNELS,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    logits = functional.linear(x, p["wte.weight"])
    return functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


class Variant:
    """One optimizer: what PyTorch makes of the parameters, and the numbers that tell ours."""

    def __init__(self, name, kind, make, steps=40, momentum=0.0, dampening=0.0, nesterov=0, decay_all=0, frozen="-", spared="-", rate=LR):
        self.name, self.make, self.steps, self.frozen, self.spared, self.decay_all = name, make, steps, frozen, spared, decay_all
        self.rate = rate
        self.numbers = [kind, momentum, dampening, nesterov, decay_all, frozen, spared]

    def groups(self, p):
        decays = lambda name, v: (self.decay_all or v.dim() == 2) and not fnmatch.fnmatchcase(name, self.spared)
        return [
            {"params": [v for n, v in p.items() if v.requires_grad and decays(n, v)], "weight_decay": DECAY},
            {"params": [v for n, v in p.items() if v.requires_grad and not decays(n, v)], "weight_decay": 0.0},
        ]


def adam(kind):
    return lambda groups: kind(groups, lr=LR, betas=(BETA1, BETA2), eps=EPSILON)


def sgd(**options):
    return lambda groups: torch.optim.SGD([{**group, **options} for group in groups], lr=SGD_LR)


VARIANTS = [
    Variant("AdamW", 0, adam(torch.optim.AdamW), steps=STEPS),
    Variant("Adam, all decay but wpe", 1, adam(torch.optim.Adam), decay_all=1, spared="wpe.*"),
    Variant("SGD", 2, sgd(), rate=SGD_LR),
    Variant("SGD with momentum", 2, sgd(momentum=0.9, dampening=0.1), momentum=0.9, dampening=0.1, rate=SGD_LR),
    Variant("SGD with Nesterov's", 2, sgd(momentum=0.9, nesterov=True), momentum=0.9, nesterov=1, rate=SGD_LR),
    Variant("AdamW, block 1 frozen", 0, adam(torch.optim.AdamW), frozen="h.1.*"),
    Variant("AdamW, the tied embedding frozen", 0, adam(torch.optim.AdamW), frozen="wte.*"),
]


def reference(variant, parameters, tokens, targets):
    p = {name: value.double().requires_grad_(not fnmatch.fnmatchcase(name, variant.frozen)) for name, value in parameters.items()}
    optimizer = variant.make(variant.groups(p))
    losses, norms, gradients = [], [], None
    for step in range(variant.steps):
        optimizer.zero_grad()
        loss = loss_of(p, tokens[step], targets[step])
        loss.backward()
        if step == 0:
            gradients = {name: torch.zeros_like(value) if value.grad is None else value.grad.clone() for name, value in p.items()}
        norms.append(torch.nn.utils.clip_grad_norm_(list(p.values()), CLIP).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, gradients, {name: value.detach() for name, value in p.items()}


def ours(variant, parameters, tokens, targets):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        numbers = [LAYERS, CHANNELS, HEADS, VOCAB, POSITIONS, B, T, variant.steps, variant.rate, DECAY, BETA1, BETA2, EPSILON, CLIP, *variant.numbers]
        (folder / "config").write_text(" ".join(map(str, numbers)) + "\n")
        (folder / "params").write_bytes(b"".join(bytes(v.contiguous().view(-1).untyped_storage()) for v in parameters.values()))
        for name, values in (("tokens", tokens), ("targets", targets)):
            (folder / name).write_bytes(bytes(values[:variant.steps].to(torch.int32).contiguous().clone().untyped_storage()))
        subprocess.run([BUILD / "tests" / "gpt_dump", folder], check=True)
        names = [line.split() for line in (folder / "names").read_text().splitlines()]
        assert [name for name, _ in names] == list(parameters), "the order of parameters differs"

        def tensors(file):
            pieces = torch.frombuffer(bytearray((folder / file).read_bytes()), dtype=torch.float32).double().split([int(count) for _, count in names])
            return {name: piece.view(parameters[name].shape) for (name, _), piece in zip(names, pieces)}

        read = lambda name: torch.frombuffer(bytearray((folder / name).read_bytes()), dtype=torch.float64).tolist()
        return read("losses"), read("norms"), tensors("grads"), tensors("trained")


failures = []


def check(what, found, bound):
    verdict = "ok" if found <= bound else "FAILED"
    print(f"{verdict:6} {what}: {found:.2e} (at most {bound:.0e})")
    if not found <= bound:
        failures.append(what)


def check_gradients(found, wanted):
    whole = torch.cat([value.flatten() for value in wanted.values()]).norm().item()
    worst, worst_name, worst_small = 0.0, "", 0.0
    for name in wanted:
        slices = 3 if name.endswith("c_attn.bias") else 1
        for i, (a, b) in enumerate(zip(found[name].chunk(slices), wanted[name].chunk(slices))):
            difference, norm = (a - b).norm().item(), b.norm().item()
            if norm < 1e-6 * whole:
                worst_small = max(worst_small, difference / whole)
            elif not difference / norm <= worst:
                worst, worst_name = difference / norm, f"{name}[{i}]"
    check(f"gradients, worst tensor {worst_name}", worst, 1e-5)
    check("gradients that vanish, against the global norm", worst_small, 1e-6)


def compare(variant, parameters, tokens, targets):
    want_losses, want_norms, want_gradients, want_trained = reference(variant, parameters, tokens, targets)
    losses, norms, gradients, trained = ours(variant, parameters, tokens, targets)
    relative = lambda a, b: abs(a - b) / abs(b)
    print(f"{variant.name}: loss {want_losses[0]:.4f} -> {want_losses[-1]:.4f} in {variant.steps} steps")
    check("loss of one step", relative(losses[0], want_losses[0]), 1e-6)
    check_gradients(gradients, want_gradients)
    check(f"losses of {variant.steps} steps", max(map(relative, losses, want_losses)), 1e-5)
    check("gradient norm of the first step", relative(norms[0], want_norms[0]), 1e-5)
    moved = lambda found: torch.cat([(found[n] - parameters[n].double()).flatten() for n in parameters])
    check("the way of all parameters", (moved(trained) - moved(want_trained)).norm().item() / moved(want_trained).norm().item(), 1e-3)
    frozen = [n for n in parameters if fnmatch.fnmatchcase(n, variant.frozen)]
    check(f"{len(frozen)} frozen parameters", max([(trained[n] - parameters[n].double()).abs().max().item() for n in frozen] or [0.0]), 0)


def main():
    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(7)
    parameters = initial_parameters(generator)
    tokens, targets = batches(generator)
    print(f"torch {torch.__version__}")
    for variant in VARIANTS:
        compare(variant, parameters, tokens, targets)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
