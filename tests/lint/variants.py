#!/usr/bin/env python3
"""Nothing that is compiled for an instruction set runs before the choice at run time: held against the objects of the build.

variants.py --build DIR   every object that DIR/compile_commands.json has compiled with -m flags: only kernels/cpu's variants and
                          proto/processor are; a variant's object defines nothing but names with its suffix, has no constructor
                          and nothing that a linker may merge; its table is data; and nobody but its own objects and
                          kernels/cpu/table.c names anything of it.
variants.py --planted     plants one leak of each kind and fails where a leak is not found.
"""
import argparse
import collections
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

Object = collections.namedtuple("Object", "path source flags variant")
CHOOSER = "kernels/cpu/table.c"
TABLE = "kernels/cpu/variant.c"
# compiled for the oldest processor, as its flags say; and a leak that the tests want
OTHERS = re.compile(r"(^|/)(proto/processor/\w+\.c|tests/processors/too_new\.c)$")
INSTRUCTION_SET = re.compile(r"^-m(arch|cpu|avx|sse|bmi|fma|f16c|lzcnt|popcnt|movbe)")
VARIANT = re.compile(r"^-DCPU_VARIANT=(\w+)$")
RUNS_BY_ITSELF = re.compile(r"^\.(preinit_array|init_array|fini_array|ctors|dtors|init|fini)\b")


def objects_of(build):
    """The objects of compile_commands.json that were built."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"]) if "command" in entry else entry["arguments"]
        path = pathlib.Path(entry["directory"]) / words[words.index("-o") + 1]
        if not path.exists() or path.suffix == ".gch":  # a precompiled header has no code, and its users have its flags
            continue
        variant = next((m[1] for m in map(VARIANT.match, words) if m), None)
        yield Object(path, entry["file"], [w for w in words if INSTRUCTION_SET.match(w)], variant)


def symbols(paths):
    """path -> (name, type) of nm's types, locals left out."""
    found = collections.defaultdict(list)
    out = subprocess.run(["nm", "-A", "-g", "-P", *map(str, paths)], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        path, _, symbol = line.partition(": ")
        found[path].append(tuple(symbol.split()[:2]))
    return found


def sections(path):
    out = subprocess.run(["readelf", "-SW", str(path)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^\s*\[\s*\d+\]\s+(\.\S+)\s+(\w+)", out, re.M)


def breaches_of(objects):
    objects = list(objects)
    named = symbols(o.path for o in objects)
    everywhere = set.intersection(*(set(o.flags) for o in objects))  # from CFLAGS, which proto/processor answers for
    defined = {}  # name -> the variant that defines it
    for o in objects:
        if o.variant:
            defined.update((name, o.variant) for name, kind in named[str(o.path)] if kind != "U")
    for o in objects:
        mine = named[str(o.path)]
        where = o.source
        if not o.variant:
            if set(o.flags) - everywhere and not OTHERS.search(o.source):
                yield f"{where} is compiled with {' '.join(o.flags)}: only a variant of kernels/cpu may be"
            for name, kind in mine:
                if kind == "U" and defined.get(name) and not (o.source.endswith(CHOOSER) and name == f"cpu_table_{defined[name]}"):
                    yield f"{where} names {name} of the variant {defined[name]}: only {CHOOSER} may, and the table alone"
            continue
        where += f" ({o.variant})"
        for name, kind in mine:
            if kind == "U":
                extended = o.source.endswith(TABLE) and o.variant.startswith(defined.get(name, o.variant))  # avx512bf16 has avx512's
                if defined.get(name, o.variant) != o.variant and not extended:
                    yield f"{where} names {name} of another variant"
            elif not re.fullmatch(rf"cpu_\w+_{o.variant}", name) or kind in "WVwvui":
                yield f"{where} defines {name} ({kind}): a linker may take it for everybody's"
        for name, kind in sections(o.path):
            if RUNS_BY_ITSELF.match(name) or kind == "GROUP":
                yield f"{where} has a section {name}: it runs by itself, or is merged with another variant's"
        if o.source.endswith(TABLE) and any(kind == "T" for _, kind in mine):
            yield f"{where} has code: the table is data"


def planted():
    """Compiles a sound pair and each leak next to it; yields each that was not found as it should be."""
    cases = [
        # the planted leak, source that it becomes, variant, text, part of the breach ("" for none)
        ("nothing", "kernels/cpu/add.c", "avx512", "void cpu_add_avx512(void){}", ""),
        ("a constructor", "kernels/cpu/add.c", "avx512", "static void __attribute__((constructor)) f(void){__asm__(\"\");}", "runs by itself"),
        ("a name without a suffix", "kernels/cpu/add.c", "avx512", "void helper(void){}", "defines helper"),
        ("a weak name", "kernels/cpu/add.c", "avx512", "void __attribute__((weak)) cpu_x_avx512(void){}", "defines cpu_x_avx512"),
        ("another variant's name", "kernels/cpu/add.c", "avx512", "void cpu_x_avx512(void){}", "defines cpu_x_avx512", "avx2"),
        ("a table that is filled by code", "kernels/cpu/variant.c", "avx512", "void cpu_fill_avx512(void){}", "the table is data"),
        ("a call from outside", "runtime/x.c", None, "void cpu_adamw_avx512(void); void f(void){cpu_adamw_avx512();}", "names cpu_adamw_avx512"),
        ("a choice elsewhere", "runtime/x.c", None, "extern int cpu_table_avx512; int *f(void){return &cpu_table_avx512;}", "only kernels/cpu/table.c"),
        ("a function chosen past the table", CHOOSER, None, "void cpu_adamw_avx512(void); void f(void){cpu_adamw_avx512();}", "the table alone"),
        ("the choice", CHOOSER, None, "extern int cpu_table_avx512; int *f(void){return &cpu_table_avx512;}", ""),
        ("flags elsewhere", "runtime/x.c", None, "int x;", "is compiled with", "-march=x86-64-v4"),
    ]
    with tempfile.TemporaryDirectory(prefix="muster-variants-") as folder:
        folder = pathlib.Path(folder)

        def compiled(name, text):
            path = folder / f"{name}.o"
            subprocess.run(["cc", "-O2", "-fPIC", "-xc", "-c", "-o", str(path), "-"], input=text, text=True, check=True)
            return path

        base = [Object(compiled("table", "int cpu_table_avx512 = 1;"), TABLE, ["-march=x86-64-v4"], "avx512"),
                Object(compiled("adamw", "void cpu_adamw_avx512(void){}"), "kernels/cpu/adamw.c", ["-march=x86-64-v4"], "avx512"),
                Object(compiled("plain", "int plain;"), "runtime/plain.c", [], None)]
        for what, source, variant, text, wanted, *more in cases:
            flags = [w for w in more if w.startswith("-")]
            variant = next((w for w in more if not w.startswith("-")), variant)
            found = list(breaches_of(base + [Object(compiled("leak", text), source, flags, variant)]))
            if bool(found) != bool(wanted) or not all(wanted in line for line in found[:1]):
                yield f"planted {what}: found {found}, not '{wanted}'"
        print(f"{len(cases)} objects were planted")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--planted", action="store_true")
    options = parser.parse_args()
    if options.planted:
        breaches = list(planted())
    else:
        objects = list(objects_of(options.build))
        count = collections.Counter(o.variant for o in objects if o.variant)
        print(f"{len(objects)} objects looked at; of variants: {dict(count)}")
        breaches = list(breaches_of(objects))
        if len(count) < 1 or min(count.values()) < 2:
            breaches.append("no variant of kernels/cpu was found")
    for breach in breaches:
        print(breach)
    print(f"lint variants: {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
