#!/usr/bin/env python3
"""The inline PTX of kernels/cuda/attention/product.cuh, which the emulator does not compile: nvcc's output is run by an interpreter of
the few instructions there, a warp in step, with fragments and matrices as the PTX ISA lays them out, against products of whole
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
HEADER = "kernels/cuda/attention/product.cuh"
NVCC = sys.argv.pop(1) if len(sys.argv) > 1 and "nvcc" in sys.argv[1] else "nvcc"
IN, OUT = 15, 13  # words of a lane: left 4, right 2, sum 4, a row of shared memory 4, a value to round; sum 4, matrices 8, the value
GLOBAL_OUT, GLOBAL_IN, SHARED = 1 << 20, 2 << 20, 3 << 20
PROBE = """#include "kernels/cuda/attention/product.cuh"
template <typename Multiply> static __device__ void probe(uint32_t *out, const uint32_t *in, Multiply multiply)
{
    const uint32_t *at = in + 15 * threadIdx.x;
    uint32_t *to = out + 13 * threadIdx.x;
    __shared__ uint4 rows[32];
    rows[threadIdx.x] = make_uint4(at[10], at[11], at[12], at[13]);
    __syncwarp();
    float sum[4];
    for (int i = 0; i < 4; i++)
        sum[i] = __uint_as_float(at[6 + i]);
    multiply(sum, at, at[4], at[5]);
    for (int i = 0; i < 4; i++)
        to[i] = __float_as_uint(sum[i]);
    tensor_matrices(to + 4, &rows[threadIdx.x]);
    tensor_matrices_transposed(to + 8, &rows[threadIdx.x]);
    to[12] = __float_as_uint(tensor_round(__uint_as_float(at[14])));
}
struct tf32 {
    __device__ void operator()(float *sum, const uint32_t *left, uint32_t a, uint32_t b) { tensor_multiply_tf32(sum, left, a, b); }
};
template <typename V> struct narrow {
    __device__ void operator()(float *sum, const uint32_t *left, uint32_t a, uint32_t b) { tensor_multiply_16(sum, left, a, b, V()); }
};
extern "C" __global__ void probe_tf32(uint32_t *out, const uint32_t *in) { probe(out, in, tf32()); }
extern "C" __global__ void probe_bf16(uint32_t *out, const uint32_t *in) { probe(out, in, narrow<__nv_bfloat16>()); }
extern "C" __global__ void probe_f16(uint32_t *out, const uint32_t *in) { probe(out, in, narrow<__half>()); }
"""


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]


# A type's values in a word, the first in the low bits, and how wide a step of a product is (sixteen bits: two values a word).
def halves_of(word, code):
    return [struct.unpack("<e", struct.pack("<H", half))[0] if code == "f16" else float_of(half << 16) for half in (word & 0xFFFF, word >> 16 & 0xFFFF)]


def word_of(low, high, code):
    bits = lambda x: struct.unpack("<H", struct.pack("<e", x))[0] if code == "f16" else bits_of(x) >> 16
    return bits(low) | bits(high) << 16


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
        if text.startswith("_Z"):
            return SHARED
        if text.startswith("0f"):
            return int(text[2:], 16)
        return int(text, 0)

    def address(self, lane, text):
        base, _, offset = text.strip("[] ").partition("+")
        return self.value(lane, base) + int(offset or "0")

    def run(self, instruction, operands):
        parts = instruction.split(".")
        if parts[0] == "mma":
            return self.multiply(parts, operands)
        if parts[0] == "ldmatrix":
            return self.matrices(instruction, operands)
        for lane in range(32):
            self.step(lane, parts, operands)

    def step(self, lane, parts, o):
        name, r = parts[0], self.registers[lane]
        if name == "ld" and parts[1] == "param":
            r[o[0]] = GLOBAL_OUT if o[1].endswith("_0]") else GLOBAL_IN
        elif name == "ld" and parts[1] == "global":
            r[o[0]] = self.memory[self.address(lane, o[1])]
        elif name == "st" and parts[1] in ("global", "shared"):
            for i, word in enumerate(o[1].strip("{}").split(",")):
                self.memory[self.address(lane, o[0]) + 4 * i] = self.value(lane, word)
        elif name in ("mov", "cvta"):
            r[o[0]] = self.value(lane, o[1])
        elif name == "mul" and parts[1] in ("lo", "wide"):
            r[o[0]] = self.value(lane, o[1]) * self.value(lane, o[2])
        elif name == "mad" and parts[1] in ("lo", "wide"):
            r[o[0]] = self.value(lane, o[1]) * self.value(lane, o[2]) + self.value(lane, o[3])
        elif name == "shl":
            r[o[0]] = self.value(lane, o[1]) << self.value(lane, o[2])
        elif name == "add":
            r[o[0]] = self.value(lane, o[1]) + self.value(lane, o[2])
        elif name == "and":
            r[o[0]] = self.value(lane, o[1]) & self.value(lane, o[2]) & 0xFFFFFFFF
        elif parts == ["cvt", "rna", "tf32", "f32"]:  # to the nearest, ties away from 0
            r[o[0]] = (self.value(lane, o[1]) + 0x1000) & 0xFFFFE000
        elif name not in ("ret", "bar"):
            raise AssertionError(f"nvcc's output has an instruction that this test does not know: {'.'.join(parts)}")

    def multiply(self, parts, operands):
        d, a, b, c = ([word.strip() for word in operand.strip("{} ").split(",")] for operand in operands)
        assert parts[1:3] == ["sync", "aligned"] and parts[4:7] == ["row", "col", "f32"] and parts[9] == "f32" and parts[7] == parts[8], parts
        code, shape = parts[7], parts[3]
        word = lambda lane, name: self.registers[lane][name]
        if code == "tf32":
            assert shape == "m16n8k8"
            inner = 8
            factor = lambda lane, name: float_of(word(lane, name) & 0xFFFFE000)  # the lower bits are not read
            left = [[factor(4 * (row % 8) + column % 4, a[row // 8 + 2 * (column // 4)]) for column in range(8)] for row in range(16)]
            right = [[factor(4 * column + row % 4, b[row // 4]) for column in range(8)] for row in range(8)]
        else:
            assert (shape, code) in (("m16n8k16", "bf16"), ("m16n8k16", "f16"), ("m16n8k8", "f16"))
            inner = int(shape.split("k")[1])
            left = [[halves_of(word(4 * (row % 8) + column % 8 // 2, a[row // 8 + 2 * (column // 8)]), code)[column % 2] for column in range(inner)] for row in range(16)]
            right = [[halves_of(word(4 * column + row % 8 // 2, b[row // 8]), code)[row % 2] for column in range(8)] for row in range(inner)]
        sums = {}
        for lane in range(32):
            for i in range(4):
                row, column = lane // 4 + i // 2 * 8, 2 * (lane % 4) + i % 2
                total = float_of(self.registers[lane][c[i]]) + sum(left[row][k] * right[k][column] for k in range(inner))
                sums[lane, i] = bits_of(total)
        for (lane, i), bits in sums.items():
            self.registers[lane][d[i]] = bits

    def matrices(self, instruction, operands):
        assert re.fullmatch(r"ldmatrix\.sync\.aligned\.m8n8\.x4(\.trans)?\.shared\.b16", instruction), instruction
        to = [word.strip() for word in operands[0].strip("{} ").split(",")]
        rows = [self.address(lane, operands[1]) for lane in range(32)]
        assert all(row % 16 == 0 for row in rows)
        element = lambda row, column: self.memory[rows[row] + column // 2 * 4] >> column % 2 * 16 & 0xFFFF
        for lane in range(32):
            g, t = lane // 4, lane % 4
            for j in range(4):
                low, high = ((element(8 * j + 2 * t, g), element(8 * j + 2 * t + 1, g)) if ".trans" in instruction else
                             (element(8 * j + g, 2 * t), element(8 * j + g, 2 * t + 1)))
                self.registers[lane][to[j]] = low | high << 16


def compiled(folder, architecture, changes=()):
    """The text of the probe in PTX, of a copy of the header with these changes."""
    header = (ROOT / HEADER).read_text()
    for old, new in changes:
        assert old in header, old
        header = header.replace(old, new)
    copy = folder / HEADER
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(header)
    (folder / "probe.cu").write_text(PROBE)
    subprocess.run([NVCC, f"-I{folder}", f"-I{ROOT}", "-ptx", f"-arch={architecture}", "-o", folder / "probe.ptx", folder / "probe.cu"], check=True, timeout=300)
    return (folder / "probe.ptx").read_text()


def instructions(ptx, code):
    for line in ptx.split(f".entry probe_{code}", 1)[1].split("{", 1)[1].split("ret;")[0].splitlines():
        line = line.split("//")[0].strip().rstrip(";")
        if line and not line.startswith((".", "}")):
            name, _, rest = line.partition("\t" if "\t" in line else " ")
            yield name.strip(), [word.strip() for word in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)]


def run(ptx, code):
    """The parts of the probe that are right: "product", "matrices", "transposed", "rounding"."""
    chance = random.Random(7)
    small = lambda: chance.randrange(-64, 65) / 8  # in every type exactly, and so are sums of products
    inner = 8 if code == "tf32" else 16
    left = [[small() for _ in range(inner)] for _ in range(16)]
    right = [[small() for _ in range(8)] for _ in range(inner)]
    before = [[small() for _ in range(8)] for _ in range(16)]
    rows = [[chance.randrange(1 << 16) for _ in range(8)] for _ in range(32)]
    values = [float_of(bits_of(chance.uniform(-4, 4)) & ~0x1FFF | low) for low in (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF) for _ in range(6)][:32]
    memory = {GLOBAL_OUT + 4 * i: 0 for i in range(32 * OUT)}
    for lane in range(32):
        g, t = lane // 4, lane % 4
        if code == "tf32":
            words = [bits_of(x) for x in (left[g][t], left[g + 8][t], left[g][t + 4], left[g + 8][t + 4], right[t][g], right[t + 4][g])]
        else:
            words = [word_of(left[row][column], left[row][column + 1], code) for column in (2 * t, 2 * t + 8) for row in (g, g + 8)]
            words += [word_of(right[row][g], right[row + 1][g], code) for row in (2 * t, 2 * t + 8)]
        words += [bits_of(x) for x in (before[g][2 * t], before[g][2 * t + 1], before[g + 8][2 * t], before[g + 8][2 * t + 1])]
        words += [rows[lane][2 * i] | rows[lane][2 * i + 1] << 16 for i in range(4)] + [bits_of(values[lane])]
        for i, word in enumerate(words):
            memory[GLOBAL_IN + 4 * (IN * lane + i)] = word
    warp = Warp(memory)
    for name, operands in instructions(ptx, code):
        warp.run(name, operands)
    out = lambda lane, i: memory[GLOBAL_OUT + 4 * (OUT * lane + i)]
    right_ones = {"product", "matrices", "transposed", "rounding"}
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for i in range(4):
            row, column = g + i // 2 * 8, 2 * t + i % 2
            if float_of(out(lane, i)) != before[row][column] + sum(left[row][k] * right[k][column] for k in range(inner)):
                right_ones.discard("product")
            if out(lane, 4 + i) != rows[8 * i + g][2 * t] | rows[8 * i + g][2 * t + 1] << 16:
                right_ones.discard("matrices")
            if out(lane, 8 + i) != rows[8 * i + 2 * t][g] | rows[8 * i + 2 * t + 1][g] << 16:
                right_ones.discard("transposed")
        if out(lane, 12) != (bits_of(values[lane]) + 0x1000) & 0xFFFFE000:
            right_ones.discard("rounding")
    return right_ones


ALL = {"product", "matrices", "transposed", "rounding"}


class Ptx(unittest.TestCase):
    def ptx(self, architecture, *changes):
        with tempfile.TemporaryDirectory(prefix="muster-ptx-") as folder:
            return compiled(pathlib.Path(folder), architecture, changes)

    def test_products_matrices_and_a_rounding(self):
        ptx = self.ptx("sm_80")
        for code in "tf32", "bf16", "f16":
            self.assertEqual(run(ptx, code), ALL, code)
        self.assertEqual(ptx.count("m16n8k16"), 2)
        ptx = self.ptx("sm_75")
        self.assertEqual(run(ptx, "f16"), ALL - {"rounding"})  # no tf32 there
        self.assertEqual(ptx.count("m16n8k8"), 2)

    def test_bugs_are_found(self):
        four = "{%4,%5,%6,%7}, {%8,%9}, "
        ptx = self.ptx("sm_80", (four, "{%4,%5,%6,%7}, {%9,%8}, "), ('asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));', "bits = __float_as_uint(x) & 0xffffe000u;"))
        for code in "tf32", "bf16", "f16":
            self.assertEqual(run(ptx, code), {"matrices", "transposed"}, code)
        ptx = self.ptx("sm_80", (four, "{%4,%6,%5,%7}, {%8,%9}, "), ("x4.trans.shared", "x4.shared"))
        for code in "tf32", "bf16", "f16":
            self.assertEqual(run(ptx, code), {"matrices", "rounding"}, code)
        ptx = self.ptx("sm_75", ('"r"(left[0]), "r"(left[1]), "r"(right0));', '"r"(left[0]), "r"(left[2]), "r"(right0));'))
        self.assertEqual(run(ptx, "f16"), {"matrices", "transposed"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
