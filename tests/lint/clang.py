#!/usr/bin/env python3
"""clang.py --build DIR - clang reads every source of the fuzz programs: ./dev fuzz builds them with it, and everything else is GCC's.

They are read with the flags of the build (compile_commands.json), as in CMakePresets.json's fuzz: without OpenMP, and warnings are
no errors. Each start of clang costs as much as it reads, for 900 sources half a minute: those below
a folder that have the same flags are read as one file first. Two of them may use the same name, so those with an error are read again
without the others, and in the end each alone. An error that is found alone is a failure. A planted source that only GCC takes
has to be found in each run.

clang's code generator is not started: its errors, about instruction sets, are found by ./dev fuzz alone. Skipped where there is no clang.
"""
import argparse
import collections
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

PLANTED = """
typedef int quad __attribute__((vector_size(16)));
quad planted(quad a, quad b);
quad planted(quad a, quad b)
{
    return __builtin_shuffle(a, b, (quad){0, 4, 1, 5});
}
"""
AS_FUZZ = ["-w", "-Werror=implicit-function-declaration", "-ferror-limit=0", "-DMUSTER_LIBFUZZER", "-fsyntax-only"]
SHOWN = 5


def inputs(build, targets):
    done = subprocess.run(["ninja", "-C", build, "-t", "inputs", *targets], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"clang.py: ninja does not know what the fuzz programs are made of: {done.stderr}")
    return set(done.stdout.split("\n"))


def groups(build, fuzz):
    """(folder, flags): the fuzz programs' C sources below it that have them. Every source may include what others find in -isystem."""
    wanted = inputs(build, [path.stem for path in sorted(fuzz.glob("*_fuzz.c"))])
    found, system = collections.defaultdict(dict), {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        words, output = words[1:words.index("-o")], words[words.index("-o") + 1]
        if output in wanted and entry["file"].endswith(".c"):
            flags = []
            for flag in words:
                if flags[-1:] == ["-isystem"]:
                    system[flags.pop(), flag] = None
                elif flag[:3] != "-fo" and flag[:4] != "-fPI" and flag[:2] not in ("-W", "-O", "-g"):
                    flags.append(flag)
            found[os.path.relpath(entry["file"], fuzz.parent.parent).split("/")[0], tuple(flags)][entry["file"]] = None
    return [([*itertools.chain(*system), *flags], list(sources)) for (_, flags), sources in found.items()]


def read(build, flags, sources):
    """Those with an error of the sources that clang reads as one file, and its output. Each is on a line of its own."""
    text = "".join(f'#include "{source}"\n' for source in sources)
    done = subprocess.run(["clang", *AS_FUZZ, *flags, "-x", "c", "-"], input=text, cwd=build, capture_output=True, text=True)
    lines = set(map(int, re.findall(r"^In file included from <stdin>:(\d+):", done.stderr, re.M)))
    wrong = [source for line, source in enumerate(sources, 1) if line in lines]
    return (wrong or sources) if done.returncode else [], done.stderr


def failures(build, flags, sources):
    """clang's output of each source that it does not take."""
    before = None
    while sources and sources != before:
        before = sources
        sources, _ = read(build, flags, before)
    alone = (read(build, flags, [source]) for source in sources)
    return [text for wrong, text in alone if wrong]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build.resolve()
    if not shutil.which("clang"):
        print("skipped: there is no clang, with which ./dev fuzz builds the fuzz programs (./dev test installs it)")
        sys.exit(77)
    found = groups(build, pathlib.Path(__file__).resolve().parent.parent / "fuzz")
    wrong = [text for flags, sources in found for text in failures(build, flags, sources)]
    for text in wrong[:SHOWN]:
        print("\n".join(text.splitlines()[:12]))
    with tempfile.TemporaryDirectory() as name:
        planted = pathlib.Path(name) / "planted.c"
        planted.write_text(PLANTED)
        flags, sources = found[0]
        if not failures(build, flags, [str(planted), *sources]):
            sys.exit("clang.py: a planted source that only GCC takes is not found")
    print(f"{sum(len(sources) for _, sources in found)} sources, {len(wrong)} that clang does not take")
    sys.exit(len(wrong) > 0)


main()
