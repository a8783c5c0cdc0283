#!/usr/bin/env python3
"""The gate that is cheap and total (layers.py has the layers): banned calls, headers that stand alone, exported symbols, sizes, tour.

lint.py CHECK --source DIR --build DIR        CHECK: calls | headers | symbols | linking | sizes | docs | flags
Each check prints its subject and exits 1 with one line per breach.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

import layers

CODE = ("proto", "rendezvous", "kernels", "runtime", "trainer", "launcher")

# call -> (where it is allowed, why not elsewhere)
BANNED = {
    r"\b(?:sprintf|strcpy|strcat|gets|strtok|atoi|atol|atof)\s*\(": (None, "unbounded or unchecked"),
    r"\bclock_gettime\s*\(": (r"^proto/(base/clock|glibc/earlier)\.c$", "time comes from proto/base/clock.h"),
    r"\bclock_wall_ns\s*\(": (
        r"^(proto/base/clock\.[ch]|launcher/(main|host/(describe_host|machine)|output/(pump|pump_format|output_file)|verdict/failure_files|board/board_json|commands/(top_command|board_source)|agent/(agent_(events|start|processes|outcome|membership|failures)|failures/failures_records|board/agent_board))\.c|runtime/nccl/read/reader_disk\.c|trainer/(report/\w+|run/(trace|sample_log|place))\.c)$",
        "the wall clock may be set by hours: it is for people, and decides nothing"),
    r"(?<![>.])\btime\s*\(\s*NULL|\bCLOCK_REALTIME\b": (r"^(proto/(base/clock|glibc/earlier)|launcher/process/agent_mark)\.c$", "the wall clock may be set: proto/base/clock.h"),
    r"\b(?:pthread_timedjoin_np|pthread_mutex_timedlock|sem_timedwait)\s*\(": (None, "waits for the wall clock, which may be set back by hours"),
    r"\b(?:gettimeofday|usleep|sleep|nanosleep)\s*\(": (None, "no polling: wait on a descriptor, a futex or a deadline"),
    r"(?<![>.])\b(?:exit|abort|_exit|quick_exit)\s*\(": (
        r"^(proto/processor/start\.c|launcher/main\.c|launcher/(process/(spawn|guardian)|warm/warm_keeper|host/isolated_call|local/run/pod_isolation)\w*\.c|trainer/run/(muster_train|command/start)\.c)$", "libraries never end the process"),
    r"\b(?:printf|puts|perror|putchar)\s*\(": (r"^(launcher/main\.c|trainer/run/(?:command/)?(?!batches|progress|observers|stop|place|sample_log)\w+\.c)$", "libraries never print"),
    r"\bfprintf\s*\(\s*std(?:err|out)": (r"^(launcher/main\.c|trainer/run/(?:command/)?(?!batches|progress|observers|stop|place|sample_log)\w+\.c)$", "libraries never print"),
    r"\b(?:malloc|calloc|realloc|strdup|strndup|asprintf)\s*\(": (r"^proto/base/mem\.c$", "memory comes from proto/base/mem.h"),
    r"\bpthread_create\s*\(": (r"^proto/base/thread\.c$", "a thread of proto/base/thread.h takes no signals"),
    r"\bsystem\s*\(|\bpopen\s*\(": (None, "no shell"),
    r"\bsignal\s*\(\s*SIG": (None, "sigaction says what it does"),
    r"\bmktemp\s*\(|\btmpnam\s*\(": (None, "racy"),
    r"\brand\s*\(|\brandom\s*\(": (None, "randomness is passed in"),
    r"\bcblas_\w+\s*\(|\bopenblas_\w+\s*\(": (r"^kernels/cpu/", "only kernels call BLAS, and only the compute thread calls kernels"),
    r"#\s*pragma\s+omp|\bomp_\w+\s*\(": (r"^kernels/cpu/", "only the compute-stream thread may enter OpenMP"),
    r"\bzmq_\w+\s*\(": (r"^rendezvous/", "only rendezvous speaks ZeroMQ"),
    r"\bO_TRUNC\b": (None, "follows a link that another user planted: io_create_new or io_create_beside of proto/base/io.h"),
    r"\b(?:TODO|FIXME|XXX)\b": (None, "finish it or file it"),
}
# libraries that a program of ours must not be linked with
LINKING = {
    "bin/muster": ["cuda", "nccl", "blas", "gomp", "yaml", "zmq", "libm."],  # zmq is loaded with the first socket
    "bin/muster-train": ["zmq", "protobuf", "sodium", "cuda", "nccl", "cublas"],
    "lib/libmuster.so": ["zmq", "protobuf", "sodium", "cuda", "nccl", "cublas"],
}
FILE_LIMIT, FUNCTION_LIMIT = 800, 150
WITHOUT_README = {"proto/base", "proto/include", "proto/json", "proto/nvml", "proto/processor", "proto/tree", "proto/world", "runtime/include"}  # the folder above describes them
CELL_LIMIT = 100  # characters of a table's cell in any document: a longer text is a list
LINES_LIMIT = {"README.md": 250, "benchmarks/README.md": 150}


def sources(root, *suffixes, folders=CODE):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path


def name_of(root, path):
    return path.relative_to(root).as_posix()


def without_comments_and_strings(text):
    """Same line structure, comments and the insides of strings blanked."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def check_calls(root, build):
    breaches, count = [], 0
    for path in sources(root, ".c", ".h", ".cu"):
        name = name_of(root, path)
        count += 1
        text = path.read_text()
        code = without_comments_and_strings(text)
        for pattern, (allowed, why) in BANNED.items():
            if allowed and re.match(allowed, name):
                continue
            where = text if "TODO" in pattern else code
            for match in re.finditer(pattern, where):
                number = where.count("\n", 0, match.start()) + 1
                breaches.append(f"{name}:{number}: {match.group().strip()} ...: {why}")
    print(f"{count} files looked at for {len(BANNED)} kinds of banned calls")
    return breaches


def cuda_includes(build):
    """Where CUDA's headers are; empty where the build found none (cmake/MusterCudaHeaders.cmake)."""
    path = build / "cuda_includes.txt"
    return path.read_text().splitlines() if path.exists() else []


def compile_headers(names, language, root, build):
    """The first line of the compiler's errors about them in one unit; "" where it takes them."""
    command = {"c": ["cc", "-std=gnu11", "-Wstrict-prototypes"], "c++": ["c++", "-std=c++2b"]}[language]
    flags = ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{root}", f"-isystem{build}/rendezvous/wire/generated", f"-I{build}/proto",
             "-fsyntax-only", *(f"-isystem{folder}" for folder in cuda_includes(build))]
    unit = "".join(f'#include "{name}"\n' for name in names) + "extern int nothing;\n"
    run = subprocess.run([*command, *flags, "-x", language, "-"], input=unit, text=True, capture_output=True)
    return run.stderr.strip().splitlines()[0] if run.returncode else ""


def first_includes(build):
    """The headers that a source of the build includes before anything else: the build has compiled them alone, as C."""
    found = set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].endswith(".c"):
            match = re.search(r"^[ \t]*#[ \t]*include\s+(\S+)", pathlib.Path(entry["file"]).read_text(errors="replace"), re.M)
            found |= {match[1].strip('"')} if match else set()
    return found


def check_headers(root, build):
    """As C each header alone; as C++, which needs the same includes, a folder's headers in one unit, and apart where that has an error."""
    cuda, checked = cuda_includes(build), []
    for path in [*sources(root, ".h"), *sources(root, ".h", folders=("tests/support",))]:
        name, text = name_of(root, path), path.read_text()
        if "one header, included several times" in text:  # a table that is meant to be included with macros set
            continue
        if not cuda and re.search(r"#\s*include <(?:cuda|nccl|cublas|cudnn)", text):
            print(f"{name} is left out: there are no CUDA headers here")
            continue
        checked.append(name)
    built, folders = first_includes(build), {}
    for name in checked:
        folders.setdefault(name.rsplit("/", 1)[0], []).append(name)
    alone = {"c": [name for name in checked if name not in built],
             "c++": [name for names in folders.values() if compile_headers(names, "c++", root, build) for name in names]}
    breaches = []
    for language, names in alone.items():
        said = {name: compile_headers([name], language, root, build) for name in names}
        breaches += [f"{name} does not compile alone as {language}: {line}" for name, line in said.items() if line]
    print(f"{len(checked)} headers: {len(checked) - len(alone['c'])} the first of a source of this build, {len(alone['c'])} compiled alone; "
          f"as C++ {len(alone['c++'])} alone, the others with their folders'")
    return breaches


def defined_symbols(path, *flags):
    run = subprocess.run(["nm", *flags, "--defined-only", str(path)], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in run.stdout.splitlines() if len(line.split()) == 3]


def check_symbols(root, build):
    library = build / "lib" / "libmuster.so"
    if not library.exists():
        return [f"{library.name} was not built"]
    exported = [s.split("@")[0] for s in defined_symbols(library, "-D")]
    sanitizer = re.compile(r"^(__asan|__ubsan|__tsan|__lsan|__sanitizer|__odr_asan)")
    own = [s for s in exported if not sanitizer.match(s)]
    print(f"{len(own)} symbols are exported by libmuster.so")
    breaches = [f"libmuster.so exports {s}: only muster_* is public" for s in own if not s.startswith("muster_")]
    public = "".join(path.read_text() for path in sorted((root / "runtime/include").glob("*.h")))
    breaches += [f"libmuster.so exports {s}, which no header of runtime/include declares" for s in own if not re.search(rf"\b{s}\(", public)]
    declared = set(re.findall(r"\b(muster_\w+)\(", "".join(re.findall(r"^MUSTER_API [^;]*;", public, re.M))))
    breaches += [f"a header of runtime/include declares {s}, which libmuster.so does not export" for s in sorted(declared - set(own))]
    return breaches


def search_paths(build):
    """[(file, its RPATH or RUNPATH)] of every program and library that was built."""
    files = [path for path in sorted(build.rglob("*")) if "CMakeFiles" not in path.parts and path.is_file() and not path.is_symlink()
             and (".so" in path.name or os.access(path, os.X_OK)) and path.open("rb").read(4) == b"\x7fELF"]
    found, name = [], ""
    for start in range(0, len(files), 100):
        text = subprocess.run(["readelf", "-dW", *map(str, files[start:start + 100])], capture_output=True, text=True, check=False).stdout
        for line in text.splitlines():
            if line.startswith("File: "):
                name = line[len("File: "):]
            elif match := re.search(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", line):
                found.append((pathlib.Path(name).relative_to(build).as_posix(), match[1]))
    return found


def check_linking(root, build):
    breaches, looked = [], 0
    for program, forbidden in LINKING.items():
        path = build / program
        if not path.exists():
            breaches.append(f"{program} was not built")
            continue
        looked += 1
        libraries = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
        for word in forbidden:
            for line in libraries.splitlines():
                if word in line.split("=>")[0]:
                    breaches.append(f"{program} is linked with {line.split()[0]}")
    print(f"{looked} programs looked at with ldd")
    paths = search_paths(build)
    breaches += [f"{name} searches libraries in {part!r} ({path}): an absolute folder or one that begins with $ORIGIN"
                 for name, path in paths for part in path.split(":") if part != "$ORIGIN" and not part.startswith(("/", "$ORIGIN/"))]
    print(f"{len(paths)} search paths of programs and libraries looked at")
    return breaches


def functions(text):
    """(name, first line, length) of the function bodies of clang-formatted C."""
    lines = text.splitlines()
    start = None
    for number, line in enumerate(lines):
        if line == "{" and number:
            start = number
        elif line.startswith("}") and start is not None:
            head = start - 1
            while head > 0 and lines[head - 1] and lines[head - 1][0] not in "}#/ *":
                head -= 1
            name = re.search(r"(\w+)\(", " ".join(lines[head:start]))
            yield (name.group(1) if name else "?", head + 1, number - head + 1)
            start = None


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


def check_sizes(root, build):
    breaches = []
    print(f"{'folder':<12}{'files':>6}{'lines':>8}{'file p50':>9}{'p95':>6}{'functions':>11}{'p50':>5}{'p95':>5}{'max':>5}")
    for folder in CODE + ("tests", "benchmarks"):
        files, spans = [], []
        for path in sources(root, ".c", ".cu", folders=(folder,)):
            text = path.read_text()
            name, length = name_of(root, path), text.count("\n")
            files.append(length)
            if length > FILE_LIMIT:
                breaches.append(f"{name}: {length} lines; over {FILE_LIMIT} it is a folder trying to be a file")
            for function, line, span in functions(text):
                spans.append(span)
                if span > FUNCTION_LIMIT:
                    breaches.append(f"{name}:{line}: {function} has {span} lines; the limit is {FUNCTION_LIMIT}")
        print(f"{folder:<12}{len(files):>6}{sum(files):>8}{percentile(files, .5):>9}{percentile(files, .95):>6}{len(spans):>11}"
              f"{percentile(spans, .5):>5}{percentile(spans, .95):>5}{max(spans, default=0):>5}")
    return breaches


def check_docs(root, build):
    breaches = []
    lines = layers.readme_lines(layers.read_table(build)[0])
    folders = sorted({*CODE, *lines, "k8s", "benchmarks", "tests", "tests/lint", "tests/fuzz", "kernels/cuda"} - WITHOUT_README)
    for folder in folders:
        if not (root / folder / "README.md").is_file():
            breaches.append(f"{folder}/README.md is missing")
        elif folder in lines and lines[folder] not in (root / folder / "README.md").read_text().splitlines():
            breaches.append(f"{folder}/README.md does not name its callers and the folders that it uses as the build has them: "
                            "ninja -C build readmes writes that line")
    documents = [root / "README.md", *(path for folder in sorted({*CODE, "benchmarks", "examples", "k8s", "packages", "python", "tests"})
                                       for path in sorted((root / folder).rglob("*.md")))]
    for document in documents:
        for number, line in enumerate(document.read_text().splitlines(), 1):
            cells = re.split(r"(?<!\\)\|", line.strip())[1:-1] if line.lstrip().startswith("|") else []
            breaches += [f"{name_of(root, document)}:{number}: a cell of {len(cell.strip())} characters; the limit is {CELL_LIMIT}: make it a list"
                         for cell in cells if len(cell.strip()) > CELL_LIMIT]
    print(f"{len(documents)} documents are looked at for cells of over {CELL_LIMIT} characters")
    for name, most in LINES_LIMIT.items():
        lines = (root / name).read_text().count("\n")
        breaches += [f"{name} has {lines} lines; the limit is {most}: move text to docs/ of its part"] if lines > most else []
    named = 0
    for readme in [root / "README.md", *root.glob("*/README.md"), *root.glob("*/*/README.md"), root / "launcher/docs/how_it_works.md"]:
        if "build" in readme.relative_to(root).parts[0] or not readme.is_file():
            continue
        base = readme.parent
        for target in re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:c|h|py|md|proto|cmake|yaml|cu|sh))`", readme.read_text()):
            if "NAME" in target:  # a pattern, not a file
                continue
            named += 1
            if not ((base / target).exists() or (root / target).exists() or list(root.glob(f"*/{target}")) or
                    list(base.rglob(target))):
                breaches.append(f"{name_of(root, readme)} names {target}, which is not there")
    for path in sources(root, ".c", ".h", ".cu", folders=CODE + ("tests", "benchmarks")):
        if not path.read_text().lstrip().startswith("/*"):
            breaches.append(f"{name_of(root, path)} does not open with a comment that says what it is for")
    print(f"{len(folders)} folders have a README; {named} files named in them exist")
    return breaches


def check_measured(root, build):
    """README's measured table and the charts are what benchmarks/results says."""
    run = subprocess.run([sys.executable, str(root / "benchmarks/support/report.py"), "--check"], capture_output=True, text=True)
    print(f"{len(list((root / 'benchmarks/results').glob('*.json')))} files of results")
    return (run.stdout + run.stderr).splitlines() if run.returncode else []


def check_flags(root, build):
    breaches = []
    documents = {"launcher/docs/FLAGS.md": ("muster", "run", "--output=markdown", "--help"),
                 "launcher/local/FLAGS.md": ("muster", "local", "--output=markdown", "--help"),
                 "trainer/docs/SETTINGS.md": ("muster-train", "--settings"), "trainer/docs/KEYS.md": ("muster-train", "--keys")}
    for name, (program, *words) in documents.items():
        table, call = root / name, [str(build / "bin" / program), *words]
        printed = subprocess.run(call, capture_output=True, text=True, check=True).stdout
        print(f"{len(re.findall('^- `', printed, re.M))} rows of {name} are printed")
        if printed != table.read_text():
            breaches.append(f"{name_of(root, table)} is not what the program prints: ninja -C build flags writes it")
    subcommands = re.findall(r"^  ([\w-]+) +\S", help_of(build, "muster"), re.M)
    helps = [("muster",), ("muster-train",), *(("muster", word) for word in subcommands),
             *(("muster-train", word) for word in ("eval", "generate", "prepare", "preprocess", "quantize"))]
    for words in helps:
        breaches += [f"{' '.join(words)} --help names {path}, which no installation has" for path in
                     re.findall(r"\b(?:launcher|trainer|runtime|tests|benchmarks|k8s|proto)/[\w./-]+", help_of(build, *words))]
    print(f"{len(helps)} texts of --help are looked at for paths of the sources")
    return breaches


def help_of(build, program, *words):
    return subprocess.run([str(build / "bin" / program), *words, "--help"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def check_complaints(root, build):
    page, breaches, named = root / "launcher" / "docs" / "complaints.md", [], 0
    text = page.read_text().partition("\n## Not for a launcher")[0]
    for item in re.finditer(r"^- .*(?:\n  .*)*", text, re.M):
        number, tests = text.count("\n", 0, item.start()) + 1, re.findall(r"`([\w/.]+)::(\w+)`", item.group())
        if "\n  *muster*: " not in item.group():
            breaches.append(f"{name_of(root, page)}:{number}: an item has a line that begins with *muster*: and what muster does")
        if bool(tests) == ("*not yet*" in item.group()):
            breaches.append(f"{name_of(root, page)}:{number}: an item names its tests or says *not yet*")
        for file, test in tests:
            path, named = root / "tests" / file, named + 1
            opening = rf"def {test}\(" if path.suffix == ".py" else rf"static void {test}\("
            if not path.exists() or not re.search(opening, path.read_text()):
                breaches.append(f"{name_of(root, page)}:{number}: there is no test {file}::{test}")
    if not named:
        breaches.append(f"{name_of(root, page)} names no test")
    print(f"{named} tests are named")
    return breaches


def main():
    checks = {name[6:]: function for name, function in globals().items() if name.startswith("check_")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=sorted(checks))
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options = parser.parse_args()
    breaches = checks[options.check](options.source.resolve(), options.build.resolve())
    for breach in breaches:
        print(breach)
    print(f"lint {options.check}: {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
