#!/usr/bin/env python3
"""Static figures of the CUDA kernels: nothing runs on a GPU, and no figure is a speed. `./dev bench gpu-static`.

    gpu_static.py [--build BUILD] [--architectures 75,80,90] [--record]

The table has a line for each kernel and architecture. A test compares it with table.txt; --record writes that anew. Columns:

    registers, spill, stack   of a thread, by ptxas; bytes
    shared                    bytes of a block, with the dynamic part of the trainings that were run
    threads, blocks, warps    of a block; blocks that a multiprocessor holds at once, and the percentage of its warps
    load                      bytes of the widest load from the device's memory in an innermost loop (without a loop: of the kernel)
    flight                    KiB that a multiprocessor can have under way if a thread has sent all loads of one pass of the loop
    double                    instructions in double within innermost loops

A second part has a line for each operation that trainings of a small GPT-2 and a small Llama launch on the emulator: threads of a block,
bytes of its dynamic shared memory, and bytes moved over the least, in the model of traffic.cpp.

ptxas may order loads in another way than PTX has them: `flight` is the most that the source allows."""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
TABLE = HERE / "table.txt"
COLUMNS = ("registers", "spill", "stack", "shared", "threads", "blocks", "warps", "load", "flight", "double")
# A multiprocessor's warps, blocks, bytes of shared memory, bytes that each block has reserved; 65,536 registers on all. From the tables
# of compute capabilities in the CUDA programming guide.
LIMITS = {75: (32, 16, 64 << 10, 0), 80: (64, 32, 164 << 10, 1 << 10), 90: (64, 32, 228 << 10, 1 << 10)}
REGISTERS, REGISTER_UNIT, WARP, THREADS = 65536, 256, 32, 256
SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
CONFIG = """\
training: {{steps: 2, micro_batch: 2, global_batch: 4, sequence_length: 64, learning_rate: 1.0e-3, warmup_steps: 2, threads: 1, timeout: 300{more}}}
model: {{layers: 1, {model}}}
data: {{path: "{text}"}}
logging: {{interval: 1, sample_length: 0}}
"""
SMALL, LLAMA = "channels: 256, heads: 4, vocabulary: 259", ", architecture: llama, kv_heads: 2, hidden: 512"
# Rows of 128 KiB of logits are more than a block's share of the cache; all parameters together are few, since the emulator runs the
# passes of a thread one after the other.
TRAININGS = {"large vocabulary": ("", "channels: 64, heads: 1, vocabulary: 32768"), "gpt2": (", matmul_precision: tf32", SMALL), "llama": ("", SMALL + LLAMA),
             "llama, bf16": (", dtype: bf16, matmul_precision: tf32", SMALL + LLAMA), "sgd": (", optimizer: SGD, momentum: 0.9, ema_decay: 0.9", SMALL)}


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"gpu_static.py: {' '.join(map(str, command))[:300]}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout + done.stderr


def short(name):
    """A demangled name as kernel<arguments of its template>."""
    plain = re.sub(r"\(anonymous namespace\)::", "", name)
    plain = re.sub(r"^void ", "", plain)
    depth, end = 0, len(plain)
    for at, letter in enumerate(plain):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            end = at
            break
    return plain[:end].replace("__nv_bfloat16", "bf16").replace("__half", "f16").replace(" ", "")


# ---- output of nvcc ----


def compile_for(architecture, folder):
    """(ptxas's words, PTX) of all kernels, in one file as the module has them."""
    kernels = folder / "kernels.cu"
    names = re.findall(r"^\s+(.*\.cu.*)$", (SOURCE / "kernels/cuda/CMakeLists.txt").read_text(), re.MULTILINE)
    files = [name for line in names for name in re.findall(r"[\w/]+\.cu\b", line)]
    kernels.write_text("".join(f'#include "kernels/cuda/{name}"\n' for name in dict.fromkeys(files)))
    keep = folder / str(architecture)
    keep.mkdir()
    words = run("nvcc", "-std=c++17", "-O2", "-cubin", "--keep", f"--keep-dir={keep}", "-Xptxas=-v", f"-gencode=arch=compute_{architecture},code=sm_{architecture}",
                f"-I{SOURCE}", "-o", keep / "kernels.cubin", kernels)
    return words, next(keep.glob("*.ptx")).read_text()


def resources(words):
    """{mangled name: (registers, spilled bytes, stack, shared)}"""
    found = {}
    for part in re.split(r"Compiling entry function '", words)[1:]:
        name = part.split("'")[0]
        stack, stores, loads = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part).groups()
        registers = re.search(r"Used (\d+) registers", part)[1]
        shared = re.search(r"(\d+) bytes smem", part)
        found[name] = (int(registers), int(stores) + int(loads), int(stack), int(shared[1]) if shared else 0)
    return found


def loops_of(lines):
    """(first, last) of each innermost loop: from a label to a branch back to it."""
    places = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}
    loops = [(places[target], at) for at, line in enumerate(lines) for target in re.findall(r"\bbra(?:\.uni)?\s+(\S+);", line) if places.get(target, at + 1) <= at]
    return [(a, b) for a, b in loops if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)]


def loads_of(lines):
    """Bytes of each load from the device's memory."""
    found = []
    for line in lines:
        load = re.search(r"\bld\.global(?:\.\w+)*?(?:\.v(\d))?\.[a-z](\d+)\s", line)
        if load:
            found.append(int(load[1] or 1) * SIZES[load[2]])
    return found


def functions(ptx):
    """{mangled name: (threads of a block or None, lines)}"""
    found = {}
    for part in re.split(r"\n(?:\.visible |\.weak )?\.entry ", ptx)[1:]:
        name = re.match(r"\w+", part)[0]
        bound = re.search(r"\.maxntid (\d+)", part.split("{")[0])
        body = part[part.index("{"):part.index("\n}")]
        found[name] = (int(bound[1]) if bound else None, [line.strip() for line in body.splitlines()])
    return found


def demangled(names):
    return dict(zip(names, subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()))


def held(architecture, registers, threads, shared):
    """Blocks that a multiprocessor holds at once, and the percentage of its warps that these are."""
    most, blocks, memory, reserved = LIMITS[architecture]
    warps = -(-threads // WARP)
    unit = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    blocks = min(blocks, most // warps, REGISTERS // unit // warps, memory // (shared + reserved) if shared + reserved else blocks)
    return blocks, round(100 * blocks * warps / most)


# ---- bytes that the emulator counts ----


def traffic(build):
    """{(operation, kernel): (threads, dynamic shared bytes, moved over least)} of all that the trainings launch."""
    run("ninja", "-C", build, "gpu_module_counted", "muster-train")
    sums = collections.defaultdict(lambda: [0, 0, 0, 0])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text").write_text("the quick fox jumps over the hill and then it rests.\n" * 40)

        def train(item):
            number, (name, (more, model)) = item
            config, table = folder / f"{number}.yaml", folder / f"{number}.tsv"
            config.write_text(CONFIG.format(text=folder / "text", more=more, model=model))
            fakes = build / "tests/gpu/lib"
            variables = {**os.environ, "MUSTER_CUDA_MODULE": str(build / "tests/gpu/static/libmuster_cuda.so"), "LD_LIBRARY_PATH": str(fakes), "OMP_NUM_THREADS": "1",
                         "EMU_TRAFFIC": str(table), "FAKE_CUDA_SCHEDULE": "early"}
            run(build / "bin/muster-train", config, "--device=cuda", "--set", f"logging.dir={folder / name}", env=variables)
            return [line.split("\t") for line in table.read_text().splitlines()]

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for rows in pool.map(train, enumerate(TRAININGS.items())):
                for operation, kernel, _, threads, shared, moved, least in rows:
                    row = sums[operation, re.split(r"[<(]", kernel.strip("&() "))[0]]
                    row[0] = max(row[0], int(threads))
                    row[1] = max(row[1], int(shared))
                    row[2] += int(moved)
                    row[3] += int(least)
    return {name: (threads, shared, moved / least if least else None) for name, (threads, shared, moved, least) in sums.items()}


# ---- the table ----


def of_launches(counted):
    """{kernel: (threads, dynamic shared bytes)}, where all operations agree."""
    found = collections.defaultdict(set)
    for (_, kernel), (threads, shared, _) in counted.items():
        found[kernel].add((threads, shared))
    return {kernel: values.pop() for kernel, values in found.items() if len(values) == 1}


def table(architectures, counted):
    rows, launched = {}, of_launches(counted)
    for architecture in architectures:
        with tempfile.TemporaryDirectory() as folder:
            words, ptx = compile_for(architecture, pathlib.Path(folder))
        used, bodies = resources(words), functions(ptx)
        for mangled, name in demangled(sorted(used)).items():
            name = short(name)
            registers, spill, stack, shared = used[mangled]
            bound, lines = bodies[mangled]
            threads, dynamic = launched.get(name.split("<")[0], (THREADS, 0))
            threads = bound or threads
            blocks, warps = held(architecture, registers, threads, shared + dynamic)
            innermost = [lines[a : b + 1] for a, b in loops_of(lines)] or [lines]
            parts = [loads_of(part) for part in innermost]
            doubles = sum(bool(re.search(r"\.f64\b", line)) and not line.startswith(".") for part in innermost for line in part)
            flight = max(sum(loads) for loads in parts) * threads * blocks / 1024
            widest = max((max(loads) for loads in parts if loads), default=0)
            rows[name, architecture] = (registers, spill, stack, shared + dynamic, threads, blocks, warps, widest, round(flight), doubles)
    return rows


def text_of(rows, counted):
    width = max(len(name) for name, _ in rows)
    lines = [f"{'kernel':{width}}  sm " + " ".join(f"{column:>9}" for column in COLUMNS)]
    for (name, architecture), values in sorted(rows.items()):
        lines.append(f"{name:{width}}  {architecture} " + " ".join(f"{value:>9}" for value in values))
    if counted:
        width = max(len(operation) for operation, _ in counted)
        lines += ["", f"{'operation':{width}}  {'kernel':26} {'threads':>9} {'shared':>9} {'moved':>9}"]
        for (operation, kernel), (threads, shared, moved) in sorted(counted.items()):
            lines.append(f"{operation:{width}}  {kernel:26} {threads:>9} {shared:>9} " + (f"{moved:9.2f}" if moved else f"{'-':>9}"))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"), help="of ./dev build; none: without the bytes that are moved")
    parser.add_argument("--architectures", default="75,80,90")
    parser.add_argument("--record", action="store_true", help="write table.txt anew")
    options = parser.parse_args()
    counted = traffic(pathlib.Path(options.build).resolve()) if options.build != "none" else {}
    found = text_of(table([int(number) for number in options.architectures.split(",")], counted), counted)
    print(found, end="")
    if options.record:
        TABLE.write_text(found)


if __name__ == "__main__":
    main()
