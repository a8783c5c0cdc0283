#!/usr/bin/env python3
"""The inline PTX of kernels/cuda/attention_tensor.cuh, which the emulator does not compile: nvcc's output is run by an interpreter of
the few instructions there, a warp in step, with the fragments of mma.m16n8k8 as the PTX ISA lays them out, against a product of whole
matrices. Then the same with bugs in a copy of the header, each of which has to be found."""

import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
HEADER = "kernels/cuda/attention_tensor.cuh"
NVCC = sys.argv.pop(1) if len(sys.argv) > 1 and "nvcc" in sys.argv[1] else "nvcc"
IN, OUT = 11, 5  # values of a lane
PROBE = """#include "kernels/cuda/attention_tensor.cuh"
extern "C" __global__ void probe(float *out, const float *in)
{
    const float *at = in + 11 * threadIdx.x;
    float left[4] = {at[0], at[1], at[2], at[3]}, sum[4] = {at[6], at[7], at[8], at[9]};
    tensor_multiply(sum, left, at[4], at[5]);
    for (int i = 0; i < 4; i++)
        out[5 * threadIdx.x + i] = sum[i];
    out[5 * threadIdx.x + 4] = tensor_round(at[10]);
}
"""


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]


class Warp:
    """32 lanes in step; registers hold integers, of a float its bits."""

    def __init__(self, memory):
        self.memory = memory  # words by address
        self.registers = [{} for _ in range(32)]

    def value(self, lane, text):
        text = text.strip()
        if text == "%tid.x":
            return lane
        if text.startswith("%"):
            return self.registers[lane][text]
        if text.startswith("0f"):
            return int(text[2:], 16)
        return int(text, 0)

    def address(self, lane, text):
        base, _, offset = text.strip("[] ").partition("+")
        return self.value(lane, base) + int(offset or "0")

    def run(self, instruction, operands):
        parts = instruction.split(".")
        if parts[0] == "mma":
            return self.multiply(instruction, operands)
        for lane in range(32):
            self.step(lane, parts, operands)

    def step(self, lane, parts, o):
        name, r = parts[0], self.registers[lane]
        if name == "ld" and parts[1] == "param":
            r[o[0]] = {"[probe_param_0]": 1 << 20, "[probe_param_1]": 2 << 20}[o[1]]
        elif name == "ld" and parts[1] == "global":
            r[o[0]] = self.memory[self.address(lane, o[1])]
        elif name == "st" and parts[1] == "global":
            self.memory[self.address(lane, o[0])] = self.value(lane, o[1])
        elif name in ("mov", "cvta"):
            r[o[0]] = self.value(lane, o[1])
        elif name == "mul" and parts[1] in ("lo", "wide"):
            r[o[0]] = self.value(lane, o[1]) * self.value(lane, o[2])
        elif name == "mad" and parts[1] in ("lo", "wide"):
            r[o[0]] = self.value(lane, o[1]) * self.value(lane, o[2]) + self.value(lane, o[3])
        elif name == "add":
            r[o[0]] = self.value(lane, o[1]) + self.value(lane, o[2])
        elif name == "and":
            r[o[0]] = self.value(lane, o[1]) & self.value(lane, o[2]) & 0xFFFFFFFF
        elif parts == ["cvt", "rna", "tf32", "f32"]:  # to the nearest, ties away from 0
            r[o[0]] = (self.value(lane, o[1]) + 0x1000) & 0xFFFFE000
        elif name != "ret":
            raise AssertionError(f"nvcc's output has an instruction that this test does not know: {'.'.join(parts)}")

    def multiply(self, instruction, operands):
        assert instruction == "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", instruction
        d, a, b, c = ([word.strip() for word in operand.strip("{} ").split(",")] for operand in operands)
        factor = lambda lane, name: float_of(self.registers[lane][name] & 0xFFFFE000)  # of a tf32 factor the lower bits are not read
        left = [[factor(4 * (row % 8) + column % 4, a[row // 8 + 2 * (column // 4)]) for column in range(8)] for row in range(16)]
        right = [[factor(4 * column + row % 4, b[row // 4]) for column in range(8)] for row in range(8)]
        sums = {}
        for lane in range(32):
            for i in range(4):
                row, column = lane // 4 + i // 2 * 8, 2 * (lane % 4) + i % 2
                total = float_of(self.registers[lane][c[i]]) + sum(left[row][k] * right[k][column] for k in range(8))
                sums[lane, i] = bits_of(total)
        for (lane, i), bits in sums.items():
            self.registers[lane][d[i]] = bits


def compiled(folder, changes=()):
    """The instructions of the probe, of a copy of the header with these changes."""
    header = (ROOT / HEADER).read_text()
    for old, new in changes:
        assert header.count(old) == 1, old
        header = header.replace(old, new)
    copy = folder / HEADER
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(header)
    (folder / "probe.cu").write_text(PROBE)
    subprocess.run([NVCC, f"-I{folder}", f"-I{ROOT}", "-ptx", "-arch=sm_80", "-o", folder / "probe.ptx", folder / "probe.cu"], check=True, timeout=300)
    body = (folder / "probe.ptx").read_text().split(".entry probe", 1)[1].split("{", 1)[1]
    for line in body.splitlines():
        line = line.split("//")[0].strip().rstrip(";")
        if line and not line.startswith((".", "}")):
            name, _, rest = line.partition("\t" if "\t" in line else " ")
            yield name.strip(), [word.strip() for word in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)]


def run(folder, changes=()):
    """The product by the warp, and by whole matrices; the rounded values, and those wanted."""
    chance = random.Random(7)
    small = lambda: chance.randrange(-64, 65) / 8  # in tf32 exactly, and so are sums of products
    left = [[small() for _ in range(8)] for _ in range(16)]
    right = [[small() for _ in range(8)] for _ in range(8)]
    before = [[small() for _ in range(8)] for _ in range(16)]
    values = [float_of(bits_of(chance.uniform(-4, 4)) & ~0x1FFF | low) for low in (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF) for _ in range(6)][:32]
    memory = {(1 << 20) + 4 * i: 0 for i in range(32 * OUT)}
    for lane in range(32):
        g, t = lane // 4, lane % 4
        words = [left[g][t], left[g + 8][t], left[g][t + 4], left[g + 8][t + 4], right[t][g], right[t + 4][g],
                 before[g][2 * t], before[g][2 * t + 1], before[g + 8][2 * t], before[g + 8][2 * t + 1], values[lane]]
        for i, word in enumerate(words):
            memory[(2 << 20) + 4 * (IN * lane + i)] = bits_of(word)
    warp = Warp(memory)
    for name, operands in compiled(folder, changes):
        warp.run(name, operands)
    out = lambda lane, i: float_of(memory[(1 << 20) + 4 * (OUT * lane + i)])
    found = {(lane // 4 + i // 2 * 8, 2 * (lane % 4) + i % 2): out(lane, i) for lane in range(32) for i in range(4)}
    wanted = {(row, column): before[row][column] + sum(left[row][k] * right[k][column] for k in range(8)) for row in range(16) for column in range(8)}
    rounded = [float_of((bits_of(value) + 0x1000) & 0xFFFFE000) for value in values]
    return found == wanted, [out(lane, 4) for lane in range(32)] == rounded


class Ptx(unittest.TestCase):
    def result(self, *changes):
        with tempfile.TemporaryDirectory(prefix="muster-ptx-") as folder:
            return run(pathlib.Path(folder), changes)

    def test_a_product_and_a_rounding(self):
        self.assertEqual(self.result(), (True, True))

    def test_bugs_are_found(self):
        for product, change in ((True, ('"r"(__float_as_uint(left[0])), "r"(__float_as_uint(left[1])), "r"(__float_as_uint(left[2])),',
                                        '"r"(__float_as_uint(left[0])), "r"(__float_as_uint(left[2])), "r"(__float_as_uint(left[1])),')),
                                (True, ("{%4,%5,%6,%7}, {%8,%9}, ", "{%4,%5,%6,%7}, {%9,%8}, ")),
                                (False, ('asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));', "bits = __float_as_uint(x) & 0xffffe000u;"))):
            with self.subTest(change[1]):
                self.assertEqual(self.result(change), (not product, product))


if __name__ == "__main__":
    unittest.main(verbosity=2)
