"""Shared by the tests of architectures against PyTorch in float64: a run of tests/compat/model_dump.c, batches that can be
learnt, a reference run with AdamW, and the comparison.

Bounds: one step's loss 1e-6 relative; every gradient, per tensor, an L2 norm of the difference of at most 1e-5 of the
reference's (a tensor whose norm is below 1e-6 of the global gradient norm, as the gradient of K's bias is by symmetry, is
held to 1e-6 of the global norm); losses over all steps 1e-5: 100 of AdamW, 40 of the other optimizers, with frozen and undecayed
parameters."""

import fnmatch
import pathlib
import subprocess
import tempfile

import torch_python

BUILD = pathlib.Path(torch_python.build()).resolve()
torch = torch_python.require()

STEPS = 100
LR, SGD_LR, DECAY, BETA1, BETA2, EPSILON, CLIP = 1e-3, 0.1, 0.1, 0.9, 0.95, 1e-8, 1.0


def batches(generator, vocab, samples, positions):
    """Sequences that can be learnt: mostly the next token is a fixed function of this one."""
    follow = torch.randperm(vocab, generator=generator)
    tokens = torch.empty((STEPS, samples, positions + 1), dtype=torch.int64)
    tokens[:, :, 0] = torch.randint(vocab, (STEPS, samples), generator=generator)
    for t in range(positions):
        noise = torch.randint(vocab, (STEPS, samples), generator=generator)
        keep = torch.rand((STEPS, samples), generator=generator) < 0.8
        tokens[:, :, t + 1] = torch.where(keep, follow[tokens[:, :, t]], noise)
    return tokens[:, :, :-1], tokens[:, :, 1:]


class Variant:
    """One optimizer: what PyTorch makes of the parameters, and the numbers for ours."""

    def __init__(self, name, kind, make, steps=40, momentum=0.0, dampening=0.0, nesterov=0, decay_all=0, frozen="-", spared="-", rate=LR):
        self.name, self.make, self.steps, self.frozen, self.spared, self.decay_all = name, make, steps, frozen, spared, decay_all
        self.rate = rate
        self.numbers = [kind, momentum, dampening, nesterov, decay_all, frozen, spared]

    def trains(self, name):
        return not fnmatch.fnmatchcase(name, self.frozen)

    def groups(self, p):
        decays = lambda name, v: (self.decay_all or v.dim() > 1) and not fnmatch.fnmatchcase(name, self.spared)
        return [
            {"params": [v for n, v in p.items() if v.requires_grad and decays(n, v)], "weight_decay": DECAY},
            {"params": [v for n, v in p.items() if v.requires_grad and not decays(n, v)], "weight_decay": 0.0},
        ]


def adam(kind):
    return lambda groups: kind(groups, lr=LR, betas=(BETA1, BETA2), eps=EPSILON)


def sgd(**options):
    return lambda groups: torch.optim.SGD([{**group, **options} for group in groups], lr=SGD_LR)


ADAMW = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=STEPS)


def reference(loss_of, parameters, tokens, targets, variant=ADAMW):
    """Losses and gradient norms of all steps, the gradients of the first, and the parameters after the last."""
    p = {name: value.double().requires_grad_(variant.trains(name)) for name, value in parameters.items()}
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


def ours(architecture, parameters, tokens, targets, variant=ADAMW, dtype="f32", ranks=1, strategy="NO_SHARD", micro_batches=1,
         moves=("f32", "f32", 0), evaluated=None, lengths=None, types=None, logits=None, pipeline=(), places=None):
    """The same of muster. architecture: the numbers that model_dump.c reads. moves: the dtypes of parameters and gradients in
    transit, and the loss scale. dtype: f32, f64, onednn, bf16 (f32 with products by oneDNN, or of bf16), v-bf16 or v-f16 (values of 16 bits),
    or a GPU's as model_dump.c has them. evaluated: a list, to which the loss after the training is added. lengths: (steps, samples), of texts
    whose targets are one a sample; types: of their tokens, as tokens. logits: a list, to which the logits of rank 0's first
    micro-batch before the training of a classifier are added. pipeline: stages of as many ranks each, parts of a stage, schedule. places: (steps,
    samples, positions), of documents in a row."""
    real = torch.float64 if dtype == "f64" else torch.float32
    tokens, targets = tokens[:variant.steps], targets[:variant.steps]
    steps, samples, positions = targets.shape if lengths is None else tokens.shape
    run = [dtype, ranks, strategy, micro_batches, samples, positions, steps, variant.rate, DECAY, BETA1, BETA2, EPSILON, CLIP,
           *variant.numbers, *moves]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config").write_text("\n".join(" ".join(map(str, line)) for line in (architecture, run, pipeline)) + "\n")
        (folder / "params").write_bytes(b"".join(torch_python.bytes_of(value.to(real)) for value in parameters.values()))
        files = [("tokens", tokens), ("targets", targets)] + ([] if lengths is None else [("lengths", lengths[:variant.steps])])
        files += [] if places is None else [("positions", places[:variant.steps])]
        files += [] if types is None else [("types", types[:variant.steps])]
        for name, values in files:
            kind = torch.float32 if values.is_floating_point() else torch.int32  # pictures, or numbers
            (folder / name).write_bytes(torch_python.bytes_of(values.to(kind)))
        subprocess.run([BUILD / "tests" / "model_dump", folder], check=True)
        names = [line.split() for line in (folder / "names").read_text().splitlines()]
        assert [name for name, _ in names] == list(parameters), f"the order of parameters differs: {names}"
        read = lambda name, kind: torch.frombuffer(bytearray((folder / name).read_bytes()), dtype=kind)

        def tensors(file):
            pieces = read(file, real).double().split([int(count) for _, count in names])
            return {name: piece.view(parameters[name].shape) for (name, _), piece in zip(names, pieces)}

        if evaluated is not None:
            evaluated.append(read("evaluated", torch.float64).item())
        if logits is not None:
            logits.append(read("logits", real).double())
        return read("losses", torch.float64).tolist(), read("norms", torch.float64).tolist(), tensors("grads"), tensors("trained")


class Comparison:
    def __init__(self):
        self.failures = []

    def check(self, what, found, bound):
        verdict = "ok" if found <= bound else "FAILED"
        print(f"{verdict:6} {what}: {found:.2e} (at most {bound:.2g})", flush=True)
        if not found <= bound:
            self.failures.append(what)

    def check_gradients(self, what, found, wanted, bound=1e-5, slices=lambda name: 1):
        whole = torch.cat([value.flatten() for value in wanted.values()]).norm().item()
        worst, worst_name, worst_small = 0.0, "", 0.0
        for name in wanted:
            pieces = slices(name)
            for i, (a, b) in enumerate(zip(found[name].chunk(pieces), wanted[name].chunk(pieces))):
                difference, norm = (a - b).norm().item(), b.norm().item()
                if norm < 1e-6 * whole:
                    worst_small = max(worst_small, difference / whole)
                elif not difference / norm <= worst:
                    worst, worst_name = difference / norm, f"{name}[{i}]" if pieces > 1 else name
        self.check(f"{what}gradients, worst tensor {worst_name}", worst, bound)
        self.check(f"{what}gradients that vanish, against the global norm", worst_small, 1e-6)

    def check_run(self, what, found, wanted, bounds=(1e-6, 1e-5, 1e-5), slices=lambda name: 1):
        """bounds: of one step's loss, of the gradients, of all steps' losses."""
        relative = lambda a, b: abs(a - b) / abs(b)
        (losses, norms, gradients, _), (want_losses, want_norms, want_gradients, _) = found, wanted
        self.check(f"{what}loss of one step", relative(losses[0], want_losses[0]), bounds[0])
        self.check_gradients(what, gradients, want_gradients, bounds[1], slices)
        self.check(f"{what}losses of {len(losses)} steps", max(map(relative, losses, want_losses)), bounds[2])
        self.check(f"{what}gradient norm of the first step", relative(norms[0], want_norms[0]), 1e-5)

    def check_parameters(self, variant, start, found, wanted):
        """How far all parameters went, and that the frozen ones did not."""
        moved = lambda end: torch.cat([(end[name] - start[name].double()).flatten() for name in start])
        self.check("the way of all parameters", (moved(found) - moved(wanted)).norm().item() / moved(wanted).norm().item(), 1e-3)
        frozen = [name for name in start if fnmatch.fnmatchcase(name, variant.frozen)]
        self.check(f"{len(frozen)} frozen parameters", max([(found[n] - start[n].double()).abs().max().item() for n in frozen] or [0.0]), 0)
