"""The contract of launcher/docs/logs.md, cell by cell: {file, spool, console} x {slow, full, stuck}, with real processes.

    MUSTER_BUILD=build python3 tests/e2e/logs_matrix_test.py [TestClass.test_name ...]

Workers write numbered lines as fast as they can, say when they are through, and every byte is accounted for: it is where it
should be, or a notice in its place or the totals at the end count it. Full disks are small tmpfs in a mount namespace of the
test's own, which root alone can make; others skip those tests."""

import collections
import os
import re
import subprocess
import sys
import threading
import unittest

from harness import AgentTest, free_port, wait_until
from harness.preload import preload

PRIVATE = "MUSTER_E2E_PRIVATE_MOUNTS"
SANITIZED = bool(os.environ.get("MUSTER_SANITIZED"))
LINE = 100
LINES = 100000  # a worker's, 10 MB
NOTICE = re.compile(r"muster: warning: (\d+) (?:lines \((\d+) bytes\) are not shown|bytes are missing here)")

# Numbered lines, then a file once all of them were written.
SHOUT = """
import os, sys
rank, count = os.environ["RANK"], int(sys.argv[1])
for start in range(0, count, 80):
    lines = "".join("%02d %096d\\n" % (int(rank), i) for i in range(start, min(start + 80, count)))
    os.write(1, lines.encode())
open(os.environ["E2E_FOLDER"] + "/through." + rank, "w").close()
"""

# The same in the second attempt; in the first one worker 0 makes a FIFO where the second one's log file is to be.
AMBUSH = """
import os, sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    folder = os.path.dirname(os.environ["TORCHELASTIC_ERROR_FILE"]).replace("attempt_0", "attempt_1")
    if os.environ["RANK"] == "0":
        os.makedirs(folder)
        os.mkfifo(folder + "/stdout.log")
        open(os.environ["E2E_FOLDER"] + "/fifo", "w").write(os.path.realpath(folder) + "/stdout.log\\n")
    sys.exit(3)
"""


class Account:
    """What became of numbered lines: how many came, and how much the notices among them say is missing."""

    def __init__(self, text, prefix=r"(?:\[default\d+\]:)?"):
        self.lines, self.bytes, self.told_lines, self.told_bytes, self.last = 0, 0, 0, 0, collections.defaultdict(lambda: -1)
        pattern = re.compile(prefix + r"(\d\d) (\d{96})")
        for line in text.splitlines():
            match = pattern.fullmatch(line)
            if not match:
                notice = NOTICE.match(line)
                if not notice:
                    raise AssertionError(f"neither a line of a worker nor a notice: {line[:200]!r}")
                self.told_lines += int(notice.group(1)) if notice.group(2) else 0
                self.told_bytes += int(notice.group(2) or notice.group(1))
                continue
            rank, number = int(match.group(1)), int(match.group(2))
            if number <= self.last[rank]:
                raise AssertionError(f"line {number} of rank {rank} came after line {self.last[rank]}")
            self.last[rank] = number
            self.lines += 1
            self.bytes += len(line) + 1


class LogsTest(AgentTest):
    def through(self, count=1):
        wait_until(
            lambda: all((self.folder / f"through.{rank}").exists() for rank in range(count)),
            "the workers have written everything",
            limit=300,  # a GiB on a machine that starves
        )

    def shout(self, *flags, count=LINES, script=SHOUT, **options):
        return self.start("--standalone", *flags, self.script("shout.py", script), str(count), **options)

    def slowly(self, reader):
        """Reads to the end, slowly until self.quick is set: it never pauses, and is late by as much as the workers' pace is.
        The text is in self.text afterwards."""
        self.quick, self.text = threading.Event(), b""

        def run():
            while True:
                drops = len(self.text) > 1_000_000 and not self.quick.is_set()
                chunk = os.read(reader, 512 if drops else 65536)
                if not chunk:
                    return
                self.text += chunk
                self.quick.wait(0.05 if drops else 0.03)  # the reader is slow on purpose

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(self.quick.set)
        return thread

    def full_disk(self, name, kilobytes):
        if not os.environ.get(PRIVATE):
            self.skipTest("a small file system needs root")
        folder = self.folder / name
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(folder)], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", str(folder)], check=True)
        return folder

    def slow_spool(self, milliseconds):
        return {"LD_PRELOAD": preload("slow_writes.so"), "SLOW_WRITES_MS": str(milliseconds)}

    def file_text(self, folder="logs", attempt=0, rank=0):
        (path,) = (self.folder / folder).glob(f"*/attempt_{attempt}/{rank}/stdout.log")
        return path.read_text()

    def file_size(self):
        (path,) = (self.folder / "logs").glob("*/attempt_0/0/stdout.log")
        return path.stat().st_size

    def ambush(self, *flags, **options):
        """A worker whose log file, in its second attempt, is a FIFO; returns the agent and the FIFO's path."""
        process = self.shout("--max-restarts=1", "--log-dir=logs", *flags, script=AMBUSH + SHOUT, **options)
        note = self.folder / "fifo"
        return process, wait_until(lambda: note.exists() and note.read_text().endswith("\n") and note.read_text().strip(), "a FIFO")

    def missing_in_files(self, err):
        match = re.search(r"muster: warning: (\d+) bytes of the workers are missing in the log files", err)
        return int(match.group(1)) if match else 0

    def not_shown(self, err):
        match = re.search(r"muster: warning: standard output is stuck: (\d+) bytes of the workers are not shown", err)
        return int(match.group(1)) if match else 0


class Matrix(LogsTest):
    # --- files ---

    def test_file_slow(self):
        process, fifo = self.ambush("--tee=1", stdout=subprocess.DEVNULL)
        thread = self.slowly(os.open(fifo, os.O_RDONLY))
        self.through()
        self.assertLess(len(self.text), LINES * LINE)  # the worker was through before its reader
        self.quick.set()
        self.finish(process, 0)
        thread.join()
        account = Account(self.text.decode())
        self.assertEqual((account.lines, account.told_bytes), (LINES, 0))

    def test_file_stuck(self):
        process, fifo = self.ambush("--tee=1", stdout=subprocess.DEVNULL)
        reader = os.open(fifo, os.O_RDWR)  # opened, and never read
        self.through()
        _, err = self.finish(process, 0)
        os.set_blocking(reader, False)
        held = len(os.read(reader, 2 << 20))
        os.close(reader)
        self.assertEqual(self.missing_in_files(err) + held, LINES * LINE)

    def test_file_stuck_then_moving(self):
        process, fifo = self.ambush("--tee=1", "--log-spool-size=2M", stdout=subprocess.DEVNULL)
        reader = os.open(fifo, os.O_RDONLY)
        self.through()
        thread = self.slowly(reader)
        self.quick.set()
        _, err = self.finish(process, 0)
        thread.join()
        account = Account(self.text.decode())
        self.assertGreater(account.told_bytes, 0)  # 2 MB, and what fits into memory, are not 10 MB
        self.assertEqual(account.bytes + account.told_bytes, LINES * LINE)
        self.assertEqual(self.missing_in_files(err), account.told_bytes)
        self.assertEqual(account.last[0], LINES - 1)  # the oldest went, not the newest

    def test_file_full(self):
        self.full_disk("logs", 1024)
        process = self.shout("--log-dir=logs", "--tee=1", stdout=subprocess.DEVNULL)
        self.through()
        _, err = self.finish(process, 0)
        self.assertIn("a log file cannot be written: No space left on device", err)
        account = Account(re.sub(r"[^\n]*\Z", "", self.file_text()))  # the last line is cut where the disk was full
        self.assertGreater(account.lines, 0)
        cut = len(self.file_text()) - account.bytes
        self.assertEqual(self.missing_in_files(err) + account.bytes + cut, LINES * LINE)

    def test_file_full_then_space(self):
        disk = self.full_disk("logs", 20000)
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 19000 * 1024)
        process = self.shout("--log-dir=logs", "--tee=1", script=SHOUT + "import time\nwhile not os.path.exists('go'): time.sleep(0.01)\n",
                             stdout=subprocess.DEVNULL)
        self.through()
        ballast.unlink()
        wait_until(lambda: self.file_size() == LINES * LINE, "the file has everything")
        (self.folder / "go").touch()
        _, err = self.finish(process, 0)
        self.assertEqual(Account(self.file_text()).lines, LINES)
        self.assertEqual(self.missing_in_files(err), 0)

    def test_file_that_cannot_be_opened(self):
        process, fifo = self.ambush("--redirects=1", "--log-open-timeout=4")  # nothing opens the other end
        _, err = self.finish(process, 1)
        self.assertIn(f"the log file {fifo} could not be opened: its file system did not respond within 4 s", err)

    def test_heartbeats_go_on_while_a_file_is_opened(self):
        port = free_port()
        script = self.script(
            "ambush.py",
            AMBUSH.replace('os.environ["RANK"] == "0"', "True").replace(
                "    sys.exit(3)\n",  # only when both have one
                "    open('ready.' + os.environ['RANK'], 'w').close()\n"
                "    import time\n"
                "    while not (os.path.exists('ready.0') and os.path.exists('ready.1')): time.sleep(0.01)\n"
                "    sys.exit(3)\n",
            ),
        )
        nodes = [
            self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", "--max-restarts=1",
                       "--log-open-timeout=4", f"--log-dir=logs{rank}", "--redirects=1", script)
            for rank in (0, 1)
        ]
        for process in nodes:  # 4 s without a heartbeat would be a lost node, and 138
            _, err = self.finish(process, 1)
            self.assertIn("did not respond within 4 s", err)

    # --- the spool, under a console that is not read ---

    def spool(self, env, flags=()):
        reader, writer = os.pipe()
        process = self.shout(*flags, env=env, stdout=writer)
        self.through()
        os.close(writer)
        return process, reader

    def test_spool_full(self):
        disk = self.full_disk("spool", 2048)
        process, reader = self.spool({"TMPDIR": str(disk)})
        thread = self.slowly(reader)
        self.quick.set()
        self.finish(process, 0)
        thread.join()
        account = Account(self.text.decode())
        self.assertGreater(account.told_lines, 0)
        self.assertEqual(account.lines + account.told_lines, LINES)
        self.assertEqual(account.last[0], LINES - 1)

    def test_spool_slow(self):
        process, reader = self.spool(self.slow_spool(8000))  # far slower than workers that starve
        thread = self.slowly(reader)
        self.quick.set()
        self.finish(process, 0)
        thread.join()
        account = Account(self.text.decode())
        self.assertEqual(account.lines + account.told_lines, LINES)
        self.assertGreater(account.told_lines, 0)

    def test_spool_stuck(self):
        process, reader = self.spool(self.slow_spool(-1))
        thread = self.slowly(reader)  # the console moves again, the spool does not
        self.quick.set()
        self.finish(process, 0)
        thread.join()
        account = Account(self.text.decode())
        self.assertEqual(account.lines + account.told_lines, LINES)
        self.assertGreater(account.told_lines, 0)

    # --- the console ---

    def console(self, *flags, then=None):
        """The reader is slow until the worker is through."""
        reader, writer = os.pipe()
        process = self.shout(*flags, stdout=writer)
        os.close(writer)
        thread = self.slowly(reader)
        self.through()
        self.assertLess(len(self.text), LINES * LINE)
        self.quick.set()
        _, err = self.finish(process, 0)
        thread.join()
        return Account(self.text.decode()), err

    def test_console_slow(self):
        account, _ = self.console()
        self.assertEqual((account.lines, account.told_lines), (LINES, 0))

    def test_console_slow_with_a_file(self):
        account, _ = self.console("--log-dir=logs", "--tee=1")
        self.assertEqual(Account(self.file_text()).lines, LINES)
        self.assertEqual(account.lines + account.told_lines, LINES)
        self.assertGreater(account.told_lines, 0)

    def test_console_stuck(self):
        process, reader = self.spool({})
        _, err = self.finish(process, 0)
        account = Account(re.sub(r"[^\n]*\Z", "", os.read(reader, 2 << 20).decode()))
        os.close(reader)
        self.assertEqual(account.bytes + self.not_shown(err), LINES * LINE)

    def test_console_stuck_with_a_file(self):
        process, reader = self.spool({}, ("--log-dir=logs", "--tee=1"))
        _, err = self.finish(process, 0)
        text = os.read(reader, 2 << 20).decode()
        os.close(reader)
        self.assertEqual(Account(self.file_text()).lines, LINES)
        self.assertEqual(len(text) + self.not_shown(err), LINES * (LINE + len("[default0]:")))
        (log,) = (self.folder / "logs").glob("*/agent.log")
        self.assertRegex(log.read_text(), r"\d+ lines \(\d+ bytes\) were not shown on the console")

    def console_full(self, *flags):
        disk = self.full_disk("console", 1024)
        with open(disk / "out", "wb") as out:
            process = self.shout(*flags, stdout=out)
            self.through()
            _, err = self.finish(process, 0)
        self.assertIn("the console cannot be written: No space left on device", err)
        text = (disk / "out").read_text()
        return Account(re.sub(r"[^\n]*\Z", "", text)), len(text), err

    def test_console_full(self):
        account, size, err = self.console_full()
        self.assertGreater(account.lines, 0)
        match = re.search(r"muster: warning: standard output cannot be written: (\d+) bytes of the workers are not shown", err)
        self.assertTrue(match, err)
        self.assertEqual(size + int(match.group(1)), LINES * LINE)

    def test_console_full_with_a_file(self):
        self.console_full("--log-dir=logs", "--tee=1")
        self.assertEqual(Account(self.file_text()).lines, LINES)


class Crowd(LogsTest):
    """64 workers at once."""

    WORKERS, EACH = 64, 20000  # 128 MB

    def test_into_a_reader_that_is_stuck(self):
        reader, writer = os.pipe()
        process = self.shout(f"--nproc-per-node={self.WORKERS}", count=self.EACH, stdout=writer)
        os.close(writer)
        self.through(self.WORKERS)
        _, err = self.finish(process, 0)
        account = Account(re.sub(r"[^\n]*\Z", "", os.read(reader, 2 << 20).decode()))
        os.close(reader)
        self.assertEqual(account.bytes + self.not_shown(err), self.WORKERS * self.EACH * LINE)

    def test_into_a_full_disk(self):
        disk = self.full_disk("logs", 8192)
        process = self.shout(
            f"--nproc-per-node={self.WORKERS}", "--log-dir=logs", "--tee=1", count=self.EACH, stdout=subprocess.DEVNULL,
            env={"TMPDIR": str(disk)},
        )
        self.through(self.WORKERS)
        _, err = self.finish(process, 0)
        kept = 0
        for rank in range(self.WORKERS):
            for line in self.file_text(rank=rank).splitlines(keepends=True):
                kept += 0 if NOTICE.match(line) else len(line)
        missing = self.missing_in_files(err)
        self.assertGreater(missing, 0)
        # notices and line ends that were set before them are not the workers'; a notice may itself be cut by the full disk
        self.assertLessEqual(abs(kept + missing - self.WORKERS * self.EACH * LINE), self.WORKERS * 3 * LINE)


class Endless(LogsTest):
    def peak(self, process):
        try:
            with open(f"/proc/{process.pid}/status") as file:
                match = re.search(r"VmHWM:\s+(\d+) kB", file.read())
            return int(match.group(1)) if match else 0
        except OSError:
            return 0

    def test_a_line_of_one_gib(self):
        gib = 1 << 30
        process = self.start(  # with room for all of it where the reader gets no processor and is taken for slow
            "--standalone", "--log-spool-size=2G", "--", "sh", "-c", f"head -c {gib} /dev/zero | tr '\\0' y; echo", stdout=subprocess.PIPE
        )
        total, peak = 0, 0
        while True:
            chunk = os.read(process.stdout.fileno(), 1 << 20)
            if not chunk:
                break
            before, total = total, total + len(chunk)
            if before >> 24 != total >> 24:
                peak = max(peak, self.peak(process))
        self.finish(process, 0)
        self.assertEqual(total, gib + 1)
        if not SANITIZED:
            self.assertLess(peak, 16 * 1024)

    def test_a_line_of_one_gib_that_nobody_reads(self):
        gib = 1 << 30
        reader, writer = os.pipe()
        process = self.start(
            "--standalone", "--log-spool-size=8M", "--", "sh", "-c",
            f"head -c {gib} /dev/zero | tr '\\0' y; : > \"$E2E_FOLDER/through.0\"; cat /dev/zero | head -c 1; sleep 0.1",
            stdout=writer,
        )
        os.close(writer)
        self.through()
        peak = self.peak(process)
        _, err = self.finish(process, 0)
        held = len(os.read(reader, 2 << 20))
        os.close(reader)
        self.assertEqual(self.not_shown(err) + held, gib + 1)
        if not SANITIZED:
            self.assertLess(peak, 16 * 1024)


if __name__ == "__main__":
    if os.geteuid() == 0 and not os.environ.get(PRIVATE):
        if subprocess.run(["unshare", "-m", "--propagation", "private", "true"], capture_output=True).returncode == 0:
            os.environ[PRIVATE] = "1"
            os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv])
    unittest.main(verbosity=2)
