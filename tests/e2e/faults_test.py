"""Faults with real processes, and the proof that nothing is left of them: no orphan, no zombie, no lost line that is not reported.

    MUSTER_BUILD=build python3 tests/e2e/faults_test.py [--full] [TestClass.test_name ...]

This process adopts every orphan of its tests, as an init would: each process that an agent leaves, in a session of its own, forked
twice, with an empty environment, is found among its children. --full takes the whole matrix.

Every signal and exit code of a worker is in verdict_test.py, every signal to the agent at every phase in supervise_test.py; here is
a worker's deeds to its streams, its family and its machine while it lives and when it dies."""

import itertools
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest

from harness import MUSTER, AdoptingTest, alive, environment, wait_until

FULL = "--full" in sys.argv
IS_ROOT = os.geteuid() == 0


# --- lines of the dying ---

# Counts in shared memory how many lines its write has accepted: and a death right after it must not take them away. No rank is far ahead
# of rank 1: all of it fits into the agent's memory, where a console that is slow for want of a processor drops nothing.
PRINTER = """import mmap, os, signal, sys, time
rank, how, fd = int(os.environ["RANK"]), sys.argv[1], int(sys.argv[2])
said = mmap.mmap(os.open(os.environ["E2E_FOLDER"] + "/said", os.O_RDWR), 0)
i = 0
while True:
    while rank != 1 and i > int.from_bytes(said[8:16], "little") + 100:
        time.sleep(0.001)
    os.write(fd, b"rank %d line %06d %s\\n" % (rank, i, b"x" * (i % 100)))
    i += 1
    said[8 * rank : 8 * rank + 8] = i.to_bytes(8, "little")
    if rank == 1 and i == 2000:
        if how == "raise":
            raise ValueError("enough")
        if how == "exit":
            os._exit(5)
        os.kill(os.getpid(), getattr(signal, how))
    if i % 50 == 0:
        time.sleep(0.001)
"""


class Printing(AdoptingTest):
    RANKS = 4

    def check_lines(self, text):
        """Every line whole, each rank's in order and without a gap, none missing that was accepted."""
        counts = [0] * self.RANKS
        for line in text.splitlines():
            match = re.fullmatch(r"(?:\[default\d\]:)?rank (\d) line (\d{6}) (x*)", line)
            if not match:
                self.assertNotRegex(line, r"^(\[default\d\]:)?rank", "no part of a line stands alone")
                continue
            rank, i, rest = int(match[1]), int(match[2]), match[3]
            self.assertEqual(i, counts[rank], f"a gap in the lines of rank {rank}")
            self.assertEqual(len(rest), i % 100)
            counts[rank] += 1
        return counts

    def one(self, how, code, fd, flags):
        with self.subTest(how=how, fd=fd, flags=flags):
            shutil.rmtree(self.folder / "logs", ignore_errors=True)
            with open(self.folder / "said", "wb") as file:
                file.truncate(8 * self.RANKS)
            out, err = self.run_muster(
                "--standalone", f"--nproc-per-node={self.RANKS}", *flags, self.script("printer.py", PRINTER), how, fd, code=code
            )
            said = struct.unpack(f"<{self.RANKS}Q", (self.folder / "said").read_bytes())
            if "--redirects=3" in flags:
                name = {1: "stdout.log", 2: "stderr.log"}[fd]
                files = sorted((self.folder / "logs").glob(f"*/attempt_0/*/{name}"), key=lambda path: int(path.parent.name))
                self.assertEqual(len(files), self.RANKS)
                texts = [path.read_text() for path in files]
                # a file takes a part of a line from a worker that is killed while it writes; a worker that ends by itself has written all
                texts = [text if rank == 1 else text[: text.rfind("\n") + 1] for rank, text in enumerate(texts)]
            else:
                texts = [out if fd == 1 else err]
            counts = [sum(column) for column in zip(*map(self.check_lines, texts))]
            for rank in range(self.RANKS):  # one more may have been written than was counted
                self.assertIn(counts[rank] - said[rank], (0, 1), f"rank {rank}: {said[rank]} were written, {counts[rank]} are there")
            self.assertEqual(said[1], 2000)
            self.assertIn("rank      : 1 ", err[err.index("Root Cause") :])

    def test_no_line_of_the_dying_is_lost(self):
        hows = (("SIGKILL", 137), ("SIGSEGV", 139), ("exit", 5), ("raise", 1))
        places = ((), ("--log-dir=logs", "--tee=3"), ("--log-dir=logs", "--redirects=3"))
        rows = list(itertools.product(hows, (1, 2), places))
        for (how, code), fd, flags in rows if FULL else rows[::5]:
            self.one(how, code, fd, flags)

    def test_a_gibibyte_without_a_newline_in_bounded_memory(self):
        path = self.script("long.py", "import os\nblock = b'x' * (1 << 20)\nfor i in range(1024):\n    os.write(1, block)\n")
        for flags in ((), ("--log-dir=logs", "--tee=1")) if FULL else ((),):
            reader = subprocess.Popen(["wc", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            # room for all of it where the reader gets no processor and is taken for slow
            process = self.start("--standalone", "--log-spool-size=2G", *flags, path, stdout=reader.stdin)
            reader.stdin.close()
            peak = 0
            while process.poll() is None:
                peak = max(peak, self.high_water(process.pid))
                time.sleep(0.02)
            self.finish(process, 0)
            count = int(reader.stdout.read())
            reader.stdout.close()
            reader.wait()
            if not flags:
                self.assertIn(count, (1 << 30, (1 << 30) + 1))  # an end of line may have been added
            self.assertGreater(peak, 0)
            if not os.environ.get("MUSTER_SANITIZED"):
                self.assertLess(peak, 10 << 10, "kB of memory at most")

    @staticmethod
    def high_water(pid):
        try:
            with open(f"/proc/{pid}/status") as file:
                match = re.search(r"VmHWM:\s+(\d+) kB", file.read())
                return int(match[1]) if match else 0
        except OSError:
            return 0


# --- many at once ---

LINES, WIDTH = 100, 800
SHOUT = f"""#!/bin/sh
i=100000; line=$(printf '%0{WIDTH - 16}d' 7)
while [ $i -lt {100000 + LINES} ]; do printf 'rank %02d %06d %s\\n' $RANK $i $line; i=$((i+1)); done
echo 1 > "$E2E_FOLDER/shouted.$RANK"
[ $RANK = 63 ] || exit 0
while [ $(ls -d "$E2E_FOLDER"/shouted.* | wc -l) -lt 64 ]; do sleep 0.02; done
exit $1
"""


def told(text):
    """The agent's reports of missing output."""
    return "".join(re.findall(r"^muster: warning: .*\d+ bytes.*$", text, re.MULTILINE))


class Shouting(AdoptingTest):
    """64 workers write 5 MB at once to where nothing goes on."""

    RANKS = 64

    def setUp(self):
        super().setUp()
        self.path = self.script("shout.sh", SHOUT)
        os.chmod(self.path, 0o755)

    def clear(self):
        for old in self.folder.glob("shouted.*"):
            old.unlink()

    def account(self, texts, told):
        """Lines that are there are whole and each rank's in order, but for the last before a gap; with the lines reported missing
        they are all. Returns bytes that are there, and all."""
        last, shown = {}, 0
        for line in (line for text in texts for line in text.splitlines(keepends=True)):
            match = re.fullmatch(r"(?:\[default\d+\]:)?(rank (\d\d) 1(\d{5}) 0+7\n)", line)
            if match:
                rank, i = int(match[2]), int(match[3])
                self.assertEqual(len(match[1]), WIDTH)
                self.assertGreater(i, last.get(rank, -1))
                last[rank] = i
                shown += WIDTH
            else:
                self.assertEqual(line.count("rank"), line.startswith(("rank", "[default")), f"two lines mixed: {line}")
                shown += len(line.removesuffix("\n")) if "rank" in line else 0  # the newline is the notice's
        missing = sum(map(int, re.findall(r"(\d+) bytes", told)))
        total = self.RANKS * LINES * WIDTH
        self.assertLessEqual(shown, total)
        self.assertGreaterEqual(shown + missing, total, f"{shown} of {total} bytes are there, {missing} are told to be missing")
        return shown, total

    def test_a_reader_that_is_stuck(self):
        for code in (0, 7):
            with self.subTest(code=code):
                self.clear()
                process = self.start("--standalone", f"--nproc-per-node={self.RANKS}", "--", self.path, code)
                self.pids("shouted", self.RANKS)  # all could write to the end though nothing reads
                err = []
                thread = threading.Thread(target=lambda: err.append(process.stderr.read()))
                thread.start()
                self.left_by(process, code)
                thread.join()
                out = process.stdout.read()
                self.account([out], told(out + err[0]))
                self.assertEqual("Root Cause" in err[0], code != 0)
                if code:
                    self.assertIn("rank      : 63 ", err[0][err[0].index("Root Cause") :])

    def test_a_disk_that_is_full(self):
        if not IS_ROOT or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
            self.skipTest("no mount namespaces here")
        (self.folder / "small").mkdir()
        # what reached the file system is copied out of its namespace before that goes
        script = self.script(
            "full.sh",
            "mount -t tmpfs -o size=1m none small || exit 99\n"
            "trap : TERM\n"
            'TMPDIR=$PWD/small "$@"\n'
            "code=$?\n"
            "mkdir copy && cp -r small/. copy && exit $code\n",
        )
        for code, flags in ((0, ("--tee=1",)), (7, ("--tee=1",)), (1, ("--redirects=1",))):
            with self.subTest(code=code, flags=flags):
                self.clear()
                shutil.rmtree(self.folder / "copy", ignore_errors=True)
                process = subprocess.Popen(
                    ["unshare", "-m", "--propagation=private", "sh", script, MUSTER, "run", "--standalone",
                     f"--nproc-per-node={self.RANKS}", "--log-dir=small/logs", *flags, "--", self.path, str(code)],
                    cwd=self.folder, env=environment(E2E_FOLDER=str(self.folder)), text=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
                self.started.append(process)
                out, err = self.finish(process, code)
                self.nobody_is_left()
                logs = sorted((self.folder / "copy").rglob("stdout.log"))
                self.assertEqual(len(logs), self.RANKS)
                if flags == ("--tee=1",):
                    texts = [path.read_text() for path in logs]
                    self.account([out], told(out + err))  # the console was fine
                    shown, total = self.account(texts, told("".join([*texts, err])))
                    self.assertLess(shown, total)  # it was really full
                    self.assertIn("are missing in the log files", err)
                else:
                    self.assertRegex(err, r"the disk of its log file is full, \d+ bytes are left: .*small/logs.*/stdout.log")
                    self.assertIn("No space left on device", err + "".join(p.read_text() for p in logs))
                self.assertEqual("Root Cause" in err, code != 0)


# --- families ---

# A child that outlives its parent, hidden as requested.
HIDE = """import os, signal, subprocess, sys, time
ways, then, folder, rank = sys.argv[1].split("+"), sys.argv[2], os.environ["E2E_FOLDER"], os.environ["RANK"]
def note(name, pid):
    with open(f"{folder}/{name}.{rank}.new", "w") as f:
        f.write(f"{pid}\\n")
    os.rename(f"{folder}/{name}.{rank}.new", f"{folder}/{name}.{rank}")
def daemon():
    if "setsid" in ways:
        os.setsid()
    if "twice" in ways and os.fork():
        os._exit(0)
    if "deaf" in ways:
        for number in range(1, 32):
            if number not in (9, 19):
                signal.signal(number, signal.SIG_IGN)
    env = {"PATH": os.environ["PATH"]} if "env" in ways else os.environ
    note("daemon", os.getpid())
    os.execvpe("sleep", ["sleep", "1000"], env)
if os.fork() == 0:
    daemon()
while not os.path.exists(f"{folder}/daemon.{rank}"):
    time.sleep(0.001)
note("pid", os.getpid())
if then == "stop":
    os.kill(os.getpid(), signal.SIGSTOP)
while not os.path.exists(f"{folder}/go"):
    time.sleep(0.001)
if then == "fail":
    os._exit(4)
if then == "leave":
    os._exit(0)
if then == "crash":
    os.kill(os.getpid(), 11)
time.sleep(1000)
"""


class Families(AdoptingTest):
    WAYS = ("plain", "setsid", "twice", "env", "setsid+twice", "setsid+env", "setsid+twice+env", "setsid+twice+env+deaf")
    ENDS = (("leave", None, 0), ("fail", None, 4), ("crash", None, 139), ("stay", signal.SIGTERM, 143), ("stop", signal.SIGTERM, 143),
            ("stay", signal.SIGKILL, -9), ("stop", signal.SIGKILL, -9))

    def one(self, ways, then, number, code, shell):
        with self.subTest(ways=ways, then=then, signal=number, shell=shell):
            for old in self.folder.glob("*.0"):
                old.unlink()
            (self.folder / "go").unlink(missing_ok=True)
            path = self.script("hide.py", HIDE)
            command = ["--", "sh", "-c", f"python3 '{path}' {ways} {then}; exit $?"] if shell else [path, ways, then]
            agent = self.start("--standalone", "--shutdown-timeout=0.3", "--restart-grace=0.3", *command)
            family = self.pids("daemon", 1) + self.pids("pid", 1)
            if number:
                agent.send_signal(number)
            else:
                (self.folder / "go").touch()
            self.left_by(agent, code)
            self.assertFalse([pid for pid in family if alive(pid)])

    def test_no_hiding_place(self):
        rows = list(itertools.product(self.WAYS, self.ENDS, (False, True)))
        for ways, (then, number, code), shell in rows if FULL else rows[::7] + rows[-2:]:
            self.one(ways, then, number, code, shell)

    def test_a_stopped_worker_holds_nobody(self):
        path = self.script("hide.py", HIDE)
        agent = self.start(
            "--standalone", "--nproc-per-node=3", "--", "sh", "-c",
            f"[ $RANK = 2 ] || exec python3 '{path}' setsid stop; while [ ! -e \"$E2E_FOLDER/go\" ]; do sleep 0.01; done; exit 9",
        )
        stopped = self.pids("pid", 2)
        wait_until(lambda: all(self.state(pid) == "T" for pid in stopped), "two workers are stopped")
        (self.folder / "go").touch()
        self.left_by(agent, 9)

    @staticmethod
    def state(pid):
        with open(f"/proc/{pid}/stat") as file:
            text = file.read()
        return text[text.rindex(")") + 2]


# --- as the init of a container ---

@unittest.skipUnless(IS_ROOT and subprocess.run(["unshare", "-pf", "--mount-proc", "true"], capture_output=True).returncode == 0,
                     "no process namespaces here")
class Process1(AdoptingTest):
    def start_init(self, *arguments):
        process = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--mount-proc", MUSTER, "run", "--standalone", *map(str, arguments)],
            cwd=self.folder, env=environment(E2E_FOLDER=str(self.folder)), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    @staticmethod
    def init_of(process):
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
            return int(file.read())

    def test_exit_codes(self):
        for body, code in (("exit 0", 0), ("exit 7", 7), ("kill -9 $$$$", 137), ("kill -TERM $$$$", 143)):
            _, err = self.finish(self.start_init("--", "sh", "-c", body), code)
            self.assertEqual("Root Cause" in err, code != 0)

    def test_signals_from_outside(self):
        path = self.script("hide.py", HIDE)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL) if FULL else (
                signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            for old in self.folder.glob("*.0"):
                old.unlink()
            process = self.start_init(path, "setsid+twice+env", "stay")
            self.pids("pid", 1)
            os.kill(self.init_of(process), number)
            self.left_by(process, 128 + number if number != signal.SIGKILL else 1)  # unshare's own code for it

    def test_orphans_of_other_programs_are_reaped(self):
        """A process that is orphaned in the namespace is handed to process 1, which must not be kept busy or filled by it."""
        path = self.script(
            "orphans.py",
            "import os, sys, time\n"
            "for i in range(200):\n"
            "    if os.fork() == 0:\n"
            "        os.setsid()\n"
            "        if os.fork() == 0:\n"
            "            os.execve('/bin/true', ['true'], {})\n"
            "        os._exit(0)\n"
            "    os.wait()\n"
            "def zombies():\n"
            "    found = 0\n"
            "    for entry in os.listdir('/proc'):\n"
            "        try:\n"
            "            found += entry.isdigit() and open(f'/proc/{entry}/stat').read().rsplit(')', 1)[1].split()[0] == 'Z'\n"
            "        except OSError:\n"
            "            pass\n"
            "    return found\n"
            "deadline = time.monotonic() + 200\n"
            "left = zombies()\n"
            "while left and time.monotonic() < deadline:\n"
            "    time.sleep(0.01)\n"
            "    left = zombies()\n"  # a second look could meet a process that ends just then
            "print(os.getppid(), left)\n",
        )
        out, _ = self.finish(self.start_init(path), 0)
        self.assertEqual(out.split(), ["1", "0"])

    def test_its_last_child_may_be_a_daemon(self):
        """A worker that leaves a daemon and exits 0: process 1 ends, and with it everything."""
        path = self.script("hide.py", HIDE)
        process = self.start_init(path, "setsid+twice+env+deaf", "leave")
        (self.folder / "go").touch()
        self.left_by(process, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[argument for argument in sys.argv if argument != "--full"])
