#!/usr/bin/env python3
"""A program that is refused a thread, as in a pod whose pids.max is reached: each thread that muster or muster-train starts itself, one
after the other, and all after it (tests/support/no_thread.c).

Either it can do without, and the result is the same to the bit; or it ends at once with an error that names the thread and the limits.
No rank waits for such an ended rank."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness.ports import free_port  # noqa: E402
from harness.preload import preload  # noqa: E402

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"]).resolve()
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
LIMIT = 120  # for any run, against a hang
MOST = 40  # threads of a program: the sweep has to come to an end
REASON = r"cannot start .*: Resource temporarily unavailable \((no readable cgroup sets pids\.max|the cgroup's pids\.max is \d+, and \d+ are in use); ulimit -u is (\d+|unlimited)\)"
TEXT = "to be or not to be, that is the question: whether it is nobler in the mind to suffer\n" * 60


class NoThread(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster no thread ")
        self.addCleanup(scratch.cleanup)
        self.base = pathlib.Path(scratch.name)
        (self.base / "text").write_text(TEXT)

    def config(self, folder):
        folder.mkdir()
        (folder / "run.yaml").write_text(json.dumps({
            "training": {"steps": 4, "global_batch": 4, "micro_batch": 2, "sequence_length": 16, "threads": 2, "checkpoint_every": 2, "checkpoint_keep": 9,
                         "checkpoint_dir": str(folder / "ck"), "output": str(folder / "model"), "evaluate_every": 2},
            "model": {"layers": 1, "channels": 16, "heads": 2, "positions": 16},
            "data": {"path": str(self.base / "text"), "validation_path": str(self.base / "text")},
            "logging": {"json": str(folder / "log"), "interval": 1}}))

    def run_refused(self, command, cwd, refused):
        """Exit code, output, and whether a thread was refused."""
        mark = cwd / "refused"
        environment = os.environ | {"LD_PRELOAD": preload("no_thread.so"), "NO_THREAD": refused, "NO_THREAD_MARK": str(mark)}
        try:
            done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT)
        except subprocess.TimeoutExpired as late:
            self.fail(f"{refused}: not over after {LIMIT} s:\n{(late.stdout or b'').decode(errors='replace')[-3000:]}")
        return done.returncode, done.stdout, mark.exists()

    def sweep(self, program, command, check):
        """The N-th thread of program, until no run asks for so many. Returns how many ended with the error, and how many did without."""
        ended = without = 0
        for number in range(1, MOST):
            folder = self.base / f"{program} {number}"
            check.prepare(folder)
            code, said, refused = self.run_refused(command, folder, f"{program}:{number}")
            if not refused:
                self.assertEqual(code, 0, said)
                check.same(folder, said)
                return ended, without
            with self.subTest(thread=number):
                self.assertGreaterEqual(code, 0, f"killed by signal {-code}:\n{said}")
                if code == 0:
                    without += 1
                    check.same(folder, said)
                else:
                    ended += 1
                    self.assertRegex(said, REASON)
        self.fail(f"{program} asks for more than {MOST} threads")


class Training:
    """Files that a run of muster-train has to leave."""
    wanted = None

    def __init__(self, test):
        self.test = test

    def prepare(self, folder):
        self.test.config(folder)

    def same(self, folder, said):
        model = (folder / "model").read_bytes()
        self.wanted = self.wanted or model
        self.test.assertEqual(model, self.wanted, said)


class Words:
    """Two workers and their output."""

    def __init__(self, test):
        self.test = test

    def prepare(self, folder):
        folder.mkdir()

    def same(self, folder, said):
        for rank in range(2):
            self.test.assertIn(f"rank {rank} of 2", said)


class Trainer(NoThread):
    def test_alone(self):
        ended, without = self.sweep("muster-train", [TRAIN, "run.yaml"], Training(self))
        self.assertGreater(ended, 3)
        print(f"muster-train: {ended} threads without which it ends, {without} that it can do without", file=sys.stderr)

    def test_two_ranks(self):
        command = [MUSTER, "run", "--standalone", "--nproc_per_node=2", "--", TRAIN, "run.yaml"]
        ended, without = self.sweep("muster-train", command, Training(self))
        self.assertGreater(ended, 3)
        print(f"two ranks: {ended} threads without which they end, {without} that they can do without", file=sys.stderr)

    def test_one_rank_of_two(self):
        alone = 'if [ "$RANK" = 0 ]; then unset NO_THREAD; fi; exec "$0" "$@"'
        command = [MUSTER, "run", "--standalone", "--nproc_per_node=2", "--", "sh", "-c", alone, TRAIN, "run.yaml"]
        ended, _ = self.sweep("muster-train", command, Training(self))
        self.assertGreater(ended, 3)


class AddressSpace(NoThread):
    """Under ulimit -v: done, or an error that names the limit. OpenBLAS would try for ever, and oneDNN crash."""

    def limited(self, kib, *command, before=(), only="true"):
        """The command where the shell's condition `only` holds is limited."""
        script = f'if {only}; then ulimit -v {kib}; fi; exec "$0" "$@"'
        return subprocess.run([*before, "sh", "-c", script, *command], cwd=self.base / "limited", env=os.environ | {"OMP_NUM_THREADS": "1"},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT)

    def test_every_limit_is_named(self):
        self.config(self.base / "limited")
        train, said = (TRAIN, "run.yaml", "--set", "training.threads=1"), {}
        for kib in (150_000, *range(200_000, 560_000, 60_000), 4_000_000):
            with self.subTest(kib=kib):
                done = self.limited(kib, *train)
                said[kib] = done.stdout
                if done.returncode:
                    self.assertEqual(done.returncode, 138, done.stdout)
                    self.assertRegex(done.stdout, r"muster-train: error: .*(ulimit -v|Cannot allocate memory|no memory)")
        self.assertIn("OpenBLAS needs 320.0 MB of address space to be loaded, and the limit of 146.5 MB (ulimit -v) leaves less", said[150_000])
        self.assertNotIn("error", said[4_000_000])
        for_products = [kib for kib, text in said.items() if "the libraries of products need" in text]
        self.assertTrue(for_products, said)
        self.one_rank_of_two(for_products[-1], train)

    def one_rank_of_two(self, kib, train):
        """The other one ends with the same sentence, where the launcher leaves it time, and does not find its peer gone."""
        done = self.limited(kib, *train, before=(MUSTER, "run", "--standalone", "--nproc_per_node=2", "--"), only="[ $RANK = 1 ]")
        self.assertEqual(done.returncode, 138, done.stdout)
        told = r"rank 0 .*: error: rank 1 cannot go on: the libraries of products need"  # on a busy machine it ends first
        self.assertRegex(done.stdout, rf"verdict: (rank 1 .*: the libraries of products need .* \(ulimit -v\) leaves less: raise|{told})")
        self.assertNotRegex(done.stdout, r"rank 0: error: (?!rank 1 cannot go on: the libraries of products need)")

    def test_a_program_of_the_library(self):
        (self.base / "limited").mkdir()
        done = self.limited(150_000, BUILD / "tests/own_model", "model", "1")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"own_model: device cpu: OpenBLAS needs 320.0 MB of address space to be loaded, and the limit of 146.5 MB \(ulimit -v\)")


class Launcher(NoThread):
    """It can do without all of its own, but for threads that serve the other nodes."""
    worker = ["--nproc_per_node=2", "--log-dir=logs", "--redirects=3", "--tee=3", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"]

    def test_standalone(self):
        ended, without = self.sweep("muster", [MUSTER, "run", "--standalone", *self.worker], Words(self))
        self.assertEqual(ended, 0)
        self.assertGreater(without, 0)

    def test_as_a_node(self):
        command = [MUSTER, "run", "--nnodes=1:2", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{free_port()}", "--rdzv_id=x", "--rdzv_conf=last_call_timeout=0.1"]
        ended, without = self.sweep("muster", [*command, *self.worker], Words(self))
        self.assertGreater(ended, 0)
        self.assertGreater(without, 0)

    def test_what_failed_is_told(self):
        """With no thread at all: the verdict, the record in a file, and the workers' output."""
        script = "echo rank $RANK of $WORLD_SIZE; [ $RANK = 0 ] || { echo it is over >&2; exit 3; }; sleep 60"
        code, said, refused = self.run_refused([MUSTER, "run", "--standalone", *self.worker[:-1], script], self.base, "muster:1")
        self.assertTrue(refused)
        self.assertEqual(code, 3)
        self.assertRegex(said, r"verdict: rank 1 \(.*\) exited with code 3: it is over")
        self.assertRegex(said, f"muster: warning: {REASON}: the agent writes itself, and waits where that is slow")
        self.assertEqual([path.read_text() for path in self.base.glob("logs/*/attempt_0/1/stderr.log")], ["it is over\n"])
        self.assertEqual([json.loads(path.read_text())["exit_code"] for path in self.base.glob("logs/*/failure.json")], [3])


if __name__ == "__main__":
    if os.environ.get("MUSTER_SANITIZED"):
        print("skipped: nothing can be loaded before a sanitizer's library")
        sys.exit(77)
    unittest.main()
