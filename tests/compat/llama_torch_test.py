"""Our runtime against PyTorch in float64: the same Llama, the same weights, the same tokens; with grouped-query attention, tied
and untied, with biases, with each scaling of the rotary frequencies; on 1, 2 and 4 ranks with every strategy.

The model is written out here: transformers keeps RMSNorm and the rotary frequencies in float32 even in a float64 model. Where
transformers is installed, the parameters are loaded into its LlamaForCausalLM, strictly by name, and the losses compared.

Bounds and how to find torch: model_against_torch.py. The reference kernels, in double, are held to 1e-9."""

import dataclasses
import importlib.util
import math
import sys

from model_against_torch import Comparison, Variant, adam, batches, ours, reference, torch

import torch.nn.functional as functional

SAMPLES, T = 8, 16
STRATEGIES = ("NO_SHARD", "SHARD_OPTIM", "SHARD_GRAD_OP", "FULL_SHARD")
EXACT = (1e-11, 1e-9, 1e-9)
# A Llama differs from the GPT in its layers alone, whose gradients the first step compares; gpt_torch_test.py has 100 steps and the
# other optimizers.
ADAMW = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=20)


@dataclasses.dataclass
class Llama:
    layers: int = 3
    channels: int = 48
    heads: int = 6
    kv_heads: int = 2
    head_size: int = 8
    hidden: int = 80
    vocab: int = 97
    positions: int = 64
    tied: int = 0
    bias: int = 0
    epsilon: float = 1e-5
    theta: float = 10000.0
    scaling: str = "none"
    factor: float = 8.0
    low: float = 1.0
    high: float = 4.0
    original: int = 32

    def numbers(self):
        values = dataclasses.asdict(self)
        values["scaling"] = ("none", "linear", "llama3").index(self.scaling)
        return ["llama", *values.values()]

    def shapes(self):
        c, q, kv = self.channels, self.heads * self.head_size, self.kv_heads * self.head_size
        products = [("self_attn.q_proj", q, c), ("self_attn.k_proj", kv, c), ("self_attn.v_proj", kv, c),
                    ("self_attn.o_proj", c, q)]
        yield "model.embed_tokens.weight", (self.vocab, c)
        for i in range(self.layers):
            prefix = f"model.layers.{i}."
            yield prefix + "input_layernorm.weight", (c,)
            for name, rows, columns in products:
                yield f"{prefix}{name}.weight", (rows, columns)
                if self.bias:
                    yield f"{prefix}{name}.bias", (rows,)
            yield prefix + "post_attention_layernorm.weight", (c,)
            yield prefix + "mlp.gate_proj.weight", (self.hidden, c)
            yield prefix + "mlp.up_proj.weight", (self.hidden, c)
            yield prefix + "mlp.down_proj.weight", (c, self.hidden)
        yield "model.norm.weight", (c,)
        if not self.tied:
            yield "lm_head.weight", (self.vocab, c)

    def frequencies(self):
        """As transformers' modeling_rope_utils forms them, in double."""
        f = self.theta ** (-torch.arange(0, self.head_size, 2, dtype=torch.float64) / self.head_size)
        if self.scaling == "linear":
            return f / self.factor
        if self.scaling == "llama3":
            length = 2 * math.pi / f
            smooth = (self.original / length - self.low) / (self.high - self.low)
            between = (1 - smooth) * f / self.factor + smooth * f
            f = torch.where(length > self.original / self.low, f / self.factor,
                            torch.where(length < self.original / self.high, f, between))
        return f

    def initial_parameters(self, generator):
        """Values that float32 holds exactly; biases and norms away from their usual 0 and 1."""
        parameters = {}
        for name, shape in self.shapes():
            value = 0.05 * torch.randn(shape, generator=generator, dtype=torch.float32)
            parameters[name] = value + 1 if "norm" in name else value
        return parameters

    def rms_norm(self, x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * weight

    def rotate(self, x):
        """x: (B, heads, T, head size); the halves of a head are turned together."""
        angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * self.frequencies()
        cos, sin = angles.cos(), angles.sin()
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def attend(self, x, product):
        B, T, _ = x.shape
        split = lambda name, heads: product(name, x).view(B, T, heads, self.head_size).transpose(1, 2)
        q, k, v = split("q_proj", self.heads), split("k_proj", self.kv_heads), split("v_proj", self.kv_heads)
        q, k = self.rotate(q), self.rotate(k)
        k, v = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (k, v))
        scores = q @ k.transpose(2, 3) / self.head_size ** 0.5
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
        return product("o_proj", (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, -1))

    def layer(self, p, number, x):
        """Layer 0 is the embedding of tokens, the last one gives logits."""
        if number == 0:
            return p["model.embed_tokens.weight"][x]
        if number > self.layers:
            return functional.linear(self.rms_norm(x, p["model.norm.weight"]), p["model.embed_tokens.weight" if self.tied else "lm_head.weight"])
        name = f"model.layers.{number - 1}."
        product = lambda part, value: functional.linear(
            value, p[f"{name}self_attn.{part}.weight"], p.get(f"{name}self_attn.{part}.bias"))
        x = x + self.attend(self.rms_norm(x, p[name + "input_layernorm.weight"]), product)
        h = self.rms_norm(x, p[name + "post_attention_layernorm.weight"])
        gate = functional.silu(functional.linear(h, p[name + "mlp.gate_proj.weight"]))
        return x + functional.linear(gate * functional.linear(h, p[name + "mlp.up_proj.weight"]),
                                     p[name + "mlp.down_proj.weight"])

    def layer_of(self, name):
        """The number of the layer that has a parameter, of an untied model."""
        return int(name.split(".")[2]) + 1 if name.startswith("model.layers.") else 0 if "embed" in name else self.layers + 1

    def loss_of(self, p, tokens, targets):
        x = tokens
        for number in range(self.layers + 2):
            x = self.layer(p, number, x)
        return functional.cross_entropy(x.reshape(-1, self.vocab), targets.reshape(-1))

    def of_transformers(self, parameters):
        import transformers

        scaling = {"rope_type": "default" if self.scaling == "none" else self.scaling, "rope_theta": self.theta}
        if self.scaling != "none":
            scaling["factor"] = self.factor
        if self.scaling == "llama3":
            scaling |= {"low_freq_factor": self.low, "high_freq_factor": self.high,
                        "original_max_position_embeddings": self.original}
        config = transformers.LlamaConfig(
            vocab_size=self.vocab, hidden_size=self.channels, intermediate_size=self.hidden,
            num_hidden_layers=self.layers, num_attention_heads=self.heads, num_key_value_heads=self.kv_heads,
            head_dim=self.head_size, max_position_embeddings=self.positions, rms_norm_eps=self.epsilon,
            rope_parameters=scaling, tie_word_embeddings=bool(self.tied), attention_bias=bool(self.bias),
            attn_implementation="eager")
        model = transformers.LlamaForCausalLM(config).double()
        state = {name: value.double() for name, value in parameters.items()}
        if self.tied:
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
        model.load_state_dict(state, strict=True)
        return model


# runs next to one rank in double: (dtype, ranks, strategy, micro-batches)
EVERYWHERE = [("f32", ranks, strategy, 2 if ranks == 2 else 1) for ranks in (1, 2, 4) for strategy in STRATEGIES]
EVERYWHERE += [("f32", 4, "HYBRID_SHARD", 2), ("f64", 2, "FULL_SHARD", 2)]
MODELS = {
    "untied": (Llama(), EVERYWHERE),
    "tied": (Llama(tied=1, layers=2), EVERYWHERE),
    "biases, linear scaling": (Llama(bias=1, layers=2, scaling="linear", factor=3.0), [("f32", 2, "FULL_SHARD", 1)]),
    "llama3 scaling, wide heads": (Llama(layers=2, heads=4, kv_heads=4, head_size=16, theta=500.0, scaling="llama3"),
                                   [("f32", 1, "NO_SHARD", 1)]),
}


def main():
    torch.set_num_threads(1)  # tiny products, and other tests run next to this one
    comparison = Comparison()
    for name, (llama, runs) in MODELS.items():
        generator = torch.Generator().manual_seed(7)
        parameters = llama.initial_parameters(generator)
        tokens, targets = batches(generator, llama.vocab, SAMPLES, T)
        wanted = reference(llama.loss_of, parameters, tokens, targets, ADAMW)
        print(f"{name}: torch {torch.__version__}; loss {wanted[0][0]:.4f} -> {wanted[0][-1]:.4f} in {len(wanted[0])} steps")
        if importlib.util.find_spec("transformers"):
            with torch.no_grad():
                logits = llama.of_transformers(parameters)(tokens[0]).logits
                loss = functional.cross_entropy(logits.reshape(-1, llama.vocab).double(), targets[0].reshape(-1)).item()
            comparison.check(f"{name}, loss in transformers", abs(loss - wanted[0][0]) / wanted[0][0], 1e-6)
        else:
            print(f"{name}: transformers is not installed: not compared with it")
        for dtype, ranks, strategy, micro_batches in [("f64", 1, "NO_SHARD", 1), *runs]:
            found = ours(llama.numbers(), parameters, tokens, targets, ADAMW, dtype, ranks, strategy, micro_batches)
            what = f"{name}, {dtype}, {ranks} ranks, {strategy}, {micro_batches}: "
            comparison.check_run(what, found, wanted, EXACT if dtype == "f64" else (1e-6, 1e-5, 1e-5))
    return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
