"""The workers' output end to end: files, console, filters, formats, rotation.

    MUSTER_BUILD=build python3 tests/e2e/logs_test.py [TestClass.test_name ...]

What happens where the places that it goes to are slow, full or stuck is in logs_matrix_test.py."""

import datetime
import json
import os
import re
import signal
import socket
import subprocess
import unittest

from harness import AgentTest, free_port, wait_until


class Logs(AgentTest):
    def files(self):
        return {str(p.relative_to(self.folder / "logs")): p.read_text() for p in (self.folder / "logs").rglob("std*.log")}

    def test_redirect_and_tee(self):
        arguments = ("--standalone", "--nproc-per-node=2", "--log-dir=logs", "--rdzv-id=job")
        script = ("--", "sh", "-c", "echo out $RANK; echo err $RANK >&2")
        out, err = self.run_muster(*arguments, "--redirects=3", *script)
        self.assertEqual(out, "")
        self.assertNotIn("err ", err)
        files = self.files()
        self.assertEqual(len(files), 4)
        for path, text in files.items():
            match = re.fullmatch(r"job_[a-z0-9]{8}/attempt_0/([01])/(std(out|err))\.log", path)
            self.assertTrue(match, path)
            self.assertEqual(text, f"{match.group(3)} {match.group(1)}\n")
        out, err = self.run_muster(*arguments, "--redirects=1:2", "--tee=0:1", *script)
        self.assertEqual(sorted(out.splitlines()), ["[default0]:out 0", "out 1"])
        self.assertIn("err 0\n", err)
        self.assertNotIn("err 1", err)

    def test_earlier_attempts_are_kept(self):
        self.run_muster(
            "--standalone", "--log-dir=logs", "--redirects=3", "--max-restarts=1", "--", "sh", "-c",
            "echo $TORCHELASTIC_RESTART_COUNT; exit 5", code=5,
        )
        texts = {path.split("/")[1]: text for path, text in self.files().items() if path.endswith("stdout.log")}
        self.assertEqual(texts, {"attempt_0": "0\n", "attempt_1": "1\n"})

    def test_the_report_reads_a_redirected_stderr(self):
        _, err = self.run_muster(
            "--standalone", "--log-dir=logs", "--redirects=3", "--", "sh", "-c", "echo last words >&2; exit 5", code=5
        )
        self.assertIn("last words", err[err.index("Root Cause") :])

    def test_no_folder_without_being_asked(self):
        self.run_muster("--standalone", "--", "true", env={"TMPDIR": str(self.folder)})
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_lines_are_whole(self):
        path = self.script(
            "lines.py",
            "import os, sys\n"
            "for i in range(3000):\n"
            "    sys.stdout.write(os.environ['RANK'] * 50)\n"
            "    sys.stdout.flush()\n"
            "    sys.stdout.write(os.environ['RANK'] * 49 + '\\n')\n",
        )
        out, _ = self.run_muster("--standalone", "--nproc-per-node=4", path)
        lines = out.splitlines()
        self.assertEqual({line for line in lines if len(set(line)) != 1}, set())
        for rank in "0123":
            self.assertEqual(out.count(rank), 3000 * 99)
        # a worker that gets no processor for 50 ms in the middle of a line has its beginning shown, and the rest apart
        broken = [line for line in lines if len(line) != 99]
        self.assertEqual({len(line) for line in broken} - {49, 50}, set())
        self.assertEqual(len(lines) - len(broken) + len(broken) // 2, 12000)

    def test_a_long_line_without_an_end(self):
        out, err = self.run_muster(
            "--standalone", "--", "python3", "-c", "import sys; sys.stdout.write('x' * 1000000); sys.stderr.write('no end')"
        )
        self.assertEqual(out, "x" * 1000000)
        self.assertTrue(err.endswith("no end"))

    def test_a_line_of_64_mb_in_bounded_memory(self):
        process = self.start(
            "--standalone", "--", "sh", "-c", "head -c 67108864 /dev/zero | tr '\\0' y; echo", stdout=subprocess.PIPE
        )
        total, peak = 0, 0
        while True:
            chunk = os.read(process.stdout.fileno(), 1 << 20)
            if not chunk:
                break
            total += len(chunk)
            try:
                with open(f"/proc/{process.pid}/status") as file:
                    match = re.search(r"VmHWM:\s+(\d+) kB", file.read())
                peak = max(peak, int(match.group(1)) if match else 0)
            except OSError:
                pass
        self.finish(process, 0)
        self.assertEqual(total, 67108865)
        if not os.environ.get("MUSTER_SANITIZED"):
            self.assertLess(peak, 16 * 1024)

    def test_progress_without_newlines_is_shown(self):
        process = self.start(
            "--standalone", "--", "python3", "-uc",
            "import sys, time; sys.stdout.write('10%'); sys.stdout.flush(); sys.stdin.read(); time.sleep(1000)",
        )
        self.assertEqual(os.read(process.stdout.fileno(), 100), b"10%")
        process.send_signal(signal.SIGTERM)
        self.finish(process, 143)

    def test_a_stuck_console_does_not_stop_workers(self):
        path = self.script(
            "chatty.py",
            "import os\n"
            "for i in range(100000):\n"
            "    print('%099d' % i)\n"
            "open(os.environ['E2E_FOLDER'] + '/finished', 'w').close()\n",
        )
        process = self.start("--standalone", path)
        wait_until((self.folder / "finished").exists, "the worker ends though nobody reads its 10 MB")
        out, err = self.finish(process, 0)  # reads now
        match = re.search(r"muster: warning: (\d+) lines .* not shown", out)
        late = re.search(r"muster: warning: standard output is stuck: (\d+) bytes of the workers are not shown", err)
        self.assertTrue(match or late or len(out) == 100000 * 100)

    def test_a_console_that_stays_stuck_is_told_of_on_the_other(self):
        process = self.start("--standalone", "--", "sh", "-c", "yes 'a line of the worker' | head -n 20000")
        process.wait(timeout=30)  # nobody reads standard output, to the very end
        out, err = process.communicate()
        match = re.search(r"muster: warning: standard output is stuck: (\d+) bytes of the workers are not shown", err)
        self.assertTrue(match, err)
        self.assertGreaterEqual(int(match.group(1)) + len(out), 20000 * 21)

    def test_a_console_that_went_away(self):
        process = self.start("--standalone", "--", "sh", "-c", "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; exit 3")
        process.stdout.close()
        process.stdout = None
        self.finish(process, 3)

    def test_closed_standard_descriptors(self):
        self.run_muster(
            "--standalone", "--", "sh", "-c", "echo nobody hears; exit 6", code=6,
            preexec_fn=lambda: [os.close(fd) for fd in (0, 1, 2)],
        )

    def test_stdout_stays_blocking(self):
        reader, writer = os.pipe()
        process = self.start("--standalone", "--", "echo", "hello", stdout=writer)
        self.finish(process, 0)
        self.assertTrue(os.get_blocking(writer))
        os.close(writer)
        os.close(reader)

    def test_a_terminal_is_the_workers_own(self):
        controller, terminal = os.openpty()
        process = self.start("--standalone", "--", "python3", "-c", "print(open(1, closefd=False).isatty())", stdout=terminal)
        self.finish(process, 0)
        os.close(terminal)
        self.assertIn(b"True", os.read(controller, 100))
        os.close(controller)


if __name__ == "__main__":
    unittest.main(verbosity=2)
