"""Notices end to end: workers that listen get a planned stop, save and end by themselves; the others get SIGTERM.

    MUSTER_BUILD=build python3 tests/e2e/notice_test.py [TestClass.test_name ...]

Agents have loopback addresses and names of their own, as in elastic_test.py. A worker leaves its observations in files named
<what>.<round>.<rank>."""

import json
import os
import signal
import sys
import time
import unittest

from harness import BUILD, LIMIT, AgentTest, free_port, wait_until

# LISTEN: all, none, or the local ranks that do; LEAVE=no: notices are written down and not followed
WORKER = r"""
import json, os, select, signal, sys, time
rank, round_, local = os.environ["RANK"], os.environ["MUSTER_ROUND"], os.environ["LOCAL_RANK"]
listen, leave = os.environ.get("LISTEN", "all"), os.environ.get("LEAVE", "yes") == "yes"

def leave_word(what, text=""):
    path = f"{what}.{round_}.{rank}"
    with open(path + ".new", "w") as file:
        file.write(f"{text}\n")
    os.rename(path + ".new", path)

def on_term(number, frame):
    leave_word("termed", time.monotonic_ns())
    sys.exit(1)

signal.signal(signal.SIGTERM, on_term)
fd = int(os.environ["MUSTER_NOTICE_FD"])
assert fd == 4 and not os.get_blocking(fd)
if listen == "all" or local in listen:
    os.write(fd, b"ready\n")
leave_word("seen", os.environ["GROUP_WORLD_SIZE"])
while not os.path.exists("finish"):
    if select.select([fd], [], [], 0.02)[0]:
        line = os.read(fd, 4096).decode()
        assert line.endswith("\n") and line.count("\n") == 1, line
        leave_word("saved", line)
        if leave:
            sys.exit(7)  # how it ends is no failure
    if os.path.exists(f"fail.{rank}"):
        os.unlink(f"fail.{rank}")
        sys.exit(3)
"""


class NoticeTest(AgentTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.worker = self.script("worker.py", WORKER)

    def node(self, k, nnodes, *arguments, nproc=1, env=None):
        """The agent node-k on 127.0.0.<k+1>; node 0 serves."""
        return self.start(
            f"--nnodes={nnodes}",
            f"--nproc-per-node={nproc}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self.port}",
            f"--local-addr=127.0.0.{k + 1}",
            "--last-call-timeout=8",
            "--regroup-interval=0.5",
            "--max-restarts=1",
            *arguments,
            self.worker,
            env={"MUSTER_HOSTNAME": f"node-{k}", **(env or {})},
        )

    def words(self, what, round_, count):
        """The text of <what>.<round>.<rank> for so many ranks, when all are there."""
        paths = [self.folder / f"{what}.{round_}.{rank}" for rank in range(count)]
        self.await_files(lambda: all(path.exists() for path in paths), f"{what}.{round_} of {count}")
        return [path.read_text() for path in paths]

    def runs(self, round_, nodes):
        self.assertEqual(self.words("seen", round_, nodes), [f"{nodes}\n"] * nodes)

    def notices(self, round_, count):
        return [json.loads(text) for text in self.words("saved", round_, count)]

    def never(self, what):
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith(what + ".")], [])

    def finish_all(self, nodes, code=0):
        (self.folder / "finish").touch()
        return [self.finish(node, code) for node in nodes]


class Elastic(NoticeTest):
    def test_they_save_before_a_node_joins_and_before_one_leaves(self):
        options = ["--notice-timeout=40", "--shutdown-timeout=20"]
        nodes = [self.node(k, "2:3", *options) for k in range(2)]
        self.runs(0, 2)
        nodes.append(self.node(2, "2:3", *options))
        self.runs(1, 3)
        for notice in self.notices(0, 2):
            self.assertEqual((notice["coming"], notice["round"], notice["nodes"], notice["next_nodes"]), ("nodes-join", 0, 2, 3))
            self.assertIn("the world grows from 2 to 3", notice["reason"])
            self.assertTrue(30 < notice["deadline_s"] <= 39, notice)  # a second is left for workers that do not end
            left = notice["deadline_monotonic_ns"] / 1e9 - time.monotonic()
            self.assertTrue(-LIMIT < left <= 39, left)  # read some time after
        nodes[1].send_signal(signal.SIGTERM)
        _, err = self.finish(nodes.pop(1), 143)
        self.assertIn("stop notice sent to 1 worker (deadline in", err)
        self.runs(2, 2)
        for notice in self.notices(1, 3):
            self.assertEqual((notice["coming"], notice["round"], notice["nodes"], notice["next_nodes"]), ("node-leaves", 1, 3, 2))
            self.assertTrue(10 < notice["deadline_s"] <= 19, notice)  # the leaving node's
        self.never("termed")
        for _, err in self.finish_all(nodes):
            self.assertNotIn("restart 1", err)

    def test_who_does_not_listen_is_told_to_end_at_once(self):
        """On a node of two of which one listens, and on one where none does."""
        first = self.node(0, "1:2", nproc=2, env={"LISTEN": "0"})
        self.words("seen", 0, 2)
        second = self.node(1, "1:2", nproc=2, env={"LISTEN": "none"})
        self.words("seen", 1, 4)
        self.assertTrue((self.folder / "saved.0.0").exists() and (self.folder / "termed.0.1").exists())
        self.assertFalse((self.folder / "termed.0.0").exists() or (self.folder / "saved.0.1").exists())
        second.send_signal(signal.SIGTERM)
        self.finish(second, 143)
        self.words("seen", 2, 2)
        self.assertEqual(sorted(path.name for path in self.folder.glob("termed.1.*")), [f"termed.1.{rank}" for rank in (1, 2, 3)])
        self.assertEqual([path.name for path in self.folder.glob("saved.1.*")], ["saved.1.0"])
        self.finish_all([first])

    def test_who_does_not_leave_is_told_to_end_at_the_deadline(self):
        nodes = [self.node(k, "2:3", "--shutdown-timeout=12", env={"LEAVE": "no"}) for k in range(3)]
        self.runs(0, 3)
        nodes[2].send_signal(signal.SIGTERM)
        self.notices(0, 3)
        status = self.status(nodes[0])
        self.assertEqual((status["state"], status["notice"]["coming"], status["notice"]["listeners"]), ("SAVING", "node-leaves", 1))
        _, err = self.finish(nodes.pop(), 143)
        self.assertIn("rank 2 (pid ", err)
        self.assertIn("got the stop notice but still runs", err)
        self.runs(1, 2)
        for notice, termed in zip(self.notices(0, 3), self.words("termed", 0, 3)):
            self.assertGreaterEqual(int(termed), notice["deadline_monotonic_ns"])
        self.finish_all(nodes)

    def test_a_failure_leaves_no_time_for_a_notice(self):
        nodes = [self.node(k, "2", "--restart-grace=200") for k in range(2)]
        self.runs(0, 2)
        (self.folder / "fail.1").touch()
        self.runs(1, 2)
        self.words("termed", 0, 1)
        self.never("saved")
        self.finish_all(nodes)

    def test_a_node_that_gets_no_answer_tells_its_own(self):
        nodes = [self.node(k, "2") for k in range(2)]
        self.runs(0, 2)
        nodes[0].send_signal(signal.SIGSTOP)
        try:
            nodes[1].send_signal(signal.SIGTERM)
            self.finish(nodes[1], 143)
        finally:
            nodes[0].send_signal(signal.SIGCONT)
        notice = json.loads((self.folder / "saved.0.1").read_text())
        self.assertEqual((notice["coming"], notice["next_nodes"]), ("node-leaves", None))
        self.assertFalse((self.folder / "termed.0.1").exists())
        nodes[0].send_signal(signal.SIGTERM)
        self.finish(nodes[0], 143)

    def test_the_server_goes_and_the_others_wait_for_it(self):
        nodes = [self.node(k, "2", "--shutdown-timeout=20") for k in range(2)]
        self.runs(0, 2)
        nodes[0].send_signal(signal.SIGTERM)
        self.finish(nodes[0], 143)
        for notice in self.notices(0, 2):
            self.assertEqual((notice["coming"], notice["next_nodes"]), ("node-leaves", None))
            self.assertIn("leaves, and the server with it: the others wait for it to come back", notice["reason"])
            self.assertTrue(10 < notice["deadline_s"] <= 19, notice)
        self.never("termed")
        nodes[0] = self.node(0, "2")
        self.runs(1, 2)
        for _, err in self.finish_all(nodes):
            self.assertNotIn("restart 1", err)

    def test_a_person_ends_the_server_and_the_job_with_it(self):
        nodes = [self.node(k, "2") for k in range(2)]
        self.runs(0, 2)
        nodes[0].send_signal(signal.SIGINT)
        for node in nodes:
            self.finish(node, 130)
        for notice in self.notices(0, 2):
            self.assertEqual((notice["coming"], notice["next_nodes"]), ("job-stops", 0))
        self.never("termed")

    def test_the_server_stays_until_the_others_have_saved(self):
        nodes = [self.node(k, "2", "--shutdown-timeout=4", env={"LEAVE": "no" if k else "yes"}) for k in range(2)]
        self.runs(0, 2)
        nodes[0].send_signal(signal.SIGTERM)
        wait_until(lambda: (self.folder / "termed.0.1").exists(), "the slow one is told to end")
        self.finish(nodes[0], 143)
        self.waits(nodes[1], "server left; looking for it")
        nodes[1].send_signal(signal.SIGTERM)
        self.finish(nodes[1], 143)


class Static(NoticeTest):
    def start_nodes(self, **env):
        nodes = [
            self.start(
                "--nnodes=2", f"--node-rank={k}", "--master-addr=127.0.0.1", f"--master-port={self.port}", "--shutdown-timeout=20",
                self.worker, env={"MUSTER_HOSTNAME": f"node-{k}", **env}
            )
            for k in range(2)
        ]
        self.runs(0, 2)
        return nodes

    def test_one_is_asked_to_end_and_all_save(self):
        for asked in (0, 1):
            with self.subTest(asked=asked):
                nodes = self.start_nodes()
                nodes[asked].send_signal(signal.SIGTERM)
                for node in nodes:
                    self.finish(node, 143)
                for notice in self.notices(0, 2):
                    self.assertEqual((notice["coming"], notice["next_nodes"]), ("job-stops", 0))
                    self.assertTrue(10 < notice["deadline_s"] <= 19, notice)
                self.never("termed")
            for path in self.folder.glob("*.0.*"):
                path.unlink()

    def test_all_are_asked_to_end_at_once(self):
        nodes = self.start_nodes()
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        for node in nodes:
            self.finish(node, 143)
        self.assertEqual({notice["coming"] for notice in self.notices(0, 2)}, {"job-stops"})
        self.never("termed")

    def test_one_that_does_not_leave_keeps_its_time_when_the_server_has_gone(self):
        slow = self.start("--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", f"--master-port={self.port}", "--shutdown-timeout=20",
                          self.worker, env={"MUSTER_HOSTNAME": "node-1", "LEAVE": "no"})
        server = self.start("--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", f"--master-port={self.port}", "--shutdown-timeout=4",
                            self.worker, env={"MUSTER_HOSTNAME": "node-0"})
        self.runs(0, 2)
        server.send_signal(signal.SIGTERM)
        self.finish(server, 143)
        self.finish(slow, 143)
        termed = int((self.folder / "termed.0.1").read_text())
        self.assertGreaterEqual(termed, self.notices(0, 2)[1]["deadline_monotonic_ns"])


class OneNode(NoticeTest):
    def test_the_job_is_stopped(self):
        agent = self.start("--standalone", "--nproc-per-node=2", "--event-log-handler=console", self.worker)
        self.words("seen", 0, 2)
        agent.send_signal(signal.SIGINT)
        _, err = self.finish(agent, 130)
        for notice in self.notices(0, 2):
            self.assertEqual((notice["coming"], notice["nodes"], notice["next_nodes"]), ("job-stops", 1, 0))
        self.never("termed")
        self.assertIn('"state": "NOTICE"', err)

    @unittest.skipIf(os.environ.get("MUSTER_SANITIZED"), "a sanitizer must be the first library")
    def test_by_libmuster(self):
        """muster_notice by ctypes, as a Python program without os.read would have it."""
        script = self.script(
            "library.py",
            "import ctypes, os, sys, time\n"
            "class Notice(ctypes.Structure):\n"
            "    _fields_ = [('size', ctypes.c_uint32), *((name, ctypes.c_int32) for name in ('coming', 'round', 'nodes', 'next_nodes', 'reserved')),\n"
            "                ('deadline_ns', ctypes.c_int64), ('left_s', ctypes.c_double)]\n"
            "library = ctypes.CDLL(sys.argv[1])\n"
            "notice = Notice(ctypes.sizeof(Notice))\n"
            "assert library.muster_notice(ctypes.byref(notice), None) == 0\n"
            "assert library.muster_notice_listen(None) == 1\n"
            "open('seen.0.0', 'w').write('.')\n"
            "while not (told := library.muster_notice(ctypes.byref(notice), None)):\n    time.sleep(0.02)\n"
            "assert told == 1 and 0 < notice.left_s <= 29 and abs(notice.deadline_ns - time.monotonic_ns()) < 30e9\n"
            "print(notice.coming, notice.round, notice.nodes, notice.next_nodes)\n",
        )
        agent = self.start("--standalone", script, str(BUILD / "lib" / "libmuster.so"))
        self.words("seen", 0, 1)
        agent.send_signal(signal.SIGTERM)
        out, err = self.finish(agent, 143)
        self.assertEqual((out, "Traceback" in err), ("3 0 1 0\n", False), err)

    def test_what_a_worker_leaves_behind_is_told_to_end(self):
        script = self.script(
            "leave.sh",
            "trap 'exit 0' TERM\n(trap 'echo >orphan.0.0; exit' TERM; echo >there; while :; do sleep 0.02; done) &\n"
            "while [ ! -e there ]; do sleep 0.02; done\necho ready >&$MUSTER_NOTICE_FD\necho >seen.0.0\n"
            "read -r line <&$MUSTER_NOTICE_FD || until read -r line <&$MUSTER_NOTICE_FD; do sleep 0.02; done\necho \"$line\" >saved.0.0\n",
        )
        agent = self.start("--standalone", "--nproc-per-node=1", "--no-python", "sh", script)
        self.words("seen", 0, 1)
        agent.send_signal(signal.SIGTERM)
        self.finish(agent, 143)
        self.notices(0, 1)
        self.assertTrue((self.folder / "orphan.0.0").exists())

    def test_one_that_ignores_everything_is_killed(self):
        script = self.script(
            "ignore.py",
            "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.write(int(os.environ['MUSTER_NOTICE_FD']), b'x\\nready\\n')\n"
            "open('seen.0.0', 'w').write('.')\ntime.sleep(1000)\n",
        )
        agent = self.start("--standalone", "--shutdown-timeout=1", script)
        self.words("seen", 0, 1)
        agent.send_signal(signal.SIGTERM)
        _, err = self.finish(agent, 143)
        self.assertIn("got the stop notice but still runs: sending the stop signal", err)

    def test_only_the_worker_has_the_descriptor(self):
        """What another worker, or a program that the worker starts with its descriptors closed, has is not a notice socket."""
        script = self.script(
            "sockets.py",
            "import os, subprocess, sys\n"
            "def ours():\n    return sorted(int(f) for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f) and"
            " os.readlink('/proc/self/fd/' + f).startswith('socket:'))\n"
            "os.write(1, f'{ours()}\\n'.encode())\n"
            "if len(sys.argv) == 1:\n    subprocess.run([sys.executable, sys.argv[0], 'child'], check=True)\n",
        )
        out, _ = self.run_muster("--standalone", "--nproc-per-node=2", script)
        self.assertEqual(sorted(out.splitlines()), ["[4]", "[4]", "[]", "[]"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
