"""The verdict end to end: the report of a death of every kind, the job's exit code, and which others are informed.

    MUSTER_BUILD=build python3 tests/e2e/verdict_test.py [--full] [TestClass.test_name ...]

--full adds the real-time signals, and all exit codes on two nodes."""

import datetime
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import unittest

from harness import MUSTER, AgentTest, free_port, wait_until

FULL = "--full" in sys.argv
MEMORY = 1 << 20


def verdict_of(err):
    lines = [line for line in err.splitlines() if line.startswith("muster: error: verdict: ")]
    return lines[-1].removeprefix("muster: error: verdict: ") if lines else ""


def root_cause(err):
    return err[err.index("Root Cause") :]


STAY = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT, signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH}
ENDING = sorted(set(signal.Signals) - STAY - {signal.SIGRTMIN, signal.SIGRTMAX})  # whose default action ends a process

KILL_SELF = """import os, resource, signal, sys
number, core = int(sys.argv[1]), sys.argv[2] == "core"
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY if core else 0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
try:
    signal.signal(number, signal.SIG_DFL)
except (OSError, ValueError):
    pass  # KILL
signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
os.kill(os.getpid(), number)
"""


class Ends(AgentTest):
    def test_each_signal_that_ends_a_process(self):
        path = self.script("kill_self.py", KILL_SELF)
        self.assertGreater(len(ENDING), 20)
        for number in map(int, [*ENDING, *(range(signal.SIGRTMIN, signal.SIGRTMAX + 1) if FULL else [])]):
            with self.subTest(signal=number):
                _, err = self.run_muster("--standalone", path, number, "none", code=128 + number)
                name = signal.Signals(number).name if number < signal.SIGRTMIN else f"SIG{number}"
                name = {"SIGPOLL": "SIGIO"}.get(name, name)
                self.assertRegex(root_cause(err), rf"exitcode  : -{number} \(pid: \d+\) \({name}\)\n")
                self.assertRegex(root_cause(err), rf"traceback : Signal {number} \({name}\) received by PID \d+\n")
                known = r"(?m)^  memory    : (not the kernel's OOM killer|unknown whether the kernel's OOM killer ended it): "
                (self.assertRegex if number == signal.SIGKILL else self.assertNotRegex)(root_cause(err), known)
                self.assertRegex(verdict_of(err), rf"^rank 0 \(pid \d+ on \S+\) was killed by signal {number} \({name}\); exit code")

    def test_a_core_is_said_where_there_is_one(self):
        path = self.script("kill_self.py", KILL_SELF)
        if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
            self.skipTest("core files are not allowed here")
        process = subprocess.Popen([sys.executable, path, str(int(signal.SIGSEGV)), "core"], cwd=self.folder)
        _, status = os.waitpid(process.pid, 0)
        process.returncode = status
        if not os.WCOREDUMP(status):
            self.skipTest("the system writes no core files")
        _, err = self.run_muster("--standalone", path, int(signal.SIGSEGV), "core", code=139)
        self.assertIn("(SIGSEGV), core dumped; exit code 139", verdict_of(err))
        self.assertIn(", core dumped\n", root_cause(err))

    def test_exit_codes(self):
        for code in range(1, 256) if FULL else (1, 2, 3, 42, 85, 126, 127, 128, 130, 137, 138, 143, 192, 254, 255):
            with self.subTest(code=code):
                _, err = self.run_muster("--standalone", "--", "sh", "-c", f"exit {code}", code=code)
                self.assertRegex(root_cause(err), rf"exitcode  : {code} \(pid: \d+\)\n")
                self.assertRegex(verdict_of(err), rf"exited with code {code}; exit code {code}$")
                self.assertIn(f"traceback : none was recorded; exited with code {code}, and nothing was captured from its stderr\n", root_cause(err))
        self.assertEqual(self.run_muster("--standalone", "--", "sh", "-c", "exit 0")[1], "")

    def test_a_rank_that_left_early_explains_a_lost_peer(self):
        script = self.script("early.sh", """echo $$ > pid.$RANK
[ $RANK = 1 ] && exit 0
until [ -s pid.1 ] && ! kill -0 $(cat pid.1); do sleep 0.01; done
echo Connection reset by peer >&2
exit 1
""")
        _, err = self.run_muster("--standalone", "--nproc-per-node=2", "--", "sh", script, code=138)
        self.assertRegex(err, r"Exited with code 0 before, which closed connections:\n  rank 1 \(local_rank: 1\) \(pid: \d+\)\n")

    def test_a_program_that_cannot_be_started(self):
        text = self.script("vanishes", "#!/bin/sh\nrm -- \"$0\"\nexit 1\n")  # found by the first round, gone in the second
        os.chmod(text, 0o755)
        _, err = self.run_muster("--standalone", "--max-restarts=1", "--no-python", text, code=127)
        self.assertIn("traceback : could not be started: ", root_cause(err))
        self.assertIn("could not be started", verdict_of(err))


RECORD = """import json, os, sys, time
shape, code = sys.argv[1], int(sys.argv[2])
texts = {
    "dict": json.dumps({"message": {"message": "ValueError: no \\U0001f600", "extraInfo": {
        "py_callstack": "Traceback (most recent call last):\\n  File \\"train.py\\", line 1\\nValueError: no\\n",
        "timestamp": str(int(time.time()))}}}),
    "plain": json.dumps({"message": "out of luck", "timestamp": time.time()}),
    "broken": "{",
    "deep": "[" * 100000,
    "huge": '{"message": "' + "x" * (2 << 20) + '"}',
}
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    file.write(texts[shape])
print("last words", file=sys.stderr)
os._exit(code)
"""


class ErrorFiles(AgentTest):
    def record(self, shape, code=7, **options):
        path = self.script("record.py", RECORD)
        _, err = self.run_muster("--standalone", "--log-dir", self.folder / "logs", path, shape, code, code=code, **options)
        return err

    def test_both_shapes_are_shown(self):
        err = self.record("dict")
        self.assertIn(
            "  traceback : Traceback (most recent call last):\n    File \"train.py\", line 1\n  ValueError: no\n  stderr    : the last lines\n"
            "    last words\n", root_cause(err))
        self.assertRegex(root_cause(err), r"error_file: \S.*/attempt_0/0/error\.json\n")
        self.assertIn("exited with code 7: ValueError: no \U0001f600; exit code 7", verdict_of(err))
        err = self.record("plain")
        self.assertIn("traceback : out of luck\n", root_cause(err))
        self.assertIn("exited with code 7: out of luck", verdict_of(err))

    def test_without_a_log_directory_too(self):
        path = self.script("record.py", RECORD)
        temporary = self.folder / "tmp"
        temporary.mkdir()
        _, err = self.run_muster("--standalone", path, "dict", 7, code=7, env={"TMPDIR": str(temporary)})
        self.assertIn("exited with code 7: ValueError: no", verdict_of(err))
        self.assertIn("error_file: <N/A>\n", root_cause(err))  # its text is in the report
        self.assertIn("  traceback : Traceback (most recent call last):\n    File \"train.py\", line 1\n  ValueError: no\n", root_cause(err))
        self.assertEqual(list(temporary.iterdir()), [])
        self.run_muster("--standalone", path, "dict", 0, env={"TMPDIR": str(temporary)})  # written, and no failure
        self.run_muster("--standalone", "--", "sh", "-c", "exit 4", code=4, env={"TMPDIR": str(temporary)})
        self.run_muster("--standalone", "--log-dir=/dev/null", "--", "sh", "-c", '[ -z "$TORCHELASTIC_ERROR_FILE" ]',
                        env={"TMPDIR": str(temporary)})
        # as Python's tempfile does it
        _, err = self.run_muster("--standalone", "--", "sh", "-c", '[ -d "$(dirname "$TORCHELASTIC_ERROR_FILE")" ]', env={"TMPDIR": "/no/such/folder"})
        self.assertRegex(err, r"warning: TMPDIR=/no/such/folder cannot be used on this machine \(No such file or directory\): temporary files go to /")
        self.assertEqual(list(temporary.iterdir()), [])

    def test_what_cannot_be_read_is_said_and_does_no_harm(self):
        for shape in ("broken", "deep", "huge"):
            err = self.record(shape)
            self.assertIn("the error file of rank 0 is not used", err)
            self.assertRegex(root_cause(err), r"error_file: \S.*/error\.json\n")
            self.assertIn("exited with code 7: last words", verdict_of(err))

    def test_it_is_handed_to_whoever_started_the_agent(self):
        mine = self.folder / "mine.json"
        self.record("dict", env={"TORCHELASTIC_ERROR_FILE": str(mine)})
        message = json.loads(mine.read_text())["message"]
        self.assertEqual((message["message"], message["errorCode"]), ("ValueError: no \U0001f600", 7))
        mine.unlink()
        self.run_muster("--standalone", "--", "sh", "-c", "exit 9", code=9, env={"TORCHELASTIC_ERROR_FILE": str(mine)})
        message = json.loads(mine.read_text())["message"]
        self.assertIn("exited with code 9", message["message"])
        self.assertIn("Root Cause", message["extraInfo"]["py_callstack"])
        self.assertEqual(message["errorCode"], 9)


GLOO = "print('RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1', file=sys.stderr)\n"


class Causes(AgentTest):
    def test_those_that_follow_stand_apart(self):
        path = self.script(
            "cascade.py",
            "import os, signal, sys, time\n"
            "if os.environ['RANK'] == '1':\n"  # dies when it gets SIGTERM: the others were faster
            "    signal.signal(signal.SIGTERM, lambda *_: (signal.signal(11, signal.SIG_DFL), os.kill(os.getpid(), 11)))\n"
            "    open('ready', 'w').close()\n"
            "    time.sleep(1000)\n"
            "while not os.path.exists('ready'):\n"
            "    time.sleep(0.001)\n" + GLOO + "sys.exit(1)\n",
        )
        _, err = self.run_muster("--standalone", "--nproc-per-node=2", "--restart-grace=200", path, code=139)
        self.assertIn("rank      : 1 ", root_cause(err))
        self.assertIn("Failures:\n  <NO_OTHER_FAILURES>\n", err)
        followed = err[err.index("Followed another failure") : err.index("Root Cause")]
        self.assertIn("rank      : 0 ", followed)
        self.assertIn("output    : RuntimeError: [../gloo", followed)
        self.assertIn("killed by signal 11 (SIGSEGV), after it was sent SIGTERM; 1 other failed too; exit code 139", verdict_of(err))

    def test_a_failure_that_takes_time_is_not_hidden_by_the_stop(self):
        """The sockets close while Python still ends: the peers fail first, and the stop kills the raising rank."""
        path = self.script(
            "slow.py",
            "import atexit, os, sys, time\n"
            "def linger():\n"
            "    sys.stderr.flush()\n"
            "    open('closing', 'w').close()\n"
            "    time.sleep(1000)\n"
            "if os.environ['RANK'] == '1':\n"
            "    atexit.register(linger)\n"
            "    raise ValueError('no such column')\n"
            "while not os.path.exists('closing'):\n"
            "    time.sleep(0.001)\n" + GLOO + "sys.exit(1)\n",
        )
        _, err = self.run_muster("--standalone", "--nproc-per-node=3", path, code=1)
        self.assertIn("rank      : 1 ", root_cause(err))
        self.assertIn("was already failing when it was stopped: ValueError: no such column", verdict_of(err))

    def test_only_followers_still_have_a_first(self):
        path = self.script("follow.py", "import os, sys, time\nif os.environ['RANK'] == '0':\n    time.sleep(1000)\n" + GLOO + "sys.exit(1)\n")
        _, err = self.run_muster("--standalone", "--nproc-per-node=2", path, code=138)  # lost peers alone: a retry may mend it
        self.assertIn("rank      : 1 ", root_cause(err))
        self.assertRegex(err, r"Terminated by the launcher:\n  rank 0 \(local_rank: 0\) \(pid: \d+\) ended by SIGTERM\n")

    def test_a_file_system_that_stalls_does_not_hold_up_the_stop_of_the_others(self):
        """A worker's files cannot be read: the other node is stopped before its agent has given up on it."""
        path = self.script(
            "stalls.py",
            "import os, signal, sys, time\n"
            "if os.environ['RANK'] == '0':\n"
            "    while not os.path.exists('ready'):\n"
            "        time.sleep(0.001)\n"
            "    os.mkfifo(os.environ['TORCHELASTIC_ERROR_FILE'])\n"  # a process that opens it waits for the other end
            "    sys.exit(3)\n"
            "def stop(*_):\n"
            "    open('stopped', 'w').write(str(time.time()))\n"
            "    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, stop)\n"
            "open('ready', 'w').close()\n"
            "while True:\n"
            "    time.sleep(0.1)\n",
        )
        port = free_port()
        agents = [
            self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", "--log-format=json",
                       "--log-dir", self.folder / f"logs{rank}", path)
            for rank in (0, 1)
        ]
        errors = [self.finish(agent, 3)[1] for agent in agents]
        records = [json.loads(line) for line in errors[0].splitlines() if line.startswith("{")]
        gave_up = [record for record in records if "crash diagnostics skipped" in str(record)]
        self.assertEqual(len(gave_up), 1, errors[0])
        given_up_at = datetime.datetime.fromisoformat(gave_up[0]["time"].replace("Z", "+00:00")).timestamp()
        self.assertLess(float((self.folder / "stopped").read_text()), given_up_at)

    def test_all_nodes_tell_the_same(self):
        path = self.script(
            "nodes.py",
            "import os, signal, sys, time\n"
            "if os.environ['RANK'] == '3':\n"
            "    print('rank 3 was here', file=sys.stderr)\n"
            "    os.symlink(f'/proc/{os.getpid()}/stat', 'gone')\n"
            "    os.kill(os.getpid(), 9)\n"
            "def rank_3_lives():\n"  # or has not got there yet
            "    try:\n"
            "        return not os.path.islink('gone') or open('gone').read().rsplit(')', 1)[1].split()[0] != 'Z'\n"
            "    except OSError:\n"
            "        return False\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "while rank_3_lives():\n"
            "    time.sleep(0.001)\n" + GLOO + "sys.exit(1)\n",
        )
        port = free_port()
        agents = [
            self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", "--nproc-per-node=2",
                       "--log-dir", self.folder / f"logs{rank}", path)
            for rank in (0, 1)
        ]
        reports = []
        for rank, agent in enumerate(agents):
            _, err = self.finish(agent, 137)
            self.assertIn("rank      : 3 (local_rank: 1)", root_cause(err))
            self.assertIn("rank 3 was here", root_cause(err))
            reports.append(json.loads(next((self.folder / f"logs{rank}").glob("*/failure.json")).read_text()))
        first, second = (report["first_cause"] for report in reports)
        self.assertEqual(first, second)
        self.assertEqual(reports[0]["verdict"], reports[1]["verdict"])
        for report in reports:
            for other in report["others"]:
                self.assertEqual(other["class"], "followed another failure")
                self.assertGreaterEqual(other["after_s"], -5)


class Memory(AgentTest):
    """A real memory cgroup, version 1 or 2, where this user may make one."""

    def setUp(self):
        super().setUp()
        self.group = None
        limit = 100 * MEMORY
        with open("/proc/self/cgroup") as file:
            lines = [line.strip().split(":", 2) for line in file]
        for _, controllers, path in lines:
            if controllers == "memory":
                base, settings = "/sys/fs/cgroup/memory", {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
            elif controllers == "" and os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
                base, settings = "/sys/fs/cgroup", {"memory.max": limit, "memory.swap.max": 0}
            else:
                continue
            for parent in (base + path, base):
                if self.make(pathlib.Path(parent), settings):
                    return
        self.skipTest("no memory cgroup can be made here")

    def make(self, parent, settings):
        group = parent / f"muster-e2e-{os.getpid()}"
        try:
            group.mkdir()
            for name, value in settings.items():
                try:
                    (group / name).write_text(str(value))
                except OSError:
                    if "sw" not in name:  # swap may not be counted
                        raise
            (group / "cgroup.procs").read_text()
        except OSError:
            if group.exists():
                group.rmdir()
            return False
        self.group = group
        self.addCleanup(lambda: wait_until(lambda: self.remove(), "the cgroup is empty"))
        return True

    def remove(self):
        try:
            self.group.rmdir()
            return True
        except OSError:
            return False

    def join(self):
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def test_out_of_memory_is_told_from_a_kill(self):
        path = self.script(
            "eat.py",
            "import os, signal, sys, time\n"
            "if os.environ['RANK'] == '1':\n"
            "    if sys.argv[1] == 'kill':\n"
            "        time.sleep(0.5)  # the count has begun\n"
            "        os.kill(os.getpid(), signal.SIGKILL)\n"
            "    blocks = []\n"
            "    while True:\n"
            "        blocks.append(bytes(1 << 20))\n"
            "        blocks[-1] = bytearray(blocks[-1])\n"
            "time.sleep(1000)\n",
        )
        _, err = self.run_muster("--standalone", "--nproc-per-node=2", path, "eat", code=137, preexec_fn=self.join)
        self.assertIn("rank      : 1 ", root_cause(err))
        self.assertIn("out of memory: the container's limit is 100.0 MB, its peak was", verdict_of(err))
        self.assertIn("  memory    : out of memory", root_cause(err))
        _, err = self.run_muster("--standalone", "--nproc-per-node=2", path, "kill", code=137, preexec_fn=self.join)
        self.assertNotIn("memory", verdict_of(err))
        self.assertIn("killed by signal 9 (SIGKILL); exit code 137", verdict_of(err))
        self.assertIn("  memory    : not the kernel's OOM killer: its counter for this container (cgroup oom_kill) did not rise", root_cause(err))

    def test_a_child_that_is_killed_is_told_with_its_worker(self):
        path = self.script(
            "loader.py",
            "import subprocess, sys\n"
            "child = subprocess.run([sys.executable, '-c', 'b = []\\nwhile True: b.append(bytearray(1 << 20))'])\n"
            "raise RuntimeError(f'DataLoader worker exited with {child.returncode}')\n",
        )
        _, err = self.run_muster("--standalone", path, code=1, preexec_fn=self.join)
        self.assertRegex(root_cause(err), r"  memory    : the kernel killed 1 of this container's processes for lack of memory")


@unittest.skipUnless(FULL, "takes the half minute that a killed process is waited for")
class Unkillable(AgentTest):
    """A process in a frozen cgroup (version 1) is in state D and survives KILL, as a process that hangs in a driver does."""

    def test_it_is_named_and_its_node_unfit(self):
        group = pathlib.Path(f"/sys/fs/cgroup/freezer/muster-e2e-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            self.skipTest("no freezer cgroup can be made here")
        try:
            self.freeze(group)
        finally:
            (group / "freezer.state").write_text("THAWED")
            wait_until(lambda: not (group / "cgroup.procs").read_text(), "the thawed are gone")
            group.rmdir()

    def freeze(self, group):
        path = self.script(
            "frozen.py",
            "import os, sys, time\n"
            "group = sys.argv[1]\n"
            "if os.environ['RANK'] == '0':\n"
            "    with open(group + '/cgroup.procs', 'w') as file:\n"
            "        file.write(str(os.getpid()))\n"
            "    open('in', 'w').close()\n"
            "    time.sleep(1000)\n"
            "while not os.path.exists('in'):\n"
            "    time.sleep(0.001)\n"
            "with open(group + '/freezer.state', 'w') as file:\n"
            "    file.write('FROZEN')\n"
            "sys.exit(3)\n",
        )
        _, err = self.run_muster("--standalone", "--nproc-per-node=2", path, group, code=138)
        self.assertIn("rank      : 0 ", root_cause(err))
        self.assertRegex(root_cause(err), r"traceback : survived SIGKILL: process \d+ \(python3?\S*\) is in state D\n")
        self.assertIn("exitcode  : 3 ", err)  # the first failure is reported too
        self.assertIn("so its node is unfit", verdict_of(err))


class GpuErrors(AgentTest):
    """A worker writes the driver's line into the kernel log, naming itself, and ends. Not before its agent reads the log, which is some
    milliseconds after the start, when no process has used a GPU yet."""

    SCRIPT = (
        "import os, sys, time\n"
        "agent = f'/proc/{os.getppid()}/fd/'\n"
        "def reads_the_log():\n"
        "    return any(os.path.realpath(agent + file) == '/dev/kmsg' for file in os.listdir(agent))\n"
        "if os.environ['RANK'] == '1':\n"
        "    while not reads_the_log():\n"
        "        time.sleep(0.01)\n"
        "    time.sleep(0.05)\n"
        "    log = os.open('/dev/kmsg', os.O_WRONLY)\n"
        "    os.write(log, b'NVRM: Xid (PCI:0000:3B:00): 79, pid=%d, name=test, GPU has fallen off the bus.\\n' % os.getpid())\n"
        "    print('AssertionError', file=sys.stderr)\n"
        "    sys.exit(1)\n"
        "time.sleep(1000)\n"
    )

    def setUp(self):
        super().setUp()
        with open("/proc/self/status") as file:
            pids = [line.split()[1:] for line in file if line.startswith("NSpid:")]
        if not os.access("/dev/kmsg", os.R_OK | os.W_OK) or len(pids[0]) != 1:
            self.skipTest("the kernel log cannot be written here")
        self.path = self.script("gpu.py", self.SCRIPT)

    def test_an_xid_in_the_kernel_log_is_the_workers(self):
        done = self.run_with_gpu("0000:3b:00.0")
        self.assertRegex(root_cause(done), r"  gpu       : NVIDIA Xid 79 at 0000:3b:00: the GPU has fallen off the bus; ")
        self.assertIn("NVIDIA Xid 79 at GPU 0000:3b:00", verdict_of(done))

    def test_an_xid_of_a_gpu_that_this_node_has_not_is_no_cause(self):
        self.assertNotIn("Xid", self.run_with_gpu("0000:5e:00.0"))
        if not os.path.exists("/proc/driver/nvidia/gpus"):
            _, err = self.run_muster("--standalone", "--nproc-per-node=2", self.path, code=1)
            self.assertNotIn("Xid", err)

    def run_with_gpu(self, pci):
        """In a mount namespace whose /proc/driver has one GPU, as the driver shows it."""
        setup = f"mount -t tmpfs none /proc/driver && mkdir -p /proc/driver/nvidia/gpus/{pci}"
        if subprocess.run(["unshare", "-m", "sh", "-c", setup], capture_output=True).returncode:
            self.skipTest("no mount namespace can be made here")
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", setup + ' && exec "$@"', "sh", MUSTER, "run", "--standalone", "--nproc-per-node=2", self.path],
            capture_output=True, text=True, timeout=60, cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr


class Codes(AgentTest):
    def test_as_torchrun(self):
        for body in ("exit 85", "kill -SEGV $$$$", "exit 127", "exit 2"):
            _, err = self.run_muster("--standalone", "--exit-code=torchrun", "--", "sh", "-c", body, code=1)
            self.assertTrue(verdict_of(err).endswith("exit code 1"), verdict_of(err))
        self.run_muster("--standalone", "--exit-code=torchrun", "--", "true")
        self.run_muster("--standalone", "--exit-code=torchrun", "no-such-program", "--no-python", code=127)
        self.run_muster("--exit-code=other", "true", code=2)
        self.run_muster("--exit-code=torchrun", "--no-such-flag", "true", code=2)
        self.run_muster("--standalone", "--", "sh", "-c", "exit 85", code=1, env={"MUSTER_EXIT_CODE": "torchrun"})

    def test_a_signal_as_torchrun(self):
        path = self.script("stay.py", "import os, time\nopen('up', 'w').close()\ntime.sleep(1000)\n")
        process = self.start("--standalone", "--exit-code=torchrun", path)
        wait_until((self.folder / "up").exists, "the worker runs")
        process.send_signal(signal.SIGTERM)
        self.finish(process, 1)
        process = self.start("--nnodes=2", "--node-rank=1", f"--master-port={free_port()}", "--exit-code=torchrun",
                             "--signals-to-handle=SIGTERM", "true")
        wait_until(lambda: self.handles_term(process.pid), "the agent handles signals")
        process.send_signal(signal.SIGTERM)
        self.finish(process, 143)  # no worker ran

    @staticmethod
    def handles_term(pid):
        with open(f"/proc/{pid}/status") as file:
            blocked = next(line.split()[1] for line in file if line.startswith("SigBlk:"))
        return int(blocked, 16) >> (signal.SIGTERM - 1) & 1


class Files(AgentTest):
    def test_the_termination_log(self):
        log = self.folder / "termination log"
        arguments = ("--standalone", "--", "sh", "-c", "echo the end >&2; exit 6")
        _, err = self.run_muster(f"--termination-log={log}", *arguments, code=6)
        self.assertEqual(log.read_text(), verdict_of(err) + "\n")
        self.assertIn("exited with code 6: the end; exit code 6", log.read_text())
        self.run_muster(*arguments, code=6, env={"MUSTER_TERMINATION_LOG": str(log)})
        self.assertIn("exit code 6", log.read_text())
        log.unlink()
        self.run_muster(*arguments, code=6)
        self.run_muster(f"--termination-log={log}", "--standalone", "true")
        self.assertFalse(log.exists())
        _, err = self.run_muster("--termination-log=/no/such/folder/log", *arguments, code=6)
        self.assertIn("cannot open the termination log /no/such/folder/log", err)

    def test_it_also_tells_why_there_was_no_world(self):
        log = self.folder / "log"
        self.run_muster("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--join-timeout=2",
                        f"--termination-log={log}", "true", code=138)
        self.assertIn("1 of 2 nodes joined", log.read_text())

    def test_a_rejection_is_reported_there_too(self):
        log, error = self.folder / "log", self.folder / "error.json"
        rows = [
            (["--bogus", "true"], 2, "muster run: unknown flag --bogus"),
            (["--nproc-per-node=0", "true"], 2, "is outside 1 to 4096 workers"),
            (["--no-python", "no-such-program"], 127, "'no-such-program' was not found in PATH"),
        ]
        for arguments, code, said in rows:
            self.run_muster(*arguments, code=code, env={"MUSTER_TERMINATION_LOG": str(log), "TORCHELASTIC_ERROR_FILE": str(error)})
            self.assertRegex(log.read_text(), f"{re.escape(said)}.*; exit code {code}\n$")
            message = json.loads(error.read_text())["message"]
            self.assertIn(said, message["message"])
            self.assertEqual(message["errorCode"], code)
            log.unlink()
        self.run_muster(f"--termination-log={log}", "--bogus", code=2)
        self.assertIn("--bogus", log.read_text())
        log.unlink()
        self.run_muster(f"--termination-log={log}", "--dry-run", "no-such-program", code=127)
        self.assertFalse(log.exists())

    def test_failure_json(self):
        path = self.script(
            "fail.py",
            "import os, sys, time\n"
            "if os.environ['RANK'] == '1':\n"
            "    print('said \"this\"', file=sys.stderr)\n"
            "    os._exit(5)\n"
            "time.sleep(1000)\n",
        )
        logs = self.folder / "logs"
        _, err = self.run_muster("--standalone", "--nproc-per-node=2", "--max-restarts=1", "--rdzv-id=job-7", "--log-dir", logs, path, code=5)
        (found,) = logs.glob("*/failure.json")
        report = json.loads(found.read_text())
        self.assertEqual(report["version"], 1)
        self.assertEqual(report["verdict"], verdict_of(err))
        self.assertEqual((report["exit_code"], report["restarts"], report["round"]), (5, 1, 1))
        cause = report["first_cause"]
        self.assertEqual((cause["class"], cause["rank"], cause["exit_code"], cause["signal"]), ("exit code", 1, 5, None))
        self.assertEqual(cause["stderr"], 'said "this"')
        self.assertEqual([(w["rank"], w["signal_name"]) for w in report["terminated_by_launcher"]], [(0, "SIGTERM")])
        self.assertEqual(sorted(p.name for p in found.parent.iterdir() if p.is_file()), ["agent.log", "failure.json"])
        documented = pathlib.Path(__file__).resolve().parents[2].joinpath("launcher/docs/failure_json.md").read_text()
        for name in [*report, *cause, *cause["memory"]]:
            self.assertIn(f"`{name}`", documented)

    def test_success_leaves_none(self):
        logs = self.folder / "logs"
        self.run_muster("--standalone", "--log-dir", logs, "true")
        self.assertEqual(list(logs.glob("*/failure.json")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[argument for argument in sys.argv if argument != "--full"])
