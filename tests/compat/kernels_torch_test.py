"""The operations of other models and optimizers against PyTorch in float64: the same inputs, forward and backward.

Both tables are held: the reference for double to 1e-14 and this machine's fast one for float to 1e-6 (an L2 norm of the
difference, against the expected one's): about ten times their error. Gradients of a whole model, where such errors
add up over its layers, are held to 1e-5. Optimizers are held over 50 steps. The rotation is transformers' modeling_rope_utils written out, since transformers computes it in float32
even where the model is float64.

How to find torch: torch_python.py."""

import math
import pathlib
import subprocess
import sys
import tempfile

import torch_python

BUILD = pathlib.Path(torch_python.build()).resolve()

torch = torch_python.require()

import torch.nn.functional as functional

BOUNDS = {"double": 1e-14, "float": 1e-6}
# B, T, heads, kv_heads, head_size, causal, scale, lengths
ATTENTION = {
    "causal": (2, 37, 4, 4, 16, True, None, None),
    "grouped": (2, 37, 6, 2, 16, True, None, None),
    "one head of keys": (1, 33, 5, 1, 9, False, None, None),
    "lengths": (3, 37, 4, 2, 8, False, 0.2, [19, 37, 1]),
}
ROTARY = {"plain": (10000.0, None), "linear": (10000.0, 4.0), "llama3": (500000.0, (8.0, 1.0, 4.0, 512))}
ACTIVATIONS = {
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_erf": functional.gelu,
    "silu": functional.silu,
    "relu": functional.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.9, 0.95), eps=1e-8),
    "adam decay": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "sgd decay": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=0.1),
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1),
    "sgd dampening": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.3),
    "sgd nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
}


def read_cases():
    """{case: {table: [(name, values)]}}, in the order of the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "dump"
        subprocess.run([BUILD / "tests" / "kernels_dump", path], check=True)
        data = path.read_bytes()
    cases, at = {}, 0
    while at < len(data):
        end = data.index(b"\n", at)
        place, name, count = data[at:end].decode().rsplit(" ", 2)
        case, table = place.rsplit("/", 1)
        at = end + 1 + 8 * int(count)
        values = torch.frombuffer(bytearray(data[end + 1:at]), dtype=torch.float64)
        cases.setdefault(case, {}).setdefault(table, []).append((name, values))
    return cases


def gradients(function, inputs, dout):
    leaves = [value.clone().requires_grad_() for value in inputs]
    out = function(*leaves)
    out.backward(dout)
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def rms_norm(r):
    norm = torch.nn.RMSNorm(33, eps=1e-6, dtype=torch.float64)
    function = lambda x, w: torch.func.functional_call(norm, {"weight": w}, (x,))
    found = gradients(function, [r["in"].view(7, 33), r["weight"]], r["dout"].view(7, 33))
    return dict(zip(("out", "din", "dweight"), found))


def attention(name, r):
    B, T, heads, kv, size, causal, scale, lengths = ATTENTION[name]
    mask = None
    if lengths:
        seen = torch.arange(T)[None] < torch.tensor(lengths)[:, None]  # (B,T)
        mask = seen[:, None, None, :].expand(B, 1, T, T)

    def function(q, k, v):
        split = lambda x, n: x.view(B, T, n, size).transpose(1, 2)
        out = functional.scaled_dot_product_attention(split(q, heads), split(k, kv), split(v, kv), attn_mask=mask,
                                                      is_causal=causal, scale=scale, enable_gqa=True)
        if lengths:  # queries beyond the length give 0
            out = out * seen[:, None, :, None]
        return out.transpose(1, 2).reshape(-1)

    return dict(zip(("out", "dq", "dk", "dv"), gradients(function, [r["q"], r["k"], r["v"]], r["dout"])))


def frequencies(name, size):
    theta, scaling = ROTARY[name]
    plain = 1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
    if name == "linear":
        return plain / scaling
    if name == "plain":
        return plain
    factor, low, high, original = scaling  # _compute_llama3_parameters
    low_wavelength, high_wavelength = original / low, original / high
    wavelength = 2 * math.pi / plain
    scaled = torch.where(wavelength > low_wavelength, plain / factor, plain)
    smooth = (original / wavelength - low) / (high - low)
    smoothed = (1 - smooth) * scaled / factor + smooth * scaled
    medium = ~(wavelength < high_wavelength) * ~(wavelength > low_wavelength)
    return torch.where(medium, smoothed, scaled)


def rotary(name, r):
    B, T, heads, size = 2, 48, 3, 32
    angle = torch.arange(T, dtype=torch.float64)[:, None] * frequencies(name, size)[None]
    both = torch.cat((angle, angle), dim=-1)[None, :, None]  # (1,T,1,size)

    def function(x):
        x = x.view(B, T, heads, size)
        half = torch.cat((-x[..., size // 2:], x[..., :size // 2]), dim=-1)
        return (x * both.cos() + half * both.sin()).reshape(-1)

    return dict(zip(("out", "din"), gradients(function, [r["in"]], r["dout"])))


def activation(name, r):
    return dict(zip(("out", "din"), gradients(ACTIVATIONS[name], [r["in"]], r["dout"])))


def swiglu(r):
    function = lambda gate, up: functional.silu(gate) * up
    return dict(zip(("out", "dgate", "dup"), gradients(function, [r["gate"], r["up"]], r["dout"])))


def squared_error(r):
    wanted = r["targets"]
    leaf = r["in"].clone().requires_grad_()
    functional.mse_loss(leaf, wanted).backward()
    return {"losses": functional.mse_loss(leaf.detach(), wanted, reduction="none"), "din": leaf.grad}


def optimizer(name, records):
    """Expected parameters after each step, in the order of the records named "after"."""
    param = torch.nn.Parameter(records[0][1].clone())
    optimizer = OPTIMIZERS[name]([param])
    for grad in (values for record, values in records if record == "grad"):
        param.grad = grad.clone()
        optimizer.step()
        yield param.detach().clone()


failures = []


def check(what, found, expected, bound):
    difference = (found - expected.reshape(-1)).norm().item() / max(expected.norm().item(), 1e-30)
    if not difference <= bound:
        failures.append(what)
        print(f"FAILED {what}: off by {difference:.2e}, at most {bound:.0e}")
    return difference


def check_case(case, table, records, bound):
    kind, _, name = case.partition(" ")
    r = dict(records)
    if kind == "optimizer":
        after = [values for record, values in records if record == "after"]
        return max(check(f"{case}, {table}, step {i + 1}", found, expected, bound)
                   for i, (found, expected) in enumerate(zip(after, optimizer(name, records), strict=True)))
    whole = {"rms_norm": rms_norm, "swiglu": swiglu, "squared_error": squared_error}
    named = {"attention": attention, "rotary": rotary, "activation": activation}
    expected = whole[kind](r) if kind in whole else named[kind](name, r)
    return max(check(f"{case}, {table}, {part}", r[part], value, bound) for part, value in expected.items())


def main():
    torch.set_num_threads(2)
    cases = read_cases()
    expected = 3 + len(ATTENTION) + len(ROTARY) + len(ACTIVATIONS) + len(OPTIMIZERS)
    if len(cases) != expected:
        failures.append(f"{len(cases)} cases, expected {expected}")
    print(f"torch {torch.__version__}")
    for case, tables in cases.items():
        off = []
        for table, records in tables.items():
            off.append(check_case(case, table, records, BOUNDS["double" if table == "ref-f64" else "float"]))
        print(f"{case:28} {', '.join(f'{table} {d:.1e}' for table, d in zip(tables, off, strict=True))}")
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
