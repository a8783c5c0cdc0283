#!/usr/bin/env python3
"""clang.py --build DIR - clang reads every source of the fuzz programs: ./dev fuzz builds them with it, and everything else is GCC's.

They are read with the flags of the build (compile_commands.json), as in CMakePresets.json's fuzz: without OpenMP, and warnings are
no errors. Each start of clang costs as much as it reads, for 900 sources half a minute: sources of
a folder that have the same flags are read as one file first. Two of them may use the same name, so those with an error are read again
without the others, and in the end each alone. An error that is found alone is a failure. A planted source that only GCC takes
has to be found in each run.

clang's code generator is not started: its errors, about instruction sets, are found by ./dev fuzz alone. Skipped where there is no clang.
"""
import argparse
import collections
import json
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
    """(folder, flags): the fuzz programs' C sources in it that have them."""
    wanted = inputs(build, [path.stem for path in sorted(fuzz.glob("*_fuzz.c"))])
    found = collections.defaultdict(dict)
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        output = words.index("-o")
        if words[output + 1] in wanted and entry["file"].endswith(".c"):
            flags = tuple(word for word in words[1:output] if word != "-fopenmp" and word[:2] not in ("-W", "-O", "-g"))
            found[str(pathlib.Path(entry["file"]).parent), flags][entry["file"]] = None
    return {key: list(sources) for key, sources in found.items()}


def read(build, flags, sources):
    """The places of clang's errors and its output, of the sources read as one file."""
    text = "".join(f'#include "{source}"\n' for source in sources)
    done = subprocess.run(["clang", *AS_FUZZ, *flags, "-x", "c", "-"], input=text, cwd=build, capture_output=True, text=True)
    places = set(re.findall(r"^([^\s:]+):\d+:\d+: (?:fatal )?error: ", done.stderr, re.M))
    return places or ({"clang"} if done.returncode else set()), done.stderr


def failures(build, flags, sources):
    """clang's output of each source that it does not take."""
    while len(sources) > 1:
        places, _ = read(build, flags, sources)
        if not places:
            return []
        if not places < set(sources):  # all of them, or a header, whose it is each shows alone
            break
        sources = [source for source in sources if source in places]
    alone = (read(build, flags, [source]) for source in sources)
    return [text for places, text in alone if places]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    build = parser.parse_args().build.resolve()
    if not shutil.which("clang"):
        print("skipped: there is no clang, with which ./dev fuzz builds the fuzz programs (./dev test installs it)")
        sys.exit(77)
    found = groups(build, pathlib.Path(__file__).resolve().parent.parent / "fuzz")
    wrong = [text for (_, flags), sources in found.items() for text in failures(build, flags, sources)]
    for text in wrong[:SHOWN]:
        print("\n".join(text.splitlines()[:12]))
    with tempfile.TemporaryDirectory() as name:
        planted = pathlib.Path(name) / "planted.c"
        planted.write_text(PLANTED)
        _, flags = next(iter(found))
        if not failures(build, flags, [str(planted), *next(iter(found.values()))]):
            sys.exit("clang.py: a planted source that only GCC takes is not found")
    print(f"{sum(map(len, found.values()))} sources, {len(wrong)} that clang does not take")
    sys.exit(len(wrong) > 0)


main()
