"""build_types.py --source DIR --build DIR - the build types that no other test makes: CMake's Debug and MinSizeRel.

Each is compiled whole (another level of optimisation brings other warnings, which are errors), into a folder below the build that is
removed after it. Then the lint of the libraries, asserts that are on, and two workers under `muster run`. Slow tier."""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile


def tail_of(text):
    wanted = [line for line in text.splitlines() if re.search(r"error|FAILED|undefined|cannot", line)]
    return "\n".join(wanted[:20] or text.splitlines()[-20:])


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{tail_of(done.stdout + done.stderr)}")
    return done.stdout


def try_type(source, folder, name):
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_BUILD_TYPE={name}", cwd=source)
    run("ninja", "--quiet", "-C", folder, cwd=source)
    run(sys.executable, source / "tests/lint/lint.py", "linking", "--source", source, "--build", folder, cwd=source)
    for program in ("muster", "muster-train"):
        if "__assert_fail" not in run("nm", "--dynamic", "--undefined-only", folder / "bin" / program, cwd=source):
            raise RuntimeError(f"{program} has no assert left: they guard what holds at all times and are on in every build")
    out = run(folder / "bin/muster", "run", "--standalone", "--nproc_per_node=2", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE", cwd=folder)
    if sorted(re.findall("rank . of .", out)) != ["rank 0 of 2", "rank 1 of 2"]:
        raise RuntimeError(f"two workers under muster run wrote:\n{out}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options = parser.parse_args()
    source, build = options.source.resolve(), options.build.resolve()
    failed = 0
    for name in ("Debug", "MinSizeRel"):
        with tempfile.TemporaryDirectory(prefix=f"type-{name}-", dir=build) as folder:
            try:
                try_type(source, pathlib.Path(folder), name)
                print(f"{name}: fine", flush=True)
            except RuntimeError as error:
                failed = 1
                print(f"FAILED: {name}: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
