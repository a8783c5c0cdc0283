"""muster-train quantize against PyTorch: codes, scales and zeros by the formulas, and by torch's own fake quantisation. GPTQ is compared
with an implementation in float64 in this file, the loss with the decoded model in transformers. transformers refuses the folder.
--full: GPTQ of a GPT-2 too."""

import json
import pathlib
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
GROUP, SAMPLES, T = 32, 24, 32
CONFIG = """\
training: {{micro_batch: 4, global_batch: 4, sequence_length: {T}, threads: 1}}
data: {{path: "{tokens}", tokenizer: bytes}}
"""


def models():
    torch.manual_seed(11)
    sizes = dict(vocab_size=256, attn_implementation="eager")
    yield "gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2, n_embd=64, n_head=2, n_positions=64, resid_pdrop=0, embd_pdrop=0,
                                                                       attn_pdrop=0, bos_token_id=0, eos_token_id=0, **sizes))
    yield "llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=160, max_position_embeddings=64, **sizes))


def quantize(place, base, method, *more):
    out = place / f"{base.name} {method}"
    done = subprocess.run([BUILD / "bin" / "muster-train", "quantize", place / "config.yaml", "--model", base, "--method", method, "--to", out,
                           "--output=json", *more], check=True, capture_output=True, text=True)
    return json.loads(done.stdout), out


def parts(out):
    """{weight: {part: tensor}} of those in few bits, and the others."""
    coded, plain = {}, {}
    found = safetensors.torch.load_file(out / "quantized.safetensors")
    for name, tensor in found.items():
        stem, _, part = name.rpartition(".")
        if f"{stem}.int8" in found or f"{stem}.int4" in found:
            coded.setdefault(stem, {})[part] = tensor
        else:
            plain[name] = tensor
    return coded, plain


def nibbles(packed):
    return torch.stack((packed & 15, packed >> 4), -1).flatten(1)


def opened(part):
    if "int8" in part:
        return part["scale"][:, None] * part["int8"].float()
    groups = nibbles(part["int4"]).float().unflatten(1, (part["scale"].shape[1], -1))
    return (part["scale"].float()[..., None] * (groups - part["zero"].float()[..., None])).flatten(1)


def int8(w):
    scale = w.abs().amax(1) / 127
    return {"int8": (w / scale[:, None]).round().clamp(-127, 127).to(torch.int8), "scale": scale}


def grid(groups):
    """Scale and zero of each group, along the last dimension."""
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scale = ((high - low).float() / 15).to(torch.float16)
    return scale, (-low / scale.to(low.dtype)).round().clamp(0, 15)


def int4(w):
    groups = w.unflatten(1, (-1, GROUP))
    scale, zero = grid(groups)
    codes = ((groups / scale.float()[..., None]).round() + zero[..., None]).clamp(0, 15).flatten(1).to(torch.uint8)
    return {"int4": codes[:, ::2] | codes[:, 1::2] << 4, "scale": scale, "zero": zero.to(torch.uint8)}


def fake(w, part):
    """torch's own rounding with these scales."""
    if "int8" in part:
        return torch.fake_quantize_per_channel_affine(w, part["scale"], torch.zeros(len(w)), 0, -127, 127)
    groups = w.reshape(-1, GROUP)
    return torch.fake_quantize_per_channel_affine(groups, part["scale"].float().flatten(), part["zero"].float().flatten(), 0, 0, 15).reshape(w.shape)


def gptq(w, h):
    """GPTQ of Frantar et al., column by column, in float64. The most read columns come first, scales are computed from the
    original values, the diagonal grows by a part of itself."""
    w, h = w.double().clone(), h.double().clone()
    dead = h.diagonal() == 0
    order = h.diagonal().argsort(descending=True, stable=True)
    h += 0.01 * torch.diag(h.diagonal())
    h[dead, dead] = 1
    w[:, dead] = 0
    h = h[order][:, order]
    upper = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True)
    scales, zeros = grid(w.unflatten(1, (-1, GROUP)))
    out = torch.zeros_like(w)
    w = w[:, order]
    for j, column in enumerate(order.tolist()):
        scale, zero = scales[:, column // GROUP].double(), zeros[:, column // GROUP]
        out[:, column] = scale * (((w[:, j] / scale).round() + zero).clamp(0, 15) - zero)
        lost = (w[:, j] - out[:, column]) / upper[j, j]
        w[:, j + 1:] -= lost[:, None] * upper[j, j + 1:]
    return out


def gptq_model(model, inputs):
    """Layer by layer, as the layers before were rounded: {weight: values}."""
    done = {}
    blocks = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    for block in blocks:
        products = {name: module for name, module in model.named_modules()
                    if any(module is inner for inner in block.modules()) and type(module).__name__ in ("Linear", "Conv1D")}
        moments, hooks = {}, []
        for name, module in products.items():
            def hook(module, arguments, output, name=name):
                x = arguments[0].flatten(0, -2)
                moments[name] = moments.get(name, 0) + x.T @ x
            hooks.append(module.register_forward_hook(hook))
        with torch.no_grad():
            model(inputs)
        for hook in hooks:
            hook.remove()
        for name, module in products.items():
            turned = type(module).__name__ == "Conv1D"
            w = module.weight.data.T if turned else module.weight.data
            rounded = gptq(w, moments[name])
            done[f"{name}.weight"] = rounded
            module.weight.data = (rounded.T if turned else rounded).contiguous().to(module.weight.dtype)
    return done, moments


def loss_of(model, inputs, targets):
    with torch.no_grad():
        logits = model(inputs).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()


def put(model, values):
    """A copy in float64 with these weights, which are (out, in)."""
    copy = type(model)(model.config).double()
    copy.load_state_dict(model.state_dict())
    state = copy.state_dict()
    for name, value in values.items():
        state[name].copy_(value if state[name].shape == value.shape and "c_" not in name else value.T)
    return copy


def check_model(trips, place, name, model, inputs, targets):
    base = place / name
    model.save_pretrained(base)
    weights = {key: value for key, value in model.state_dict().items()}

    def weight(key):
        return weights[key].T if "c_" in key else weights[key]  # GPT-2's Conv1D is (in, out)

    for method, formula, more in (("int8", int8, ()), ("int4", int4, ("--group", str(GROUP)))):
        table, out = quantize(place, base, method, *more)
        coded, plain = parts(out)
        wanted = {key for key in weights if key.endswith("weight") and any(part in key for part in ("c_", "_proj"))}
        trips.check(f"{name} {method}: tensors", set(coded) == wanted and all(torch.equal(plain[key], weights[key]) for key in plain), set(coded) ^ wanted)
        right = {key: all(torch.equal(part, coded[key][kind]) for kind, part in formula(weight(key)).items()) for key in coded}
        trips.check(f"{name} {method}: codes, scales and zeros", all(right.values()), [key for key, same in right.items() if not same])
        apart = [(fake(weight(key), coded[key]) - opened(coded[key])).abs().gt(1e-6).double().mean().item() for key in coded]
        trips.check(f"{name} {method}: torch's fake quantisation", max(apart) < 1e-3, f"at most {max(apart):.1e} of the elements elsewhere (ties)")
        theirs = loss_of(put(model, {key: opened(coded[key]).double() for key in coded}), inputs, targets)
        trips.check(f"{name} {method}: loss {table['loss_after']:.6f}", abs(table["loss_after"] / theirs - 1) < 1e-5, f"{table['loss_after'] / theirs - 1:.1e}")
    if name == "gpt2" and "--full" not in sys.argv:
        return
    table, out = quantize(place, base, "gptq", "--group", str(GROUP), "--calibration", str(SAMPLES))
    coded, _ = parts(out)
    copy = put(model, {})
    reference, _ = gptq_model(copy, inputs)
    same = [torch.isclose(opened(coded[key]).double(), reference[key], atol=1e-6, rtol=1e-5).double().mean().item() for key in coded]
    trips.check(f"{name} gptq: elements as in float64", set(reference) == set(coded) and min(same) > 0.99, f"{min(same):.4f} at the least")
    theirs, plain = loss_of(copy, inputs, targets), loss_of(put(model, {}), inputs, targets)
    trips.check(f"{name} gptq: loss {table['loss_after']:.6f}", abs(table["loss_after"] - theirs) < 0.05 * abs(theirs - plain) + 1e-4,
                f"here {theirs:.6f}, before {plain:.6f}")
    try:
        transformers.AutoModelForCausalLM.from_pretrained(out)
        refused = "it was loaded"
    except Exception as error:
        refused = str(error)
    trips.check(f"{name}: transformers refuses it", "model.safetensors" in refused, refused[:200])


def main():
    place = pathlib.Path(tempfile.mkdtemp(prefix="muster rounding "))
    trips = files.Trips(place)
    try:
        generator = torch.Generator().manual_seed(5)
        ids = torch.randint(0, 256, (SAMPLES * T + 1,), generator=generator)
        ids[1::2] = (ids[:-1:2] * 7 + 3) % 256  # something to be seen
        (place / "tokens.bin").write_bytes(struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253) + struct.pack(f"<{len(ids)}H", *ids.tolist()))
        (place / "config.yaml").write_text(CONFIG.format(T=T, tokens=place / "tokens.bin"))
        inputs, targets = ids[:-1].reshape(SAMPLES, T), ids[1:].reshape(SAMPLES, T)
        for name, model in models():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter.data.mul_(6)  # far from linear
            check_model(trips, place, name, model, inputs, targets)
    finally:
        shutil.rmtree(place)
    return 1 if trips.failures else 0


if __name__ == "__main__":
    sys.exit(main())
