#!/usr/bin/env python3
"""The module from nvcc: builds without a warning, asks for cudart and for no other library of NVIDIA's, and exports one function.
MUSTER_NVCC_BUILD is the folder that it is built in; gpu_shipped_module loads it. The short tier compiles for one architecture and with few optimizations: each
costs as much as the rest of the test.
nvcc_build_test.py Everything: all that `./dev build cuda` builds, for the three architectures, and the programs for a trial on a GPU."""
import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["MUSTER_SOURCE"])
BUILD = pathlib.Path(os.environ["MUSTER_NVCC_BUILD"])
MODULE = BUILD / "lib" / "libmuster_cuda.so"
# What tests/gpu/on_a_gpu.sh tries the real compiler and libraries with.
REAL = [f"tests/{name}" for name in ("kernels_cuda_status_test", "kernels_cuda_test", "kernels_cuda_more_test", "kernels_cuda_attention_test",
                                     "gpu_products_real", "gpu_kernels_table_real")]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def build(test, folder, targets, *settings):
    folder.mkdir(parents=True, exist_ok=True)
    status, output = run("cmake", "-G", "Ninja", "-S", SOURCE, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DMUSTER_CUDA=ON", *settings)
    test.assertEqual(status, 0, output)
    status, output = run("ninja", "-C", folder, *targets)
    test.assertEqual(status, 0, output)
    test.assertNotRegex(output, r"(?i)\bwarning\b")


class Everything(unittest.TestCase):
    def test_it_builds_and_links_without_warnings(self):
        folder = BUILD / "everything"
        build(self, folder, ())
        for program in "bin/muster", "bin/muster-train", "lib/libmuster_cuda.so", *REAL:
            self.assertTrue((folder / program).is_file(), program)
        rules = (folder / "build.ninja").read_text()
        for wanted in "code=[sm_75]", "code=[sm_80]", "sm_90", "compute_90":
            self.assertIn(wanted, rules)


class NvccBuild(unittest.TestCase):
    def test_1_it_builds_without_warnings(self):
        build(self, BUILD, ["muster_cuda"], "-DCMAKE_CUDA_ARCHITECTURES=80-real", "-DCMAKE_CUDA_FLAGS=-Xcicc -O1 -Xptxas -O0",
              "-DCMAKE_CUDA_FLAGS_RELEASE=-O0", "-DCMAKE_C_FLAGS_RELEASE=-O0")

    def test_2_nothing_else_is_built_for_it(self):
        status, commands = run("ninja", "-C", BUILD, "-t", "commands", "muster_cuda")  # a folder may have more, from before
        self.assertEqual(status, 0, commands)
        self.assertNotRegex(commands, "muster_kernels_(cpu|ref)_")
        self.assertEqual(len(re.findall(r"-c [^\n]*?\.cu\b", commands)), 1)

    def test_3_it_asks_for_cudart_alone(self):
        _, output = run("readelf", "--dynamic", MODULE)
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output)
        self.assertIn("libcudart.so.13", needed)
        for library in needed:
            self.assertNotRegex(library, "nccl|cublas|cudnn|libcuda\\.so")

    def test_4_it_exports_one_function(self):
        _, output = run("nm", "--dynamic", "--defined-only", MODULE)
        self.assertEqual([line.split()[-1] for line in output.splitlines()], ["muster_cuda_module"])


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[sys.argv[0], *(sys.argv[1:] or ["NvccBuild"])])
