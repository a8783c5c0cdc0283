"""The hash that scripts form of a model, md5 of PyTorch's printed state dict: tensors of many shapes, sizes of numbers and types printed
by our side and by PyTorch, character by character; and hashes of whole state dicts, formed by muster-train at the end of a run, with
the function as scripts have it."""
import hashlib
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import torch_python  # noqa: E402

torch = torch_python.require()

from pictures_torch_test import Runs, write_set  # noqa: E402

BUILD = pathlib.Path(torch_python.build()).resolve()
SHAPES = ((1,), (3,), (7,), (32,), (999,), (1000,), (1001,), (5000,), (1, 1), (2, 3), (10, 128), (7, 200), (200, 7), (3, 400), (64, 3, 3, 3),
          (2, 2, 2, 2), (8, 8, 1, 1), (7, 6, 5), (1, 1001), (1001, 1), (16, 7, 3, 3))


def get_model_hash(state):
    return hashlib.md5(str(sorted(state.items())).encode()).hexdigest()[:8]


def tensors(generator):
    """For each shape: small and large numbers, whole ones, zeros, some that are not finite, bfloat16."""
    for shape in SHAPES:
        plain = torch.randn(shape, generator=generator)
        yield plain
        yield plain * 10.0 ** torch.randint(-6, 7, shape, generator=generator)
        yield plain.abs() * 1e-3 + 1
        yield torch.randint(-3000, 3000, shape, generator=generator).float()
        yield torch.randint(-3, 3, shape, generator=generator).float() * 1e9
        yield torch.zeros(shape)
        yield -torch.zeros(shape)
        yield torch.where(plain > 0.5, torch.tensor(float("nan")), torch.where(plain < -0.5, torch.tensor(float("-inf")), plain))
        yield torch.where(plain > 0, torch.tensor(float("inf")), torch.tensor(2.0))
        yield plain.bfloat16()
        yield (plain * 1e3).bfloat16()
    for count in (0, 1, 72, 390625):
        yield torch.tensor(count)


def main():
    failures = []
    generator = torch.Generator().manual_seed(5)
    every = list(tensors(generator))
    data = b""
    for tensor in every:
        kind = {torch.float32: 0, torch.bfloat16: 1, torch.int64: 2}[tensor.dtype]
        data += struct.pack(f"<{2 + tensor.dim()}i", kind, tensor.dim(), *tensor.shape) + torch_python.bytes_of(tensor.float())
    printed = subprocess.run([BUILD / "tests" / "tensor_text_dump"], input=data, capture_output=True, check=True).stdout.decode()
    found = printed.split("\0")[:-1]
    other = [(tensor, text) for tensor, text in zip(every, found) if repr(tensor) != text]
    print(f"{'FAILED' if other else 'ok':6} {len(every)} tensors as PyTorch prints them, {len(other)} differ", flush=True)
    if other or len(found) != len(every):
        failures.append("tensors")
        print(*(f"{repr(tensor)}\n{text}" for tensor, text in other[:1]))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        write_set(path / "data")
        runs = Runs(path)
        short = ["training.epochs=0", "training.steps=2", "logging.interval=2"]
        exact = []
        for name, ranks, sets in (("cnn", 1, []), ("cnn2", 2, []), ("bf16", 1, ["training.output_dtype=bf16"]),
                                  ("resnet", 2, ["model.architecture=resnet", "model.blocks=1"])):
            shown = runs.run(name, path / "data", ranks, [*short, *sets])[1]
            line = re.search(r"^model hash: ([0-9a-f]{8}) as get_model_hash forms it of model.pth, ([0-9a-f]{16}) of every bit$", shown, re.M)
            wanted = get_model_hash(torch.load(path / name / "model.pth", weights_only=True))
            runs.check(f"get_model_hash of {name}", line and line[1] == wanted, f"{line and line[0]} {wanted}")
            exact.append(line and line[2])
        runs.check("hashes of every bit differ with the values", len({exact[0], exact[2], exact[3]}) == 3, str(exact))
        failures += runs.failures
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
