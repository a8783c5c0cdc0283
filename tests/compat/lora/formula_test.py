"""Adapters (LoRA) against PyTorch in float64: the models of llama_torch_test.py and gpt_torch_test.py with PEFT's formula
written out, W x + alpha / rank B A x, the same weights and tokens: losses of 100 steps, the first step's gradients, the adapters
after the last, and the frozen base, whose bytes may not change; on 1, 2 and 3 ranks with NO_SHARD and FULL_SHARD.

Bounds and how to find torch: model_against_torch.py. The reference kernels, in double, are held to 1e-9."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import gpt_torch_test
import llama_torch_test
from model_against_torch import STEPS, Comparison, Variant, adam, batches, ours, reference, torch

SAMPLES, T = 12, 16
EXACT = (1e-11, 1e-9, 1e-9)
BOUNDS = (1e-6, 1e-5, 1e-5)


class Adapted:
    """A model whose products of the targets have adapters: parameters in our order, and the loss with W + alpha / rank B A in
    the place of W, which is the same function."""

    def __init__(self, model, rank, alpha, targets):
        self.model, self.rank, self.alpha, self.targets = model, rank, alpha, targets
        self.scale = alpha / rank

    def is_target(self, name):
        module = name.removesuffix(".weight")
        return name.endswith(".weight") and any(module.endswith("." + target) for target in self.targets)

    def numbers(self):
        return [*self.model.numbers(), "lora", self.rank, self.alpha, *self.targets]

    def initial_parameters(self, generator):
        """B away from its usual 0, so that A has a gradient in the first step."""
        base, parameters, waiting = self.model.initial_parameters(generator), {}, {}
        draw = lambda *shape: 0.05 * torch.randn(shape, generator=generator, dtype=torch.float32)
        for name, value in base.items():
            if not name.endswith(".bias"):  # an adapter comes after its product's bias
                parameters |= waiting
                waiting = {}
            parameters[name] = value
            if self.is_target(name):
                module = name.removesuffix(".weight")
                waiting = {module + ".lora_A.weight": draw(self.rank, value.shape[1]),
                           module + ".lora_B.weight": draw(value.shape[0], self.rank)}
        return parameters | waiting

    def frozen(self, parameters):
        return [name for name in parameters if ".lora_" not in name]

    def loss_of(self, p, tokens, targets):
        merged = {name: value for name, value in p.items() if ".lora_" not in name}
        for name in list(merged):
            if self.is_target(name):
                module = name.removesuffix(".weight")
                merged[name] = merged[name] + self.scale * (p[module + ".lora_B.weight"] @ p[module + ".lora_A.weight"])
        return self.model.loss_of(merged, tokens, targets)


class Gpt:
    vocab = gpt_torch_test.VOCAB
    initial_parameters = staticmethod(gpt_torch_test.initial_parameters)
    loss_of = staticmethod(gpt_torch_test.loss_of)

    def numbers(self):
        g = gpt_torch_test
        return ["gpt2", g.LAYERS, g.CHANNELS, g.HEADS, g.VOCAB, g.POSITIONS]


class OfAdapters(Variant):
    """AdamW on the adapters alone; ours freezes the base without being told."""

    def trains(self, name):
        return ".lora_" in name


EVERYWHERE = [("f32", ranks, strategy, 2 if ranks == 2 else 1) for ranks in (1, 2, 3) for strategy in ("NO_SHARD", "FULL_SHARD")]
MODELS = {
    "llama, q and v": (Adapted(llama_torch_test.Llama(layers=2), 4, 8.0, ["q_proj", "v_proj"]), STEPS, EVERYWHERE),
    "llama with biases, all products": (
        Adapted(llama_torch_test.Llama(layers=2, bias=1, tied=1), 3, 5.0,
                ["q_proj", "k_proj", "v_proj", "self_attn.o_proj", "gate_proj", "up_proj", "mlp.down_proj"]), 20,
        [("f32", 2, "FULL_SHARD", 1)]),
    "gpt2, c_attn": (Adapted(Gpt(), 4, 16.0, ["c_attn"]), 20, [("f32", 3, "FULL_SHARD", 1)]),
}


def main():
    torch.set_num_threads(1)  # tiny products, and other tests run next to this one
    comparison = Comparison()
    for name, (model, steps, runs) in MODELS.items():
        generator = torch.Generator().manual_seed(11)
        parameters = model.initial_parameters(generator)
        tokens, targets = batches(generator, model.model.vocab, SAMPLES, T)
        variant = OfAdapters("AdamW", 0, adam(torch.optim.AdamW), steps=steps)
        wanted = reference(model.loss_of, parameters, tokens, targets, variant)
        print(f"{name}: torch {torch.__version__}; loss {wanted[0][0]:.4f} -> {wanted[0][-1]:.4f} in {len(wanted[0])} steps")
        assert wanted[0][-1] < wanted[0][0], f"{name}: nothing was learnt"
        for dtype, ranks, strategy, micro_batches in [("f64", 1, "NO_SHARD", 1), *runs]:
            found = ours(model.numbers(), parameters, tokens, targets, variant, dtype, ranks, strategy, micro_batches)
            what = f"{name}, {dtype}, {ranks} ranks, {strategy}, {micro_batches}: "
            comparison.check_run(what, found, wanted, EXACT if dtype == "f64" else BOUNDS)
            changed = [base for base in model.frozen(parameters) if not torch.equal(found[3][base], parameters[base].double())]
            comparison.check(f"{what}frozen parameters that have changed", len(changed), 0)
            worst = max((found[3][name] - wanted[3][name]).norm().item() / wanted[3][name].norm().item()
                        for name in parameters if ".lora_" in name)
            comparison.check(f"{what}adapters after the last step, worst tensor", worst, 1e-9 if dtype == "f64" else 1e-4)
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
