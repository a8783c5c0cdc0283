"""The job's page and its data: reports of all nodes to the serving one, access to it, and clients that mean harm.

    MUSTER_BUILD=build python3 tests/e2e/page/page_test.py [--full] [TestClass.test_name ...]
"""

import ctypes.util
import json
import os
import pathlib
import pty
import re
import resource
import socket
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import LIMIT, MUSTER, AgentTest, Machine, free_port, wait_until  # noqa: E402

SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE", pathlib.Path(__file__).resolve().parents[3]))
HAVE_HTTP = bool(ctypes.util.find_library("microhttpd"))
HAVE_CURSES = bool(ctypes.util.find_library("ncursesw"))
FULL = "--full" in sys.argv
NASTY = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"

# A worker that beats, hands figures over and writes lines; it ends when the file `go` is there.
WORK = r"""
echo $$ >up.$RANK.$TORCHELASTIC_RESTART_COUNT
echo "mark/1 imported" >&$MUSTER_HEARTBEAT_FD
echo 'line of rank '$RANK' <img src=x onerror=alert(1)></script><script>alert(2)</script>'
echo "an error of rank $RANK" >&2
step=$((10 * TORCHELASTIC_RESTART_COUNT))
while [ ! -e go ]; do
  step=$((step + 1))
  printf '%d\nfigures/1 loss=%d.5 tokens_per_s=1000 step_ms=50 exposed_ms=5 slow_rank=1 slow_ms=7 my.value=42\n' $step $step >&$MUSTER_HEARTBEAT_FD
  sleep 0.05
done
"""


@unittest.skipUnless(HAVE_HTTP, "libmicrohttpd12 is not installed")
class PageTest(AgentTest):
    def work(self):
        return self.script("work.sh", WORK)

    def open_gate(self):
        (self.folder / "go").touch()

    def ask(self, port, path, host="127.0.0.1", **headers):
        request = urllib.request.Request(f"http://{host}:{port}{path}", headers={name.replace("_", "-"): text for name, text in headers.items()})
        opener = urllib.request.build_opener(NoRedirect)
        try:
            with opener.open(request, timeout=LIMIT) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    def board(self, port):
        code, _, text = self.ask(port, "/board.json")
        self.assertEqual(code, 200, text)
        return json.loads(text)

    def board_where(self, port, condition, what):
        def met():
            try:
                board = self.board(port)
            except (urllib.error.URLError, ConnectionError):
                board = None  # it does not listen yet
                if self.started and all(agent.poll() is not None for agent in self.started):
                    self.fail(f"{what}: no agent runs\n{self.printed_so_far()}")
            return board if board and condition(board) else time.sleep(0.1)

        return wait_until(met, what)

    def muster(self, *arguments, code=0):
        done = subprocess.run([MUSTER, *arguments], capture_output=True, text=True, timeout=LIMIT, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    @staticmethod
    def ranks(board):
        return {rank["rank"]: rank for node in board["nodes"] for rank in node["ranks"]}


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Data(PageTest):
    def test_all_nodes_meet_at_the_server_and_a_kill_is_told(self):
        port, metrics, other_metrics = free_port(), free_port(), free_port()
        world = ["--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}", "--rdzv-id=<b>job",
                 "--max-restarts=2", f"--state-dir={self.folder}"]
        command = ["--", "sh", self.work()]
        server = self.start("--node-rank=0", f"--metrics-port={metrics}", *world, *command)
        other = self.start("--node-rank=1", f"--metrics-port={other_metrics}", *world[:-1], *command)
        board = self.board_where(metrics, lambda b: len(self.ranks(b)) == 4 and all("figures" in r for r in self.ranks(b).values()), "all ranks")
        self.assertEqual((board["job"], board["serves"], board["program"]), ("<b>job", True, "sh"))
        self.assertEqual(self.ranks(board)[3]["figures"]["my.value"], 42)
        self.assertGreater(self.ranks(board)[0]["memory"], 10000)
        self.assertGreaterEqual(self.ranks(board)[3]["import_ms"], 0)
        lines = wait_until(lambda: json.loads(self.ask(metrics, "/lines.json?rank=3")[2]).get("lines"), "lines of the other node")
        self.assertEqual(lines, f"line of rank 3 {NASTY}\nan error of rank 3")
        self.assertFalse(self.board(other_metrics)["serves"])
        self.assertEqual(set(self.ranks(self.board(other_metrics))), {2, 3})
      
        os.kill(int((self.folder / "up.3.0").read_text()), 9)
        board = self.board_where(metrics, lambda b: len(b["rounds"]) == 2 and "first_ms" in b["rounds"][1] and len(b["points"]) > 1, "the job came back")
        self.assertRegex(board["rounds"][0]["cause"], r"^rank 3 \(pid \d+ on .*\) was killed by signal 9 \(SIGKILL\)")
        for part in ("detect_ms", "stop_ms", "form_ms", "start_ms", "import_ms", "first_ms"):
            self.assertLess(board["rounds"][1][part], 60000, part)
        self.assertEqual(board["rounds"][1]["restarts"], 1)
        self.assertEqual([board["rounds"][i]["first_step"] for i in range(2)], [1, 11])  # as WORK counts
        self.assertEqual(board["slowest_rank"], 1)
        self.open_gate()
        self.finish(server, 0)
        self.finish(other, 0)
        kept = json.loads(next(self.folder.glob("*.muster-board.json")).read_text())
        self.assertEqual((kept["over"], kept["exit_code"], len(kept["rounds"])), (True, 0, 2))
        self.assertEqual({rank["state"] for rank in self.ranks(kept).values()}, {"exited"})
        report = self.muster("report", f"--state-dir={self.folder}")
        self.assertLess(len(report.encode()), 200000)
        self.assertNotIn("<script", report)
        self.assertIn("was killed by signal 9 (SIGKILL)", report)
        self.assertIn("Recoveries", report)
        (self.folder / "other.muster-board.json").write_text("{}")
        self.assertIn("2 jobs are in", self.muster("report", f"--state-dir={self.folder}", code=2))
        self.assertIn("has no nodes or no rounds", self.muster("report", f"--state-dir={self.folder}", "--job=other", code=2))


    def test_rounds_and_their_causes_follow_to_a_new_server(self):
        """The pod that serves a static job dies and comes back: it knows from the others what there was before it."""
        port, metrics = free_port(), free_port()
        world = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}", "--rdzv-id=back", "--max-restarts=5"]
        command = ["--", "sh", self.work()]
        first = self.start("--node-rank=0", f"--metrics-port={metrics}", *world, *command)
        other = self.start("--node-rank=1", *world, *command)
        board = self.board_where(metrics, lambda b: len(b["points"]) > 2, "a curve")
        os.kill(int((self.folder / "up.1.0").read_text()), 9)
        before = self.board_where(metrics, lambda b: len(b["rounds"]) == 2 and "first_step" in b["rounds"][1], "a second round")
        first.kill()
        first.wait()
        again = self.start("--node-rank=0", f"--metrics-port={metrics}", *world, *command)
        board = self.board_where(metrics, lambda b: len(b["rounds"]) > 2 and "first_step" in b["rounds"][-1], "the rounds from before")
        self.assertEqual([one["cause"] for one in board["rounds"][:1]], [one["cause"] for one in before["rounds"][:1]])
        self.assertRegex(board["rounds"][0]["cause"], r"^rank 1 .* was killed by signal 9")
        self.assertEqual([one["formed_at"] for one in board["rounds"]], sorted(one["formed_at"] for one in board["rounds"]))
        self.assertLess(abs(board["started_at"] - before["started_at"]), 5000)
        self.assertEqual(len({(one["epoch"], one["round"]) for one in board["rounds"]}), len(board["rounds"]))
        self.open_gate()
        self.finish(again, 0)
        self.finish(other, 0)

    def test_a_board_that_is_kept_goes_on(self):
        """No other node has it: the next agent begins with the state that --state-dir keeps."""
        flags = ["--nnodes=1", "--rdzv-id=kept", "--max-restarts=5", f"--state-dir={self.folder}", "--", "sh", self.work()]
        first = self.start(*flags)
        wait_until(lambda: (self.folder / "up.0.0").exists(), "the worker runs")
        os.kill(int((self.folder / "up.0.0").read_text()), 9)
        wait_until(lambda: (self.folder / "up.0.1").exists(), "it runs again")
        path = self.folder / "kept.muster-board.json"
        wait_until(lambda: path.exists() and len(json.loads(path.read_text())["rounds"]) == 2, "both rounds are kept")
        first.kill()
        first.wait()
        again = self.start(*flags)
        wait_until(lambda: (self.folder / "up.0.2").exists(), "it runs under another agent")
        self.open_gate()
        self.finish(again, 0)
        kept = json.loads(path.read_text())
        causes = [one["cause"] for one in kept["rounds"]]
        self.assertRegex(causes[0], r"^rank 0 .* was killed by signal 9")
        self.assertEqual(causes[1:], ["the agent that served the job died and was started again", ""])
        report = self.muster("report", f"--state-dir={self.folder}")
        for cause in causes:
            self.assertIn(cause, report)

    def test_warnings_of_nccl_and_of_the_pre_flight_check(self):
        port = free_port()
        path = self.script("work.sh", "echo 'h:1:2 [0] NCCL WARN Call to connect failed'; echo 'h:1:3 [1] NCCL WARN Call to connect failed' >&2\n" + WORK)
        machine = json.loads((SOURCE / "tests/data/machines/t4-x4-pcie-pod.json").read_text())
        machine["shm_bytes"] = 512 << 20
        (self.folder / "machine.json").write_text(json.dumps(machine))
        agent = self.start("--standalone", "--nproc-per-node=4", "--pre-flight=0", f"--metrics-port={port}", "--", "sh", path,
                           env={"MUSTER_DESCRIPTION": str(self.folder / "machine.json"), "NCCL_DEBUG": "ERROR"})
        board = self.board_where(port, lambda b: any("WARN" in text for text in b["nodes"][0].get("warnings", ())), "the workers' warnings")
        said = board["nodes"][0]["warnings"]
        self.assertEqual(len([text for text in said if re.match("rank [0-3]: NCCL WARN Call to connect failed$", text)]), 1, said)
        self.assertTrue([text for text in said if text.startswith("NCCL: NCCL_DEBUG=ERROR: it is not a level of NCCL")], said)
        self.assertTrue([text for text in said if text.startswith("pre-flight: shm: ")], said)
        self.open_gate()
        self.finish(agent, 0)

    def test_warnings_in_files_of_nccl(self):
        """With NCCL_DEBUG=INFO and a log directory NCCL's lines go into files; a worker that dies has its last ones shown too."""
        port = free_port()
        machine = json.loads((SOURCE / "tests/data/machines/t4-x4-pcie-pod.json").read_text())
        machine["shm_bytes"] = 8 << 30
        (self.folder / "machine.json").write_text(json.dumps(machine))
        path = self.script("work.sh", """
            file=$(echo "$NCCL_DEBUG_FILE" | sed "s/%h/$(uname -n | cut -d. -f1)/; s/%p/$$/")
            echo "h:$$:2 [0] NCCL WARN Call to connect failed" > "$file"
            """ + WORK + f"""
            [ $RANK = 1 ] || sleep 1000
            echo "h:$$:2 [0] NCCL WARN the last words" >> "$file"
            exit 3""")
        agent = self.start("--standalone", "--nproc-per-node=4", "--pre-flight=0", f"--metrics-port={port}", f"--state-dir={self.folder}",
                           "--rdzv-id=files", f"--log-dir={self.folder}/logs", "--", "sh", path,
                           env={"MUSTER_DESCRIPTION": str(self.folder / "machine.json"), "NCCL_DEBUG": "INFO"})
        board = self.board_where(port, lambda b: any("WARN" in text for text in b["nodes"][0].get("warnings", ())), "the warning in a file")
        said = [text for text in board["nodes"][0]["warnings"] if "NCCL WARN" in text]
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], r"^rank [0-3]: NCCL WARN Call to connect failed \(.*/attempt_0/nccl\..*\.log\)$")
        self.open_gate()
        self.finish(agent, 3)
        self.assertRegex(self.muster("report", f"--state-dir={self.folder}"), r"rank 1: NCCL WARN the last words \(")

    def test_the_curve_follows_when_serving_moves(self):
        """The node that serves an elastic job leaves; the next serving node gets the curve of the remaining ones."""
        port, metrics = free_port(), [free_port() for _ in range(3)]
        world = ["--nnodes=1:2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=moves", "--max-restarts=2"]
        agents = [self.start(f"--metrics-port={metrics[0]}", *world, "--", "sh", self.work())]
        self.board_where(metrics[0], lambda b: True, "the first serves")
        agents.append(self.start(f"--metrics-port={metrics[1]}", *world, "--", "sh", self.work()))
        board = self.board_where(metrics[1], lambda b: len(b["points"]) > 2, "the second has a curve of its own")
        agents[0].terminate()
        self.finish(agents[0], 143)
        began = time.time() * 1000
        agents.append(self.start(f"--metrics-port={metrics[2]}", *world, "--", "sh", self.work()))
        board = self.board_where(metrics[2], lambda b: b["points"] and b["points"][0][0] < began and len(self.ranks(b)) == 2, "the curve from before")
        self.assertTrue(board["serves"])
        self.open_gate()
        self.finish(agents[1], 0)
        self.finish(agents[2], 0)

    def test_a_script_that_logs(self):
        """PyTorch scripts report by muster.log; muster top shows it, in lines and on a screen."""
        port = free_port()
        path = self.script("train.py", "import os, time\nimport muster\nstep = 0\nwhile not os.path.exists('go'):\n    step += 1\n"
                           "    muster.log(step=step, loss=1 / step, accuracy=0.75)\n    time.sleep(0.02)\n")
        agent = self.start("--standalone", f"--metrics-port={port}", "--rdzv-id=logs", path,
                           env={"PYTHONPATH": str(SOURCE / "python")})
        board = self.board_where(port, lambda b: self.ranks(b) and "accuracy" in self.ranks(b)[0].get("figures", {}), "its figures")
        self.assertEqual(self.ranks(board)[0]["figures"]["accuracy"], 0.75)
        self.assertGreaterEqual(self.ranks(board)[0]["first_ms"], self.ranks(board)[0]["import_ms"])
        for arguments in (["--once", "--job=logs"], [f"--url=http://127.0.0.1:{port}"]):
            text = self.muster("top", *arguments)
            self.assertRegex(text, r"(?m)^logs  train.py  RUNNING  up ")
            self.assertRegex(text, r"(?m)^     0  \S+ +running +\d+ ")
        self.assertIn("Connection refused", self.muster("top", f"--url=127.0.0.1:{free_port()}", code=1))
        self.assertIn("http://HOST:PORT", self.muster("top", "--url=nonsense", code=2))
        self.assertIn("logs", self.muster("report", "--job=logs"))  # a running job's
        self.look_at_the_screen(f"--pid={agent.pid}")
        self.look_at_the_screen(f"--url=http://127.0.0.1:{port}")  # as of an agent elsewhere
        self.open_gate()
        self.finish(agent, 0)

    def look_at_the_screen(self, *arguments):
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm", LINES="30", COLUMNS="100")
            os.execv(MUSTER, [MUSTER, "top", *arguments])
        seen = b""
        while b"running" not in seen or b"q: quit" not in seen:
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                break
        os.write(terminal, b"jkq")
        try:
            while os.read(terminal, 65536):
                pass
        except OSError:
            pass
        os.close(terminal)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if not HAVE_CURSES:
            self.assertEqual((code, b"libncursesw6" in seen), (1, True), seen.decode(errors="replace"))
            return
        self.assertEqual(code, 0, seen.decode(errors="replace"))
        for text in (b"RANK", b"running", b"train.py"):
            self.assertIn(text, seen)


class Access(PageTest):
    def serve(self, *arguments):
        port = free_port()
        agent = self.start("--standalone", f"--metrics-port={port}", *arguments, "--", "sh", self.work())
        wait_until(lambda: (self.folder / "up.0.0").exists(), "the worker runs")
        return agent, port

    def test_this_machine_alone_and_no_other_site(self):
        agent, port = self.serve()
        code, headers, text = self.ask(port, "/")
        self.assertEqual(code, 200)
        self.assertNotRegex(text, r"(?i)(src|href)=[\"']?(https?:)?//")  # nothing from elsewhere
        policy = headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        import base64
        import hashlib
        for tag, name in (("style", "style-src"), ("script", "script-src")):
            inside = re.search(f"<{tag}>(.*)</{tag}>", text, re.S)[1]
            digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
            self.assertIn(f"{name} 'sha256-{digest}'", policy)
        self.assertEqual((headers["X-Frame-Options"], headers["Access-Control-Allow-Origin"]), ("DENY", None))
        for path in ("/", "/board.json", "/lines.json?rank=0"):
            self.assertEqual(self.ask(port, path, Host="evil.example")[0], 403, path)
            self.assertEqual(self.ask(port, path, Origin="http://evil.example")[0], 403, path)
            self.assertEqual(self.ask(port, path, Sec_Fetch_Site="cross-site")[0], 403, path)
        own = socket.gethostbyname(socket.gethostname())
        if not own.startswith("127."):
            self.assertEqual(self.ask(port, "/board.json", host=own)[0], 403)
            self.assertEqual(self.ask(port, "/healthz", host=own)[0], 200)
        self.assertEqual(self.ask(port, "/lines.json?rank=-1")[0], 404)
        self.assertEqual(json.loads(self.ask(port, "/lines.json?rank=77")[2]), {"rank": 77})
        self.open_gate()
        out, err = self.finish(agent, 0)
        self.assertIn(f"the job's page: http://127.0.0.1:{port}/", err)

    def test_a_token(self):
        (self.folder / "token").write_text("a-token-of-many-letters\n")
        agent, port = self.serve(f"--page-token-file={self.folder}/token")
        self.assertEqual(self.ask(port, "/")[0], 401)
        self.assertEqual(self.ask(port, "/board.json", Authorization="Bearer a-token-of-many-lettert")[0], 401)
        self.assertEqual(self.ask(port, "/board.json", Authorization="Bearer a-token-of-many-letters")[0], 200)
        self.assertEqual(self.ask(port, "/board.json?token=a-token-of-many-letters")[0], 401)
        code, headers, text = self.ask(port, "/?token=a-token-of-many-letters")
        self.assertEqual((code, headers["Location"]), (303, "/"))
        self.assertNotIn("a-token", headers["Set-Cookie"])
        cookie = headers["Set-Cookie"].split(";")[0]
        self.assertEqual(self.ask(port, "/board.json", Cookie=cookie)[0], 200)
        self.assertEqual(self.ask(port, "/board.json", Cookie=cookie[:-1])[0], 401)
        self.assertEqual(self.ask(port, "/board.json", Cookie=cookie, Sec_Fetch_Site="cross-site")[0], 403)
        self.assertIn("RANK", self.muster("top", f"--url=http://127.0.0.1:{port}", f"--token-file={self.folder}/token"))
        self.assertIn("status 401: the page needs its token", self.muster("top", f"--url=http://127.0.0.1:{port}", code=1))
        self.assertEqual(self.ask(port, "/healthz")[0], 200)
        self.open_gate()
        self.finish(agent, 0)

    def test_a_token_that_is_none(self):
        (self.folder / "token").write_text("short\n")
        _, err = self.run_muster("--standalone", f"--metrics-port={free_port()}", f"--page-token-file={self.folder}/token", "--", "true", code=2)
        self.assertIn("--page-token-file: a token of 5 characters; it must have 16 to 256", err)


class Hostile(PageTest):
    CONNECTIONS = 10000 if FULL else 1500

    @staticmethod
    def rss(pid):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])

    def test_nobody_waits_behind_those_that_are_hung_up_on(self):
        """As many come at once as there are places left: the next one's turn comes when the oldest are gone, at once."""
        port, places, spare = free_port(), 256, 8  # HTTP_CONNECTIONS of http_server.h, and the places kept free
        agent = self.start("--standalone", f"--metrics-port={port}", "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.1; done")
        self.board_where(port, lambda b: self.ranks(b), "the rank")
        folder = f"/proc/{agent.pid}/fd"
        wait_until(lambda: not self.connections(port), "nobody is connected")
        before, crowd = len(os.listdir(folder)), []
        with Machine() as machine:
            for count in range(places - spare):
                crowd.append(socket.create_connection(("127.0.0.1", port), timeout=LIMIT))
            wait_until(lambda: len(os.listdir(folder)) >= before + places - spare, "all are connected")
            os.kill(agent.pid, 19)  # SIGSTOP
            crowd += [socket.create_connection(("127.0.0.1", port), timeout=LIMIT) for _ in range(spare)]
            last = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
            last.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            begun = time.monotonic()
            os.kill(agent.pid, 18)  # SIGCONT
            self.assertTrue(last.recv(100).startswith(b"HTTP/1.1 200"))
            took = time.monotonic() - begun
        for client in (*crowd, last):
            client.close()
        self.assertLess(took, machine.bound(1.0), str(machine))
        self.open_gate()
        self.finish(agent, 0)

    @staticmethod
    def connections(port):
        """Established ones to a port of this machine."""
        lines = pathlib.Path("/proc/net/tcp").read_text().splitlines() + pathlib.Path("/proc/net/tcp6").read_text().splitlines()
        return [line for line in lines if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "01"]

    def test_crowds_and_slow_readers_keep_nobody_out(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        connections = min(self.CONNECTIONS, hard - 200)
        port = free_port()
        agent = self.start("--standalone", "--nproc-per-node=4", f"--metrics-port={port}", "--hang-timeout=30", "--", "sh", self.work())
        self.board_where(port, lambda b: len(self.ranks(b)) == 4 and "figures" in self.ranks(b)[3], "the ranks")
        before, crowd = self.rss(agent.pid), []
        worst = 0
        with Machine() as machine:
            for i in range(connections):
                try:
                    client = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                    client.setblocking(False)
                    # silent ones, headers without an end, readers that never read, a wrong token
                    client.send((b"", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                 b"GET /board.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n")[i % 4])
                    crowd.append(client)
                except OSError:
                    pass  # it was hung up on
                if i % 250 == 249:
                    begun = time.monotonic()
                    self.assertEqual(self.ask(port, "/healthz")[0], 200)
                    self.assertEqual(self.ask(port, "/board.json")[0], 200)
                    worst = max(worst, time.monotonic() - begun)
        self.assertLess(worst, machine.bound(1.0), str(machine))
        grown = self.rss(agent.pid) - before
        if not os.environ.get("MUSTER_SANITIZED"):  # which keeps freed memory, to look for its users
            self.assertLess(grown, 12 * 1024, f"{grown} KB more after {connections} connections")
        descriptors = len(os.listdir(f"/proc/{agent.pid}/fd"))
        self.assertLess(descriptors, 256 + 100)
        step = self.ranks(self.board(port))[0]["step"]
        self.board_where(port, lambda b: self.ranks(b)[0]["step"] > step, "steps go on being taken")
        for client in crowd:
            client.close()
        print(f"{connections} connections: worst answer {worst * 1000:.0f} ms, memory +{grown} KB", file=sys.stderr)
        self.open_gate()
        self.finish(agent, 0)


if __name__ == "__main__":
    unittest.main(argv=[a for a in sys.argv if a != "--full"], verbosity=2)
