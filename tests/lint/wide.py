#!/usr/bin/env python3
"""Offsets in kernels are formed in 64 bits. The compiler's own dump (GIMPLE) of every kernel is read. A product of two sizes
that is formed in 32 bits and widened afterwards is a failure: arrays have more than 2^31 elements, tests rarely do.

    wide.py --source DIR --cc CC              kernels/ref and kernels/cpu
    wide.py --source DIR --cxx CXX -I DIR ... kernels/cuda as the emulator compiles it, with CUDA's headers in DIR

Prints FILE:LINE and the line of each, and exits 1 if there is one. Products with a constant are not looked at. Those of ALLOWED
are bounded by something else. A planted product has to be found in each run."""
import argparse
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

# Text of a line: why an int holds the product.
ALLOWED = {
    "kernels/cpu/conv2d.c": {
        "strip": "a strip is a part of the scratch memory of a thread, whose size is an int",
        "j * stride": "within a row of one plane",
    },
    "kernels/cuda/bias.cu": {"blockIdx.y * rows": "the first row of a block, below N"},
    "kernels/cuda/conv2d.cu": {"(channel * c->kernel + y) * c->kernel": "within the weights of a filter, whose number is an int"},
    "kernels/cuda/cross_entropy.cu": {"threads": "within one row of logits, whose length is an int"},
    "kernels/cuda/pool2d.cu": {"p->width +": "within a plane, whose size is an int"},
    "kernels/ref/conv2d.c": {"(channel * c->kernel + y) * c->kernel": "within the weights of a filter, whose number is an int"},
}
PLANTED = """
float planted(const float *rows, int n, int row);
float planted(const float *rows, int n, int row)
{
    return rows[(long)n * row] + rows[n * 4 + row] + rows[n * row]; /* PLANTED */
}
"""
NARROW = re.compile(r"^(const |volatile |unsigned |signed )*(int|unsigned|unsigned int|int32_t|uint32_t)$")
PLACE = re.compile(r"\[([^\s\]]+?):(\d+):\d+(?: discrim \d+)?\] ")
NAME = r"[A-Za-z_][\w.#]*"
DECLARATION = re.compile(rf"^\s*((?:const |static |register )*(?:(?:long |unsigned |signed |short )*(?:int|unsigned)|{NAME}))( \*+ ?(?:const )?)?\s*({NAME})(?: = .*)?;$")
ASSIGN = re.compile(rf"^\s*({NAME}) = (.+);$")


def members(root):
    """Names of members of structs that are 64 bits wide."""
    names = set()
    for path in root.glob("kernels/**/*"):
        if path.suffix in (".h", ".c", ".cu", ".cuh"):
            for line in re.findall(r"^\s+(?:const )?(?:int64_t|size_t|uint64_t) ([^;()=]+);", path.read_text(), re.M):
                names.update(n.strip(" *") for n in line.split(","))
    return names


class Function:
    def __init__(self, wide_members):
        self.wide_members = wide_members
        self.narrow = set()      # variables of 32 bits
        self.products = {}       # variable that holds a product of two of them: (file, line, text)

    def declare(self, kind, name):
        kind = kind.strip()
        (self.narrow.add if NARROW.match(kind) else self.narrow.discard)(name)

    def is_narrow(self, operand):
        operand = operand.strip()
        if re.fullmatch(NAME, operand) and "." not in operand.replace("D.", "", 1):
            return operand in self.narrow
        member = re.search(r"(?:->|\.)(\w+)$", operand)
        return bool(member) and not operand.startswith(("*", "&")) and member.group(1) not in self.wide_members

    def assign(self, target, value, place):
        """One statement; returns the place of a product that it widens."""
        self.products.pop(target, None)
        if target.startswith("_"):
            self.narrow.discard(target)
        cast = re.fullmatch(rf"\(([\w ]+)\) ({NAME})", value)
        if cast:
            if NARROW.match(cast.group(1)):
                self.narrow.add(target)
                if cast.group(2) in self.products:
                    self.products[target] = self.products[cast.group(2)]
            elif re.search(r"\blong\b|int64_t|size", cast.group(1)):
                return self.products.get(cast.group(2))
            return None
        both = re.fullmatch(r"(\S+) ([-+*/%]) (\S+)", value)
        if not both:
            if self.is_narrow(value):
                self.narrow.add(target)
                if value in self.products:
                    self.products[target] = self.products[value]
            return None
        left, operator, right = both.groups()
        if not (self.is_narrow(left) or self.is_narrow(right)):
            return None
        self.narrow.add(target)
        if operator == "*" and self.is_narrow(left) and self.is_narrow(right):
            self.products[target] = place
        elif operator in "+-":
            for operand in (left, right):
                if operand in self.products:
                    self.products[target] = self.products[operand]
        return None


def read_dump(text, wide_members):
    found, function, place = set(), Function(wide_members), None
    for line in text.splitlines():
        places = PLACE.findall(line)
        if places:
            place = places[-1]
        line = PLACE.sub("", line)
        if line and not line[0].isspace() and "(" in line and not line.startswith(("{", "}", ";")):
            function = Function(wide_members)
            for parameter in re.split(r",\s*", line[line.rfind(" (") + 2:].rstrip(")")):
                kind, _, name = parameter.rpartition(" ")
                function.declare(kind, name)
            continue
        declaration = DECLARATION.match(line)
        if declaration and " = " not in line and declaration.group(1) != "return":
            function.declare(declaration.group(1) + (" *" if declaration.group(2) else ""), declaration.group(3))
            continue
        statement = ASSIGN.match(line)
        if statement:
            widened = function.assign(statement.group(1), statement.group(2), place)
            if widened:
                found.add(widened)
    return found


def dump(command, sources, folder):
    """The dumps of the sources, one text."""
    subprocess.run([*command, "-O0", "-S", "-fdump-tree-gimple-lineno", *map(str, sources)], cwd=folder, check=True)
    return "\n".join(path.read_text() for path in sorted(pathlib.Path(folder).glob("*.gimple")))


def runs(options, root, folder):
    """Pairs of a compiler's command and its sources."""
    common = ["-D_GNU_SOURCE", f"-I{root}"]
    if options.cc:
        cpu = [p for p in sorted(root.glob("kernels/cpu/*.c")) if "CPU(" in p.read_text()]
        yield [options.cc, "-std=gnu11", *common], sorted(root.glob("kernels/ref/*.c"))
        yield [options.cc, "-std=gnu11", "-fopenmp", "-DCPU_VARIANT=base", *common], cpu
        if platform.machine() == "x86_64":
            flags = ["-march=x86-64-v4", "-mavx512bf16", "-DCPU_BF16"]
            yield [options.cc, "-std=gnu11", "-fopenmp", "-DCPU_VARIANT=avx512bf16", *flags, *common], sorted(root.glob("kernels/cpu/narrow/*.c"))
    if options.cxx:
        unity = folder / "unity.cu"
        unity.write_text("".join(f'#include "{p}"\n' for p in sorted(root.glob("kernels/cuda/**/*.cu"))))
        emulated = str(root / "tests/gpu/emulator/cuda_emulated.h")
        yield [options.cxx, "-std=gnu++17", "-x", "c++", *(f"-isystem{i}" for i in options.include), "-include", emulated,
               *common], [unity]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--cc")
    parser.add_argument("--cxx")
    parser.add_argument("-I", dest="include", action="append", default=[])
    options = parser.parse_args()
    root = options.source.resolve()
    wide_members, failures, functions = members(root), 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        planted = folder / "planted.c"
        planted.write_text(PLANTED)
        for number, (command, sources) in enumerate(runs(options, root, folder)):
            part = folder / str(number)
            part.mkdir()
            text = dump(command, [*sources, planted], part)
            functions += text.count("\n{")
            found = False
            for file, line in sorted(read_dump(text, wide_members), key=lambda place: (place[0], int(place[1]))):
                text = pathlib.Path(file).read_text().splitlines()[int(line) - 1].strip()
                found |= "PLANTED" in text
                if root not in pathlib.Path(file).parents:
                    continue
                path = str(pathlib.Path(file).relative_to(root))
                if path.startswith("kernels/") and not any(allowed in text for allowed in ALLOWED.get(path, {})):
                    print(f"{path}:{line}: a product of two sizes in 32 bits is widened: cast a size first: {text}")
                    failures += 1
            if not found:
                sys.exit("wide.py: a planted product is not found: the compiler's dump has another form")
    print(f"{functions} functions, {failures} products in 32 bits")
    sys.exit(failures > 0)


main()
