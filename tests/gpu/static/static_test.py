#!/usr/bin/env python3
"""static_test.py Rules: the committed table of the kernels' static figures, and the parts of gpu_static.py.
static_test.py Same: a table made anew, for one architecture, is the committed one."""

import os
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import gpu_static  # noqa: E402

# Kernels that compute or move in double on purpose: conversions, sums of few values, statistics.
DOUBLE = re.compile(r"cast_kernel<.*(double|int|unsignedchar)|batch_norm_|clip_factor|compress_|cross_entropy|loss_sum|norm_(partial|total)|power_|rotary_kernel|topk_|correct_sum|squared_error")
# Kernels without a load of 16 bytes: of few values (scalars, statistics, sums of blocks, a thread's whole share), of columns, of places that
# are no run of memory, of rows that lie unaligned, for which there is an aligned kernel, of a token's few rows (past_), and of codes that
# begin at multiples of 4 or 8 bytes (stored_open).
NARROW = re.compile("|".join((
    "clip_factor|(bias|weight|rms_norm|norm)_total|loss_sum|correct_sum|row_dots|compress_(begin|figures)|power_orthonormal",
    "(bias|weight|rms_norm)_partial|position_gradient|mean_(for|back)ward",
    "conv2d_|(avg|max)_pool2d_|batch_norm_(forward|backward|change|fixed)_|rows_add|rotary_rest|dropout|compress_unpack|power_(decode|left|right)",
    "topk_", "cross_entropy_kernel<.*,false>", "past_(keep|attend)", "stored_open")))
# Rows or tiles that a block needs again after they may have left its share of the cache.
MOVED = {"cross_entropy": 1.55, "embedding_forward": 1.3, "attention_forward": 1.3, "attention_backward": 1.5}


def committed():
    """{(kernel, architecture): {column: value}}, {(operation, kernel): moved}"""
    first, second = gpu_static.TABLE.read_text().split("\n\n")
    rows = {}
    for line in first.splitlines()[1:]:
        name, architecture, *values = line.split()
        rows[name, int(architecture)] = dict(zip(gpu_static.COLUMNS, map(int, values), strict=True))
    moved = {tuple(line.split()[:2]): line.split()[4] for line in second.splitlines()[1:]}
    return rows, moved


class Rules(unittest.TestCase):
    def test_the_table_keeps_them(self):
        rows, moved = committed()
        self.assertEqual({architecture for _, architecture in rows}, {75, 80, 90})
        for (name, architecture), row in rows.items():
            with self.subTest(name, architecture=architecture):
                if architecture >= 80:
                    self.assertEqual(row["spill"], 0)
                if not DOUBLE.match(name):
                    self.assertEqual(row["double"], 0)
                self.assertGreater(row["blocks"], 0)
                if not NARROW.match(name):
                    self.assertEqual(row["load"], 16)
        self.assertGreater(len(moved), 30)
        for key, value in moved.items():
            if value != "-":
                self.assertLessEqual(float(value), MOVED.get(key[0], 1.05), key)

    def test_occupancy(self):
        for architecture, registers, threads, shared, blocks, warps in ((90, 32, 256, 0, 8, 100), (90, 48, 256, 0, 5, 62), (90, 41, 256, 0, 5, 62), (80, 255, 256, 0, 1, 12),
                                                                       (75, 32, 256, 0, 4, 100), (90, 32, 128, 40 << 10, 5, 31), (80, 16, 32, 0, 32, 50)):
            self.assertEqual(gpu_static.held(architecture, registers, threads, shared), (blocks, warps), (architecture, registers))

    def test_loops_and_loads_of_ptx(self):
        ptx = """
.visible .entry one(
\t.param .u64 a
)
.maxntid 128, 1, 1
{
\t.reg .f64 %fd<2>;
$L__BB0_1:
\tld.global.nc.f32 %f1, [%rd1];
$L__BB0_2:
\tld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2];
\tld.global.b16 %rs1, [%rd3];
\tadd.f64 %fd1, %fd1, %fd1;
\t@%p1 bra $L__BB0_2;
\t@%p2 bra $L__BB0_1;
\tret;
}
"""
        threads, lines = gpu_static.functions(ptx)["one"]
        self.assertEqual(threads, 128)
        loops = gpu_static.loops_of(lines)
        self.assertEqual(len(loops), 1)
        self.assertEqual(gpu_static.loads_of(lines[loops[0][0] : loops[0][1] + 1]), [16, 2])
        self.assertEqual(gpu_static.loads_of(lines), [4, 16, 2])

    def test_words_of_ptxas(self):
        words = "ptxas info    : Compiling entry function '_Z3onePf' for 'sm_90'\nptxas info    : Function properties for _Z3onePf\n" \
            "    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\nptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem\n"
        self.assertEqual(gpu_static.resources(words), {"_Z3onePf": (40, 12, 16, 1024)})
        self.assertEqual(gpu_static.short("void (anonymous namespace)::one<float, tensor<__half> >(float*, int)"), "one<float,tensor<f16>>")


class Same(unittest.TestCase):
    def test_every_kernel_of_the_sources_is_in_it(self):
        names = {re.split("<", name)[0] for name, _ in committed()[0]}
        for path in (gpu_static.SOURCE / "kernels/cuda").rglob("*.cu"):
            for name in re.findall(r"__global__ void(?:\s+__launch_bounds__\((?:[^()]|\([^()]*\))*\))?\s+(\w+)\(", path.read_text()):
                self.assertIn(name, names, f"{path}: gpu_static.py --record")

    def test_a_table_made_anew(self):
        counted = gpu_static.traffic(pathlib.Path(os.environ["MUSTER_BUILD"]))
        found = gpu_static.text_of(gpu_static.table([75, 80, 90], counted), counted).splitlines()
        wanted = gpu_static.TABLE.read_text().splitlines()
        different = [line for line in found if line not in set(wanted)] + [f"no more: {line}" for line in wanted if line not in set(found)]
        self.assertEqual(different, [], "./dev bench gpu-static --record writes it anew")


if __name__ == "__main__":
    unittest.main(verbosity=2)
