#!/usr/bin/env python3
"""A program of libmuster that makes no choice of its own multiplies as muster-train does: examples/own_model.c, and the same model as
a page, take the same step to the bit, in fp32 and with products of bf16, and their exports name the same library, version and kernels.

The example is made wider, so that its products are large enough for the faster library, and has one sample."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BUILD, LIMIT, environment  # noqa: E402: after the path

SOURCE = pathlib.Path(__file__).resolve().parents[3]
TRAIN = BUILD / "bin" / "muster-train"
WIDTH, POSITIONS = 256, 32
CHANGES = {"WIDTH = 64": f"WIDTH = {WIDTH}", "SAMPLES = 8": "SAMPLES = 1",
           '"training.global_batch=8"': '"training.global_batch=1", "training.weight_decay=0", "training.threads=1", MORE'}
PAGE = """model_type: own
adapters: [qkv]
order: [ln_1, qkv, out, ln_2, up, down]
values:
- width = size('width')
positions: 32
layers: 2
embedding:
- x = embedding('embedding.table', 256, width, 'embedding.positions', 32)
names: block.{}
block:
- h = linear(layer_norm(x, 'ln_1', 1e-5), 3 * width, 'qkv', true)
- h = attention(slice(h, 1, 0, width), slice(h, 1, width, width), slice(h, 1, 2 * width, width), 4, 4)
- x = add(x, linear(h, width, 'out', true))
- h = activation(linear(layer_norm(x, 'ln_2', 1e-5), 4 * width, 'up', true), 'gelu')
- x = add(x, linear(h, width, 'down', true))
head:
- logits(x, 'table', 256, true)
"""
CONFIG = """training: {steps: 1, micro_batch: 1, global_batch: 1, sequence_length: 32, threads: 1, optimizer: AdamW, learning_rate: 3.0e-3,
  warmup_steps: 0, schedule: constant, weight_decay: 0, frozen: ['embedding.positions*'], output: out.safetensors}
model: {path: first, page: own.yaml}
data: {path: tokens.bin}
logging: {sample_length: 0}
"""


def read(path):
    """The metadata and the tensors of a safetensors file, by the names of the page."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__")
    longer = {"embedding.table": "embedding.table.weight", "embedding.positions": "embedding.positions.weight"}
    return metadata, {longer.get(name, name): (row["dtype"], row["shape"], data[8 + length:][slice(*row["data_offsets"])]) for name, row in header.items()}


def write(path, tensors):
    header, offset = {}, 0
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(values)]}
        offset += len(values)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(values for _, _, values in tensors.values()))


class OwnModel(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster own model ")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "own.yaml").write_text(PAGE)
        (self.folder / "run.yaml").write_text(CONFIG)
        tokens = [0]  # the example's first sample
        for _ in range(POSITIONS):
            tokens.append((tokens[-1] * 5 + 3) % 256)
        header = [20240520, 1, len(tokens)] + [0] * 253
        (self.folder / "tokens.bin").write_bytes(struct.pack("<256i", *header) + struct.pack(f"<{len(tokens)}H", *tokens))

    def run_here(self, *words):
        done = subprocess.run([str(word) for word in words], cwd=self.folder, capture_output=True, text=True, errors="replace", timeout=LIMIT,
                              env=environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def example(self, setting):
        text = (SOURCE / "examples" / "own_model.c").read_text()
        for old, new in CHANGES.items():
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        (self.folder / "own.c").write_text(text)
        sanitize = os.environ.get("MUSTER_SANITIZED")
        self.run_here("cc", f'-DMORE="{setting}"', "own.c", "-o", "own", f"-I{SOURCE / 'runtime/include'}", f"-I{SOURCE}", f"-L{BUILD / 'lib'}",
                      "-lmuster", f"-Wl,-rpath,{BUILD / 'lib'}", *([f"-fsanitize={sanitize}"] if sanitize else []))

    def trained(self, *settings):
        """One step of the page with the parameters that the example drew."""
        self.run_here(TRAIN, "run.yaml", *(word for setting in settings for word in ("--set", setting)))
        return read(self.folder / "out.safetensors")

    def compare(self, setting):
        """Returns the numerics of the example's export."""
        self.example(setting)
        for steps, name in enumerate(("drawn", "stepped")):
            self.run_here("./own", f"{name}.safetensors", steps)
        (self.folder / "first").mkdir(exist_ok=True)
        (self.folder / "first" / "config.json").write_text(json.dumps({"model_type": "own", "width": WIDTH}))
        drawn = read(self.folder / "drawn.safetensors")[1]
        write(self.folder / "first" / "model.safetensors", drawn)
        metadata, stepped = read(self.folder / "stepped.safetensors")
        page_metadata, page = self.trained(setting)
        self.assertEqual(page_metadata["numerics"], metadata["numerics"])
        self.assertEqual(page.keys(), stepped.keys())
        for name, values in stepped.items():
            self.assertEqual(page[name], values, name)
            self.assertEqual(drawn[name] == values, name.startswith("embedding.positions"), name)
        return metadata["numerics"], stepped

    def test_products_of_fp32(self):
        numerics, stepped = self.compare("training.products=auto")
        # another library's products have other bits, so the comparison sees which it is
        if "oneDNN" in numerics:
            other, by_other = self.trained("training.products=openblas")
            self.assertNotEqual(other["numerics"], numerics)
            self.assertNotEqual(by_other, stepped)

    def test_products_of_bf16(self):
        numerics, stepped = self.compare("training.dtype=bf16")
        if "bf16 f32" in numerics:
            self.assertNotEqual(self.trained("training.dtype=fp32")[1], stepped)


if __name__ == "__main__":
    unittest.main()
