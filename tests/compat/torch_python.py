"""Finds the interpreter that has PyTorch, for every test of this folder.

MUSTER_TORCH_PYTHON, else .venv/bin/python in the source tree. Where torch cannot be imported the test is skipped: exit
status 77 after one line that says why.
"""
import atexit
import ctypes
import gc
import importlib.util
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from harness.ports import free_port  # noqa: E402, F401: for the tests

SKIPPED = 77
os.environ["TESTS_COLLECT_RARELY"] = "1"  # for scripts that are started from here; ./dev's .venv reads it
# Read when libgomp is loaded. By default a thread that waits for another one spins, and where twelve tests run on two processors the
# other is seldom there: of the small classifier's test that was 8 of 13 s of a processor.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
GLOO_ABORT = "terminate called without an active exception"  # see undisturbed()


def source():
    return os.environ.get("MUSTER_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def build():
    path = os.environ.get("MUSTER_BUILD")
    if not path:
        sys.exit("MUSTER_BUILD is not set: run this through ctest, or set it to the build directory")
    return path


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(SKIPPED)


def undisturbed(attempt, said, folder=None):
    """The result of attempt(), with said(it) the text that its processes wrote; it fills folder.

    A gloo thread of PyTorch outlives destroy_process_group, and where it lets go of a tensor only after the interpreter has begun
    to end, which needs a busy machine, it takes the process down with it (seen with PyTorch 2.13). An attempt in which that is said is
    no answer about muster and is made again."""
    for _ in range(5):
        done = attempt()
        if GLOO_ABORT not in said(done):
            break
        print("a gloo thread ended its process behind the script: once more", flush=True)
        for path in folder.iterdir() if folder else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return done


def run(command, folder=None, **options):
    """subprocess.run without input and with text for output, undisturbed; the command fills folder."""
    return undisturbed(
        lambda: subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options),
        lambda done: done.stdout + done.stderr,
        folder,
    )


def bytes_of(tensor):
    """Its elements in order. bytes() of a storage would ask for them one by one: a second for a million."""
    whole = tensor.detach().contiguous()
    return ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size()) if whole.numel() else b""


def require_transformers():
    """After require(). Without transformers the test is skipped, and in CI it fails; nothing is asked of a hub."""
    if importlib.util.find_spec("transformers") is None:
        if os.environ.get("CI") == "true":
            sys.exit("transformers is not there, and in CI this test must run")
        skip(f"{sys.executable} has no transformers")
    os.environ["HF_HUB_OFFLINE"] = "1"


def require(load=True):
    """Returns the torch module, without its compiler; runs the program again under the right interpreter where this is another one.
    With load=False it only has to be there: a program whose workers alone use it saves two seconds of a processor."""
    wanted = os.environ.get("MUSTER_TORCH_PYTHON") or os.path.join(source(), ".venv", "bin", "python")
    if not os.environ.get("MUSTER_TORCH_PYTHON_FOUND"):
        if not os.access(wanted, os.X_OK):
            skip(f"no PyTorch: MUSTER_TORCH_PYTHON is not set and {wanted} cannot be run")
        os.environ["MUSTER_TORCH_PYTHON_FOUND"] = wanted
        os.execv(wanted, [wanted, *sys.argv])
    if not load:
        if importlib.util.find_spec("torch") is None:
            skip(f"{wanted} has no torch")
        return None
    # An import leaves no garbage, but much for the collector to look at: then, and when the interpreter ends, where it takes as long again.
    gc.set_threshold(1_000_000, 20, 20)
    atexit.register(gc.freeze)
    try:
        import torch
    except ImportError as error:
        skip(f"{wanted} cannot import torch: {error}")
    gc.freeze()
    import without_compiler  # which imports torch: only now is it known to be there

    without_compiler.leave_out()
    return torch
