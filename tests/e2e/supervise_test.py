"""Supervision end to end: every signal at every phase, once, twice and KILL; workers that do not want to end; hangs; restarts
that outlive the agent. After each, no process is left and the exit code is the right one.

    MUSTER_BUILD=build python3 tests/e2e/supervise_test.py [--full] [TestClass.test_name ...]

--full takes the whole matrix; without it every signal, phase and kind of worker is there at least once."""

import errno
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import unittest

from harness import LIMIT, MUSTER, AdoptingTest, alive, environment, free_port, wait_until
from harness.preload import preload

FULL = "--full" in sys.argv
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

WORKER = """import os, signal, subprocess, sys, time
kind, folder, rank = sys.argv[1], os.environ["E2E_FOLDER"], os.environ["RANK"]
def note(name, pid=None):
    with open(f"{folder}/{name}.{rank}", "w") as f:
        f.write(f"{pid or os.getpid()}\\n")
stops = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
if kind == "deaf":
    for number in stops:
        signal.signal(number, signal.SIG_IGN)
else:
    for number in stops:  # also where it was ignored when we were started
        signal.signal(number, signal.SIG_DFL)
if kind == "polite":
    def handle(number, frame):
        note("saved")
        os._exit(0)
    for number in stops:
        signal.signal(number, handle)
if kind == "daemon":  # out of the session, out of the parent's sight, nothing in its environment
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execve("/bin/sh", ["sh", "-c", f"echo $$ > '{folder}/daemon.{rank}'; exec sleep 1000"], {"PATH": os.environ["PATH"]})
    os.waitpid(child, 0)
else:
    note("daemon")
note("pid")
if kind == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
if kind == "leaves":
    os._exit(0)
while True:
    time.sleep(0.1)
"""
# Short sleeps wherever a handler of Python's is waited for: a signal between the interpreter's last look and the system call that
# sleeps is handled only when that ends.

# kind: (whether the grace must run out before it is gone, whether sh -c is before it)
KINDS = {
    "plain": (False, False),
    "polite": (False, False),
    "stopped": (False, False),
    "daemon": (False, False),
    "shell": (False, True),
    "deaf": (True, False),
}


class SuperviseTest(AdoptingTest):
    def command(self, kind):
        path = self.script("worker.py", WORKER)
        if kind == "shell":
            return ["--", "sh", "-c", f"python3 '{path}' plain; true"]
        return [path, kind]

    def all_gone(self, pids):
        wait_until(lambda: not [pid for pid in pids if alive(pid)], f"the processes {pids} are gone")

    def family(self, count):
        return self.pids("pid", count) + self.pids("daemon", count)

    def clear(self):
        for old in [*self.folder.glob("*.[0-9]"), *self.folder.glob("go")]:
            old.unlink()


class Phases(SuperviseTest):
    """Each phase is a function that brings agents to that phase. It returns (the agent to signal, the others, the workers and their
    child processes)."""

    WITH_WORKERS_OF_A_KIND = ("starting", "running", "elastic_server_running")

    def phase_forming_client(self, kind):
        port = free_port()
        agent = self.start("--nnodes=2", "--node-rank=1", f"--master-port={port}", *self.command(kind))
        wait_until(lambda: self.handles(agent, signal.SIGTERM), "the agent watches signals")
        return agent, [], []

    def phase_forming_server(self, kind):
        agent = self.start("--nnodes=2", "--node-rank=0", f"--master-port={free_port()}", *self.command(kind))
        wait_until(lambda: self.handles(agent, signal.SIGTERM), "the agent watches signals")
        return agent, [], []

    def phase_starting(self, kind):
        agent = self.start("--standalone", "--nproc-per-node=6", "--shutdown-timeout=0.5", *self.command(kind))
        return agent, [], self.pids("pid", 1)

    def phase_running(self, kind):
        agent = self.start("--standalone", "--nproc-per-node=2", "--shutdown-timeout=0.5", *self.command(kind))
        return agent, [], self.family(2)

    def phase_stopping(self, kind):
        agent = self.start("--standalone", "--nproc-per-node=2", "--shutdown-timeout=5", *self.command("deaf"))  # time for the next signal
        family = self.family(2)
        agent.send_signal(signal.SIGTERM)
        self.wait_said(agent, "stopping the workers")
        return agent, [], family

    def phase_exit_barrier(self, kind):
        port = free_port()
        agents = [
            self.start(
                "--nnodes=2", f"--node-rank={rank}", f"--master-port={port}", "--shutdown-timeout=0.5",
                f"--join-timeout={self.join_timeout}", *self.command("leaves" if rank == 0 else "plain"),
            )
            for rank in (0, 1)
        ]
        first, second = self.pids("pid", 2)
        wait_until(lambda: not alive(first), "node 0's worker has left")
        return agents[0], agents[1:], [first, second]

    def phase_back_off(self, kind):
        path = self.script(
            "fails.sh", "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3\n"  # which is restarted at once
            "echo $$ > pid.$RANK\nwhile [ $RANK = 1 ] && [ ! -s pid.0 ]; do sleep 0.01; done\n[ $RANK = 1 ] && exit 3\nsleep 1000\n"
        )
        agent = self.start(
            "--standalone", "--nproc-per-node=2", "--max-restarts=2", "--restart-backoff=60", "--", "sh", path
        )
        workers = self.pids("pid", 2)
        self.all_gone(workers)
        return agent, [], workers

    def phase_stopping_to_restart(self, kind):
        return self.after_a_failure("--max-restarts=1")

    def phase_stopping_to_end(self, kind):
        return self.after_a_failure()

    def after_a_failure(self, *arguments):
        """A worker of three has failed, another does not want to go."""
        path = self.script("worker.py", WORKER)
        agent = self.start(
            "--standalone", "--nproc-per-node=3", "--restart-grace=6", "--shutdown-timeout=6", *arguments, "--",
            "sh", "-c",
            f"[ $RANK = 0 ] || exec python3 '{path}' deaf; while [ ! -e go ]; do sleep 0.01; done; exit 9",
        )
        wait_until(lambda: (self.folder / "pid.1").exists() and (self.folder / "pid.2").exists(), "two workers that are deaf")
        (self.folder / "pid.0").write_text("0\n")
        family = self.pids("pid", 3)[1:]
        (self.folder / "go").touch()
        self.wait_said(agent, "rank 0 ")
        return agent, [], family

    def elastic(self, node, *command):
        return self.start(
            "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", f"--local-addr=127.0.0.{node + 1}",
            "--shutdown-timeout=0.5", f"--join-timeout={self.join_timeout}", *command, env={"MUSTER_HOSTNAME": f"node-{node}"},
        )

    def phase_elastic_forming_server(self, kind):
        self.port = free_port()
        agent = self.elastic(0, *self.command(kind))
        wait_until(lambda: self.handles(agent, signal.SIGTERM), "the agent watches signals")
        return agent, [], []

    def phase_elastic_forming_client(self, kind):
        self.port = free_port()
        agent = self.elastic(1, *self.command(kind))
        wait_until(lambda: self.handles(agent, signal.SIGTERM), "the agent watches signals")
        return agent, [], []

    def phase_elastic_server_running(self, kind):
        self.port = free_port()
        agents = [self.elastic(node, *self.command(kind)) for node in (0, 1)]
        return agents[0], agents[1:], self.family(2)

    @staticmethod
    def handles(process, number):
        """Whether the agent blocks the signal already, so that it is read and not acted on by the kernel."""
        try:
            with open(f"/proc/{process.pid}/status") as file:
                masks = dict(line.split(":\t") for line in file if line.startswith("SigBlk"))
            return int(masks["SigBlk"], 16) >> (number - 1) & 1
        except (OSError, KeyError):
            return False

    def one(self, phase, number, kind, times):
        with self.subTest(phase=phase, signal=number.name, kind=kind, times=times):
            self.clear()
            # The others wait so long for a server that may come back: a killed server, or a server that an elastic job's node took with it.
            awaited = number == signal.SIGKILL or (phase, number) == ("elastic_server_running", signal.SIGTERM)
            self.join_timeout = 10 if awaited else 60
            agent, others, family = getattr(self, f"phase_{phase}")(kind)
            for _ in range(times):
                agent.send_signal(number)
            if number == signal.SIGKILL:
                code = -number
            elif phase == "stopping":
                code = 143  # the first word is the last
            else:
                code = 128 + number
            agent.wait(timeout=LIMIT)
            self.assertEqual(agent.returncode, code, getattr(agent, "said", "") + agent.stderr.read())
            for other in others:
                other.wait(timeout=LIMIT)
                self.assertEqual(other.returncode, 138 if awaited else code)
            self.nobody_is_left(killed=number == signal.SIGKILL)
            self.assertFalse([pid for pid in family if alive(pid)])

    def test_matrix(self):
        phases = [name[len("phase_") :] for name in dir(self) if name.startswith("phase_")]
        if FULL:
            rows = list(itertools.product(phases, (*STOPS, signal.SIGKILL), KINDS, (1, 2)))
            rows = [row for row in rows if row[2] == "plain" or row[0] in self.WITH_WORKERS_OF_A_KIND]
        else:
            numbers = itertools.cycle((*STOPS, signal.SIGKILL))
            rows = [(phase, next(numbers), kind, 2) for phase, kind in zip(phases, itertools.cycle(KINDS))]
            rows += [("running", next(numbers), kind, 1) for kind in KINDS]
            rows += [(phase, signal.SIGKILL, "plain", 1) for phase in phases]
            rows += [("running", number, "plain", 2) for number in STOPS]
        for phase, number, kind, times in rows:
            if number == signal.SIGKILL and times == 2 or kind == "polite" and phase == "starting" and not FULL:
                continue
            self.one(phase, number, kind, times)

    def test_a_node_that_is_done_may_go(self):
        """At the exit barrier, its part done: the others lose nothing with it and end well."""
        for number in (*STOPS, signal.SIGKILL):
            with self.subTest(signal=number.name):
                self.clear()
                port = free_port()
                work = "echo $$$$ > pid.$RANK; [ $RANK = 1 ] || while [ ! -e go ]; do sleep 0.01; done"
                server, client = [
                    self.start("--nnodes=2", f"--node-rank={rank}", f"--master-port={port}", "--", "sh", "-c", work) for rank in (0, 1)
                ]
                first, _ = self.pids("pid", 2)
                wait_until(lambda: self.is_done(client), "node 1 says that its part is done, and the server knows")
                client.send_signal(number)
                self.finish(client, -number if number == signal.SIGKILL else 128 + number)
                self.assertTrue(alive(first))
                (self.folder / "go").touch()
                self.finish(server, 0)

    def is_done(self, agent):
        status = self.status(agent)
        return status and status["state"] == "DONE" and not status["waiting"]

    def test_a_polite_worker_is_never_cut_off(self):
        for number, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)):
            self.clear()
            agent = self.start("--standalone", "--nproc-per-node=2", *self.command("polite"))
            family = self.family(2)
            agent.send_signal(number)
            agent.send_signal(second)
            agent.wait(timeout=LIMIT)
            self.assertEqual(self.pids("saved", 2), self.pids("pid", 2))
            self.assertIn(agent.returncode, (128 + number, 128 + second))  # both may have been there at the first look
            self.all_gone(family)

    def test_a_signal_that_is_not_listed_has_its_default_action(self):
        agent = self.start("--standalone", "--signals-to-handle=TERM", *self.command("plain"))
        family = self.family(1)
        agent.send_signal(signal.SIGINT)
        agent.wait(timeout=LIMIT)
        self.assertEqual(agent.returncode, -signal.SIGINT)
        self.all_gone(family)

    def test_passed_on_signals_stop_nothing(self):
        path = self.script(
            "notice.py",
            "import os, signal, sys, time\n"
            "def note(n, f):\n"
            "    open(f\"{os.environ['E2E_FOLDER']}/noticed.{os.environ['RANK']}\", 'w').write(f'{os.getpid()}\\n')\n"
            "signal.signal(signal.SIGUSR1, note)\n"
            "open(f\"{os.environ['E2E_FOLDER']}/pid.{os.environ['RANK']}\", 'w').write(f'{os.getpid()}\\n')\n"
            "while True:\n"
            "    time.sleep(0.1)\n",
        )
        agent = self.start("--standalone", "--nproc-per-node=2", "--forward-signals=USR1", path)
        workers = self.pids("pid", 2)
        agent.send_signal(signal.SIGUSR1)
        self.assertEqual(self.pids("noticed", 2), workers)
        self.assertTrue(all(map(alive, workers)))
        agent.send_signal(signal.SIGTERM)
        self.finish(agent, 143)

    def test_orphans_are_reaped_while_workers_run(self):
        path = self.script(
            "orphans.py",
            "import os, time\n"
            "for i in range(20):\n"
            "    if os.fork() == 0:\n"
            "        if os.fork() == 0:\n"
            "            time.sleep(0.05)\n"
            "        os._exit(0)\n"
            "    os.wait()\n"
            "open(os.environ['E2E_FOLDER'] + '/pid.0', 'w').write(f'{os.getpid()}\\n')\n"
            "time.sleep(1000)\n",
        )
        agent = self.start("--standalone", path)
        worker = self.pids("pid", 1)[0]
        children = f"/proc/{agent.pid}/task/{agent.pid}/children"

        def only_the_worker():
            with open(children) as file:
                pids = set(map(int, file.read().split()))
            return worker in pids and len(pids) <= 3  # the guardians are two

        wait_until(only_the_worker, "the orphans are reaped")
        agent.send_signal(signal.SIGTERM)
        self.finish(agent, 143)

    def test_a_shell_as_process_1_is_warned_of(self):
        probe = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
        if subprocess.run([*probe, "true"], capture_output=True).returncode:
            self.skipTest("no namespaces here")
        for shell, warned in ((f"'{MUSTER}' run --standalone true; true", True), (f"exec '{MUSTER}' run --standalone true", False)):
            done = subprocess.run([*probe, "sh", "-c", shell], capture_output=True, text=True, env=environment(), timeout=LIMIT)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("start it with: exec muster run" in done.stderr, warned, done.stderr)


# Rank 1 hangs in step 5 only when the others have got there, and theirs is the last beat: which rank is late is never a matter of which
# was quick.
BEAT = """import os, pathlib, signal, sys, time
rank, count, fd = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["MUSTER_HEARTBEAT_FD"])
here, others = pathlib.Path(os.environ["E2E_FOLDER"]), [r for r in range(int(os.environ["WORLD_SIZE"])) if r != 1]
how = sys.argv[1]
def beat(step):
    os.write(fd, b"%d\\n" % step)
def beat_until(step, files):
    while not all(map(pathlib.Path.exists, files)):
        beat(step)
        time.sleep(0.01)
if how == "tells":
    signal.signal(signal.SIGUSR1, lambda n, f: print("asked", flush=True))
for step in range(10):
    if step == 5 and rank == 1 and count == 0:
        def here_it_hangs():
            beat_until(4, [here / f"ahead.{r}" for r in others])
            (here / "hangs").touch()
            if how == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                time.sleep(0.1)
        here_it_hangs()
    if step == 6 and count == 0:  # a collective that rank 1 does not join
        (here / f"ahead.{rank}").touch()
        beat_until(5, [here / "hangs"])
        beat(5)
        while True:
            time.sleep(0.1)
    beat(step)
beat(-1)
time.sleep(4.5)  # longer than the timeout: a phase that is not watched
"""


class Scope(SuperviseTest):
    """--signal-scope: a worker's child serves it while it saves."""

    LOADS = """import os, signal, subprocess, sys, time
loader = subprocess.Popen([sys.executable, "-c", "for line in open(0): print(line, end='', flush=True)"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

def load(text):
    try:
        print(text, file=loader.stdin, flush=True)
    except BrokenPipeError:
        return ""
    return loader.stdout.readline().strip()

def stop(*_):
    if loader.poll() is None:  # where it was signalled too, it is about to die
        try:
            loader.wait(0.3)
        except subprocess.TimeoutExpired:
            pass
    print("saved with", repr(load("the last batch")), flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGUSR1, lambda *_: print("noted,", load("still here"), flush=True))
print("ready", load("the first batch"), flush=True)
while True:
    time.sleep(0.1)
"""

    def stopped(self, *flags, passed_on=False):
        process = self.start("--standalone", *flags, "--forward-signals=USR1", self.script("loads.py", self.LOADS))
        self.assertEqual(process.stdout.readline(), "ready the first batch\n")
        if passed_on:
            process.send_signal(signal.SIGUSR1)
            self.assertEqual(process.stdout.readline(), "noted, still here\n")
        process.terminate()
        out, _ = self.finish(process, 143)
        return out

    def test_loaders_live_until_their_worker_has_saved(self):
        self.assertEqual(self.stopped(passed_on=True), "saved with 'the last batch'\n")

    def test_a_whole_session_gets_the_signal_on_demand(self):
        self.assertEqual(self.stopped("--signal-scope=group"), "saved with ''\n")

    def test_what_a_wrapper_leaves_behind_gets_the_signal(self):
        inner = self.script("inner.py", "import signal, sys, time\n"
                            "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))\n"
                            "print('ready', flush=True)\nwhile True:\n    time.sleep(0.1)\n")  # fmt: skip
        process = self.start("--standalone", "--shutdown-timeout=60", "--", "sh", "-c", f"python3 '{inner}'; true")
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.terminate()
        out, _ = self.finish(process, 143)
        self.assertEqual(out, "saved\n")


class Hangs(SuperviseTest):
    def test_the_rank_behind_is_named_and_shown(self):
        for how in ("silent", "stopped", "tells"):
            out, err = self.run_muster(
                "--standalone", "--nproc-per-node=3", "--hang-timeout=4", self.script("beat.py", BEAT), how, code=134
            )
            for old in [*self.folder.glob("ahead.*"), self.folder / "hangs"]:
                old.unlink()
            self.assertIn("rank 1 (pid ", err)
            self.assertIn("last steps here: step 4: rank 1; step 5: ranks 0, 2", err)
            self.assertIn("in here_it_hangs", err)  # Python's own stack
            self.assertRegex(err, r"pid \d+ \(python3\) is in state [RST]; \d+ thread")
            self.assertIn("rank      : 1", err[err.index("Root Cause") :])
            self.assertEqual("asked" in out, how == "tells")

    def test_the_round_restarts(self):
        _, err = self.run_muster(
            "--standalone", "--nproc-per-node=2", "--hang-timeout=4", "--max-restarts=1", self.script("beat.py", BEAT), "silent"
        )
        self.assertIn("is hung: no heartbeat for 4 s", err)
        self.assertNotIn("Root Cause", err)

    def test_who_never_beats_is_not_suspected(self):
        _, err = self.run_muster("--standalone", "--hang-timeout=0.1", "--max-restarts=1", "--", "sleep", "0.7")
        self.assertEqual(err.count("--hang-timeout=0.1 detects no hang: no worker of this node has sent a heartbeat"), 1, err)
        _, err = self.run_muster("--standalone", "--hang-timeout=2", "--", "sh", "-c", "echo 1 >&$MUSTER_HEARTBEAT_FD; sleep 0.1")
        self.assertNotIn("detects no hang", err)
        _, err = self.run_muster("--standalone", "--hang-watch=outside", "--", "true", code=2)
        self.assertIn("--hang-watch=outside needs a time limit: give --hang-timeout=SECONDS", err)

    def test_a_proc_that_never_answers_is_named_once(self):
        hangs = {"LD_PRELOAD": preload("failing_files.so"), "FAILING_FILES": "open:/wchan:-1"}
        _, err = self.run_muster("--standalone", "--hang-timeout=1", "--hang-watch=outside", "--", "sleep", "2.5", env=hangs)
        self.assertEqual(err.count("--hang-watch=outside: /proc has not answered for 1 s, and no hang is detected until it does"), 1, err)

    def test_workers_without_heartbeats_are_watched_from_outside(self):
        """Three ranks wait for ever: two in a read, one elsewhere. A rank that computes or writes clears the node."""
        waits = ("import faulthandler, os, sys, time\n"
                 "def alive():\n    end = time.monotonic() + 3\n"
                 "    while time.monotonic() < end:\n        how = sys.argv[1]\n"
                 "        sum(range(100000)) if how == 'computes' else print('.', flush=True)\n"
                 "        time.sleep(0 if how == 'computes' else 0.2)\n"
                 "    open('over', 'w').close()\n"
                 "def rest():\n    while not os.path.exists('over'):\n        time.sleep(0.2)\n"
                 "def stuck():\n    time.sleep(600) if os.environ['RANK'] == '1' else os.read(os.pipe()[0], 1)\n"
                 "stuck() if sys.argv[1] == 'stuck' else alive() if os.environ['RANK'] == '1' else rest()\n")  # fmt: skip
        path, flags = self.script("waits.py", waits), ("--standalone", "--nproc-per-node=3", "--hang-timeout=2", "--hang-watch=outside")
        _, err = self.run_muster(*flags, path, "stuck", code=134)
        self.assertRegex(err, r"rank 1 \(pid \d+\) is hung: no worker here used 1% of a processor or wrote output for 2 s; rank 1 waits in ")
        self.assertIn("in stuck", err)
        self.assertIn("rank      : 1", err[err.index("Root Cause") :])
        for how in ("computes", "writes"):
            (self.folder / "over").unlink(missing_ok=True)
            self.run_muster(*flags, path, how)

    def test_two_nodes_agree(self):
        port = free_port()
        path = self.script("beat.py", BEAT)
        agents = [
            self.start("--nnodes=2", f"--node-rank={rank}", f"--master-port={port}", "--hang-timeout=4", path, "silent")
            for rank in (0, 1)
        ]
        for agent in agents:
            _, err = self.finish(agent, 134)
            self.assertIn("Root Cause", err)


class Barrier(SuperviseTest):
    def test_the_serving_agent_does_not_wait_for_ever(self):
        port, path = free_port(), self.script("worker.py", WORKER)
        script = f"[ $RANK = 0 ] && exit 0; setsid python3 '{path}' deaf & while [ ! -s pid.1 ]; do sleep 0.05; done"
        first, second = (
            self.start(
                "--nnodes=2", f"--node-rank={rank}", f"--master-port={port}", "--restart-grace=1000", "--", "sh", "-c", script,
                env={"TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT": "1"},
            )
            for rank in (0, 1)
        )
        self.finish(first, 0)  # the other has the verdict too, but its worker's orphan does not end
        self.assertIsNone(second.poll())
        left = int((self.folder / "pid.1").read_text())
        self.assertTrue(alive(left))
        os.kill(left, signal.SIGKILL)
        self.finish(second, 0)


class Kept(SuperviseTest):
    def test_restarts_are_counted_on_over_lives(self):
        path = self.script("count.sh", "#!/bin/sh\necho $TORCHELASTIC_RESTART_COUNT\necho 1 > \"$E2E_FOLDER/pid.0\"\nsleep 1000\n")
        os.chmod(path, 0o755)
        where = ["--rdzv-id=job", f"--state-dir={self.folder}/state", "--max-restarts=1"]
        for life in (0, 1):
            self.clear()
            agent = self.start(*where, "--", path)
            self.pids("pid", 1)
            state = self.folder / "state" / "job.muster-job"
            wait_until(lambda: state.exists() and f"restarts {life}\n" in state.read_text(), "the count is kept")
            self.assertEqual(agent.stdout.readline(), f"{life}\n")  # it comes through the agent
            agent.kill()
            agent.wait(LIMIT)
        _, err = self.run_muster(*where, "--", path, code=1)
        self.assertIn("1 of 1 restarts were used", err)
        _, err = self.run_muster(*where, "--", path, code=1)
        self.assertIn("is over", err)

    def test_a_job_that_is_over_stays_so(self):
        for id, script, code in (("good", "exit 0", 0), ("bad", "exit 7", 7)):
            where = [f"--rdzv-id={id}", f"--state-dir={self.folder}/state", "--", "sh", "-c", f"echo ran; {script}"]
            self.assertEqual(self.run_muster(*where, code=code)[0], "ran\n")
            self.assertEqual(self.run_muster(*where, code=code)[0], "")

    def test_a_signal_costs_no_restart(self):
        where = ["--rdzv-id=job", f"--state-dir={self.folder}/state"]
        agent = self.start(*where, *self.command("plain"))
        self.pids("pid", 1)
        agent.send_signal(signal.SIGTERM)
        self.finish(agent, 143)
        self.assertEqual(self.run_muster(*where, "--", "sh", "-c", "echo $TORCHELASTIC_RESTART_COUNT")[0], "0\n")

    def test_a_signal_ends_the_wait_for_a_volume(self):
        fifo = self.folder / "job.muster-job"  # a process that opens it waits for the other end
        os.mkfifo(fifo)
        for flags in (["--rdzv-id=job", f"--state-dir={self.folder}"], ["--log-dir=/dev/null", f"--event-log-handler={fifo}"]):
            agent = self.start(*flags, "--", "true")
            wait_until(lambda: self.waits_for_a_thread(agent.pid), "a thread is at it and signals are watched")
            agent.send_signal(signal.SIGTERM)
            _, err = self.finish(agent, 143)
            self.assertIn(f"muster: error: {flags[-1].split('=')[0]}: stopped by SIGTERM", err)

    @staticmethod
    def waits_for_a_thread(pid):
        with open(f"/proc/{pid}/status") as file:
            status = file.read()
        blocked = int(re.search(r"SigBlk:\s*(\w+)", status).group(1), 16)
        return blocked >> (signal.SIGTERM - 1) & 1 and int(re.search(r"Threads:\s*(\d+)", status).group(1)) > 1

    def test_a_state_that_cannot_be_read_is_no_damage_and_may_be_retried(self):
        where = ["--rdzv-id=job", f"--state-dir={self.folder}/state", "--", "sh", "-c", "echo ran"]
        self.run_muster(*where)
        for call, number in (("open", errno.EACCES), ("read", errno.EIO)):
            failing = {"LD_PRELOAD": preload("failing_files.so"), "FAILING_FILES": f"{call}:job.muster-job:{number}"}
            out, err = self.run_muster(*where, code=138, env=failing)
            self.assertEqual(out, "")
            self.assertIn("--state-dir: ", err)
            self.assertNotIn("damaged", err)
        self.assertEqual(self.run_muster(*where)[0], "")  # it is over

    def test_a_damaged_state_is_an_error_that_says_what_to_do(self):
        (self.folder / "job.muster-job").write_text("junk")
        _, err = self.run_muster("--rdzv-id=job", f"--state-dir={self.folder}", "true", code=2)
        self.assertIn("remove it to begin the job anew", err)

    def test_leftovers_in_shared_memory(self):
        path = self.script(
            "shm.py",
            "import os\n"
            "name = f'/dev/shm/torch_{os.getpid()}_1_0'\n"
            "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
            "    open(name, 'w').close()\n"
            "    os._exit(3)\n",
        )
        _, err = self.run_muster("--standalone", "--max-restarts=1", path)
        self.assertRegex(err, r"removed 1 files of dead workers from /dev/shm: torch_\d+_1_0")


class Events(SuperviseTest):
    def test_a_restart_in_events(self):
        file = self.folder / "events"
        self.run_muster(
            "--standalone", "--nproc-per-node=2", "--max-restarts=1", f"--event-log-handler={file}", "--",
            "sh", "-c", "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exit 3; sleep 1000",
        )
        events = [json.loads(line) for line in file.read_text().splitlines()]
        seen = [(e["name"].rsplit(".", 1)[1], e["source"], e["metadata"]["global_rank"], e["metadata"]["exit_code"]) for e in events]
        self.assertEqual(
            seen[:5],
            [
                ("RENDEZVOUS", "AGENT", None, None),
                ("START", "AGENT", None, None),
                ("FAILED", "WORKER", 1, 3),
                ("TERMINATED", "WORKER", 0, -15),
                ("RENDEZVOUS", "AGENT", None, None),
            ],
        )
        self.assertEqual(sorted(seen[6:8], key=str), [("SUCCEEDED", "WORKER", rank, 0) for rank in (0, 1)])
        self.assertEqual(seen[8], ("SUCCEEDED", "AGENT", None, 0))
        self.assertTrue(all(e["name"].startswith("torchelastic.worker.status.") for e in events))

    @unittest.skipUnless(FULL, "takes more than a minute")
    def test_who_left_early_is_named_after_a_minute(self):
        agent = self.start("--standalone", "--nproc-per-node=2", "--", "sh", "-c", "[ $RANK = 1 ] && exit 0; sleep 1000")
        self.wait_said(agent, "exited 0 60 s ago")
        self.assertIn("rank 1", agent.said)
        agent.send_signal(signal.SIGTERM)
        self.finish(agent, 143)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[argument for argument in sys.argv if argument != "--full"])
