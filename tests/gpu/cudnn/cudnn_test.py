#!/usr/bin/env python3
"""Attention by the real cuDNN, planned for GPUs that are described: no GPU has run it.

    MUSTER_BUILD=build MUSTER_CUDNN_LIBRARIES=.cuda/lib python3 tests/gpu/cudnn/cudnn_test.py [-k NAME]

The library runs over a driver that refuses (make_driver.py) and the fake CUDA runtime."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
FAKES, DRIVER = BUILD / "tests" / "gpu" / "lib", BUILD / "tests" / "gpu" / "cudnn" / "driver"
# cuDNN and the libraries that it loads alone: a folder of all of NVIDIA's has a CUDA runtime, too, in the fake one's place.
LINKS = tempfile.TemporaryDirectory(prefix="muster cudnn libraries ")
LIBRARIES = LINKS.name
for library in pathlib.Path(os.environ["MUSTER_CUDNN_LIBRARIES"]).glob("lib*"):
    if library.name.startswith(("libcudnn", "libnvrtc", "libcublasLt")):
        (pathlib.Path(LIBRARIES) / library.name).symlink_to(library.resolve())
WITH = {**os.environ, "LD_LIBRARY_PATH": f"{LIBRARIES}:{FAKES}:{DRIVER}", "MUSTER_CUDA_MODULE": str(FAKES / "libmuster_cuda.so"), "FAKE_CUDA_DRIVER": "0"}
SHAPES = ((4, 12, 12, 1024, 64), (4, 12, 12, 1023, 64), (16, 12, 12, 1024, 64), (2, 25, 25, 1024, 64), (1, 12, 12, 256, 64), (8, 16, 16, 512, 64),
          (1, 32, 32, 2048, 128), (1, 32, 8, 2048, 128), (1, 32, 8, 8192, 128), (2, 16, 8, 1024, 128), (8, 16, 16, 512, 128), (3, 4, 4, 17, 64))
MIB = 1 << 20
CONFIG = """\
training: {{steps: 1, micro_batch: 4, global_batch: 4, sequence_length: 1024, dtype: bf16, values: dtype}}
model: {{layers: 2, channels: 768, heads: 12, vocabulary: 1024}}
data: {{path: "{text}"}}
"""


def plans(device, dtype, *shapes):
    """For each (B, heads, kv_heads, T, head_size): bytes of workspace forward and backward, or the reason of our own kernel."""
    words = [",".join(str(n) for n in (b, t, heads, kv_heads, size)) for b, heads, kv_heads, t, size in shapes]
    done = subprocess.run([BUILD / "bin" / "gpu_cudnn_plans", device, dtype, *words], env=WITH, capture_output=True, text=True, check=False, timeout=900)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == len(shapes), (done.returncode, done.stdout, done.stderr)
    return [tuple(map(int, line.split()[1:])) if line.startswith("taken ") else line.removeprefix("own ") for line in lines]


class Plans(unittest.TestCase):
    def test_twelve_shapes_on_three_devices(self):
        for device, dtype in ("a100", "bf16"), ("h100", "bf16"), ("h200", "f16"):
            found = plans(device, dtype, *SHAPES)
            for shape, work in zip(SHAPES, found):
                print(device, dtype, shape, work)
                with self.subTest(device=device, shape=shape):
                    self.assertIsInstance(work, tuple)
                    b, heads, _, t, size = shape
                    gradient = 4 * b * heads * t * size  # dq in fp32, which a fixed order of sums keeps for each block of keys
                    self.assertLessEqual(work[1], 40 * gradient + MIB)
                    self.assertLess(work[0], work[1] / 2)  # inference does not pay for backward
            self.assertEqual(found[0], plans(device, dtype, SHAPES[0])[0])  # in another order, in another process
        self.assertAlmostEqual(plans("h100", "bf16", SHAPES[0])[0][1] / MIB, 96.2, delta=0.1)
        self.assertAlmostEqual(plans("h100", "bf16", SHAPES[6])[0][1] / MIB, 256.3, delta=0.1)

    def test_a_workspace_that_is_too_large_leaves_backward_to_us(self):
        taken, left = plans("h100", "bf16", (1, 32, 8, 8192, 128), (1, 32, 8, 16384, 128))
        self.assertGreater(taken[1], 4096 * MIB)
        self.assertRegex(left, r"^forward \d+ 1 x 16384 positions of 32 heads need .* of workspace, more than 1/16 of the GPU's memory \(")
        self.assertLess(int(left.split()[1]), 64 * MIB)

    def test_other_shapes_and_devices_have_our_kernel(self):
        self.assertIn("heads of 36: cuDNN takes heads of 64 and 128", plans("h100", "bf16", (3, 4, 4, 17, 36))[0])
        self.assertIn("this GPU is sm_75, and cuDNN's attention begins with sm_80", plans("t4", "f16", SHAPES[0])[0])


class Program(unittest.TestCase):
    """muster-train --plan: what a run would take is counted."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster cudnn ")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        (self.path / "text").write_text("some words " * 500)
        (self.path / "config.yaml").write_text(CONFIG.format(text=self.path / "text"))

    def plan(self, device, attention, *sets, variables=WITH, words=("--output=json",)):
        command = [BUILD / "bin" / "muster-train", self.path / "config.yaml", "--plan", *words, f"--device={device}", f"--set=training.attention={attention}",
                   *(f"--set={change}" for change in sets)]
        done = subprocess.run([str(word) for word in command], env=variables, cwd=self.path, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode or words != ("--output=json",):
            return done.stderr if done.returncode else done.stdout
        found = json.loads(done.stdout)
        found["host"].pop("available")  # of this machine, at this moment
        return found

    def test_the_workspace_is_in_the_plan(self):
        work = plans("h100", "bf16", (4, 12, 12, 1024, 64))[0][1]
        own, auto, cudnn = (self.plan("h100", attention) for attention in ("own", "auto", "cudnn"))
        self.assertEqual(own, auto)
        layers = {}
        for attention in "own", "cudnn":  # plan_dump has these words
            text = self.plan("h100", attention, words=("--verbose",))
            layers[attention] = {int(size) for size in re.findall(r"^b\d+ work \S+ \S+ @\d+ \+ (\d+) l[12] ", text, re.MULTILINE)}
            self.assertEqual(len(layers[attention]), 1, text)
        grown = layers["cudnn"].pop() - layers["own"].pop()
        self.assertLessEqual(grown, work + 256)
        self.assertGreater(grown, work - 8 * MIB)  # less what another operation of the layer has there
        self.assertGreater(cudnn["device"]["plan"], own["device"]["plan"])

    def test_what_does_not_fit_may_take_attention_of_ours(self):
        bytes_of = {attention: self.plan("h100", attention)["device"]["plan"] for attention in ("own", "cudnn")}
        refused = self.plan("h100", "cudnn", f"training.memory_limit={bytes_of['own']}")
        self.assertRegex(refused, r"the plan needs .* of the device's memory .* it fits with .*training.attention: own \(attention by muster's kernels\)")
        self.assertNotIn("training.attention: own", self.plan("h100", "own", f"training.memory_limit={bytes_of['own'] - 1}"))

    def test_what_cannot_be_had_is_named(self):
        for device, sets, text in (("t4", ("training.dtype=fp16",), "sm_75, and cuDNN's attention begins with sm_80"),
                                   ("h100", ("training.values=fp32",), "reads values of 16 bits, not of f32"),
                                   ("cuda", (), "its workspace is one GPU's: plan for a GPU by its name")):
            self.assertIn(text, self.plan(device, "cudnn", *sets))
        without = {**WITH, "LD_LIBRARY_PATH": str(FAKES)}
        self.assertRegex(self.plan("h100", "cudnn", variables=without), r"training.attention: cudnn needs cuDNN \(pip: nvidia-cudnn-cu13.*libcudnn.so.9")


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
