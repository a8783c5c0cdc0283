"""Libraries of tests/support that are preloaded into programs: LD_PRELOAD takes a blank in a path for a separator, and a checkout may lie in
a folder with one."""

import atexit
import functools
import os
import pathlib
import shutil
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", pathlib.Path(__file__).resolve().parents[3] / "build")).resolve()


@functools.cache
def preload(name):
    """The value of LD_PRELOAD for a library of build/tests, such as "slow_writes.so": a copy in a folder of its own. The test is skipped
    with a sanitizer, whose runtime has to be the first library."""
    if os.environ.get("MUSTER_SANITIZED"):
        raise unittest.SkipTest("a preloaded library and a sanitizer do not go together")
    folder = tempfile.mkdtemp(prefix="muster-preload-", dir="/tmp")
    os.chmod(folder, 0o755)  # programs of other users load it too
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return shutil.copy(BUILD / "tests" / name, folder)


def lingers():
    """Words before a program that step_tap starts: it stays until the tap has passed its last line on. The launcher may see the end of a
    program before the line that explains it, else. None with a sanitizer, which does not go together with a preloaded library."""
    return [] if os.environ.get("MUSTER_SANITIZED") else ["env", f"LD_PRELOAD={preload('linger.so')}"]
