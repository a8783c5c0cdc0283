"""packages/glibc.py on small programs: its changes, and its refusals by name.

    MUSTER_BUILD=build python3 tests/e2e/packages/glibc_test.py"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from bundle_test import GLIBC_LIMIT, SOURCE, needed, newer_than_the_limit, symbol_versions, versions_of_symbols, without_version

THREADS = """#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
static void *run(void *argument) { return argument; }
int main(int count, char **arguments)
{
    pthread_t thread;
    void *result = 0;
    (void)arguments;
    if (pthread_create(&thread, 0, run, &thread) || pthread_join(thread, &result) || result != &thread || !dlopen("libm.so.6", RTLD_NOW))
        return 1;
    return printf("%.3f\\n", exp(count) + pow(count + 1, 3)) > 0 ? 0 : 2;
}
"""


class Glibc(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster glibc ")
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name) / "a program"

    def compile(self, text, *flags):
        subprocess.run(["gcc", "-D_GNU_SOURCE", "-fno-builtin", "-x", "c", "-o", self.program, "-", *flags], input=text, text=True, check=True)

    def change(self, *flags):
        done = subprocess.run([sys.executable, SOURCE / "packages/glibc.py", *flags, self.program], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_what_moved_is_asked_for_as_before(self):
        self.compile(THREADS, "-lm")
        self.assertGreater(max(symbol_versions(self.program)), GLIBC_LIMIT)
        status, told = self.change("--check")
        self.assertEqual((status, "GLIBC_2.34" in told), (1, True), told)
        self.assertEqual(self.change(), (0, ""))
        self.assertLessEqual(max(symbol_versions(self.program)), GLIBC_LIMIT)
        self.assertLessEqual({"pthread_create", "dlopen", "exp", "pow", "__libc_start_main"}, without_version(self.program))
        self.assertEqual(newer_than_the_limit(self.program, versions_of_symbols()), [])
        self.assertLessEqual({"libpthread.so.0", "libdl.so.2", "libm.so.6"}, needed(self.program))
        self.assertEqual(subprocess.run([self.program], capture_output=True, text=True, check=True).stdout, "10.718\n")
        bytes_before = self.program.read_bytes()
        self.assertEqual(self.change("--check"), (0, ""))
        self.assertEqual(self.change(), (0, ""))
        self.assertEqual(self.program.read_bytes(), bytes_before)

    def test_what_is_only_newer_is_refused_by_name(self):
        self.compile("#include <unistd.h>\n#include <stdlib.h>\nint main(void) { return close_range(9, 9, 0) + (int)arc4random(); }\n")
        bytes_before = self.program.read_bytes()
        status, told = self.change()
        self.assertEqual(status, 1)
        self.assertIn("arc4random (GLIBC_2.36), close_range (GLIBC_2.34)", told)
        self.assertEqual(self.program.read_bytes(), bytes_before)

    def test_a_format_that_old_loaders_lack_is_refused(self):
        self.compile(THREADS, "-lm", "-Wl,-z,pack-relative-relocs")
        status, told = self.change()
        self.assertEqual((status, "GLIBC_ABI_DT_RELR" in told), (1, True), told)

    def test_no_program_is_an_error(self):
        self.program.write_text("#!/bin/sh\n")
        status, told = self.change()
        self.assertEqual((status, "is no 64-bit ELF file" in told), (1, True), told)


if __name__ == "__main__":
    unittest.main(verbosity=2)
