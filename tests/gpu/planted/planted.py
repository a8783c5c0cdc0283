"""planted.py TABLE [NAME ...] [--build DIR] [--all] [--jobs N] - bugs that are planted on purpose, each of which has to be found.

A table is a text of entries (README.md says how they are written): a file, one substitution in it, the program of the build that
shall notice, and a pattern of its output then. The file's copy with the bug is compiled by the build's own command, linked by the
program's own command (or that of the module which it loads) before the archives, and run: nothing else is built, and several entries
are tried at once. An entry that is not found, or found by saying something else, fails the test."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
KEYS = ("file", "compile", "from", "to", "times", "program", "links", "arguments", "script", "flavour", "environment", "seconds", "runs", "found by", "tier", "equivalent")
# A copy is built once and run once: its flags in place of -O2 -g.
QUICK = ["-O1", "-g0"]
# A flavour's additions to the compiler's command; its programs are targets of their own (CMakeLists.txt), NAME_FLAVOUR.
FLAVOURS = {
    "plain": [],
    "asan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fsanitize-sections=emu_shared", "-O1"],
    "tsan": ["-fsanitize=thread", "-O1"],
}
SECONDS = 120  # one program's, where its entry has no other limit
NO_END = "no end"  # the output of a program that is stopped at its limit


def entries(table):
    """For the table; fields before the first entry are defaults for all."""
    common, found = {}, []
    entry = common
    for number, line in enumerate(table.read_text().splitlines(), 1):
        where = f"{table.name}:{number}"
        if line.startswith("== "):
            entry = {"name": line[3:].strip(), "where": where}
            if any(other["name"] == entry["name"] for other in found):
                sys.exit(f"{where}: there is a '{entry['name']}' already")
            found.append(entry)
        elif line.strip() and not line.startswith("#"):
            key, colon, value = line.partition(":")
            if not colon or key not in KEYS:
                sys.exit(f"{where}: neither '== name' nor one of {', '.join(KEYS)}")
            entry[key] = (entry[key] + "\n" + value.strip()) if key in entry else value.strip()
    return [{**common, **entry} for entry in found]


def substitute(entry):
    """The text of the file with the bug: lines of `from` are looked for with any white space before them."""
    text = (ROOT / entry["file"]).read_text()
    pattern = r"\n\s*".join(re.escape(line) for line in entry["from"].split("\n"))
    times = len(re.findall(pattern, text))
    if times != int(entry.get("times", 1)):
        sys.exit(f"{entry['where']}: '{entry['from']}' is {times} times in {entry['file']}, not {entry.get('times', 1)}")
    return re.sub(pattern, lambda _: entry["to"], text)


class Build:
    def __init__(self, folder):
        self.folder = folder
        self.known = {}

    def commands(self, target):
        if target not in self.known:
            out = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", target], capture_output=True, text=True, check=True)
            self.known[target] = [line for line in out.stdout.splitlines() if not line.startswith("ninja:")]
        return self.known[target]

    def compile_command(self, target, source):
        for line in self.commands(target):
            words = shlex.split(line)
            if "-c" in words and words[words.index("-c") + 1].endswith("/" + source):
                return words
        sys.exit(f"planted.py: {target} is not made of {source}")

    def link_command(self, target):
        line = self.commands(target)[-1]
        return [word.replace("\\$", "$") for word in shlex.split(line) if word not in (":", "&&")]  # $ORIGIN, as a shell reads it


def linked_target(entry):
    return entry.get("links", entry["program"]) + ("" if entry["flavour"] == "plain" else "_" + entry["flavour"])


def compiled(build, entry, folder):
    """The object of the file with the bug, and the path of the object it stands for."""
    source = entry.get("compile", entry["file"])
    for name in {entry["file"], source}:
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(substitute(entry) if name == entry["file"] else (ROOT / name).read_text())
    words = build.compile_command(entry.get("links", entry["program"]), source)
    for option in ("-MF", "-MT"):
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    words = [word for word in words if word not in ("-MD", "-Werror")]
    at = words.index("-o")
    before, words[at + 1] = words[at + 1], str(folder / "planted.o")
    words[words.index("-c") + 1] = str(folder / source)
    first = next(i for i, word in enumerate(words) if word.startswith("-I"))
    words[first:first] = [f"-I{folder}"]
    words += [*QUICK, *FLAVOURS[entry["flavour"]]]
    subprocess.run(words, cwd=build.folder, check=True, capture_output=True, text=True)
    return folder / "planted.o", before


def linked(build, entry, folder, planted, before):
    """The program and its environment: with the bug in itself, or in the module that it loads."""
    words = build.link_command(linked_target(entry))
    at = words.index("-o")
    words[at + 1] = str(folder / "linked")
    words.append("-Wl,--strip-debug")
    source = "/" + pathlib.PurePath(before).name
    own = [word for word in words if word == before or (entry["flavour"] != "plain" and word.endswith(source))]
    if own:  # a file of the program's own, not of an archive
        words[words.index(own[0])] = str(planted)
    else:
        words.insert(at, str(planted))
    subprocess.run(words, cwd=build.folder, check=True, capture_output=True, text=True)
    if "script" in entry:
        return None, {"MUSTER_BUILD": str(build.folder), f"MUSTER_TRAIN_{'MODULE' if 'links' in entry else 'PROGRAM'}": str(folder / "linked")}
    if "links" not in entry:
        return folder / "linked", {"MUSTER_CUDA_MODULE": str(build.folder / "tests/gpu/lib/libmuster_cuda.so")}
    return build.folder / "tests" / entry["program"], {"MUSTER_CUDA_MODULE": str(folder / "linked")}


def limited(command, seconds, environment):
    """As subprocess.run; at its limit the command ends with all that it has started."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environment, cwd=ROOT, start_new_session=True) as started:
        try:
            output, errors = started.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(command, started.returncode, output, errors)


def run(build, entry):
    """The fault of this entry; None: the bug was found as the table says. A bug that shows only in some orders of
    threads is tried as many times as its entry has runs."""
    folder, seconds = pathlib.Path(tempfile.mkdtemp(prefix="planted-", dir=build.folder)), int(entry.get("seconds", SECONDS))
    try:
        program, needs = linked(build, entry, folder, *compiled(build, entry, folder))
        environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=0", TSAN_OPTIONS="halt_on_error=1", **needs)
        environment["LD_LIBRARY_PATH"] = ":".join(str(build.folder / "tests/gpu" / path) for path in ("lib", "cudnn/fake"))
        environment.update(word.split("=", 1) for word in shlex.split(entry.get("environment", "")))
        for _ in range(int(entry.get("runs", 1))):
            command = shlex.split(entry["script"]) if "script" in entry else [program, *shlex.split(entry.get("arguments", ""))]
            done = limited(command, seconds, environment)
            if done.returncode and re.search(entry["found by"], done.stdout + done.stderr):
                break
    except subprocess.CalledProcessError as error:
        return f"does not compile or link: {error.stderr[-1500:]}"
    except subprocess.TimeoutExpired:
        return None if entry["found by"] == NO_END else f"{seconds} s and {NO_END}"
    finally:
        shutil.rmtree(folder)
    said = done.stdout + done.stderr
    if entry["found by"] == "nothing":
        return None if done.returncode == 0 else f"nothing was planted, and the program ends with {done.returncode}:\n{said[-1500:]}"
    if done.returncode == 0:
        return "NOT FOUND: the program ends well"
    if not re.search(entry["found by"], said):
        return f"found, but not by '{entry['found by']}':\n{said[-1500:]}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--build", default=os.environ.get("MUSTER_BUILD", ROOT / "build"), type=pathlib.Path)
    parser.add_argument("--all", action="store_true", help="those of tier full too")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    build = Build(options.build.resolve())
    wanted = []
    for entry in entries(options.table):
        if "equivalent" in entry:
            substitute(entry)  # it still applies
        elif (not options.names and (options.all or entry.get("tier") != "full")) or entry["name"] in options.names:
            entry.setdefault("flavour", "plain")
            for target in {entry.get("links", entry["program"]), linked_target(entry)}:
                build.commands(target)
            wanted.append(entry)
        else:
            substitute(entry)
    failures = 0

    def timed(entry):
        begun = time.monotonic()
        return run(build, entry), time.monotonic() - begun

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for entry, (wrong, seconds) in zip(wanted, pool.map(timed, wanted)):
            failures += wrong is not None
            print(f"{entry['where']}: {entry['name']}: {'found' if wrong is None else wrong} ({seconds:.1f} s)", flush=True)
    print(f"{len(wanted)} planted, {failures} wrong")
    sys.exit(failures > 0 or not wanted)


main()
