"""GPT-2 and Llama from transformers' folders through our trainers and back: the same bytes, the same logits.

In: save_pretrained's folders of one file and of three shards, fp32, bf16 and fp16, and checkpoints as llm.c's train_gpt2.py writes
them. Out: a folder equal to the byte where the type is the same; loaded by from_pretrained without a missing, unexpected or changed
key; model.pth read by torch.load(weights_only=True). On 1, 2 and 4 ranks with NO_SHARD and FULL_SHARD. Logits, of the reference kernels in
double, within 1e-5 of transformers' in float64, whose RMSNorm and rotary frequencies, which it keeps in float32, are replaced here."""

import math
import pathlib
import subprocess
import sys
import tempfile

import torch_python

torch = torch_python.require()
torch_python.require_transformers()
import transformers  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
BUILD = pathlib.Path(torch_python.build()).resolve()
BOUND, T, VOCABULARY = 1e-5, 24, 97
EVERYWHERE = [(ranks, strategy) for ranks in (1, 2, 4) for strategy in ("NO_SHARD", "FULL_SHARD")]


def frequencies(config):
    """In double, by the formulas of transformers' modeling_rope_utils."""
    rope = config.rope_parameters
    size = config.head_dim
    f = rope["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    if rope["rope_type"] == "linear":
        return f / rope["factor"]
    if rope["rope_type"] == "llama3":
        length, original = 2 * math.pi / f, rope["original_max_position_embeddings"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = (original / length - low) / (high - low)
        between = (1 - smooth) * f / rope["factor"] + smooth * f
        f = torch.where(length > original / low, f / rope["factor"], torch.where(length < original / high, f, between))
    return f


def rotary(self, x, position_ids):
    angles = position_ids[:, :, None].double() * frequencies(self.config)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rms_norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


modeling_llama.LlamaRotaryEmbedding.forward = rotary
modeling_llama.LlamaRMSNorm.forward = rms_norm


def llama(**options):
    config = dict(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
                  num_key_value_heads=2, head_dim=8, max_position_embeddings=64, attn_implementation="eager")
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**config, **options}))


LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, attn_implementation="eager")),
    "llama": lambda: llama(rope_parameters=LLAMA3),
    "llama tied": lambda: llama(tie_word_embeddings=True, num_key_value_heads=6, head_dim=16, attention_bias=True,
                                rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=3.0)),
}


def run(*words, check=True):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


def random_model(name):
    """Weights that bf16 holds, away from what initialisation gives norms and biases."""
    torch.manual_seed(5)
    model = MODELS[name]()
    with torch.no_grad():
        for key, value in model.named_parameters():
            value.copy_((value + 0.1 * torch.randn_like(value)).bfloat16())
    return model.eval()


class Trips:
    def __init__(self, folder):
        self.folder, self.failures, self.number = folder, [], 0
        self.tokens = folder / "tokens"
        generator = torch.Generator().manual_seed(1)
        self.ids = torch.randint(VOCABULARY, (T,), generator=generator)
        self.tokens.write_bytes(bytes(self.ids.to(torch.int32).untyped_storage()))

    def check(self, what, good, found=""):
        print(f"{'ok' if good else 'FAILED':6} {what} {found}", flush=True)
        if not good:
            self.failures.append(what)

    def new(self, name=""):
        self.number += 1
        return self.folder / f"{self.number} {name}"

    def dump(self, source, out="-", form="hf", dtype="f32", shard=0, kernels="f32", ranks=1, strategy="NO_SHARD", logits=None):
        more = [self.tokens, logits] if logits else []
        run(BUILD / "tests" / "files_dump", source, out, form, dtype, shard, kernels, ranks, strategy, *more)

    def logits(self, source):
        out = self.new("logits")
        self.dump(source, kernels="f64", logits=out)
        return torch.frombuffer(bytearray(out.read_bytes()), dtype=torch.float64).view(T, VOCABULARY)

    def check_logits(self, what, source, model):
        with torch.no_grad():
            wanted = model.double()(self.ids[None]).logits[0]
        found = ((self.logits(source) - wanted).norm() / wanted.norm()).item()
        self.check(f"{what}: logits of imported weights", found <= BOUND, f"{found:.1e} (at most {BOUND:.0e})")

    def check_equal(self, what, first, second):
        """Every file of the first folder is in the second, equal to the byte, and there is nothing else."""
        names = sorted(p.name for p in first.iterdir())
        found = sorted(p.name for p in second.iterdir())
        same = [n for n in names if n in found and (first / n).read_bytes() == (second / n).read_bytes()]
        self.check(f"{what}: {len(names)} files equal to the byte", names == found == same, f"" if names == found == same else f"{names} {found} {same}")


def loads(folder, kind):
    """from_pretrained with nothing to report."""
    model, info = kind.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    return model.eval(), {key: value for key, value in info.items() if value}


def same_state(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key].double(), b[key].double()) for key in a)


def round_trips(trips, name, model):
    total = sum(p.numel() for p in model.parameters())
    for dtype, kind in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        for shards in (1, 3):
            limit = int(total * kind.itemsize / 2.5) if shards == 3 else 10 ** 12
            first = trips.new(f"{name} {dtype} {shards}")
            model.to(kind).save_pretrained(first, max_shard_size=limit)
            assert len(list(first.glob("model*.safetensors"))) == shards, sorted(first.iterdir())
            (first / "tokenizer.json").write_text("{}")
            for ranks, strategy in EVERYWHERE if shards == 3 or dtype == "f32" else EVERYWHERE[-1:]:
                second = trips.new()
                trips.dump(first, second, dtype=dtype, shard=limit, ranks=ranks, strategy=strategy)
                trips.check_equal(f"{name}, {dtype}, {shards} files, {ranks} ranks, {strategy}", first, second)
            back, info = loads(second, type(model))
            trips.check(f"{name}, {dtype}, {shards} files: from_pretrained has nothing to report", not info, info or "")
            trips.check(f"{name}, {dtype}, {shards} files: the same parameters", same_state(back, model))
            trips.check_logits(f"{name}, {dtype}, {shards} files", second, back)
    half = trips.new("half")
    model.half().save_pretrained(half)
    trips.check_logits(f"{name}, fp16", half, transformers.AutoModelForCausalLM.from_pretrained(half, dtype=torch.float16, attn_implementation="eager"))
    model.float()


def state_dicts(trips, name, model):
    source = trips.new("for pth")
    model.save_pretrained(source)
    for dtype, kind in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        path = trips.new("model.pth")
        trips.dump(source, path, form="pth", dtype=dtype, ranks=2, strategy="FULL_SHARD")
        for mapped in (False, True):
            state = torch.load(path, weights_only=True, mmap=mapped)
            fresh = MODELS[name]().to(kind)
            fresh.load_state_dict(state, strict=True)
            trips.check(f"{name}, model.pth, {dtype}, mmap {mapped}: the same parameters",
                        same_state(fresh, model.to(kind)) and all(value.dtype == kind for value in state.values()))
        tied = model.config.tie_word_embeddings
        table = "transformer.wte.weight" if name == "gpt2" else "model.embed_tokens.weight"
        trips.check(f"{name}, model.pth, {dtype}: tied {tied}", (state["lm_head.weight"].data_ptr() == state[table].data_ptr()) == tied)
        run("python3", "-m", "zipfile", "-t", path)
        model.float()


def llmc_file(model, path, version):
    """As write_model and write_tensors of llm.c's train_gpt2.py: matrices are (out, in), the table padded to a multiple of 128."""
    kind = {3: torch.float32, 5: torch.bfloat16}[version]
    c, p = model.config, {name.removeprefix("transformer."): value.detach() for name, value in model.state_dict().items()}
    padded = -(-c.vocab_size // 128) * 128
    header = torch.zeros(256, dtype=torch.int32)
    header[:8] = torch.tensor([20240326, version, c.n_positions, c.vocab_size, c.n_layer, c.n_head, c.n_embd, padded])
    table = torch.nn.functional.pad(p["wte.weight"], (0, 0, 0, padded - c.vocab_size))
    parts = [table, p["wpe.weight"]]
    for part in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
        for what in ("weight", "bias"):
            for layer in range(c.n_layer):
                value = p[f"h.{layer}.{part}.{what}"]
                parts.append(value.t() if value.dim() == 2 else value)
    parts += [p["ln_f.weight"], p["ln_f.bias"]]
    with open(path, "wb") as file:
        file.write(torch_python.bytes_of(header))
        for part in parts:
            file.write(torch_python.bytes_of(part.to(kind)))


def llmc(trips, model):
    wanted = trips.new("gpt2 of llm.c")
    model.save_pretrained(wanted)
    for version in (3, 5):
        path = trips.new("gpt2.bin")
        llmc_file(model, path, version)
        for ranks, strategy in ((1, "NO_SHARD"), (4, "FULL_SHARD")):
            out = trips.new()
            trips.dump(path, out, ranks=ranks, strategy=strategy)
            back, info = loads(out, type(model))
            trips.check(f"llm.c version {version}, {ranks} ranks: the same parameters", not info and same_state(back, model), info or "")
        trips.check_logits(f"llm.c version {version}", path, model)
        model.float()


YAML = """training: {{steps: 2, micro_batch: 1, global_batch: 4, sequence_length: 16, learning_rate: 0, min_learning_rate: 0,
  warmup_steps: 0, threads: 1, output: "{out}", output_format: {form}}}
model: {{path: "{path}"}}
data: {{path: "{text}"}}
logging: {{sample_length: 0}}
"""


def program(trips, path, out, form="hf", ranks=1, more=(), check=True):
    """muster-train with a learning rate of 0: input and output are equal."""
    text, config = trips.new("text"), trips.new("config.yaml")
    text.write_text("the quick brown fox jumps over the lazy dog. " * 20)
    config.write_text(YAML.format(path=path, out=out, form=form, text=text))
    launch = [BUILD / "bin" / "muster", "run", "--standalone", f"--nproc_per_node={ranks}"] if ranks > 1 else []
    return run(*launch, BUILD / "bin" / "muster-train", config, *(part for word in more for part in ("--set", word)), check=check)


def programs(trips):
    """model.path and training.output_format of muster-train; sizes that hold bytes as tokens."""
    torch.manual_seed(3)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=300, n_positions=32, n_embd=32, n_layer=2, n_head=4, attn_implementation="eager"))
    first = trips.new("for muster-train")
    model.save_pretrained(first, max_shard_size=70000)
    (first / "merges.txt").write_text("a b")
    for ranks in (1, 2):
        second, state = trips.new(), trips.new("state.pth")
        done = program(trips, first, second, ranks=ranks, more=["training.output_shard_size=70000"])
        trips.check_equal(f"muster-train, {ranks} ranks", first, second)
        trips.check(f"muster-train, {ranks} ranks: what it prints", "model: gpt2, " in done.stdout and "dropout of 0.1" in done.stdout)
        program(trips, first, state, "pth", ranks, more=["training.output_dtype=bf16"])
        read = torch.load(state, weights_only=True)
        trips.check(f"muster-train, {ranks} ranks: model.pth in bf16",
                    all(torch.equal(read[key], value.bfloat16()) for key, value in model.state_dict().items()))
    binary = trips.new("gpt2.bin")
    llmc_file(model, binary, 3)
    second = trips.new()
    program(trips, binary, second, ranks=2)
    back, info = loads(second, type(model))
    trips.check("muster-train, llm.c", not info and same_state(back, model), info or "")

    config = (first / "config.json").read_text()
    index = (first / "model.safetensors.index.json").read_text()
    for what, name, before, after, words in (
            ("an activation", "config.json", '"gelu_new"', '"mish"', "activation_function is \"mish\""),
            ("another model", "config.json", '"gpt2"', '"mamba"', "model_type is \"mamba\""),
            ("a wrong size", "config.json", '"n_embd": 32', '"n_embd": 64', "have a wrong shape: "),
            ("a missing layer", "config.json", '"n_layer": 2', '"n_layer": 3', "12 tensors are missing: transformer.h.2.ln_1.weight"),
            ("a tensor too many", "config.json", '"n_layer": 2', '"n_layer": 1', "12 are unexpected: transformer.h.1.attn.c_attn.bias"),
            ("a shard elsewhere", "model.safetensors.index.json", '"model-00001', '"../model-00001', "which is no file next to it")):
        (first / "config.json").write_text(config)
        (first / "model.safetensors.index.json").write_text(index)
        text = (first / name).read_text()
        assert before in text, what
        (first / name).write_text(text.replace(before, after))
        for ranks in (1, 2):
            done = program(trips, first, trips.new(), ranks=ranks, check=False)
            trips.check(f"{what} is refused, {ranks} ranks", done.returncode == 2 and words in done.stderr, done.stderr if words not in done.stderr else "")
    (first / "config.json").write_text(config)
    (first / "model.safetensors.index.json").write_text(index)
    for more, words in ((["model.layers=2"], "model.layers has no effect with model.path"),
                        (["model.architecture=llama"], "is a gpt2, but model.architecture is llama"),
                        (["training.output_format=pth", "training.output_shard_size=1M"], "training.output_shard_size has no effect")):
        done = program(trips, first, trips.new(), more=more, check=False)
        trips.check(f"{more[0]} is refused", done.returncode == 2 and words in done.stderr, done.stderr if words not in done.stderr else "")


def main():
    torch.set_num_threads(1)  # tiny products, and other tests run next to this one
    with tempfile.TemporaryDirectory(prefix="muster files ") as folder:
        trips = Trips(pathlib.Path(folder))
        for name in MODELS:
            model = random_model(name)
            round_trips(trips, name, model)
            state_dicts(trips, name, model)
            if name == "gpt2":
                llmc(trips, model)
        programs(trips)
    print(f"{len(trips.failures)} failures")
    return 1 if trips.failures else 0


if __name__ == "__main__":
    sys.exit(main())
