#!/usr/bin/env python3
"""Makes one-token mutants of the pure files and holds each against its tests: what does no test notice?

    mutate.py N [SEED] [--only PATTERN] [--jobs 2]     N mutants, drawn at random
    mutate.py all [--only PATTERN]                     every mutant of the files that match

Works on copies of the tree in build-mutate/; the checkout is only read. See README.md beside this file."""

import argparse
import collections
import concurrent.futures
import fnmatch
import hashlib
import json
import os
import pathlib
import queue
import random
import shutil
import subprocess
import sys
import time

import operators
import table

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIST = HERE / "survivors.txt"
SLOWEST, LEAST_S = 10, 5  # a mutant's test may take so many times as long as it does, and at least so many seconds

FOUND, SURVIVED, EQUIVALENT, ARGUED, INVALID = "found", "survived", "equivalent", "argued", "does not compile"


def run(command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", **options)


# --- the list of those that are argued ---


def read_list(text):
    """{key: (kind, argument)}: four lines an entry, `path: function`, `- before`, `+ after`, `kind: argument`; # is a comment."""
    found, entry = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        entry.append(line)
        if len(entry) == 4:
            path, function = entry[0].split(": ", 1)
            kind, _, argument = entry[3].partition(": ")
            if not entry[1].startswith("- ") or not entry[2].startswith("+ ") or kind not in (EQUIVALENT, ARGUED) or not argument:
                raise ValueError(f"{LIST.name}: line {number}: an entry is `path: function`, `- before`, `+ after`, `kind: argument`")
            found[path, function, entry[1][2:], entry[2][2:]] = kind, argument
            entry = []
    if entry:
        raise ValueError(f"{LIST.name}: its last entry is not whole")
    return found


def shown(mutant):
    path, function, before, after = mutant.key
    return f"{path}: {function}\n- {before}\n+ {after}"


# --- a copy of the tree, and its tests ---


class Copy:
    """A tree and a build of its own, in which one file at a time is changed."""

    def __init__(self, folder):
        self.source, self.build = folder / "source", folder / "build"

    def refresh(self):
        """The checkout's files as they are, and nothing else; what did not change keeps its time, so that ninja leaves it."""
        listed = run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"], check=True).stdout.split("\0")
        wanted = {name for name in listed if name and (ROOT / name).is_file()}
        for name in wanted:
            there = self.source / name
            if not there.exists() or there.read_bytes() != (ROOT / name).read_bytes():
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, there)  # with the time of now
        for path in [path for path in self.source.rglob("*") if path.is_file()]:
            if path.relative_to(self.source).as_posix() not in wanted:
                path.unlink()

    def make(self, targets):
        """Without debug information, so that a mutant that the compiler makes the same code of is seen to be equivalent."""
        if not (self.build / "build.ninja").exists():
            configured = run(["cmake", "-G", "Ninja", "-S", self.source, "-B", self.build, "-DCMAKE_BUILD_TYPE=Release", "-DMUSTER_WERROR=OFF"])
            if configured.returncode:
                sys.exit(configured.stdout + configured.stderr)
        built = run(["ninja", "-C", self.build, *targets])
        if built.returncode:
            sys.exit(built.stdout + built.stderr)

    def read_tests(self):
        """{name: command} of ctest's tests, without the canary's record."""
        shown = run(["ctest", "--test-dir", self.build, "--show-only=json-v1"], check=True).stdout
        self.tests = {}
        for test in json.loads(shown)["tests"]:
            words = test.get("command", [])
            if "--canary" in words:
                at = words.index("--canary")
                words = words[:at] + words[at + 2 :]
            self.tests[test["name"]] = words
        self.objects = {}
        for command in json.loads((self.build / "compile_commands.json").read_text()):
            name = os.path.relpath(command["file"], self.source)
            words = command["command"].split()
            self.objects.setdefault(name, []).append(words[words.index("-o") + 1])

    def command(self, test):
        return self.tests[test] if isinstance(test, str) else [self.build / "tests" / test[0], *test[1:]]

    def digests(self, path):
        """Of the objects that are made of a file and are in use; the simulation compiles some once more."""
        return {name: hashlib.sha256((self.build / name).read_bytes()).digest()
                for name in self.objects[path] if (self.build / name).exists()}  # fmt: skip

    def measure(self, tests):
        """{test: seconds}; they have to pass."""
        self.limits = {}
        for test in tests:
            begin = time.monotonic()
            done = run(self.command(test), cwd=self.source, env=self.environment)
            if done.returncode not in (0, 77):
                sys.exit(f"{test} fails without any mutant:\n{done.stdout}{done.stderr}")
            self.limits[test] = max(LEAST_S, SLOWEST * (time.monotonic() - begin))

    @property
    def environment(self):
        return {**os.environ, "MUSTER_BUILD": str(self.build), "MUSTER_SOURCE": str(self.source)}

    def passes(self, test):
        try:
            done = run(self.command(test), cwd=self.source, env=self.environment, timeout=self.limits[test])
            return done.returncode in (0, 77)
        except subprocess.TimeoutExpired:
            return False

    def hold(self, mutant, tests):
        """(what became of it, by which test)."""
        path = self.source / mutant.path
        text, before = path.read_text(), self.digests(mutant.path)
        lines = text.splitlines(keepends=True)
        lines[mutant.line] = mutant.text + "\n"
        path.write_text("".join(lines))
        try:
            if run(["ninja", "-C", self.build, *before]).returncode:
                return INVALID, ""
            if self.digests(mutant.path) == before:
                return EQUIVALENT, "the compiler makes the same code of it"
            for test in tests:  # made one by one: the first mostly finds it
                if run(["ninja", "-C", self.build, *targets_of([test])]).returncode:
                    return INVALID, ""
                if not self.passes(test):
                    return FOUND, name_of(test)
            return SURVIVED, ""
        finally:
            path.write_text(text)


def name_of(test):
    return test if isinstance(test, str) else pathlib.Path(test[0]).name


def targets_of(tests):
    """What ninja has to make for them."""
    return sorted({"apart", *("muster" if name_of(test).startswith("e2e_") else name_of(test) for test in tests)})


# --- the run ---


def files(only):
    """[(path, tests)] of the table."""
    found = []
    for patterns, tests in table.TABLE:
        for pattern in patterns:
            paths = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))
            if not paths:
                sys.exit(f"mutate: table.py: no file is named {pattern}")
            found += [(path, tests) for path in paths if not only or fnmatch.fnmatch(path, only)]
    return found


def draw(every, count, seed):
    """So many of [(mutant, tests)]; the same for the same seed and tree."""
    return every if count is None else random.Random(seed).sample(every, min(count, len(every)))


def report(results, seconds):
    counts = collections.Counter(what for _, what, _ in results)
    lasting = [mutant for mutant, what, _ in results if what == SURVIVED]
    alive = counts[SURVIVED] + counts[ARGUED]
    share = counts[FOUND] / (counts[FOUND] + alive) if counts[FOUND] + alive else 1.0
    by_file = collections.Counter(mutant.path for mutant in lasting)
    for mutant in lasting:
        print(f"\n{shown(mutant)}")
    if by_file:
        print("\nsurvivors by file: " + ", ".join(f"{path} {count}" for path, count in by_file.most_common()))
    print(f"\n{len(results)} mutants in {seconds:.0f} s: {counts[FOUND]} found, {counts[SURVIVED]} survived, {counts[ARGUED]} survived and are "
          f"argued in {LIST.name}, {counts[EQUIVALENT]} equivalent, {counts[INVALID]} do not compile")  # fmt: skip
    print(f"found of those that are not equivalent: {share:.1%}; bar {table.BAR:.0%}")
    return share >= table.BAR


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("count", help="how many, or all")
    parser.add_argument("seed", nargs="?", type=int, default=None)
    parser.add_argument("--only", help="files that match this pattern")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    argued = read_list(LIST.read_text())
    chosen = files(options.only)
    every = [(mutant, tests) for path, tests in chosen for mutant in operators.mutants(path, (ROOT / path).read_text())]
    plan = draw(every, None if options.count == "all" else int(options.count), seed)
    tests = list(dict.fromkeys(test for _, tests in plan for test in tests))
    print(f"mutate: seed {seed}: {len(plan)} of {len(every)} mutants of {len(chosen)} files", flush=True)
    free = queue.Queue()
    for number in range(options.jobs):
        copy = Copy(ROOT / "build-mutate" / str(number))
        copy.refresh()
        copy.make(targets_of(tests))
        copy.read_tests()
        copy.measure(tests)
        free.put(copy)
    begin = time.monotonic()

    def one(entry):
        mutant, held = entry
        kind, argument = argued.get(mutant.key, ("", ""))
        if kind == EQUIVALENT:
            return mutant, EQUIVALENT, argument
        copy = free.get()
        try:
            what, how = copy.hold(mutant, held)
        finally:
            free.put(copy)
        if what == SURVIVED and kind == ARGUED:
            what, how = ARGUED, argument
        print(f"{what:10} {mutant.path}: {mutant.function}: {mutant.before}  ->  {mutant.after}{f'  ({how})' if how else ''}", flush=True)
        return mutant, what, how

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(one, plan))
    return 0 if report(results, time.monotonic() - begin) else 1


if __name__ == "__main__":
    sys.exit(main())
