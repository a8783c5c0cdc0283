"""Shared by the end-to-end tests: a folder a test, agents started in it, waits with a bound, and the proof that nothing is
left over.

Standard library only. MUSTER_BUILD names the build directory. Every process of a test carries E2E_FOLDER, by which it is found
wherever it hides."""

import contextlib
import ctypes
import gc
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from harness.ports import free_port  # noqa: F401: for the tests

BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", pathlib.Path(__file__).resolve().parents[3] / "build")).resolve()
MUSTER = str(BUILD / "bin" / "muster")
AFTERMATH_S = 30  # what workers may still write when no agent runs any more
LIMIT = 480 if os.environ.get("MUSTER_SANITIZED") else 240  # for any wait; a test that needs it has failed

gc.set_threshold(100000, 20, 20)  # a test is short, and collections are a tenth of its time

# What nohup, or a shell that starts something in its background, ignores would be ignored by agents and workers too.
for number, action in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, action)


def be_prompt():
    """An agent that gets no processor for 2.5 s is lost, and niceness 19 on a busy machine is enough for that: agents of several
    nodes run at the usual niceness, where this process may choose it."""
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)


def environment(**more):
    drop = re.compile(r"PET_|MUSTER_AGENT_ID|MUSTER_ROUND|TORCHELASTIC_|TORCH_|PYTHON|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$")
    kept = {name: value for name, value in os.environ.items() if not drop.match(name)}
    kept["OMP_NUM_THREADS"] = "1"
    kept.update(more)
    return kept


def carriers():
    """{pid: command} of the processes that carry any agent's id, agents and guardians not among them."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if b"MUSTER_AGENT_ID=" not in file.read():
                    continue
            with open(f"/proc/{entry}/stat", "rb") as file:
                text = file.read()
            if text[text.rindex(b")") + 2 :][:1] != b"Z":
                found[int(entry)] = text
        except OSError:
            continue
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return False
    return text[text.rindex(b")") + 2 :][:1] not in (b"Z", b"X")


def adopt_orphans():
    """From now on whatever loses its parent below this process becomes its child, as under an init: nothing that a test's
    programs leave can hide, in any session and environment."""
    PR_SET_CHILD_SUBREAPER = 36
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def children():
    """{pid: (name, state)} of this process's children, including exited children that were not waited for."""
    found = {}
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as file:
            for pid in file.read().split():
                try:
                    with open(f"/proc/{pid}/stat") as stat:
                        text = stat.read()
                except OSError:
                    continue
                found[int(pid)] = (text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2])
    return found


def wait_until(condition, what, limit=LIMIT, step=0.005):
    """The condition's value, as soon as it has one. what: the name in the error; a function gives it as it is at the end."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what() if callable(what) else what}: not within {limit} s")
        time.sleep(step)


@contextlib.contextmanager
def repeated_beside(step):
    """Takes the step again and again in a thread, until this is left."""
    over = threading.Event()

    def repeat():
        while not over.is_set():
            step()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Machine:
    """How slow the machine is while this is entered, measured then by a canary (tests/support/canary.h). A promise of so many seconds
    is one for an idle machine; bound() is how long it may take on this one, now.

        with Machine() as machine:
            took = ...
        self.assertLess(took, machine.bound(2.5))"""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster canary ")
        self.record = pathlib.Path(self.folder.name) / "record"
        command = [str(BUILD / "tests" / "apart"), "--here", "--canary", str(self.record), "--every", "10",
                   "cat"]  # which ends with its input
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.begun = time.monotonic()
        return self

    LEAST = 0.5  # seconds that are measured, beyond the end of what took less

    def __exit__(self, *_):
        left = self.begun + self.LEAST - time.monotonic()
        try:
            self.process.wait(max(0, left))
        except subprocess.TimeoutExpired:
            pass  # it goes on until its input ends
        self.process.stdin.close()
        self.process.wait()
        words = self.record.read_text().split()
        self.folder.cleanup()
        values = {name: float(value) for name, value in zip(words[::2], words[1::2])}
        self.factor, self.largest = max(1.0, values["slowest"]), values["largest_ms"] / 1000

    def bound(self, seconds):
        """Everything so much slower, and one wait more."""
        return seconds * self.factor + self.largest

    def __str__(self):
        return f"the machine is {self.factor:.2f} times slower than idle, its longest wait {self.largest * 1000:.0f} ms"


class AgentTest(unittest.TestCase):
    """A test with a folder of its own; at its end no process of it may be left."""

    def setUp(self):
        be_prompt()
        self.scratch = tempfile.TemporaryDirectory(prefix="muster e2e ")  # with blanks on purpose
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)
        self.started = []
        self.shm = self.shared_memory()
        self.addCleanup(self.nothing_left)

    def nothing_left(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
        mine = str(self.folder)

        def gone():
            return not [pid for pid in carriers() if mine in self.folder_of(pid)]

        wait_until(gone, "every process of this test is gone")
        if os.environ.get("TEST_APART"):  # else it is shared with whatever runs next to the test
            self.assertEqual(self.shared_memory() - self.shm, set())

    @staticmethod
    def shared_memory():
        """Error files stay where an agent was killed after they were written; tests of them look themselves."""
        return {name for name in os.listdir("/dev/shm") if not name.startswith("muster_errors_")}

    @staticmethod
    def folder_of(pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                match = re.search(rb"(?:^|\0)E2E_FOLDER=([^\0]*)", file.read())
            return match.group(1).decode() if match else ""
        except OSError:
            return ""

    def await_files(self, condition, what):
        """Waits for files that workers leave in the folder; the error lists those that are there."""
        return wait_until(condition, lambda: f"{what}; there are {sorted(os.listdir(self.folder))}")

    def script(self, name, text):
        """A file in the test's folder. It changes as a whole: a process that was started before may just be reading it."""
        path, new = self.folder / name, self.folder / f"{name}.new"
        new.write_text(text)
        new.rename(path)
        return str(path)

    def start(self, *arguments, env=None, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen(
            [MUSTER, "run", *map(str, arguments)],
            env=environment(E2E_FOLDER=str(self.folder), **(env or {})),
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            **options,
        )
        self.started.append(process)
        return process

    def finish(self, process, code):
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired as late:
            self.fail(f"muster run does not end; it said:\n{(late.stderr or b'').decode(errors='replace')}")
        self.assertEqual(process.returncode, code, f"stdout:\n{out}\nstderr:\n{err}")
        return out or "", err or ""

    def wait_said(self, process, text):
        """Reads stderr until the text is there; the text so far is kept in process.said."""
        said = getattr(process, "said", "").encode()
        deadline = time.monotonic() + LIMIT
        os.set_blocking(process.stderr.fileno(), False)
        while text.encode() not in said:
            self.assertLess(time.monotonic(), deadline, f"'{text}' was not said:\n{said.decode(errors='replace')}")
            try:
                chunk = os.read(process.stderr.fileno(), 65536)
                if not chunk:
                    break
                said += chunk
            except BlockingIOError:
                time.sleep(0.005)
        os.set_blocking(process.stderr.fileno(), True)
        process.said = said.decode()
        self.assertIn(text, process.said)

    @staticmethod
    def status(process):
        """The agent's status; None where it does not answer yet, or any more."""
        command = [MUSTER, "status", f"--pid={process.pid}", "--output=json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def waits(self, process, text):
        """Waits until the agent waits for a world, and the text is in its status."""

        def read():
            status = self.status(process)
            return status and text in status["waiting"]

        wait_until(read, f"an agent that waits: {text}")

    def run_muster(self, *arguments, code=0, **options):
        return self.finish(self.start(*arguments, **options), code)

    def pids(self, name, count):
        """Waits until files name.0 .. name.<count-1> hold the pids that the workers wrote there."""

        def read():
            found = []
            for i in range(count):
                path = self.folder / f"{name}.{i}"
                text = path.read_text() if path.exists() else ""
                if not text.endswith("\n"):
                    return None
                found.append(int(text))
            return found

        over = []

        def there():
            found = read()
            if not found and all(agent.poll() is not None for agent in self.started):
                over.append(time.monotonic())
                if over[-1] - over[0] > AFTERMATH_S:
                    raise AssertionError(f"{count} pids in {name}.*: they are not there, and no agent runs")
            return found

        try:
            return wait_until(there, f"{count} pids in {name}.*")
        except AssertionError as late:
            self.fail(f"{late}\n{self.printed_so_far()}")

    def printed_so_far(self):
        """How the agents ended, and their output that is not read yet."""
        found = []
        for agent in self.started:
            text = b""
            if agent.stderr and not agent.stderr.closed:
                os.set_blocking(agent.stderr.fileno(), False)
                with contextlib.suppress(BlockingIOError):
                    text = os.read(agent.stderr.fileno(), 1 << 16)
            found.append(f"agent {agent.pid}, exit code {agent.poll()}: {text.decode(errors='replace')}")
        files = sorted(path.name for path in self.folder.iterdir())
        return "\n".join([*found, f"files: {files}"])


class AdoptingTest(AgentTest):
    """A test that adopts its agents' orphans, and proves that there are none."""

    @classmethod
    def setUpClass(cls):
        adopt_orphans()
        cls.before = set(children())

    def new_children(self):
        mine = {process.pid for process in self.started}
        return {pid: about for pid, about in children().items() if pid not in mine and pid not in self.before}

    def nobody_is_left(self, killed=False):
        """To be called when all agents have ended: at once there is no process, not even a zombie; where an agent was killed, as soon
        as its guardian has done its work, and exited children are this process's to wait for."""
        if not killed:
            self.assertEqual(self.new_children(), {}, "the agents left these behind")
            return
        wait_until(lambda: all(state == "Z" for _, state in self.new_children().values()), "nobody outlives the agents")
        for pid in self.new_children():
            os.waitpid(pid, 0x40000000)  # __WALL: a guardian sends no SIGCHLD

    def left_by(self, agent, code):
        agent.wait(timeout=LIMIT)
        self.nobody_is_left(killed=agent.returncode < 0)
        self.assertEqual(agent.returncode, code)

    def nothing_left(self):
        super().nothing_left()
        self.nobody_is_left(killed=True)
