#!/usr/bin/env python3
"""Makes one-token mutants of the pure files and holds each against its tests: what does no test notice?

    mutate.py N [SEED] [--only PATTERN] [--jobs 2]     N mutants, drawn at random
    mutate.py all [--only PATTERN]                     every mutant of the files that match
    mutate.py again [--only PATTERN]                   survivors of the last run

Works on a copy of the tree in build-mutate/; the checkout is only read. See README.md next to this file."""

import argparse
import collections
import concurrent.futures
import fnmatch
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import operators
import schemata
import table

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIST = HERE / "survivors.txt"
MEMORY = ROOT / "build-mutate" / "survivors.json"  # the last run's
SLOWEST, LEAST_S = 10, 3  # a mutant's test may take so many times as much of a processor as it does, and at least so many seconds
PATIENCE = 5  # and so many times as long as that, waiting or starved
OPTIONS = ("-DCMAKE_BUILD_TYPE=Mutants", "-DMUSTER_WERROR=OFF")
# Undefined behaviour ends a test even where nothing is seen of it; memory is never zero by chance.
PLAIN = (*OPTIONS, "-DCMAKE_C_FLAGS_MUTANTS=-O1 -fsanitize=undefined -fsanitize-undefined-trap-on-error")
SANITIZED = (*OPTIONS, "-DCMAKE_C_FLAGS_MUTANTS=-O1", "-DMUSTER_SANITIZE=address,undefined")
PERTURBED = {"MALLOC_PERTURB_": "165"}
# The shell that a test runs under: its processor time, no core files.
SHELL = ("bash", "-c", 'ulimit -c 0 -t "$1"; shift; exec "$@"', "mutant")

FOUND, SURVIVED, EQUIVALENT, ARGUED, INVALID = "found", "survived", "equivalent", "argued", "does not compile"


def run(command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", **options)


# --- the list of argued survivors ---


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


# --- a copy of the tree, in which all mutants are built at once, and its tests ---


class Copy:
    def __init__(self, folder, options):
        self.source, self.build, self.options, self.where = folder / "source", folder / "build", options, {}
        self.sanitized = options is SANITIZED
        self.rejected = folder / "rejected.json"  # {path: [digest, numbers of mutants that do not compile]}

    def refresh(self, mutants):
        """The checkout's files, with these mutants woven in: {path: {number: mutant}}.

        An unchanged file keeps its time, so that ninja leaves it."""
        self.mutants, chosen = mutants, list(mutants)
        self.invalid = json.loads(self.rejected.read_text()) if self.rejected.exists() else {}
        listed = run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"], check=True).stdout.split("\0")
        wanted = {name for name in listed if name and (ROOT / name).is_file()}
        for name in wanted - set(chosen):
            self.put(name, (ROOT / name).read_bytes())
        for path in chosen:
            self.weave(path)
        for path in [path for path in self.source.rglob("*") if path.is_file()]:
            if path.relative_to(self.source).as_posix() not in wanted:
                path.unlink()

    def put(self, name, content):
        there = self.source / name
        if there.exists() and there.read_bytes() == content:
            return
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(content)  # with the time of now
        if (ROOT / name).is_file():
            shutil.copymode(ROOT / name, there)

    def weave(self, path):
        bad = self.bad(path)
        mutants = [(number, mutant) for number, mutant in self.mutants[path].items() if number not in bad]
        text, self.where[path] = schemata.woven(path, (ROOT / path).read_text(), mutants)
        self.put(path, text.encode())

    def bad(self, path):
        """Numbers of mutants that do not compile, for the file as it is."""
        digest = hashlib.sha256((ROOT / path).read_bytes()).hexdigest()
        if self.invalid.get(path, [None])[0] != digest:
            self.invalid[path] = [digest, []]
        return self.invalid[path][1]

    def make(self, targets):
        """Builds; mutants that do not compile are taken out, and the rest is built again."""
        if not (self.build / "build.ninja").exists():
            configured = run(["cmake", "-G", "Ninja", "-S", self.source, "-B", self.build, *self.options])
            if configured.returncode:
                sys.exit(configured.stdout + configured.stderr)
        while (built := run(["ninja", "-C", self.build, "-k", "0", *targets])).returncode:
            rejected = collections.defaultdict(set)
            for name, line in re.findall(r"^([^\s:]+):(\d+):\d+: (?:fatal )?error:", built.stdout, re.M):
                path = os.path.relpath(os.path.join(self.build, name), self.source)
                if number := self.where.get(path, {}).get(int(line)):
                    rejected[path].add(number)
            if not rejected:
                sys.exit(built.stdout + built.stderr)
            for path, numbers in rejected.items():
                self.invalid[path][1] += sorted(numbers)
                self.weave(path)
        self.rejected.write_text(json.dumps(self.invalid))

    def prepare(self, mutants, tests):
        self.refresh(mutants)
        self.make(targets_of(tests))
        self.read_tests()
        self.measure(tests)

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
        self.compilations = {}
        for command in json.loads((self.build / "compile_commands.json").read_text()):
            self.compilations.setdefault(os.path.relpath(command["file"], self.source), command)

    def command(self, test, chosen):
        """The environment of a test under a mutant; the test's starter (apart) is no mutant."""
        words = self.tests[test] if isinstance(test, str) else [self.build / "tests" / test[0], *test[1:]]
        at = 0
        if pathlib.Path(words[0]).name == "apart":
            at = 2 if words[1] == "--here" else 1
        return [*words[:at], "env", f"{schemata.NAME}={chosen}", *words[at:]]

    def status(self, test, chosen, limit_s):
        """The exit code of a test (None: it took too long), and the processor time that it took."""
        words = [*SHELL, limit_s, *self.command(test, chosen)]
        environment = {**os.environ, **PERTURBED, "MUSTER_BUILD": str(self.build), "MUSTER_SOURCE": str(self.source)}
        child = subprocess.Popen([str(word) for word in words], cwd=self.source, env=environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        try:
            return child.wait(PATIENCE * limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()

    def measure(self, tests):
        """How long each may take; they have to pass."""
        self.limits = {}
        for test in tests:
            begin = time.monotonic()
            if self.status(test, "", 600) not in (0, 77):
                sys.exit(f"mutate: {name_of(test)} fails without any mutant: {self.command(test, '')}")
            self.limits[test] = max(LEAST_S, int(SLOWEST * (time.monotonic() - begin)))

    def hold(self, mutant, number, tests):
        """(what became of it, by which test)."""
        if number in self.bad(mutant.path):
            return INVALID, ""
        for test in tests:
            if self.status(test, f"{mutant.path}:{number}", self.limits[test]) not in (0, 77):
                return FOUND, name_of(test)
        if self.sanitized:
            return SURVIVED, ""
        if self.compiled(mutant) == self.compiled(mutant.path):
            return EQUIVALENT, "the compiler makes the same code of it"
        return SURVIVED, ""

    def compiled(self, which):
        """The code of a file, or of a mutant of it, as the release has it but without debug information."""
        path = which if isinstance(which, str) else which.path
        lines = (ROOT / path).read_text().splitlines()
        if path != which:
            lines[which.line] = which.text
        words = self.compilations[path]["command"].split()
        at = words.index("-o")
        words = [word for word in words[:at] if word not in ("ccache", "-c")] + ["-O2", "-fno-sanitize=all", "-x", "c", "-c", "-"]
        with tempfile.NamedTemporaryFile(suffix=".o") as made:
            done = run([*words, "-o", made.name], cwd=self.compilations[path]["directory"], input="\n".join(lines) + "\n")
            return pathlib.Path(made.name).read_bytes() if done.returncode == 0 else done.stderr


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
    """So many of [(number, mutant, tests)]; the same for the same seed and tree."""
    return every if count is None else random.Random(seed).sample(every, min(count, len(every)))


def planned(every, options):
    """(which of them, in words)."""
    if options.count == "again":
        keys = {tuple(key) for key in json.loads(MEMORY.read_text())}
        return [entry for entry in every if entry[1].key in keys], "those that survived"
    if options.count == "all":
        return every, "all"
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    return draw(every, int(options.count), seed), f"seed {seed}"


def hold_all(copy, mutants, plan, jobs):
    """{mutant: (what became of it, how)} of [(number, mutant, tests)], in the plan's order."""
    if not plan:
        return {}
    copy.prepare(mutants, list(dict.fromkeys(test for *_, held in plan for test in held)))

    def one(entry):
        number, mutant, held = entry
        what, how = copy.hold(mutant, number, held)
        print(f"{what:10} {mutant.path}: {mutant.function}: {mutant.before}  ->  {mutant.after}{f'  ({how})' if how else ''}", flush=True)
        return mutant, (what, how)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return dict(pool.map(one, plan))


def report(results, seconds):
    counts = collections.Counter(what for what, _ in results.values())
    lasting = [mutant for mutant, (what, _) in results.items() if what == SURVIVED]
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
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("count", help="how many, all, or again")
    parser.add_argument("seed", nargs="?", type=int, default=None)
    parser.add_argument("--only", help="files that match this pattern")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    argued = read_list(LIST.read_text())
    chosen = dict(files(options.only))
    numbered = {path: dict(enumerate(operators.mutants(path, (ROOT / path).read_text()), 1)) for path, _ in files(None)}
    every = [(number, mutant, chosen[path]) for path in chosen for number, mutant in numbered[path].items()]
    plan, words = planned(every, options)
    print(f"mutate: {words}: {len(plan)} of {len(every)} mutants of {len(chosen)} files", flush=True)
    begin = time.monotonic()
    results = hold_all(Copy(ROOT / "build-mutate" / "plain", PLAIN), numbered, plan, options.jobs)
    # What survives is held once more, where memory is watched.
    alive = [entry for entry in plan if results[entry[1]][0] == SURVIVED]
    few = {path: {number: mutant for number, mutant, _ in alive if mutant.path == path} for path in numbered}
    results |= hold_all(Copy(ROOT / "build-mutate" / "sanitized", SANITIZED), few, alive, options.jobs)
    wrong = [mutant for mutant in results if results[mutant][0] == FOUND and argued.get(mutant.key, ("",))[0] == EQUIVALENT]
    MEMORY.write_text(json.dumps([mutant.key for mutant in results if results[mutant][0] == SURVIVED]))
    for mutant, (what, _) in results.items():
        if what == SURVIVED and mutant.key in argued:
            results[mutant] = argued[mutant.key]
    for mutant in wrong:
        print(f"\n{LIST.name} calls this one equivalent, but a test finds it:\n{shown(mutant)}")
    return 0 if report(results, time.monotonic() - begin) and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
