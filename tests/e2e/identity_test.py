"""Identity: agents that claim others' names, that differ in their arguments, that come too late, and other jobs on
the same port.

    MUSTER_BUILD=build python3 tests/e2e/identity_test.py [TestClass.test_name ...]"""

import json
import os
import re
import socket
import subprocess
import sys
import time
import unittest

from harness import LIMIT, MUSTER, AgentTest, free_port, wait_until

WORKER = """#!/bin/sh
trap 'exit 0' TERM
name="seen.$MUSTER_ROUND.$RANK"
echo "$RANK $WORLD_SIZE $ROLE_NAME $ROLE_RANK $ROLE_WORLD_SIZE $LOCAL_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT" > "$name.new" && mv "$name.new" "$name"
while [ ! -e finish ] && [ ! -e "finish.$RANK" ]; do sleep 0.05; done
"""


def listener(port):
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("", port))
    holder.listen()
    return holder


class IdentityTest(AgentTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.worker = self.script("worker.sh", WORKER)
        os.chmod(self.worker, 0o755)

    def node(self, rank, *more, name=None, nnodes=2, rest=None, **options):
        return self.start(
            f"--nnodes={nnodes}", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={self.port}", *more,
            *(rest or ["--", self.worker]), env={"MUSTER_HOSTNAME": name or f"host-{rank}"}, **options,
        )  # fmt: skip

    def seen(self, round_, size):
        names = [self.folder / f"seen.{round_}.{rank}" for rank in range(size)]
        wait_until(lambda: all(name.exists() for name in names), lambda: f"round {round_}: {sorted(os.listdir(self.folder))}")
        return [name.read_text().split() for name in names]

    def finish_all(self, agents, code=0):
        (self.folder / "finish").touch()
        return [self.finish(agent, code) for agent in agents]


class Claims(IdentityTest):
    def test_a_pod_that_is_started_again_takes_its_place(self):
        agents = [self.node(k, "--max-restarts=1") for k in range(2)]
        self.seen(0, 2)
        newer = self.node(1, "--max-restarts=1")
        _, err = self.finish(agents[1], 1)
        self.assertIn('superseded: agent "host-1" was restarted and holds node rank 1 now', err)
        self.assertEqual(self.seen(1, 2)[1][6], "1")
        (_, err), _ = self.finish_all([agents[0], newer])
        self.assertIn("node rank 1 (host-1) is lost, its agent was restarted: restart 1 of 1", err)

    def test_another_host_is_rejected_while_the_first_lives(self):
        agents = [self.node(k) for k in range(2)]
        self.seen(0, 2)
        _, err = self.finish(self.node(1, name="host-9"), 1)
        self.assertIn('node rank 1 is held by agent "host-1", which is alive; agent "host-9" claims it too', err)
        self.finish_all(agents)

    def test_and_takes_it_when_that_is_gone(self):
        agents = [self.node(k, "--max-restarts=1") for k in range(2)]
        self.seen(0, 2)
        agents[1].kill()
        agents[1].wait()
        self.wait_said(agents[0], "is lost")
        other = self.node(1, "--max-restarts=1", name="host-9")
        self.seen(1, 2)
        self.finish_all([agents[0], other])

    def test_nobody_claims_the_rank_of_the_server(self):
        server = self.node(0)
        wait_until(self.listens, "the server listens")
        _, err = self.finish(self.node(0, name="host-9"), 1)
        self.assertRegex(err, rf"port {self.port} is in use by pid {server.pid} \(muster\)")
        self.finish_all([server, self.node(1)])

    def test_a_holder_that_ends_holds_up_the_server_only(self):
        """As the server of the run before may, for a moment: with several nodes, and at the store's port with one."""
        with listener(self.port) as holder:
            server = self.node(0)
            self.wait_said(server, f"port {self.port} is in use: its holder has a second to end")
            holder.close()
        client = self.node(1)
        self.seen(0, 2)
        (self.folder / "finish").touch()
        _, err = self.finish(server, 0)
        self.assertIn(f"port {self.port} was in use for a moment", server.said + err)
        self.finish(client, 0)

    def test_so_does_that_of_a_port_of_one_node(self):
        for flag in ("--master-port", "--metrics-port"):
            with listener(self.port) as holder:
                agent = self.start(f"{flag}={self.port}", "true")
                time.sleep(0.4)
                holder.close()
            self.finish(agent, 0)

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Fingerprints(IdentityTest):
    def refused(self, text, *more, **options):
        _, err = self.finish(self.node(1, *more, **options), 1)
        self.assertIn(text, err)

    def test_what_differs_is_named(self):
        server = self.node(0, "--rdzv-id=job-a")
        self.refused('job id: this agent has "job-b", the server "job-a"', "--rdzv-id=job-b")
        self.refused("nnodes: this agent has 3, the server 2", "--rdzv-id=job-a", nnodes=3)
        elastic = self.start(
            "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-conf=is_host=0", f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-id=job-a", "true"
        )
        _, err = self.finish(elastic, 1)
        self.assertIn("mode: this agent has elastic, the server static", err)
        _, err, *_ = self.finish_all([server, self.node(1, "--rdzv-id=job-a")])[0]
        for why in ("job id: this agent has", "nnodes: this agent has", "mode: this agent has elastic"):
            self.assertEqual(len(re.findall(rf'warning: refused 127.0.0.1: agent "\S+" .{why}', err)), 1, err)

    def test_a_name_cannot_look_like_another_line(self):
        server = self.node(0)
        self.refused("agent name: it holds a control character", name="a\nmuster: error: all is lost")
        _, err = self.finish_all([server, self.node(1)])[0]
        self.assertNotIn("\nmuster: error: all is lost", err)

    def test_limits(self):
        for flags, text in (
            (["--nnodes=20000", "--node-rank=1"], "16384"),
            (["--nnodes=2", "--node-rank=2"], "node-rank"),
            (["--nnodes=2", "--node-rank=0", f"--rdzv-id={'x' * 300}"], "200 bytes"),
            (["--nnodes=2", "--node-rank=0", f"--role={'x' * 100}"], "63"),
        ):
            process = self.start(*flags, "--master-addr=127.0.0.1", f"--master-port={self.port}", "true")
            _, err = process.communicate(timeout=LIMIT)
            self.assertIn(process.returncode, (1, 2), err)
            self.assertIn(text, err)


class Shapes(IdentityTest):
    def test_unequal_nodes_and_roles(self):
        sizes, roles = (2, 1, 3), ("trainer", "reader", "trainer")
        agents = [self.node(k, f"--nproc-per-node={sizes[k]}", f"--role={roles[k]}", nnodes=3) for k in range(3)]
        rows = [row[:6] for row in self.seen(0, 6)]
        role_ranks = [0, 1, 0, 2, 3, 4]
        expected = []
        for k, size in enumerate(sizes):
            for _ in range(size):
                rank = len(expected)
                expected.append([str(rank), "6", roles[k], str(role_ranks[rank]), "1" if roles[k] == "reader" else "5", str(size)])
        self.assertEqual(rows, expected)
        self.finish_all(agents)


class Late(IdentityTest):
    def test_who_comes_late_is_told_that_it_succeeded(self):
        # a node of three is slow; another one, which was done, is started again in the meantime and has nothing left to do
        agents = [self.node(k, nnodes=3) for k in range(3)]
        self.seen(0, 3)
        for rank in (0, 1):
            (self.folder / f"finish.{rank}").touch()
        wait_until(lambda: self.state(agents[0]) == self.state(agents[1]) == "DONE", "two are done")
        agents[1].kill()
        agents[1].wait()
        late = self.node(1, nnodes=3)
        self.finish_all([late, agents[0], agents[2]])
        self.assertFalse((self.folder / "seen.1.1").exists())

    @staticmethod
    def state(agent):
        """From the agent's status, when the server knows of it."""
        asked = subprocess.run([MUSTER, "status", f"--pid={agent.pid}", "--output=json"], capture_output=True, check=False)
        status = json.loads(asked.stdout) if asked.returncode == 0 else {"waiting": "it does not answer"}
        return None if status["waiting"] else status["state"]


class OtherJobs(IdentityTest):
    """Two jobs without an id, on the same machines and the same port."""

    def test_static(self):
        agents = [self.node(k) for k in range(2)]
        self.seen(0, 2)
        other = [self.node(k, rest=["--", "sh", "-c", f"echo other > other.{k}"]) for k in range(2)]
        _, err = self.finish(other[0], 1)
        self.assertRegex(err, rf"port {self.port} is in use by pid {agents[0].pid} \(muster\)")
        _, err = self.finish(other[1], 1)
        self.assertIn("two jobs meet at this port", err)
        self.finish_all(agents)
        self.assertFalse(list(self.folder.glob("other.*")))

    def elastic(self, k, *rest, job=None):
        return self.start(
            "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", f"--local-addr=127.0.0.{k + 1}",
            *([f"--rdzv-id={job}"] if job else []), *rest, env={"MUSTER_HOSTNAME": f"host-{k}"},
        )  # fmt: skip

    def test_elastic(self):
        agents = [self.elastic(k, "--", self.worker) for k in range(2)]
        self.seen(0, 2)
        for k in range(2):
            _, err = self.finish(self.elastic(k, "--", "sh", "-c", f"echo other > other.{k}"), 1)
            self.assertIn("two jobs meet at this port; give each its own --rdzv-id", err)
        self.finish_all(agents)
        self.assertFalse(list(self.folder.glob("other.*")))

    def test_ids_tell_them_apart(self):
        agents = [self.elastic(k, "--", self.worker, job="a") for k in range(2)]
        self.seen(0, 2)
        _, err = self.finish(self.elastic(1, "--", "true", job="b"), 1)
        self.assertIn('job id: this agent has "b", the server "a"', err)
        self.finish_all(agents)

    def test_nodes_that_differ_are_pointed_out_once(self):
        agents = [self.node(k, rest=["--", "sh", "-c", f": node {k}"], nnodes=3) for k in range(3)]
        said = [self.finish(agent, 0)[1] for agent in agents]
        self.assertEqual(len(re.findall("if these are two jobs", said[0])), 1, said[0])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
