"""The examples next to PyTorch: under real torchrun with the losses of `muster run`, and their exports loaded by torch, which computes the
same validation loss with its own operations."""
import json
import re
import sys
import tempfile

import torch_python

torch = torch_python.require()
import examples_test as examples  # noqa: E402: the installed examples

VOCABULARY, WIDTH, POSITIONS, HEADS = 256, 64, 32, 4
BOUND = 1e-5  # relative


def tensors(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        raw = bytearray(data[8 + length + first:8 + length + last])
        found[name] = torch.frombuffer(raw, dtype=torch.float32).reshape(entry["shape"]).double()
    return found


def block(p, name, x):
    def linear(part, h):
        return torch.nn.functional.linear(h, p[f"{name}.{part}.weight"], p[f"{name}.{part}.bias"])

    def norm(part, h):
        return torch.nn.functional.layer_norm(h, (WIDTH,), p[f"{name}.{part}.weight"], p[f"{name}.{part}.bias"], 1e-5)

    q, k, v = (h.reshape(*h.shape[:2], HEADS, -1).transpose(1, 2) for h in linear("qkv", norm("ln_1", x)).chunk(3, -1))
    h = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
    x = x + linear("out", h)
    return x + linear("down", torch.nn.functional.gelu(linear("up", norm("ln_2", x))))


def loss(p):
    """For the samples 1000 and 1001, as the examples have it."""
    tokens = torch.empty(2, POSITIONS + 1, dtype=torch.long)
    for row in range(2):
        tokens[row, 0] = (1000 + row) * 7 % VOCABULARY
        for i in range(POSITIONS):
            tokens[row, i + 1] = (tokens[row, i] * 5 + 3) % VOCABULARY
    x = p["embedding.table"][tokens[:, :-1]] + p["embedding.positions"]
    for name in ("block.0", "block.1"):
        x = block(p, name, x)
    logits = x @ p["embedding.table"].T
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1)).item()


def regression_loss(p):
    """For the 16 samples from 100000 on, as regression.c has them."""
    points = torch.tensor([[sample * (17 + 6 * k) % 41 / 20 - 1 for k in range(3)] for sample in range(100000, 100016)], dtype=torch.float64)
    wanted = points[:, 0] * points[:, 1] + points[:, 2] ** 2 - 0.5
    x = points.float().double()
    for name in ("up", "middle", "down"):
        x = torch.nn.functional.linear(x, p[f"{name}.fc.weight"], p[f"{name}.fc.bias"])
        x = x if name == "down" else torch.tanh(x)
    return torch.nn.functional.mse_loss(x[:, 0], wanted.float().double()).item()


def main():
    with tempfile.TemporaryDirectory(prefix="muster-examples-") as folder:
        installed = examples.Installed(folder)
        program = installed.with_pkg_config()
        ours = installed.two_ranks("c", program)
        python = installed.two_ranks("python", *installed.python())
        torchrun = examples.run(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--no-python",
                                program, installed.export("torchrun"))
        assert ours == python == torchrun, (ours, python, torchrun)
        stated = float(re.search(r"validation loss ([0-9.]+) of 64", ours).group(1))
        for name in ("c", "python", "torchrun"):
            found = loss(tensors(installed.export(name)))
            print(f"{name}: validation loss {stated} here, {found:.8f} in torch from the export: {abs(found / stated - 1):.1e} relative")
            assert abs(found / stated - 1) <= BOUND
        regression = installed.two_ranks("regression", installed.with_pkg_config("regression"))
        figure = float(re.search(r"validation loss ([0-9.]+) of 16", regression).group(1))
        found = regression_loss(tensors(installed.export("regression")))
        print(f"regression: validation loss {figure} here, {found:.8f} in torch from the export")
        assert abs(found - figure) <= BOUND * figure + 1e-8, "eight digits are printed"
        # A comparison that could not fail would say nothing.
        changed = tensors(installed.export("c"))
        changed["block.1.qkv.weight"] = changed["block.1.qkv.weight"].roll(1, 0)
        assert abs(loss(changed) / stated - 1) > 100 * BOUND


main()
