"""A sandbox that refuses a system call, and a process that has no descriptor left: muster run does without, or ends at once with the reason.

    MUSTER_BUILD=build python3 tests/e2e/hostile/refused_calls_test.py [--full]

tests/support/refuse.c has the table of calls. No run ends by a signal, hangs or loses a worker's end; --full: two nodes, too."""

import os
import pathlib
import resource
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import BUILD, MUSTER, AgentTest, free_port  # noqa: E402

REFUSE = BUILD / "tests" / "refuse"
FULL = "--full" in sys.argv
LIMIT_S = 30  # a run takes 0.02 s; a sweep for processes that cannot be signalled 0.3 s

# Nothing can be started without them; each run names the missing one.
NEEDED = {"bind", "epoll_create1", "epoll_ctl", "eventfd2", "fcntl", "futex", "getrandom", "listen", "pipe2", "prlimit64", "setsid",
          "setsockopt", "signalfd4", "socket", "socketpair", "timerfd_create", "timerfd_settime"}


def calls():
    return subprocess.run([REFUSE, "--list"], capture_output=True, text=True, check=True).stdout.split()


class Refused(AgentTest):
    def one(self, prefix, *arguments, **options):
        """(exit code, standard output, standard error) of a run."""
        run = subprocess.run([*map(str, prefix), MUSTER, "run", *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                             cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)}, **options)
        return run.returncode, run.stdout, run.stderr

    def check_end(self, what, code, err):
        self.assertTrue(0 < code < 126 or code == 138, (what, code, err))  # 138: the environment's fault
        self.assertRegex(err, r"muster: (error|stopping)", what)

    def test_each_call_refused(self):
        for call in calls():
            for error in "EPERM", "ENOSYS":
                with self.subTest(call=call, error=error):
                    code, out, err = self.one([REFUSE, call, error, "--"], "--standalone", "--nproc-per-node=2", "--tee=3", "--", "sh", "-c", "echo works")
                    if call in NEEDED:
                        self.check_end(call, code, err)
                    else:
                        self.assertEqual((code, out.count("works")), (0, 2), (call, err))

    def test_the_end_of_a_worker_is_seen_by_either_call(self):
        for call in "waitid", "wait4":
            code, _, err = self.one([REFUSE, call, "EPERM", "--"], "--standalone", "--max-restarts=1", "--", "sh", self.script("killed.sh", "kill -9 $$\n"))
            self.assertEqual(code, 137, err)
            self.assertIn("restart 1 of 1", err)
            self.assertIn("SIGKILL", err)
            code, _, err = self.one([REFUSE, call, "EPERM", "--"], "--standalone", "--", "sh", "-c", "setsid sleep 100 & exit 3")
            self.assertEqual(code, 3, err)
        code, _, err = self.one([REFUSE, "waitid", "EPERM", "--", REFUSE, "wait4", "EPERM", "--"], "--standalone", "--", "true")
        self.check_end("both", code, err)
        self.assertIn("waitid and wait4 are refused", err)

    def test_few_descriptors(self):
        for limit in [*range(5, 48), 56, 64]:
            with self.subTest(limit=limit):
                code, out, err = self.one([], "--standalone", "--nproc-per-node=2", "--tee=3", "--metrics-port=0", "--", "sh", "-c", "echo works",
                                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))  # noqa: B023
                if code:
                    self.check_end(limit, code, err)
                else:
                    self.assertEqual(out.count("works"), 2, (limit, err))
        self.assertEqual(code, 0)  # the last limit is enough

    def two_nodes(self, prefix, **options):
        port = free_port()
        runs = [subprocess.Popen([*map(str, prefix if rank == 0 else []), MUSTER, "run", "--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1",
                                  f"--master-port={port}", "--join-timeout=5", "--", "true"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, cwd=self.folder, **(options if rank == 0 else {})) for rank in range(2)]
        ends = [run.communicate(timeout=LIMIT_S) for run in runs]
        return runs[0].returncode, ends[0][1]

    @unittest.skipUnless(FULL, "a slow tier's")
    def test_two_nodes(self):
        for call in calls():
            with self.subTest(call=call):
                code, err = self.two_nodes([REFUSE, call, "EPERM", "--"])
                self.assertTrue(code == 138 or 0 <= code < 126, (call, code, err))
                self.assertTrue(code == 0 or "muster: " in err, (call, err))
        for limit in range(6, 80, 3):
            with self.subTest(limit=limit):
                code, err = self.two_nodes([], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))  # noqa: B023
                self.assertTrue(code == 138 or 0 <= code < 126, (limit, code, err))
                self.assertTrue(code == 0 or "muster: " in err, (limit, err))


CONFIG = """
model: {architecture: gpt2, layers: 1, channels: 16, heads: 2, vocabulary: 256}
data: {path: text, tokenizer: bytes, cache_dir: cache}
training: {steps: 2, micro_batch: 1, global_batch: 2, sequence_length: 16, output: out.safetensors, checkpoint_dir: checkpoints, checkpoint_every: 1}
logging: {interval: 1, sample_length: 0, dir: log}
"""
# Without them muster-train cannot train, or cannot save its model: it names the call and ends with 138. The last four are for two ranks alone.
TRAINING_NEEDS = {"clone3", "fcntl", "fdatasync", "fsync", "futex", "getrandom", "memfd_create", "pipe2", "accept4", "bind", "listen", "socket"}
ALONE = TRAINING_NEEDS - {"accept4", "bind", "listen", "socket"}
LEAST_DESCRIPTORS = {1: 4, 2: 6}  # below them the loader finds no library


class Training(AgentTest):
    """muster-train under the same table: its model equals that of an undisturbed run, byte by byte, or it ends with 138 and names the
    missing call."""

    def train(self, ranks, prefix=(), limit=None):
        for name in ("checkpoints", "log", "cache"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "out.safetensors").unlink(missing_ok=True)
        (self.folder / "text").write_text("some words to learn " * 100)
        (self.folder / "run.yaml").write_text(CONFIG)
        limited = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh"] if limit else []
        command = [*limited, *prefix, BUILD / "bin" / "muster-train", "run.yaml"]
        if ranks > 1:
            command = [MUSTER, "run", "--standalone", f"--nproc-per-node={ranks}", "--", *command]
        run = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=self.folder,
                             env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)})
        model = self.folder / "out.safetensors"
        saved = sorted(path.name for path in (self.folder / "checkpoints").glob("step-*"))
        return run.returncode, (model.read_bytes() if model.exists() else None, saved), run.stderr

    def check(self, what, ranks, expected, needed, **how):
        code, found, err = self.train(ranks, **how)
        self.assertIn(code, (0, 138), (what, code, err))
        if code:
            self.assertRegex(err, r"muster-train: (rank \d: )?error: ", what)
            self.assertTrue(needed, (what, err))
        else:
            self.assertEqual(found, expected, (what, err))
        return code

    def test_each_call_refused(self):
        for ranks in (1, 2) if FULL else (2,):
            code, expected, err = self.train(ranks)
            self.assertEqual((code, expected[1]), (0, ["step-1", "step-2"]), err)
            for call in calls() if FULL else ("futex", "socket", "setsockopt", "getrandom", "io_submit", "epoll_ctl"):
                for error in ("EPERM", "ENOSYS") if FULL else ("EPERM",):
                    with self.subTest(call=call, error=error, ranks=ranks):
                        self.check((call, error), ranks, expected, call in (ALONE if ranks == 1 else TRAINING_NEEDS), prefix=[REFUSE, call, error, "--"])

    @unittest.skipUnless(FULL, "a slow tier's")
    def test_few_descriptors(self):
        for ranks, least in LEAST_DESCRIPTORS.items():
            _, expected, _ = self.train(ranks)
            for limit in [*range(least, 40), 64]:
                with self.subTest(limit=limit, ranks=ranks):
                    code = self.check(limit, ranks, expected, True, limit=limit)
            self.assertEqual(code, 0)


if __name__ == "__main__":
    sys.argv = [name for name in sys.argv if name != "--full"]
    unittest.main()
