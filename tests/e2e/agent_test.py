"""muster run end to end: the workers' environment, a death, and that nothing is ever left over.

    MUSTER_BUILD=build python3 tests/e2e/agent_test.py [TestClass.test_name ...]

Workers are small shell and Python programs. Every test waits on conditions with deadlines and, at its end, proves that
no process carries an agent's id that was not there before."""

import functools
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import time
import unittest

from harness import MUSTER, AgentTest, alive, free_port, wait_until


class Environment(AgentTest):
    def test_torchrun_environment_for_any_program(self):
        names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE"
        text = " ".join(f"{name}=${{{name}}}" for name in (names + " TORCHELASTIC_RESTART_COUNT TORCHELASTIC_USE_AGENT_STORE").split())
        path = self.script("show.sh", f"#!/bin/sh\necho {text}\n")
        os.chmod(path, 0o755)
        out, _ = self.run_muster("--standalone", "--nproc-per-node=2", "--", path)
        self.assertEqual(
            sorted(out.splitlines()),
            [
                f"RANK={r} LOCAL_RANK={r} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=1 ROLE_RANK={r} "
                "ROLE_WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_USE_AGENT_STORE=True"
                for r in range(2)
            ],
        )

    def test_the_store_listens_on_master_port(self):
        path = self.script(
            "connect.py",
            "import os, socket\n"
            "socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))).close()\n"
            "print(os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'])\n",
        )
        port = free_port()
        out, _ = self.run_muster(f"--master-port={port}", "--nproc-per-node=1", path)
        self.assertEqual(out.split(), ["127.0.0.1", str(port)])
        out, _ = self.run_muster("--standalone", path)
        self.assertNotEqual(out.split()[1], "0")

    def test_an_occupied_master_port_is_named(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            _, err = self.run_muster(f"--master-port={port}", "true", code=138)
            self.assertIn(str(port), err)
            # nothing is left of the earlier files
            self.run_muster(f"--master-port={port}", "--tee=3", "true", code=138, env={"TMPDIR": str(self.folder)})
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_worker_has_its_own_session_and_its_descriptors(self):
        path = self.script(
            "look.py",
            "import os, signal\n"
            "print(os.getsid(0) == os.getpid() == os.getpgid(0))\n"
            "print(sorted(int(f) for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)))\n"
            "print(signal.pthread_sigmask(signal.SIG_BLOCK, []))\n",
        )
        with open("/dev/null") as leaked:
            os.set_inheritable(leaked.fileno(), True)
            out, _ = self.run_muster("--standalone", path, close_fds=False)
        self.assertEqual(out.splitlines(), ["True", "[0, 1, 2, 3, 4]", "set()"])  # MUSTER_HEARTBEAT_FD, MUSTER_NOTICE_FD


DIE = """import os, sys, time
print("hello from", os.environ["RANK"], flush=True)
if os.environ["RANK"] == "1":
    print("Traceback: the last words of rank 1", file=sys.stderr)
with open(os.environ["E2E_FOLDER"] + "/pid." + os.environ["RANK"], "w") as f:
    f.write(str(os.getpid()) + "\\n")
time.sleep(1000)
"""


class Failures(AgentTest):
    def test_a_killed_worker_is_reported(self):
        process = self.start("--standalone", "--nproc-per-node=3", self.script("die.py", DIE))
        victim = self.pids("pid", 3)[1]
        os.kill(victim, signal.SIGKILL)
        _, err = self.finish(process, 137)
        self.assertIn("rank      : 1 (local_rank: 1)", err)
        self.assertIn(f"exitcode  : -9 (pid: {victim})", err)
        self.assertIn("SIGKILL", err)
        self.assertIn("Traceback: the last words of rank 1", err[err.index("Root Cause") :])
        self.assertIn(f"host      : {socket.gethostname()}", err)
        self.assertEqual(err.count("Root Cause"), 1)
        self.assertIn("  <NO_OTHER_FAILURES>\n", err)  # the others are listed as ended by us
        self.assertRegex(err, r"Terminated by the launcher:\n  rank 0 .*SIGTERM\n  rank 2 .*SIGTERM\n")

    def test_exit_codes(self):
        for code in (1, 3, 85):
            out, err = self.run_muster(
                "--standalone", "--nproc-per-node=2", "--", "sh", "-c", f"[ $RANK = 0 ] && exit {code}; sleep 1000", code=code
            )
            self.assertIn(f"exitcode  : {code} ", err)
        _, err = self.run_muster("--standalone", "--", "python3", "-c", "import os; os.abort()", code=134)
        self.assertIn("SIGABRT", err)

    def test_the_cause_is_the_signal_and_not_its_followers(self):
        path = self.script(
            "peers.py",
            "import fcntl, os, sys, time\n"
            "lock, held = open('lock', 'a'), 'held'\n"
            "if os.environ['RANK'] == '2':\n"
            "    fcntl.flock(lock, fcntl.LOCK_EX)\n"
            "    open(held, 'w').close()\n"
            "    time.sleep(0.1)\n"
            "    os.kill(os.getpid(), 11)\n"
            "while not os.path.exists(held):\n"
            "    time.sleep(0.001)\n"
            "fcntl.flock(lock, fcntl.LOCK_SH)\n"  # ours when rank 2 dies
            "print('RuntimeError: Connection closed by peer [127.0.0.1]', file=sys.stderr)\n"
            "sys.exit(1)\n",
        )
        _, err = self.run_muster("--standalone", "--nproc-per-node=3", path, code=139)
        self.assertIn("rank      : 2", err[err.index("Root Cause") :])

    def test_restarts_bring_all_workers_back(self):
        path = self.script(
            "again.py",
            "import os, sys, time\n"
            "count, rank = os.environ['TORCHELASTIC_RESTART_COUNT'], os.environ['RANK']\n"
            "print(f'round {count} rank {rank} {os.environ[\"MUSTER_ROUND\"]}\\n', end='', flush=True)\n"
            "if rank == '1' and count != '3':\n"
            "    os.kill(os.getpid(), 9)\n"
            "if count != '3':\n"
            "    time.sleep(1000)\n",
        )
        out, err = self.run_muster("--standalone", "--nproc-per-node=2", "--max-restarts=3", path)
        for count in range(4):
            self.assertIn(f"round {count} rank 1 {count}", out)
        self.assertIn("round 3 rank 0 3", out)
        self.assertEqual(err.count("failed (exitcode: -9)"), 3)
        self.assertNotIn("Root Cause", err)

    def test_restarts_are_used_up(self):
        out, err = self.run_muster("--standalone", "--max-restarts=2", "--", "sh", "-c", "echo try; exit 7", code=7)
        self.assertEqual(out.split(), ["try"] * 3)
        self.assertEqual(err.count("Root Cause"), 1)

    def test_programs_that_cannot_be_executed(self):
        text = self.script("text", "just text\n")
        os.chmod(text, 0o755)
        orphan = self.script("orphan", "#!/no/such/interpreter\n")
        os.chmod(orphan, 0o755)
        for program, code in (("/no/such/program", 127), ("no-such-program", 127), (str(self.folder), 126), (orphan, 127)):
            _, err = self.run_muster("--standalone", "--nproc-per-node=2", "--no-python", program, code=code)
            self.assertIn(program, err)
        _, err = self.run_muster("--standalone", "--nproc-per-node=2", "--no-python", text, code=126)
        self.assertIn(text, err)

    def test_a_limit_reached_halfway_leaves_nobody(self):
        path = self.script("stay.py", "import time\ntime.sleep(1000)\n")
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (40, 40))
        _, err = self.run_muster("--standalone", "--nproc-per-node=30", path, code=138, preexec_fn=limit)
        self.assertIn("ulimit -n", err)

    def test_an_early_exit_0_is_no_failure(self):
        out, _ = self.run_muster(
            "--standalone", "--nproc-per-node=2", "--", "sh", "-c", "[ $RANK = 0 ] && exit 0; sleep 0.3; echo later"
        )
        self.assertEqual(out, "later\n")


STAY = """import os, signal, sys, time
def note(name):
    with open(f"{os.environ['E2E_FOLDER']}/{name}.{os.environ['RANK']}", "w") as f:
        f.write(str(os.getpid()) + "\\n")
kind = sys.argv[1]
if kind == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
if kind == "polite":
    def handle(number, frame):
        time.sleep(float(sys.argv[2]))
        note("saved")
        sys.exit(0)
    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
note("pid")
while True:
    time.sleep(0.1)  # a signal just before a long one would be handled after it
"""


class Signals(AgentTest):
    def stop(self, number, code):
        (self.folder / "pid.0").unlink(missing_ok=True)
        process = self.start("--standalone", self.script("stay.py", STAY), "plain")
        self.pids("pid", 1)
        process.send_signal(number)
        _, err = self.finish(process, code)
        self.assertIn(signal.Signals(number).name, err)

    def test_each_signal_has_its_exit_code(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)):
            self.stop(number, code)

    def test_a_second_signal_loses_nobody(self):
        process = self.start("--standalone", "--nproc-per-node=2", self.script("stay.py", STAY), "polite", "0.7")
        workers = self.pids("pid", 2)
        process.send_signal(signal.SIGTERM)
        self.wait_said(process, "stopping the workers")  # else the agent may find both at one look, the lower number first
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
        self.finish(process, 143)
        self.assertEqual(self.pids("saved", 2), workers)
        self.assertFalse([pid for pid in workers if alive(pid)])

    def test_a_worker_that_ignores_term_is_killed_after_the_grace(self):
        process = self.start("--standalone", "--shutdown-timeout=0.5", self.script("stay.py", STAY), "deaf")
        worker = self.pids("pid", 1)[0]
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.finish(process, 143)
        self.assertGreaterEqual(time.monotonic() - begin, 0.45)
        self.assertFalse(alive(worker))

    def test_a_stopped_worker_hears_term(self):
        process = self.start("--standalone", "--shutdown-timeout=50", self.script("stay.py", STAY), "plain")
        worker = self.pids("pid", 1)[0]
        os.kill(worker, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        self.finish(process, 143)

    def test_hangup_that_was_ignored_stays_ignored(self):
        process = self.start(
            "--standalone",
            self.script("stay.py", STAY),
            "plain",
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
        worker = self.pids("pid", 1)[0]
        process.send_signal(signal.SIGHUP)
        os.kill(worker, signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        self.finish(process, 143)

    def test_term_while_the_world_is_forming(self):
        process = self.start("--nnodes=2", "--node-rank=1", f"--master-port={free_port()}", "true")
        self.waits(process, "no answer yet from the server")
        process.send_signal(signal.SIGTERM)
        self.finish(process, 143)  # which waits for far less than the 600 s of a world


FAMILY = """
import os, subprocess, sys, time
folder, rank = os.environ["E2E_FOLDER"], os.environ["RANK"]
hidden = subprocess.Popen(["sleep", "1000"], start_new_session=True)
bare = subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"]})
for name, pid in (("hidden", hidden.pid), ("bare", bare.pid), ("self", os.getpid())):
    with open(f"{folder}/{name}.{rank}", "w") as f:
        f.write(f"{pid}\\n")
if sys.argv[1:] == ["leave"]:
    os._exit(0)
if sys.argv[1:] == ["fail"]:
    os._exit(4)
time.sleep(1000)
"""


class Leftovers(AgentTest):
    def family(self, count):
        return [pid for name in ("hidden", "bare", "self") for pid in self.pids(name, count)]

    def test_nobody_outlives_a_killed_agent(self):
        path = self.script("family.py", FAMILY)
        process = self.start(
            "--standalone", "--nproc-per-node=2", "--", "sh", "-c", f"python3 '{path}'; true", env={"TMPDIR": str(self.folder)}
        )
        family = self.family(2)
        self.assertTrue(all(map(alive, family)))
        self.assertEqual(len(list(self.folder.glob("muster_errors_*"))), 1)
        process.kill()
        wait_until(lambda: not [pid for pid in family if alive(pid)], "the descendants are gone")

        def guardians():
            return [p for p in os.listdir("/proc") if p.isdigit() and self.is_guardian_here(p)]

        wait_until(lambda: not guardians(), "the guardian is gone")
        self.assertEqual(list(self.folder.glob("muster_errors_*")), [])

    def guardians(self):
        """{name: pid}: the second one follows the first after a moment."""
        return {pathlib.Path(f"/proc/{pid}/comm").read_text().strip(): int(pid)
                for pid in os.listdir("/proc") if pid.isdigit() and self.is_guardian_here(pid)}

    def test_nothing_outlives_an_agent_that_is_killed_with_a_guardian(self):
        """Each guardian killed with the agent, or stopped before it; pkill by the agent's name and by its command line."""
        def together(process, guardians, name):
            os.kill(guardians[name], signal.SIGKILL)
            process.kill()

        def stopped(process, guardians, name):
            for pid in guardians.values():
                os.kill(pid, signal.SIGSTOP)
            os.kill(guardians[name], signal.SIGKILL)
            process.kill()

        def by_name(_, guardians, name):
            for pid in guardians.values():
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() + pathlib.Path(f"/proc/{pid}/comm").read_bytes()
                self.assertNotIn(b"muster", words)
            subprocess.run(["pkill", "-9", "-x", "muster", "-P", str(os.getpid())], check=True)

        for how in together, stopped, by_name:
            for name in "rank-guardian", "rank-watchman":
                with self.subTest(how=how.__name__, name=name):
                    process = self.start("--standalone", self.script("family.py", FAMILY))
                    family = self.family(1)
                    wait_until(lambda: len(self.guardians()) == 2, "both guardians")
                    how(process, self.guardians(), name)
                    process.wait()
                    wait_until(lambda family=family: not [pid for pid in family if alive(pid)], "the descendants are gone", 2)
                    wait_until(lambda: not self.guardians(), "the guardians are gone")
                    for old in self.folder.glob("*.0"):
                        old.unlink()

    def test_the_next_agent_ends_the_rest_of_one_that_was_killed_with_both_guardians(self):
        """By the file that it locks in --state-dir. The file of an agent that lives is left alone."""
        where = ["--rdzv-id=job", f"--state-dir={self.folder}/state", "--max-restarts=3"]
        process = self.start(*where, self.script("family.py", FAMILY))
        family = self.family(1)
        wait_until(lambda: len(self.guardians()) == 2, "both guardians")
        together = [process.pid, *self.guardians().values()]
        for pid in together:
            os.kill(pid, signal.SIGSTOP)
        for pid in together[1:] + together[:1]:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not self.guardians(), "the guardians are gone")
        left = [pid for pid in family if alive(pid)]
        self.assertTrue(left, "descendants in sessions of their own stay")
        other = self.start("--rdzv-id=job.other", f"--state-dir={self.folder}/state", "sleep", "1000")
        wait_until(lambda: len(list((self.folder / "state").glob("*.muster-agent"))) == 2, "its file")
        _, err = self.run_muster(*where, "--", "true")
        self.assertRegex(err, r"killed \d+ processe?s? of an agent of this job that was killed together with its guardians")
        self.assertEqual([pid for pid in family if alive(pid)], [])
        self.assertEqual(len(list((self.folder / "state").glob("*.muster-agent"))), 1)
        self.assertIsNone(other.poll())
        other.send_signal(signal.SIGTERM)
        self.finish(other, 143)
        self.assertEqual(list((self.folder / "state").glob("*.muster-agent")), [])

    def is_guardian_here(self, pid):
        try:
            with open(f"/proc/{pid}/comm") as file:
                return file.read().strip() in ("rank-guardian", "rank-watchman") and str(self.folder) in self.folder_of(pid)
        except OSError:
            return False

    def test_a_killed_guardian_is_replaced(self):
        process = self.start("--standalone", self.script("family.py", FAMILY))
        family = self.family(1)

        for name in "rank-guardian", "rank-watchman":
            wait_until(lambda: len(self.guardians()) == 2, "both guardians")
            killed = self.guardians()[name]
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda name=name, killed=killed: self.guardians().get(name, killed) != killed, "another guardian")
        process.kill()
        wait_until(lambda: not [pid for pid in family if alive(pid)], "the descendants are gone")

    def test_grandchildren_do_not_outlive_a_stop(self):
        process = self.start("--standalone", self.script("family.py", FAMILY))
        family = self.family(1)
        process.send_signal(signal.SIGTERM)
        self.finish(process, 143)
        self.assertFalse([pid for pid in family if alive(pid)])

    def test_what_workers_leave_behind_is_ended(self):
        for how, code in (("leave", 0), ("fail", 4)):
            for old in self.folder.glob("*.0"):
                old.unlink()
            process = self.start("--standalone", self.script("family.py", FAMILY), how)
            family = self.family(1)
            self.finish(process, code)
            self.assertFalse([pid for pid in family if alive(pid)])

    def test_bystanders_live(self):
        other = self.start("--standalone", self.script("stay.py", STAY), "plain")
        worker = self.pids("pid", 1)[0]
        victim = self.start("--standalone", self.script("family.py", FAMILY))
        family = self.family(1)
        victim.kill()
        wait_until(lambda: not [pid for pid in family if alive(pid)], "the descendants are gone")
        self.assertTrue(alive(worker))
        other.send_signal(signal.SIGTERM)
        self.finish(other, 143)

    def test_an_agent_inside_an_agent(self):
        inner = self.script("family.py", FAMILY)
        process = self.start("--standalone", "--", MUSTER, "run", "--standalone", inner)
        family = self.family(1)
        process.kill()
        wait_until(lambda: not [pid for pid in family if alive(pid)], "the descendants are gone")


class TwoNodes(AgentTest):
    def nodes(self, *arguments, ranks=(0, 1), port=None, **options):
        port = port or free_port()
        return [
            self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", *arguments, **options)
            for rank in ranks
        ]

    def test_a_static_world(self):
        script = ("--nproc-per-node=2", "--", "sh", "-c", "echo $RANK/$WORLD_SIZE $GROUP_RANK $LOCAL_RANK $MASTER_PORT")
        port = free_port()
        for order in ((0, 1), (1, 0)):
            lines = []
            for process in self.nodes(*script, ranks=order, port=port):
                lines += self.finish(process, 0)[0].splitlines()
            self.assertEqual([line.split()[:3] for line in sorted(lines)], [[f"{r}/4", str(r // 2), str(r % 2)] for r in range(4)])
            self.assertEqual(len({line.split()[3] for line in lines}), 1)

    def test_a_failure_ends_both_with_its_code(self):
        path = self.script("die.py", DIE)
        first, second = self.nodes("--nproc-per-node=1", path)
        victim = self.pids("pid", 2)[1]
        os.kill(victim, signal.SIGKILL)
        for process in (first, second):
            _, err = self.finish(process, 137)
            self.assertIn("rank      : 1", err[err.index("Root Cause") :])
            self.assertIn("the last words of rank 1", err[err.index("Root Cause") :])

    def test_restart_on_both(self):
        path = self.script(
            "again.py",
            "import os, time\n"
            "count = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
            "print(f'round {count} {os.environ[\"RANK\"]}\\n', end='', flush=True)\n"  # one write: a kill cuts no line
            "if count == '0':\n"
            "    if os.environ['RANK'] == '1':\n"
            "        while not os.path.exists('said'):\n"
            "            time.sleep(0.001)\n"
            "        os._exit(9)\n"
            "    open('said', 'w').close()\n"
            "    time.sleep(1000)\n",
        )
        for rank, process in enumerate(self.nodes("--max-restarts=1", path)):
            out, _ = self.finish(process, 0)
            self.assertEqual(out.split(), ["round", "0", str(rank), "round", "1", str(rank)])

    def test_a_lost_agent_ends_the_other(self):
        for lost in (0, 1):
            for old in self.folder.glob("pid.*"):
                old.unlink()
            processes = self.nodes("--nproc-per-node=1", self.script("stay.py", STAY), "plain")
            workers = self.pids("pid", 2)
            processes[lost].kill()
            self.finish(processes[1 - lost], 138)
            wait_until(lambda: not [pid for pid in workers if alive(pid)], "all workers are gone")

    def test_a_signal_to_one_agent_ends_both(self):
        processes = self.nodes("--nproc-per-node=1", self.script("stay.py", STAY), "plain")
        self.pids("pid", 2)
        processes[1].send_signal(signal.SIGTERM)
        for process in processes:
            self.finish(process, 143)

    def test_nobody_comes(self):
        process = self.nodes("--join-timeout=2", "true", ranks=(0,))[0]
        _, err = self.finish(process, 138)
        self.assertIn("missing rank 1", err)

    def test_without_zeromq_its_package_is_named(self):
        (self.folder / "libzmq.so.5").touch()
        hidden = {"LD_LIBRARY_PATH": str(self.folder)}
        self.run_muster("--standalone", "true", env=hidden)
        for rank in (0, 1):
            process = self.nodes("true", ranks=(rank,), env=hidden)[0]
            _, err = self.finish(process, 1)
            self.assertIn("(package libzmq5)", err)

    def test_a_master_that_cannot_be_resolved(self):
        process = self.start(
            "--nnodes=2", "--node-rank=1", "--master-addr=no-such-host.invalid", "--join-timeout=0.5", "true"
        )
        _, err = self.finish(process, 138)
        self.assertIn("no-such-host.invalid", err)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[sys.argv[0], *sys.argv[1:]])
