"""QLoRA: adapters next to a base that is held in few bits (lora.base). Its codes against the formulas in PyTorch, whose own type the 8-bit
floats are; its losses against PyTorch in float64 on the base as it is opened, on 1 to 4 ranks, in NO_SHARD and FULL_SHARD
(--full: all of them); the plan's bytes; resumed on other ranks."""

import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402

torch = torch_python.require()
import hf_files_test as files  # noqa: E402: after the path; replaces transformers' norms and frequencies by double ones
import safetensors.torch  # noqa: E402
import transformers  # noqa: E402

torch.set_num_threads(1)  # small matrices: a second thread would spin
BUILD = pathlib.Path(torch_python.build()).resolve()
SAMPLES, T, STEPS, RATE, RANK, ALPHA = 12, 16, 12, 5e-3, 4, 8
FULL = "--full" in sys.argv
PLACES = {kind: [(ranks, strategy) for ranks in (1, 2, 3, 4) for strategy in ("NO_SHARD", "FULL_SHARD")] for kind in ("nf4", "int8")} if FULL else {
    "nf4": [(1, "NO_SHARD"), (2, "NO_SHARD"), (3, "FULL_SHARD"), (4, "FULL_SHARD")], "int8": [(2, "FULL_SHARD")]}
CONFIG = """\
training: {{steps: {steps}, micro_batch: 1, global_batch: {samples}, sequence_length: {T}, learning_rate: {rate}, schedule: constant,
           warmup_steps: 0, weight_decay: 0.0, beta1: 0.9, beta2: 0.95, epsilon: 1.0e-8, clip_norm: 0, threads: 1, strategy: {strategy},
           output: "{out}", output_format: {format}}}
model: {{path: "{base}"}}
lora: {{path: "{start}", base: {kind}, merge: {merge}}}
data: {{path: "{tokens}", tokenizer: bytes}}
logging: {{sample_length: 0, interval: 1, json: "{out}.jsonl"}}
"""
NF4 = torch.tensor([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0])


def nf4(values):
    """Bytes of one unit of 16,384, and their values: blocks of 64, whose sizes are 8-bit floats around their mean."""
    blocks = values.reshape(256, 64)
    sizes = blocks.abs().amax(1)
    mean = sizes.double().mean().float()
    factor = (sizes - mean).abs().max() / 448
    small = ((sizes - mean) / factor).to(torch.float8_e4m3fn)
    opened = mean + factor * small.float()
    scaled = blocks * (1 / opened)[:, None]
    middles = (NF4[1:] + NF4[:-1]) / 2
    codes = (scaled[..., None] > middles).sum(-1).to(torch.uint8)
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    raw = bytes(packed.flatten().tolist()) + bytes(small.view(torch.uint8).tolist()) + struct.pack("<2f", mean.item(), factor.item())
    return raw, (NF4[codes.long()] * opened[:, None]).flatten()


def int8(values):
    scale = values.abs().max() / 127
    codes = (values / scale).round()
    return bytes(codes.to(torch.int8).view(torch.uint8).tolist()) + struct.pack("<f", scale.item()), scale * codes


def check_codes(trips, kind, unit, formula):
    values = torch.randn(4, 16384, generator=torch.Generator().manual_seed(9)) * torch.tensor([0.02, 1.0, 3e-5, 40.0])[:, None]
    values[1] *= torch.linspace(0.1, 3, 16384)  # blocks of many sizes
    done = subprocess.run([BUILD / "tests" / "stored_dump", kind], input=values.numpy().tobytes(), stdout=subprocess.PIPE, check=True)
    pairs = [formula(part) for part in values.reshape(-1, unit)]
    raw, opened = b"".join(pair[0] for pair in pairs), torch.cat([pair[1] for pair in pairs])
    found = torch.frombuffer(bytearray(done.stdout[len(raw):]), dtype=torch.float32)
    apart = sum(a != b for a, b in zip(raw, done.stdout, strict=False)) / len(raw)
    trips.check(f"{kind}: bytes as in PyTorch", apart < 1e-4, f"{apart:.1e} of them differ (sums in another order)")
    worst = (found - opened).abs().max() / opened.abs().max()
    close = ((found - opened).abs() <= 1e-6 * opened.abs()).double().mean()
    trips.check(f"{kind}: opened as in PyTorch", close > 0.9999 and worst < 0.2, f"{1 - close:.1e} of the elements elsewhere")


def adapters(place, base, targets):
    """PEFT's two files, with B that is not 0."""
    config = base.config
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for name, module in base.named_modules():
        if name.split(".")[-1] in targets:
            stem = f"base_model.model.{name}."
            tensors[stem + "lora_A.weight"] = torch.randn(RANK, module.in_features, generator=generator) * 0.05
            tensors[stem + "lora_B.weight"] = torch.randn(module.out_features, RANK, generator=generator) * 0.05
    start = place / "start"
    start.mkdir()
    safetensors.torch.save_file(tensors, start / "adapter_model.safetensors")
    (start / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA,
                                                           "lora_dropout": 0.0, "bias": "none", "target_modules": sorted(targets),
                                                           "base_model_name_or_path": str(config.name_or_path)}))
    zero = place / "zero"
    shutil.copytree(start, zero)
    safetensors.torch.save_file({name: value * (0 if "lora_B" in name else 1) for name, value in tensors.items()}, zero / "adapter_model.safetensors")
    return start, zero, tensors


def run(place, name, ranks=1, code=0, more=(), **values):
    values = dict(steps=STEPS, samples=SAMPLES, T=T, rate=RATE, strategy="FULL_SHARD", format="peft", kind="nf4", merge="false", out=place / name,
                  base=place / "base", start=place / "start", tokens=place / "tokens.bin") | values
    config = place / f"{name}.yaml"
    config.write_text(CONFIG.format(**values))
    launcher = [BUILD / "bin" / "muster", "run", "--standalone", f"--nproc_per_node={ranks}", "--max-restarts=0", "--termination-log="] if ranks > 1 else []
    done = subprocess.run([*launcher, BUILD / "bin" / "muster-train", config, *more], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def losses_of(place, name):
    lines = [json.loads(line) for line in (place / f"{name}.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "step"}


def reference(base, tensors, inputs, targets):
    """Losses of the steps in float64: base + alpha / rank B A."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").double()
    trained = {name: value.double().requires_grad_() for name, value in tensors.items()}
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for name, module in model.named_modules():
        stem = f"base_model.model.{name}."
        if stem + "lora_A.weight" in trained:
            module.register_forward_hook(lambda module, arguments, output, a=trained[stem + "lora_A.weight"], b=trained[stem + "lora_B.weight"]:
                                         output + ALPHA / RANK * (arguments[0] @ a.T @ b.T))
    optimizer = torch.optim.AdamW(trained.values(), lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_runs(trips, place, kind, tensors, inputs, targets):
    # A step that changes nothing, merged: the base as it is opened.
    run(place, f"opened {kind}", kind=kind, start=place / "zero", steps=1, rate=1e-30, merge="true", format="hf")
    opened = safetensors.torch.load_file(place / f"opened {kind}" / "model.safetensors")
    original = safetensors.torch.load_file(place / "base" / "model.safetensors")
    moved = {name for name in original if not torch.equal(opened[name], original[name])}
    trips.check(f"{kind}: the weights of products are rounded", moved == {name for name in original if "_proj" in name}, len(moved))
    wanted = reference(place / f"opened {kind}", tensors, inputs, targets)
    found = {}
    for ranks, strategy in PLACES[kind]:
        name = f"{kind} {ranks} {strategy}"
        run(place, name, ranks=ranks, kind=kind, strategy=strategy)
        found[name] = list(losses_of(place, name).values())
    apart = {name: max(abs(a - b) / b for a, b in zip(losses, wanted, strict=True)) for name, losses in found.items()}
    trips.check(f"{kind}: {STEPS} losses in {len(PLACES[kind])} places, {wanted[0]:.6f} -> {wanted[-1]:.6f}", max(apart.values()) < 1e-5,
                f"at most {max(apart.values()):.1e} from float64")
    trips.check(f"{kind}: the loss falls", wanted[-1] < wanted[0] - 0.02)


def check_resume(trips, place):
    folder = place / "checkpoints"
    more = ("--set", f"training.checkpoint_dir={folder}", "--set", "training.checkpoint_every=4")
    run(place, "whole", ranks=2, kind="nf4")
    run(place, "first", ranks=2, kind="nf4", steps=8, more=more)
    run(place, "second", ranks=3, kind="nf4", more=more)
    whole, second = losses_of(place, "whole"), losses_of(place, "second")
    worst = max(abs(second[step] - whole[step]) / whole[step] for step in second)
    trips.check("resumed on 3 ranks", sorted(second) == list(range(9, STEPS + 1)) and worst < 1e-6, f"{worst:.1e}")
    size = max(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    trips.check("checkpoints have adapters alone", size < 200_000, size)
    refused = run(place, "third", kind="none", more=(*more, "--set", "training.steps=20"))
    trips.check("a base that is held otherwise is noted", "the base was held in f32+nf4 and is in f32" in refused.stderr)


def check_plan(trips, place):
    sizes = {}
    for kind in ("none", "nf4", "int8"):
        done = run(place, "plan", kind=kind, more=("--plan", "--output=json", "--world-size=2", "--set", "lora.base_tables=true") if kind != "none" else
                   ("--plan", "--output=json", "--world-size=2", "--set", "training.dtype=bf16"))
        plan = json.loads(done.stdout)
        sizes[kind] = sum(group["held_bytes"] for group in plan["groups"] if not group["trainable"]), plan
    held = {kind: sizes[kind][0] / sizes["none"][0] for kind in ("nf4", "int8")}
    trips.check("bytes of the base against bf16's", held["nf4"] < 0.36 and held["int8"] < 0.6, held)  # for small groups, which end in part of a unit
    stored = [group for group in sizes["nf4"][1]["groups"] if group["stored"] == "nf4"]
    ratio = sum(group["held_bytes"] for group in stored) / sum(2 * group["shard_elements"] for group in stored)
    trips.check("of whole units", ratio <= 0.27, ratio)
    shown = run(place, "plan", kind="nf4", more=("--plan", "--world-size=2", "--set", "training.dtype=bf16")).stdout
    found = re.search(r"14 frozen parameters are held and gathered as nf4: .* a rank, (\S+) of what bf16 .*\n"
                      r"all 21 that are frozen: .* a rank, (\S+) of what bf16 would be; 7 of them, .*, are held in bf16\n", shown)
    trips.check("the plan's text has both shares", found and float(found[1]) < float(found[2]) < 1, shown[:400])


def main():
    torch.manual_seed(2)
    place = pathlib.Path(tempfile.mkdtemp(prefix="muster qlora "))
    trips = files.Trips(place)
    try:
        check_codes(trips, "nf4", 16384, nf4)
        check_codes(trips, "int8", 256, int8)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            num_hidden_layers=2, hidden_size=96, num_attention_heads=4, num_key_value_heads=2, intermediate_size=256, vocab_size=256,
            max_position_embeddings=64, attn_implementation="eager"))
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.data.mul_(4)
        model.save_pretrained(place / "base")
        _, _, tensors = adapters(place, model, {"q_proj", "v_proj"})
        ids = torch.randint(0, 256, (SAMPLES * T + 1,), generator=torch.Generator().manual_seed(5))
        (place / "tokens.bin").write_bytes(struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253) + struct.pack(f"<{len(ids)}H", *ids.tolist()))
        inputs, targets = ids[:-1].reshape(SAMPLES, T), ids[1:].reshape(SAMPLES, T)
        for kind in ("nf4", "int8"):
            check_runs(trips, place, kind, tensors, inputs, targets)
        check_resume(trips, place)
        check_plan(trips, place)
        idle = run(place, "idle", code=2, more=("--set", "lora.path=", "--set", "training.output_format=hf"))
        trips.check("without adapters", "lora.base has no effect without adapters: set lora.rank or lora.path" in idle.stderr)
    finally:
        shutil.rmtree(place)
    return 1 if trips.failures else 0


if __name__ == "__main__":
    sys.exit(main())
