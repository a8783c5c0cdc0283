"""store_cases_test.py and process_groups_test.py with the oldest and the newest PyTorch that this machine's Python can have, and one between.

    MUSTER_BUILD=build python3 tests/compat/store/store_versions_test.py [SPEC ...]

Each version gets a virtual environment in MUSTER_TORCH_VENVS, else torch-versions/ of the build directory; it is kept and used again.
A version that cannot be installed (no wheel for this Python, no index, no room) is skipped with the reason, and the test is skipped where
that is so for all."""
import os
import shutil
import subprocess
import sys

SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))
# 2.1 numbers its queries differently; with 2.4 the libuv server became the default
SPECS = ("2.1.*", "2.4.*", "newest")
ROOM = 15 << 30  # a wheel for GPUs needs several gigabytes with its dependencies


class Skip(Exception):
    pass


def folder():
    build = os.environ.get("MUSTER_BUILD")
    if not build:
        sys.exit("MUSTER_BUILD is not set: run this through ctest, or set it to the build directory")
    return os.environ.get("MUSTER_TORCH_VENVS") or os.path.join(build, "torch-versions")


def last_line(done):
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1] if lines else f"status {done.returncode}"


def imports(python):
    return subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)


def environment_of(spec):
    """The interpreter of a virtual environment with this torch."""
    path = os.path.join(folder(), spec.replace(".*", ""))
    python = os.path.join(path, "bin", "python")
    if os.access(python, os.X_OK) and imports(python).returncode == 0:
        return python
    os.makedirs(folder(), exist_ok=True)
    free = shutil.disk_usage(folder()).free
    if free < ROOM:
        raise Skip(f"{free >> 30} GiB are free in {folder()}, and an installation wants {ROOM >> 30}")
    shutil.rmtree(path, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", path], capture_output=True, text=True)
    if made.returncode:
        raise Skip(f"no virtual environment: {last_line(made)}")
    wanted = ["torch", "numpy"] if spec == "newest" else [f"torch=={spec}", "numpy<2"]
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile", *wanted, "setuptools"], capture_output=True, text=True
    )
    tried = imports(python)
    if installed.returncode or tried.returncode:
        shutil.rmtree(path, ignore_errors=True)
        raise Skip(last_line(installed if installed.returncode else tried))
    return python


def main():
    ran, failed = 0, []
    for spec in sys.argv[1:] or SPECS:
        try:
            python = environment_of(spec)
        except Skip as why:
            print(f"skipped: torch {spec}: {why}", flush=True)
            continue
        ran += 1
        environment = dict(os.environ, MUSTER_TORCH_PYTHON=python, TORCH_CPP_LOG_LEVEL="FATAL")
        environment.pop("MUSTER_TORCH_PYTHON_FOUND", None)
        for program, *arguments in (("store_cases_test.py",), ("../process_groups_test.py", "8")):
            done = subprocess.run([python, os.path.join(HERE, program), *arguments], env=environment, capture_output=True, text=True)
            print(done.stdout, end="", flush=True)
            if done.returncode:
                print(done.stderr, flush=True)
                failed.append(f"{spec} in {program} (exit status {done.returncode})")
    print(f"{ran} versions ran" + (f"; failed: {', '.join(failed)}" if failed else ""), flush=True)
    return 1 if failed else 0 if ran else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
