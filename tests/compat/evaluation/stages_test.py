"""A training in stages against PyTorch in float64: three stages with data, sequence length, rate and frozen parameters of their own, the
optimizer's moments from zero where a stage begins (a new AdamW), and two of which the second keeps them (the same AdamW goes on).
The losses of all steps, and each tensor at the end of each stage.

How the interpreter is found: torch_python.py."""
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402

torch = torch_python.require()
import gpt_torch_test as gpt  # noqa: E402: GPT-2 written down in PyTorch
from weights_test import read_model  # noqa: E402: of a file of ours

BOUND = 1e-5  # relative: losses, and the L2 norm of each tensor
EPSILON = 1e-3  # so that Adam does not blow up the rounding of gradients that are nearly zero
gpt.LAYERS, gpt.CHANNELS, gpt.HEADS, gpt.VOCAB, gpt.POSITIONS = 2, 32, 2, 256, 32
TURNED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # Hugging Face's Conv1D
SHORT = {"name": "short", "steps": 20, "sequence_length": 16, "data": {"path": "a"}}
LONG = {"name": "long", "steps": 25, "learning_rate": 0.002, "frozen": ["wte.weight", "h.0.*"], "data": {"path": "b"}}
LAST = {"steps": 20, "learning_rate": 0.001, "schedule": "linear"}


def write_model(path, parameters):
    header, data = {}, b""
    for name, value in parameters.items():
        value = (value.t() if name.endswith(TURNED) else value).contiguous()
        raw = value.float().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def rate_of(stage, step):
    """For a step of a stage, from 0, after 5 steps of warm-up."""
    peak, steps = stage["learning_rate"], stage["steps"]
    if step < 5:
        return peak * (step + 1) / 5
    return peak if stage["schedule"] == "constant" else peak + (stage["min_learning_rate"] - peak) * (step - 5) / (steps - 1 - 5)


def reference(parameters, stages, folder, keep):
    """Losses of all steps, and the parameters after each stage; each stage has one sample, which every step takes."""
    p = {name: value.double() for name, value in parameters.items()}
    losses, ends, optimizer = [], [], None
    for stage in stages:
        frozen = [re.compile(pattern.replace(".", r"\.").replace("*", ".*") + "$") for pattern in stage.get("frozen", ())]
        for name, value in p.items():
            value.requires_grad_(not any(pattern.match(name) for pattern in frozen))
        if not optimizer or not keep:
            optimizer = torch.optim.AdamW([value for value in p.values() if value.requires_grad], betas=(0.9, 0.95), eps=EPSILON, weight_decay=0)
        tokens = torch.tensor(list((folder / stage["data"]["path"]).read_bytes()))[None, :stage["sequence_length"] + 1]
        for step in range(stage["steps"]):
            optimizer.param_groups[0]["lr"] = rate_of(stage, step)
            optimizer.zero_grad()
            loss = gpt.loss_of(p, tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        ends.append({name: value.detach().clone() for name, value in p.items()})
    return losses, ends


def ours(folder, parameters, stages, keep, ranks):
    """The same of muster-train: each stage's end is exported by a run whose list ends there, which the next one goes on from."""
    write_model(folder / "begin.safetensors", parameters)
    ends = []
    for count in range(1, len(stages) + 1):
        config = {
            "training": {"micro_batch": 1, "global_batch": 1, "sequence_length": 32, "learning_rate": 0.003, "schedule": "constant", "warmup_steps": 5, "weight_decay": 0,
                         "beta2": 0.95, "epsilon": EPSILON, "clip_norm": 0, "min_learning_rate": 1e-4, "threads": 1, "output": str(folder / "end.safetensors"), "checkpoint_dir": str(folder / "ck"),
                         "stages": [stage | {"data": {"path": str(folder / stage.get("data", {"path": "a"})["path"])}} for stage in stages[:count]],
                         "stage_moments": "keep" if keep else "reset"},
            "model": {"layers": 2, "channels": 32, "heads": 2, "positions": 32, "path": str(folder / "begin.safetensors")},
            "data": {"path": str(folder / "a")}, "logging": {"sample_length": 0, "json": str(folder / "log")}}
        if not any(stage.get("schedule") == "linear" for stage in stages[:count]):
            del config["training"]["min_learning_rate"]
        (folder / "run.yaml").write_text(json.dumps(config))
        binaries = pathlib.Path(torch_python.build()) / "bin"
        run = subprocess.run([binaries / "muster", "run", "--standalone", f"--nproc_per_node={ranks}", "--termination-log=", binaries / "muster-train", folder / "run.yaml"],
                             capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        assert run.returncode == 0, run.stdout + run.stderr
        ends.append(read_model(folder / "end.safetensors"))
    entries = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    losses = {entry["step"]: entry["loss"] for entry in entries if entry["kind"] == "step"}
    return [losses[step] for step in sorted(losses)], ends


def check(what, stages, keep, ranks):
    generator = torch.Generator().manual_seed(3)
    parameters = gpt.initial_parameters(generator)
    with_defaults = [{"learning_rate": 0.003, "schedule": "constant", "sequence_length": 32, "min_learning_rate": 1e-4, "data": {"path": "a"}} | stage for stage in stages]
    with tempfile.TemporaryDirectory(prefix="muster stages ") as folder:
        folder = pathlib.Path(folder)
        for name, seed in (("a", 1), ("b", 2)):  # one sample each, of 32 or of 16 tokens
            text = bytes(random.Random(seed).choice(b"abcdefgh ") for _ in range(34))
            (folder / name).write_bytes(text)
        if stages[0].get("sequence_length") == 16:
            (folder / "a").write_bytes((folder / "a").read_bytes()[:18])
            (folder / "c").write_bytes(bytes(random.Random(3).choice(b"abcdefgh ") for _ in range(34)))
            stages = [stage if "data" in stage else stage | {"data": {"path": "c"}} for stage in stages]
            with_defaults = [stage | {"data": own["data"]} for stage, own in zip(with_defaults, stages)]
        wanted, wanted_ends = reference(parameters, with_defaults, folder, keep)
        found, found_ends = ours(folder, parameters, stages, keep, ranks)
    assert len(found) == len(wanted), (len(found), len(wanted))
    worst = max(abs(a / b - 1) for a, b in zip(found, wanted))
    apart = 0.0
    for number, (a, b) in enumerate(zip(found_ends, wanted_ends)):
        for name in b:  # a key's bias changes no loss: Adam divides rounding by rounding there
            mine, theirs = ((value[name][:32], value[name][64:]) if name.endswith("c_attn.bias") else (value[name],) for value in (a, b))
            apart = max([apart] + [((x - y).norm() / y.norm()).item() for x, y in zip(mine, theirs)])
        before = wanted_ends[number - 1] if number else parameters
        for name in b if "frozen" in stages[number] else ():
            same = torch.equal(b[name], before[name].double())
            assert same == torch.equal(a[name], (found_ends[number - 1] if number else parameters)[name].double()), name
    print(f"{what}, {ranks} ranks: loss {wanted[0]:.4f} -> {wanted[-1]:.4f} in {len(wanted)} steps; {worst:.1e} relative, tensors {apart:.1e}")
    assert worst <= BOUND and apart <= BOUND, (worst, apart)


def main():
    torch.set_num_threads(1)
    check("three stages, moments from zero", [SHORT, LONG, LAST], False, 2)
    check("two stages, moments kept", [{"steps": 20}, {"steps": 20, "learning_rate": 0.001}], True, 1)


if __name__ == "__main__":
    main()
