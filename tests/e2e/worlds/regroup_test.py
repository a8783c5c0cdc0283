"""Workers that stay when others are replaced, end to end: the protocol of launcher/docs/regroup.md with workers that speak it, do not, or
do not answer.

    MUSTER_BUILD=build python3 tests/e2e/worlds/regroup_test.py [TestClass.test_name ...]

Agents have loopback addresses and names of their own, as in notice_test.py. A worker leaves files <what>.<round>.<rank>, each with its pid."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import LIMIT, MUSTER, AgentTest, Machine, free_port

# REGROUP: all, none, or the ranks that can stay; RESIZE: local ranks that take any place; DEAF: ranks that do not answer; a file fail.<rank> fails it,
# mute.<rank> too, the seconds that it names after its answer
WORKER = r"""
import json, os, select, sys, time
rank, round_, size = os.environ["RANK"], os.environ["MUSTER_ROUND"], os.environ["WORLD_SIZE"]
resize = os.environ["LOCAL_RANK"] in os.environ.get("RESIZE", "").split(",")
regroup, deaf = os.environ.get("REGROUP", "all"), os.environ.get("DEAF", "").split(",")

def leave_word(what, text):
    path = f"{what}.{round_}.{rank}"
    with open(path + ".new", "w") as file:
        file.write(f"{text}\n")
    os.rename(path + ".new", path)

fd = int(os.environ["MUSTER_NOTICE_FD"])
if regroup == "all" or rank in regroup.split(","):
    os.write(fd, b"regroup\nmoves\n" + b"resize\ngrows\n" * resize)
if os.fork() == 0:  # a process that it leaves behind
    os.execvp("sleep", ["sleep", "600"])
leave_word("runs", f"{os.getpid()} {size}")
while not os.path.exists("finish"):
    if select.select([fd], [], [], 0.01)[0]:
        for line in map(json.loads, os.read(fd, 65536).decode().splitlines()):
            if line["coming"] == "regroup" and rank not in deaf:
                assert line["round"] == int(round_) and line["answer_s"] == 2, line
                leave_word("held", os.getpid())
                os.write(fd, b"held\n")
                if os.path.exists(f"mute.{rank}"):
                    with open(f"mute.{rank}") as file:
                        late_s = float(file.read())
                    os.unlink(f"mute.{rank}")
                    time.sleep(late_s)
                    sys.exit(5)
            elif line["coming"] == "place":
                assert resize or line["rank"] == int(rank) and line["world_size"] == int(size), line
                assert line["local_rank"] == int(os.environ["LOCAL_RANK"]), line
                rank, round_, size = (str(line[key]) for key in ("rank", "round", "world_size"))
                if resize and not os.path.exists("without"):
                    os.write(fd, b"moves\ngrows\n")
                leave_word("runs", f"{os.getpid()} {size}")
    if os.path.exists(f"fail.{rank}"):
        os.unlink(f"fail.{rank}")
        sys.exit(3)
    if os.path.exists(f"done.{rank}"):
        os.unlink(f"done.{rank}")
        sys.exit(0)
    if os.path.exists(f"lost.{rank}"):
        os.unlink(f"lost.{rank}")
        os.write(fd, b"lost\n")
"""


# The same by muster.Regroup, which does not answer before join.
SCRIPT = r"""
import os, sys, time
sys.path.insert(0, os.environ["MUSTER_PYTHON"])
import muster

def leave_word(what):
    path = f"{what}.{os.environ['MUSTER_ROUND']}.{os.environ['RANK']}"
    with open(path + ".new", "w") as file:
        file.write(f"{os.getpid()} {os.environ['WORLD_SIZE']}\n")
    os.rename(path + ".new", path)

regroup = muster.Regroup()
assert regroup.join(patience=0.01) is None  # no rank is lost before all have left their word
leave_word("runs")
while not os.path.exists("finish"):
    time.sleep(0.01)
    if regroup.told:
        place = regroup.join(RuntimeError("of another kind"), lambda: leave_word("released"))
        assert place["rank"] == int(os.environ["RANK"]) and place["restarts"] == int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        leave_word("runs")
    if os.path.exists(f"fail.{os.environ['RANK']}"):
        os.unlink(f"fail.{os.environ['RANK']}")
        sys.exit(3)
"""


class Regroup(AgentTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.worker = self.script("worker.py", WORKER)

    def node(self, k, *arguments, nnodes="2", nproc=2, restarts=3, env=None):
        """The agent node-k on 127.0.0.<k+1>; node 0 serves. With more nodes than places the others are spare."""
        return self.start(
            f"--nnodes={nnodes}",
            f"--nproc-per-node={nproc}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self.port}",
            f"--local-addr=127.0.0.{k + 1}",
            "--last-call-timeout=8",
            f"--max-restarts={restarts}",
            "--restart-backoff=0",
            *arguments,
            self.worker,
            env={"MUSTER_HOSTNAME": f"node-{k}", **(env or {})},
        )

    def running(self, round_, ranks, size=None):
        """The pids of a round's ranks, when all run."""
        return self.await_files(lambda: self.round_of(round_, ranks, size), f"round {round_} of {ranks}")

    def round_of(self, round_, ranks, size=None):
        """The pids of a round's ranks, where all have run in it."""
        paths = [self.folder / f"runs.{round_}.{rank}" for rank in range(ranks)]
        if not all(path.exists() for path in paths):
            return None
        words = [path.read_text().split() for path in paths]
        self.assertEqual([int(word[1]) for word in words], [size or ranks] * ranks)
        return [int(word[0]) for word in words]

    def replaced(self, before, lost):
        """The pids of the first round in which all run and the lost ranks are new. An end that an agent sees only after it has given the
        next place fails that round too, so the round's number is not known."""

        def newest():
            rounds = sorted({int(path.name.split(".")[1]) for path in self.folder.glob("runs.*.?")})
            found = filter(None, (self.round_of(round_, len(before)) for round_ in rounds))
            return next((now for now in found if all(now[rank] != before[rank] for rank in lost)), None)

        now = self.await_files(newest, f"a round with new ranks {lost}")
        self.assertEqual([pid == old for pid, old in zip(now, before)], [rank not in lost for rank in range(len(before))])
        return now

    def fail(self, message=None, rank=None):
        if rank is None:
            super().fail(message)
        (self.folder / f"fail.{rank}").touch()

    def at(self, pid, nodes):
        """The number of the agent whose worker that is."""
        return [node.pid for node in nodes].index(int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]))

    def finish_all(self, nodes):
        (self.folder / "finish").touch()
        return [self.finish(node, 0)[1] for node in nodes]

    def test_a_worker_fails_and_the_others_stay(self):
        nodes = [self.node(k) for k in range(2)]
        first = self.running(0, 4)
        for round_, failed in ((1, 3), (2, 0)):
            with Machine() as machine:
                begun = time.monotonic()
                self.fail(rank=failed)
                then = self.running(round_, 4)
                took = time.monotonic() - begun
            self.assertLess(took, machine.bound(2), machine)
            self.assertEqual([now == before for now, before in zip(then, first)], [rank != failed for rank in range(4)])
            first = then
        said = self.finish_all(nodes)
        self.assertIn("1 worker can stay and is asked to regroup", said[1])
        self.assertIn("restart 2 of 3: round 2 starts", said[0])

    def rank_2_is_done_and_rank_1_needs_it(self, nodes):
        """The others keep their processes."""
        first = self.running(0, 3)
        (self.folder / "done.2").touch()
        (self.folder / "lost.1").touch()
        then = self.running(1, 3)
        self.assertEqual([now == before for now, before in zip(then, first)], [True, True, False])
        return self.finish_all(nodes)

    def test_a_worker_exits_0_and_another_one_needs_it(self):
        said = self.rank_2_is_done_and_rank_1_needs_it([self.node(k, nproc=1 + k) for k in range(2)])
        self.assertIn("its own code was 0, but rank 1 still needs it", said[1])

    def test_a_node_exits_0_and_another_one_needs_it(self):
        said = self.rank_2_is_done_and_rank_1_needs_it([self.node(k, nnodes="3", nproc=1) for k in range(3)])
        self.assertIn("its own code was 0, but rank 1 still needs its node", said[0])

    def one_ends_and_another_node_needs_it(self, ender, needs):
        """The other worker of its node goes on: the server learns of the end by that node's heartbeats."""
        nodes = [self.node(k) for k in range(2)]
        first = self.running(0, 4)
        (self.folder / f"done.{ender}").touch()
        time.sleep(1)
        with Machine() as machine:
            begun = time.monotonic()
            (self.folder / f"lost.{needs}").touch()
            then = self.running(1, 4)
            took = time.monotonic() - begun
        self.assertEqual([now == before for now, before in zip(then, first)], [rank != ender for rank in range(4)])
        self.assertLess(took, machine.bound(3), machine)
        self.assertIn(f"its own code was 0, but rank {needs} still needs it:", self.finish_all(nodes)[0])

    def test_a_worker_exits_0_and_the_server_needs_it(self):
        self.one_ends_and_another_node_needs_it(3, 0)

    def test_a_worker_of_the_server_exits_0_and_another_node_needs_it(self):
        self.one_ends_and_another_node_needs_it(1, 2)

    def test_ranks_end_one_after_the_other(self):
        """A job that ends well, with seconds between its ranks."""
        nodes = [self.node(k, nnodes="3", nproc=1) for k in range(3)]
        self.running(0, 3)
        for rank in (2, 0):
            (self.folder / f"done.{rank}").touch()
            time.sleep(1.5)
        self.assertNotIn("restart 1 of", self.finish_all(nodes)[1])

    def test_an_agent_is_killed_and_a_spare_takes_its_place(self):
        nodes = [self.node(k) for k in range(2)]
        first = self.running(0, 4)
        spare = self.node(2)
        self.waits(spare, "spare")
        nodes[1].kill()
        then = self.running(1, 4)
        self.assertEqual(then[:2], first[:2])
        self.assertFalse(set(then[2:]) & set(first[2:]))
        self.finish_all([nodes[0], spare])

    def test_the_serving_agent_is_killed_and_a_spare_takes_its_place(self):
        nodes = [self.node(k, nnodes="3", nproc=1) for k in range(3)]
        first = self.running(0, 3)
        spare = self.node(3, nnodes="3", nproc=1)
        self.waits(spare, "spare")
        nodes[0].kill()
        then = self.running(1, 3)
        self.assertEqual(then[1:], first[1:])
        self.finish_all([*nodes[1:], spare])

    def test_who_cannot_stay_is_started_anew(self):
        nodes = [self.node(k, env={"REGROUP": "0,2", "DEAF": "2"}) for k in range(2)]
        first = self.running(0, 4)
        begun = time.monotonic()
        self.fail(rank=3)
        then = self.running(1, 4)
        self.assertTrue(1.9 < time.monotonic() - begun < 6)
        self.assertEqual([now == before for now, before in zip(then, first)], [True, False, False, False])
        said = self.finish_all(nodes)
        self.assertIn("rank 2 (pid ", said[1])
        self.assertIn("has not let go of its communicators: it is killed and started anew", said[1])
        self.assertIn("the others got the stop signal and are started anew", said[0])

    def fail_twice(self, late_s):
        """Another worker ends after its answer, and one more in the new round as it begins. Each of the four ends may cost a restart."""
        nodes = [self.node(k, restarts=4) for k in range(2)]
        first = self.running(0, 4)
        (self.folder / "mute.1").write_text(f"{late_s}")
        self.fail(rank=3)
        then = self.replaced(first, (1, 3))
        self.fail(rank=0)
        self.fail(rank=2)
        self.replaced(then, (0, 2))
        self.finish_all(nodes)

    def test_a_second_failure_while_they_regroup(self):
        self.fail_twice(0)

    def test_a_second_failure_after_the_next_place(self):
        self.fail_twice(0.4)

    def test_a_smaller_world_starts_all_anew(self):
        nodes = [self.node(k, nnodes="1:2") for k in range(2)]
        first = self.running(0, 4)
        nodes[1].kill()
        then = self.running(1, 2)
        self.assertFalse(set(then) & set(first))
        self.assertIn("do not take another rank or another world's size", self.finish_all(nodes[:1])[0])

    def test_other_places_for_workers_that_take_them(self):
        """A node is lost, so that rank 2 becomes rank 1; then one joins, and leaves again."""
        nodes = [self.node(k, "--regroup-interval=0.1", nnodes="1:3", nproc=1, env={"RESIZE": "0"}) for k in range(3)]
        first = self.running(0, 3)
        nodes[self.at(first[1], nodes)].kill()
        stays = [first[0], first[2]]
        self.assertEqual(self.running(1, 2), stays)
        joins = self.node(3, nnodes="1:3", nproc=1, env={"RESIZE": "0"})
        self.assertEqual(self.running(2, 3)[:2], stays)
        (self.folder / "without").touch()  # the words of the last world do not hold in the next one
        joins.send_signal(signal.SIGTERM)
        self.finish(joins, 143)
        self.assertEqual(self.running(3, 2), stays)
        last = self.node(4, nnodes="1:3", nproc=1, env={"RESIZE": "0"})
        self.assertFalse(set(self.running(4, 3)) & set(stays))
        nodes += [last]
        said = "".join(self.finish_all([node for node in nodes if node.poll() is None]))
        self.assertIn("restart 1 of 3", said)
        self.assertNotIn("restart 2 of 3", said)

    def test_one_worker_of_a_node_that_takes_no_other_place(self):
        """All of that node are started anew."""
        nodes = [self.node(k, nnodes="1:2", env={"RESIZE": "1"}) for k in range(2)]
        first = self.running(0, 4)
        nodes[1].kill()
        self.assertFalse(set(self.running(1, 2)) & set(first))
        self.finish_all(nodes[:1])

    def test_the_job_ends_while_they_wait(self):
        """Without a restart left no worker stays. Where no node comes back the wait ends with the agent."""
        nodes = [self.node(k, restarts=0) for k in range(2)]
        self.running(0, 4)
        self.fail(rank=2)
        for node in nodes:
            _, said = self.finish(node, 3)
            self.assertNotIn("asked to regroup", said)
        for path in self.folder.glob("runs.*"):
            path.unlink()
        nodes = [self.node(k) for k in range(2)]
        self.running(0, 4)
        nodes[1].kill()
        self.await_files(lambda: all((self.folder / f"held.0.{rank}").exists() for rank in range(2)), "both are held")
        nodes[0].send_signal(signal.SIGTERM)
        self.finish(nodes[0], 143)

    def drain(self, agent, *words, code=0):
        done = subprocess.run([MUSTER, "drain", "--pid", str(agent.pid), *words], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, code, (words, done.stdout, done.stderr))
        return done.stdout + done.stderr

    def test_an_operator_moves_a_node_to_a_spare(self):
        nodes = [self.node(k) for k in range(2)]
        first = self.running(0, 4)
        said = self.drain(nodes[0], "node-1", code=1)
        self.assertRegex(said, r"error: agent \"node-1\" \(node rank 1\) stays: no spare waits, and the job needs 2 nodes \(--nnodes=2:2\), without it 1 would be left")
        said = self.drain(nodes[1], "--without-spare", "1", code=1)  # no smaller world is allowed
        self.assertIn("Start an agent on another node", said)
        self.assertIn('no node "node-7": the job has the nodes 0 to 1', self.drain(nodes[0], "node-7", code=1))
        self.assertIn("which node? Give its number in the job, or its agent's name", self.drain(nodes[0], code=2))
        spare = self.node(2)
        self.waits(spare, "spare")
        said = self.drain(nodes[0], "node-1", "--timeout=0", code=1)  # too short for an answer, and the node goes all the same
        self.assertRegex(said, r'node "node-1" has not left within 0 s: .*\. It (may still be asked to leave|was asked to leave, and may still); muster top')
        self.finish(nodes[1], 143)
        self.running(1, 4)
        nodes[1] = self.node(4)
        self.waits(nodes[1], "spare")
        said = self.drain(nodes[0], "node-2", "--timeout=40")
        self.assertIn('agent "node-2" (node rank 1) leaves, and the spare "node-4" takes its place\nnode "node-2" has left; 2 nodes run\n', said)
        self.finish(spare, 143)
        then = self.running(2, 4)
        self.assertEqual(then[:2], first[:2])
        # The node that serves, asked at that node itself: its agent knows nothing of the others any more.
        last = self.node(3)
        self.waits(last, "spare")
        self.assertRegex(self.drain(nodes[0], "0"), r'takes its place\nnode "0" has left: its agent, \d+, has ended\n')
        self.finish(nodes[0], 143)
        now = self.running(3, 4)
        self.assertEqual(now[2:], then[2:])
        said = self.finish_all([nodes[1], last])
        self.assertNotIn("restart 1", said[0])

    def test_scripts_speak_it_by_a_class(self):
        self.worker = self.script("worker.py", SCRIPT)
        node = self.node(0, "--standalone", nnodes="1", env={"MUSTER_PYTHON": str(pathlib.Path(__file__).resolve().parents[3] / "python")})
        first = self.running(0, 2)
        self.fail(rank=0)
        self.replaced(first, (0,))
        self.assertTrue((self.folder / "released.0.1").exists())
        self.finish_all([node])

    def test_files_of_the_first_round_go_on(self):
        log = self.folder / "logs"
        node = self.node(0, "--standalone", f"--log-dir={log}", "--tee=3", "--redirects=3", nnodes="1")
        first = self.running(0, 2)
        self.fail(rank=1)
        then = self.running(1, 2)
        self.assertEqual([now == before for now, before in zip(then, first)], [True, False])
        self.finish_all([node])
        self.assertTrue(list(log.rglob("attempt_1/1/stdout.log")))

    def test_an_agent_that_has_gone_hides_no_error_of_a_script(self):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.close()
        script = "import muster; muster.Regroup(let_go=print).join(RuntimeError('of its own'), patience=60)"
        env = {**os.environ, "MUSTER_NOTICE_FD": str(ours.fileno()), "PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[3] / "python")}
        with ours:
            done = subprocess.run([sys.executable, "-c", script], pass_fds=[ours.fileno()], env=env, capture_output=True, text=True, timeout=LIMIT)
        self.assertTrue(done.stderr.endswith("RuntimeError: of its own\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
