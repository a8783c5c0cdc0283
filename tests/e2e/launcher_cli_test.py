"""The command line of muster, from outside: bad usage is one clear line and a documented exit code, --dry-run and --help
print what they promise, and none of it starts anything. MUSTER_BUILD names the build tree."""

import os
import pathlib
import re
import stat
import subprocess
import tempfile
import unittest

MUSTER = os.path.join(os.environ.get("MUSTER_BUILD", "build"), "bin", "muster")
USAGE = "usage: muster run [flags] [--] program [arguments]\n"


def clean_environment(**more):
    """The environment without anything that muster reads."""
    drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|OMP_|PYTHON|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$|CUDA_VISIBLE")
    kept = {name: value for name, value in os.environ.items() if not drop.match(name)}
    kept.update(more)
    return kept


def muster(*arguments, program=MUSTER, cwd=None, **environment):
    return subprocess.run(
        [os.path.abspath(program), *arguments],
        env=clean_environment(**environment),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster cli ")
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def refused(self, exit_code, message, *arguments, usage=True, **environment):
        done = muster(*arguments, cwd=self.path, **environment)
        self.assertEqual(done.stderr, (USAGE if usage else "") + f"muster run: error: {message}\n")
        self.assertEqual(done.returncode, exit_code)
        self.assertEqual(done.stdout, "")

    def test_bad_usage_exits_2(self):
        rows = [
            ("no program was given; put the script, module or executable after the flags", ["run"]),
            ("--nproc-per-node: '0' is outside 1 to 4096 workers", ["run", "--nproc-per-node=0", "x.py"]),
            ("unknown flag --nprocs-per-node; did you mean --nproc-per-node?", ["run", "--nprocs-per-node=2", "x.py"]),
            ("--standalone takes no value, but '1' was given", ["run", "--standalone=1", "x.py"]),
            (
                "--numa-binding: not there yet; start each worker through numactl with --no-python",
                ["run", "--numa-binding=node", "x.py"],
            ),
        ]
        for message, arguments in rows:
            with self.subTest(arguments=arguments):
                self.refused(2, message, *arguments)

    def test_bad_variable_is_named(self):
        self.refused(2, "PET_MAX_RESTARTS: 'x' is not a whole number", "run", "x.py", PET_MAX_RESTARTS="x")

    def test_missing_programs_exit_127(self):
        rows = [
            ("the script 'missing.py' does not exist", ["run", "--standalone", "missing.py"]),
            ("'./missing' does not exist", ["run", "--", "./missing"]),
            ("'muster-no-such-program' was not found in PATH", ["run", "muster-no-such-program"]),
            ("'missing.py' was not found in PATH", ["run", "--no-python", "missing.py"]),
        ]
        for message, arguments in rows:
            with self.subTest(arguments=arguments):
                self.refused(127, message, *arguments, usage=False)

    def test_missing_interpreter_exits_127(self):
        (self.path / "x.py").write_text("pass\n")
        self.refused(
            127,
            "the interpreter: '/nonexistent/python' does not exist",
            "run",
            "x.py",
            usage=False,
            PYTHON_EXEC="/nonexistent/python",
        )

    def test_what_cannot_be_executed_exits_126(self):
        (self.path / "script").write_text("#!/bin/sh\ntrue\n")
        (self.path / "text").write_text("hello\n")
        self.refused(
            126, "'./script' is not executable; make it so with chmod +x", "run", "./script", usage=False
        )
        self.refused(
            126,
            "'./text' is not executable; a Python script's name ends in .py, anything else needs chmod +x",
            "run",
            "--no-python",
            "./text",
            usage=False,
        )
        (self.path / "text").chmod(stat.S_IRWXU)
        formats = set(os.listdir("/proc/sys/fs/binfmt_misc")) if os.path.isdir("/proc/sys/fs/binfmt_misc") else set()
        if not formats - {"register", "status"}:  # else the kernel may know what to do with it
            self.refused(
                126,
                "'./text' cannot be executed: it is neither ELF nor a script whose first line is #! and an interpreter",
                "run",
                "./text",
                usage=False,
            )
        self.refused(126, "'./' is a folder, not a program", "run", "--", "./", usage=False)

    def test_subcommands(self):
        done = muster("rum")
        self.assertEqual(done.stderr, "muster: error: unknown subcommand 'rum'; did you mean muster run\n")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(muster().returncode, 2)
        self.assertRegex(muster("--version").stdout, r"^muster \d+\.\d+\.\d+\n$")
        self.assertIn("  127         the program was not found\n", muster("--help").stdout)

    def test_help_lists_every_flag_of_torchrun(self):
        done = muster("run", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        flags = """standalone nnodes node-rank nproc-per-node max-restarts no-python module log-dir redirects tee role
            master-addr master-port rdzv-id dry-run shutdown-timeout join-timeout restart-grace help rdzv-backend
            rdzv-endpoint rdzv-conf monitor-interval start-method run-path event-log-handler local-ranks-filter
            duplicate-stdout-filters duplicate-stderr-filters local-addr logs-specs numa-binding signals-to-handle
            virtual-local-rank"""
        for flag in flags.split():
            self.assertRegex(done.stdout, rf"(?m)^  (-., )?--{flag}\b", flag)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 110)

    def test_a_link_named_torchrun_is_muster_run(self):
        link = self.path / "torchrun"
        link.symlink_to(os.path.abspath(MUSTER))
        done = muster("--nproc-per-node=0", "x.py", program=str(link))
        self.assertEqual(done.returncode, 2)
        self.assertIn("torchrun: error: --nproc-per-node: '0'", done.stderr)

    def test_dry_run_prints_and_starts_nothing(self):
        (self.path / "train.py").write_text("open('started', 'w')\n")
        done = muster(
            "run", "--standalone", "--nproc_per_node=2", "--max-restarts=3", "--dry-run", "--log-dir=logs", "--tee=3",
            "train.py", "--n", "$local_rank", "it's", cwd=self.path,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("worker 1 (local rank 1)\n  python3 -u train.py --n 1 'it'\\''s'\n", done.stdout)
        for line in ("RANK=1", "WORLD_SIZE=2", "TORCHELASTIC_MAX_RESTARTS=3", "TORCHELASTIC_USE_AGENT_STORE=True"):
            self.assertIn(f"    {line}\n", done.stdout)
        self.assertEqual(sorted(os.listdir(self.path)), ["train.py"])

    def test_a_pytorchjob_needs_no_flags(self):
        (self.path / "train").write_text("#!/bin/sh\n")
        (self.path / "train").chmod(stat.S_IRWXU)
        done = muster(
            "run", "--dry-run", "./train", cwd=self.path,
            PET_NNODES="2", PET_NODE_RANK="1", PET_NPROC_PER_NODE="1", PET_MASTER_ADDR="job-master-0",
            PET_MASTER_PORT="23456",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("worker 1 (local rank 0)\n  ./train\n", done.stdout)
        self.assertIn("    MASTER_ADDR=job-master-0\n", done.stdout)
        self.assertIn("muster: from the environment: PET_NNODES=2 PET_NODE_RANK=1", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
