"""Test cases of a job whose workers are a shell program, on simulated nodes (cluster.py)."""

import pathlib
import tempfile
import unittest

from harness.cluster import Cluster


class ShellJob(unittest.TestCase):
    """`count` nodes; `script` is the worker's program, and finds the folder `out` in $OUT."""

    count, script = 2, ""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster shell job ")  # with blanks on purpose
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.out = self.folder / "out"
        self.out.mkdir()
        self.worker = self.folder / "worker.sh"
        self.worker.write_text(self.script)
        self.worker.chmod(0o755)
        self.cluster = Cluster(self.count, self.folder)
        self.addCleanup(self.cluster.close)
