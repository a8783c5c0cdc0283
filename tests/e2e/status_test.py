"""The status of running agents: muster status, /healthz, /metrics and /status, asked by good and by bad clients.

    MUSTER_BUILD=build python3 tests/e2e/status_test.py [TestClass.test_name ...]
"""

import ctypes.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from harness import LIMIT, MUSTER, AgentTest, free_port, wait_until

SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
HAVE_HTTP = bool(ctypes.util.find_library("microhttpd"))


class StatusTest(AgentTest):
    def gate(self):
        """A worker that runs until the file `go` is there; each shows that it runs by a file of its own."""
        return self.script("gate.sh", 'echo $$ >up.$RANK\nwhile [ ! -e go ]; do sleep 0.02; done\n')

    def open_gate(self):
        (self.folder / "go").touch()

    def status(self, *arguments, code=0, **options):
        command = [MUSTER, "status", *map(str, arguments)]

        def answered():
            """An agent that gets no processor for the 5 s that it is let wait is asked again."""
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **options)
            return None if code == 0 and done.returncode and "does not respond" in done.stdout + done.stderr else done

        done = wait_until(answered, "an answer")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else (done.stdout, done.stderr)

    def json_of(self, process):
        return json.loads(self.status("--pid", process.pid, "--output=json"))

    def has_agent(self, process):
        return subprocess.run([MUSTER, "status", "--pid", str(process.pid)], capture_output=True).returncode == 0

    def get(self, port, path, host="127.0.0.1"):
        """An answer; there is always one, since no test here stops the agent's loop."""
        status, text = self.get_once(port, path, host)
        self.assertNotEqual(status, 503, f"{path}: {text}")
        return status, text

    @staticmethod
    def get_once(port, path, host):
        request = urllib.request.Request(f"http://{host}:{port}{path}")
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


class Command(StatusTest):
    def test_table_and_json_need_no_environment(self):
        agent = self.start("--standalone", "--nproc-per-node=3", "--rdzv-id=a job", "--", "sh", self.gate())
        self.pids("up", 3)
        text = self.status("--pid", agent.pid, env={}, cwd="/")
        self.assertIn(f"agent     {agent.pid} on {os.uname().nodename}, up 0:0", text)
        self.assertIn("job       a job\n", text)
        self.assertIn("round 0: 3 workers on 1 node, this is node 0 with ranks 0-2", text)
        self.assertEqual(len(re.findall(r"^ +\d +\d +\d+  running", text, re.M)), 3)
        status = self.json_of(agent)
        self.assertEqual((status["pid"], status["job_id"], status["state"]), (agent.pid, "a job", "RUNNING"))
        self.assertEqual([worker["pid"] for worker in status["workers"]], self.pids("up", 3))
        self.assertEqual(status["world"]["world_size"], 3)
        self.open_gate()
        self.finish(agent, 0)

    def test_a_checkpoint_is_asked_of_a_worker_that_handles_the_signal(self):
        path = self.script(
            "work.sh",
            '[ $RANK = 1 ] && trap "echo $$ >asked.$RANK" USR2\necho $$ >up.$RANK\nwhile [ ! -e go ]; do sleep 0.02; done\n',
        )
        agent = self.start("--standalone", "--nproc-per-node=2", "--rdzv-id=a job", "--", "sh", path)
        pids = self.pids("up", 2)
        done = subprocess.run([MUSTER, "checkpoint", "--no-wait", "--pid", str(agent.pid)], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, f"asked rank 1 (pid {pids[1]}) for a checkpoint; rank 0 prints its path when it is written\n")
        wait_until(lambda: (self.folder / "asked.1").exists(), "the signal")
        self.open_gate()
        self.finish(agent, 0)

    def test_a_checkpoint_is_refused_where_no_worker_handles_the_signal(self):
        agent = self.start("--standalone", "--", "sh", self.gate())
        self.pids("up", 1)
        done = subprocess.run([MUSTER, "checkpoint", "--pid", str(agent.pid)], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^muster checkpoint: error: agent \d+: no worker of this node handles SIGUSR2, .*muster-train.*\n$")
        self.open_gate()
        self.finish(agent, 0)  # the worker did not die of it
        none = subprocess.run([MUSTER, "checkpoint", "--pid", "1"], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(none.returncode, 1)
        self.assertIn("muster checkpoint: error: no agent (muster run) of this user with pid 1 responds", none.stderr)

    def test_what_became_of_workers_and_restarts(self):
        path = self.script(
            "work.sh",
            'echo $$ >up.$RANK.$TORCHELASTIC_RESTART_COUNT\n[ $RANK = 1 ] && exit 0\n'
            "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 7\nwhile [ ! -e go ]; do sleep 0.02; done\n",
        )
        agent = self.start("--standalone", "--nproc-per-node=2", "--max-restarts=2", "--", "sh", path)
        wait_until(lambda: (self.folder / "up.0.1").exists(), "the second round runs")

        def seen():
            status = self.json_of(agent)
            return [worker["state"] for worker in status["workers"]] == ["running", "exited"] and status

        status = wait_until(seen, "one worker runs, one has exited")
        self.assertEqual((status["restarts"], status["max_restarts"], status["failures"]), (1, 2, 1))
        self.assertEqual(status["world"]["round"], 1)
        self.open_gate()
        self.finish(agent, 0)

    def test_steps_that_workers_tell(self):
        path = self.script("beat.sh", 'echo 41 >&$MUSTER_HEARTBEAT_FD\necho $$ >up.$RANK\nwhile [ ! -e go ]; do sleep 0.02; done\n')
        agent = self.start("--standalone", "--", "sh", path)
        self.pids("up", 1)
        worker = wait_until(lambda: "step" in (w := self.json_of(agent)["workers"][0]) and w, "a step is known")
        self.assertEqual(worker["step"], 41)
        self.assertGreaterEqual(worker["beat_age_s"], 0)
        self.assertRegex(self.status("--pid", agent.pid), r"running +41  \d+\.\d s ago\n")
        self.open_gate()
        self.finish(agent, 0)

    def test_a_world_that_forms(self):
        port = free_port()
        world = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}", f"--rdzv-id=forming-{port}", "--"]
        command = ["sh", self.gate()]
        first = self.start("--node-rank=0", *world, *command)
        wait_until(lambda: self.has_agent(first), "the agent can be asked")
        self.assertEqual(self.json_of(first)["state"], "WAITING")
        self.assertIsNone(self.json_of(first)["world"])
        waiting = wait_until(lambda: self.json_of(first)["waiting"], "who is missing is known")
        self.assertIn("missing rank 1", waiting)
        table = self.status("--pid", first.pid)
        self.assertIn("not formed yet, 2 nodes required", table)
        self.assertIn(f"waiting   {waiting}\n", table)
        second = self.start("--node-rank=1", *world, *command)
        self.pids("up", 2)
        out, err = self.status("--job", f"forming-{port}", code=2)  # both: one has to be chosen
        self.assertEqual(len(out.splitlines()), 3)
        self.assertIn("choose one with --pid or --job", err)
        listed = json.loads(self.status("--job", f"forming-{port}", "-ojson", code=2)[0])
        self.assertEqual({a["pid"]: a["node_rank"] for a in listed["agents"]}, {first.pid: 0, second.pid: 1})
        self.assertEqual(self.json_of(second)["world"]["group_rank"], 1)
        self.open_gate()
        self.finish(first, 0)
        self.finish(second, 0)

    def test_nobody_there(self):
        _, err = self.status("--pid", os.getpid(), code=1)
        self.assertIn(f"no agent (muster run) of this user with pid {os.getpid()}", err)
        self.assertIn("'nonsense' is not a flag", self.status("nonsense", code=2)[1])
        self.assertIn("is not one of table, json", self.status("--output=xml", code=2)[1])

    def test_an_agent_that_is_stopped_does_not_answer(self):
        agent = self.start("--standalone", "--", "sh", self.gate())
        self.pids("up", 1)
        agent.send_signal(signal.SIGSTOP)
        _, err = self.status("--pid", agent.pid, code=1)
        self.assertIn("does not respond", err)
        agent.send_signal(signal.SIGCONT)
        self.assertEqual(self.json_of(agent)["state"], "RUNNING")
        self.open_gate()
        self.finish(agent, 0)

    def test_others_that_are_stopped_keep_nobody_waiting(self):
        """Eight that do not answer would be forty seconds."""
        agents = [self.start("--standalone", "--", "sh", self.gate()) for _ in range(9)]
        for agent in agents:
            wait_until(lambda: self.has_agent(agent), "the agent can be asked")
        for agent in agents[1:]:
            agent.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        self.assertEqual(self.json_of(agents[0])["pid"], agents[0].pid)
        self.assertLess(time.monotonic() - begin, 39)
        for agent in agents[1:]:
            agent.send_signal(signal.SIGCONT)
        self.open_gate()
        for agent in agents:
            self.finish(agent, 0)

    @unittest.skipIf(os.geteuid() != 0, "only root can become another user")
    def test_other_users_get_nothing(self):
        agent = self.start("--standalone", "--", "sh", self.gate())
        self.pids("up", 1)
        with open("/proc/net/unix") as table:
            name = next(line.split()[7] for line in table if f"@muster-agent-0-{agent.pid}-" in line)
        probe = self.script(
            "probe.py",
            "import os, socket, sys\nos.setuid(65534)\n"
            "s = socket.socket(socket.AF_UNIX)\ns.connect('\\0' + sys.argv[1])\n"
            "try:\n    s.sendall(b'json\\n')\n    print(len(s.recv(10)))\nexcept OSError:\n    print(0)\n",
        )
        done = subprocess.run(["python3", probe, name[1:]], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.stdout, "0\n", done.stderr)
        self.open_gate()
        self.finish(agent, 0)


@unittest.skipUnless(HAVE_HTTP, "libmicrohttpd12 is not installed")
class Http(StatusTest):
    def serve(self, *arguments, **options):
        port = free_port()
        agent = self.start("--standalone", f"--metrics-port={port}", *arguments, "--", "sh", self.gate(), **options)
        self.pids("up", 1)
        return agent, port

    def test_the_three_paths(self):
        agent, port = self.serve("--nproc-per-node=2", "--max-restarts=5")
        self.pids("up", 2)
        self.assertEqual(self.get(port, "/healthz"), (200, "ok\n"))
        code, text = self.get(port, "/metrics")
        self.assertEqual(code, 200)
        for line in ("muster_world_size 2", 'muster_agent_state{state="RUNNING"} 1', "muster_restarts_budget 5",
                     'muster_workers{state="running"} 2', 'muster_worker_up{rank="1",local_rank="1"} 1'):
            self.assertIn(line, text.splitlines())
        served = set(re.findall(r"^# HELP (\w+)", text, re.M))
        described = set(re.findall(r"`(muster_\w+)", (SOURCE / "launcher" / "docs" / "status.md").read_text()))
        of_training = set(re.findall(r"\"(muster_train_\w+)\"", (SOURCE / "launcher" / "policy" / "figures.h").read_text()))  # e2e_train_report
        self.assertEqual(served | of_training, described)
        self.assertEqual(json.loads(self.get(port, "/status")[1])["pid"], agent.pid)
        self.assertEqual(self.get(port, "/else")[0], 404)
        self.open_gate()
        self.finish(agent, 0)

    def test_alive_while_the_world_forms(self):
        port, metrics = free_port(), free_port()
        agent = self.start("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={port}", "--", "true",
                           env={"MUSTER_METRICS_PORT": str(metrics), "MUSTER_METRICS_ADDR": "127.0.0.1"})
        wait_until(lambda: self.has_agent(agent), "the agent can be asked")
        self.assertEqual(self.get(metrics, "/healthz"), (200, "ok\n"))
        self.assertIn('muster_agent_state{state="WAITING"} 1', self.get(metrics, "/metrics")[1])
        agent.terminate()
        self.finish(agent, 143)

    def test_slow_and_silent_clients(self):
        agent, port = self.serve("--metrics-addr=127.0.0.1")
        crowd = [socket.create_connection(("127.0.0.1", port), timeout=LIMIT) for _ in range(300)]  # more than may be served
        for client in crowd[::2]:
            client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        asked = json.loads(self.get(port, "/status")[1])  # waits until silent ones are dropped
        self.assertEqual(asked["state"], "RUNNING")
        slow = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n":
            slow.sendall(bytes([byte]))
        self.assertIn(b"200 OK", slow.recv(4096))
        slow.close()
        for client in crowd:
            client.close()
        flood = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        try:
            flood.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 1000000)
            self.assertRegex(flood.recv(4096), rb"^$|^HTTP/1.1 4")
        except OSError:
            pass  # hung up on, which is as good
        flood.close()
        self.assertEqual(self.get(port, "/healthz")[0], 200)
        self.open_gate()
        self.finish(agent, 0)

    def test_leaving_waits_for_no_client(self):
        agent, port = self.serve()
        client = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        client.sendall(b"GET /met")
        self.open_gate()
        self.finish(agent, 0)
        client.close()

    def test_a_port_that_is_taken(self):
        agent, port = self.serve()
        _, err = self.run_muster("--standalone", f"--metrics-port={port}", "--", "true", code=138)
        self.assertIn(f"--metrics-port: cannot listen on every address: port {port} is in use by pid {agent.pid}", err)
        _, err = self.run_muster("--standalone", f"--metrics-port={port}", "--metrics-addr=here", "--", "true", code=2)
        self.assertIn("not a numeric address", err)
        self.open_gate()
        self.finish(agent, 0)


class WithoutTheLibrary(StatusTest):
    def test_the_package_is_named(self):
        """A file that is no library comes before the real one."""
        (self.folder / "libmicrohttpd.so.12").write_text("no library")
        _, err = self.run_muster("--standalone", "--metrics-port=1", "--", "true", code=1,
                                 env={"LD_LIBRARY_PATH": str(self.folder)})
        self.assertIn("(package libmicrohttpd12)", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
