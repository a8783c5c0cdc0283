"""Elastic jobs end to end: real agents on loopback addresses that meet, grow, shrink, lose each other and come back.

    MUSTER_BUILD=build python3 tests/e2e/elastic_test.py [TestClass.test_name ...]

Each agent has an address and a name of its own, as pods have; workers are small shell programs that print their environment
and wait for a file named finish."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from harness import LIMIT, AgentTest, free_port, wait_until

# rank, size, group rank, groups, restart count, address, port
WORKER = """#!/bin/sh
trap 'echo saved > "saved.$MUSTER_ROUND.$RANK"; exit 0' TERM
text="$RANK $WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR $MASTER_PORT $MUSTER_HOSTNAME"
echo "$text" > "seen.$MUSTER_ROUND.$RANK.new" && mv "seen.$MUSTER_ROUND.$RANK.new" "seen.$MUSTER_ROUND.$RANK"
while [ ! -e finish ]; do sleep 0.05; done
"""


class ElasticTest(AgentTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.worker = self.script("worker.sh", WORKER)
        os.chmod(self.worker, 0o755)

    def node(self, k, nnodes, *arguments, nproc=1, rest=None, **options):
        """The agent node-k on 127.0.0.<k+1>; node 0 serves."""
        return self.start(
            f"--nnodes={nnodes}",
            f"--nproc-per-node={nproc}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self.port}",
            f"--local-addr=127.0.0.{k + 1}",
            "--last-call-timeout=8",
            "--regroup-interval=1",
            "--max-restarts=3",
            *arguments,
            *(rest or ["--", self.worker]),
            **{"env": {"MUSTER_HOSTNAME": f"node-{k}"}, **options},
        )

    def read_round(self, round_, size):
        names = [self.folder / f"seen.{round_}.{rank}" for rank in range(size)]
        if not all(name.exists() for name in names):
            return None
        rows = [name.read_text().split() for name in names]
        return rows if all(row[1] == str(size) for row in rows) else None

    def seen(self, round_, size):
        """The environment of the workers of a round of this size, by rank, when all of them have written it."""
        return wait_until(lambda: self.read_round(round_, size), lambda: f"round {round_} with {size} workers: {sorted(os.listdir(self.folder))}")

    def seen_since(self, first, size):
        """The same of the first round from `first` on that has this size: a node that is slow to come back joins one later."""

        def read():
            rounds = (self.read_round(round_, size) for round_ in range(first, first + 5))
            return next((rows for rows in rounds if rows), None)

        return wait_until(read, f"a round with {size} workers since round {first}")

    def finish_all(self, processes, code=0):
        (self.folder / "finish").touch()
        return [self.finish(process, code) for process in processes]


class Forming(ElasticTest):
    def test_one_of_two_starts_after_the_last_call(self):
        (self.folder / "finish").touch()
        process = self.start(
            "--nnodes=1:2",
            "--nproc-per-node=4",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=localhost:{self.port}",
            "--rdzv-id=some-job",
            "--rdzv-conf='join_timeout=30,last_call_timeout=1,timeout=30'",
            "--",
            self.worker,
        )
        self.finish(process, 0)
        rows = self.seen(0, 4)
        self.assertEqual([row[:5] for row in rows], [[str(r), "4", "0", "1", "0"] for r in range(4)])

    def test_unequal_nodes_are_ranked_by_name(self):
        nodes = [self.node(k, "3", nproc=k + 1) for k in (0, 2, 1)]
        rows = self.seen(0, 6)
        self.assertEqual([row[2] for row in rows], list("011222"))
        self.assertEqual({row[7] for row in rows}, {"node-0", "node-1", "node-2"})
        self.assertEqual({row[5] for row in rows}, {"127.0.0.1"})
        self.assertEqual(len({row[6] for row in rows}), 1)
        self.finish_all(nodes)

    def test_a_wanted_rank_is_honoured(self):
        nodes = [self.node(k, "3", *(["--node-rank=1"] if k == 2 else [])) for k in range(3)]
        rows = self.seen(0, 3)
        self.assertEqual([row[7] for row in rows], ["node-0", "node-2", "node-1"])
        self.finish_all(nodes)

    def test_two_agents_of_one_host_share_an_endpoint(self):
        def agent():
            return self.start(
                "--nnodes=2", "--nproc-per-node=4", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{self.port}", "--", self.worker
            )

        agents = [agent(), agent()]
        self.seen(0, 8)
        self.finish_all(agents)

    def test_the_first_of_one_host_ends_before_it_accepts_the_second(self):
        """As the server of the run before does that is ending when this one starts."""
        first = self.node(0, "2")
        self.waits(first, "1 of at least 2 nodes")  # it serves
        first.send_signal(signal.SIGSTOP)
        second = self.node(0, "2", env={"MUSTER_HOSTNAME": "node-0b"})
        self.wait_said(second, "joining it")
        first.kill()
        first.wait()
        self.wait_said(second, "has ended and never accepted this one")
        third = self.node(1, "2")
        self.seen(0, 2)
        self.finish_all([second, third])

    def test_whatever_else_holds_the_port_is_named(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", self.port))
            holder.listen()
            _, err = self.finish(self.node(0, "2"), 1)
        self.assertRegex(err, rf"port {self.port} is in use by pid {os.getpid()} \(python3?[^)]*\)")

    def test_term_while_forming_leaves_at_once(self):
        server, client = self.node(0, "3"), self.node(1, "3")
        self.waits(server, "2 of at least 3 nodes")
        self.waits(client, "2 of at least 3 nodes")
        for process in (client, server):
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=LIMIT), 143)  # far less than a world is waited for

    def test_the_store_listens_in_the_port_range(self):
        first = free_port()
        nodes = [self.node(k, "2", f"--port-range={first}-{first + 1}") for k in range(2)]
        rows = self.seen(0, 2)
        self.assertIn(int(rows[1][6]), (first, first + 1))
        self.finish_all(nodes)

    def test_an_endpoint_where_nothing_listens(self):
        _, err = self.finish(self.node(1, "2", "--join-timeout=6"), 138)
        self.assertIn(f"the server of the job's world at 127.0.0.1:{self.port} did not respond within 6 s (--join-timeout); nothing listens there", err)
        self.assertIn("if the job was over before this node joined, its server has exited", err)

    def test_an_endpoint_that_is_not_ours(self):
        # torch's TCPStore reads a greeting of five bytes and closes where it is another one
        with socket.create_server(("127.0.0.1", self.port)) as listener:
            listener.settimeout(LIMIT)
            process = self.node(1, "2", "--join-timeout=10")
            for _ in range(3):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(LIMIT)
                    connection.recv(5)
            _, err = self.finish(process, 138)
        self.assertIn("the peer does not speak muster's protocol: torchrun, or another program on this port", err)

    def test_an_endpoint_that_ends_each_connection_is_not_hammered(self):
        """A sidecar before its server: attempts come after 10 ms where nothing listens, and not here."""
        seconds, times = 4, []
        with socket.create_server(("127.0.0.1", self.port), backlog=256) as listener:

            def hang_up():
                with contextlib.suppress(OSError):
                    while True:
                        listener.accept()[0].close()
                        times.append(time.monotonic())

            thread = threading.Thread(target=hang_up)
            thread.start()
            began = time.monotonic()
            self.finish(self.node(1, "2", f"--join-timeout={seconds}"), 138)
            took = time.monotonic() - began
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
        self.assertGreater(len(times), 3)
        self.assertLess(len(times), 10 * (took + 1), "connections in this time")

    def test_another_program_at_our_port(self):
        server = self.node(0, "2")
        with wait_until(self.connected, "the server listens") as peer:
            peer.sendall(b"\0\xe7\x1c\x7f\x3c" * 20)  # as torch's TCPStore client greets
            peer.settimeout(LIMIT)
            with contextlib.suppress(ConnectionResetError):
                while peer.recv(100):
                    pass
        server.send_signal(signal.SIGTERM)
        _, err = self.finish(server, 143)
        # a connection that is over already has no address any more
        self.assertRegex(err, r"refused (127\.0\.0\.1|a peer): it does not speak muster's protocol: torchrun")

    def connected(self):
        try:
            return socket.create_connection(("127.0.0.1", self.port))
        except ConnectionRefusedError:
            return None

    def test_what_is_waited_for_is_told(self):
        # the line comes after five seconds
        client = self.node(1, "2:3", stderr=subprocess.PIPE)
        line = ""
        while "waiting for the world" not in line:
            line = client.stderr.readline()
            self.assertTrue(line, "the agent ended")
        self.assertIn(f"no answer yet from the server 127.0.0.1:{self.port}", line)
        client.send_signal(signal.SIGTERM)
        self.finish(client, 143)


class Changing(ElasticTest):
    def test_nodes_are_lost_come_and_go(self):
        nodes = [self.node(k, "2:4", stderr=subprocess.PIPE) for k in range(4)]
        self.seen(0, 4)
        nodes[2].kill()  # the guardian takes its workers
        nodes[2].wait()
        rows = self.seen(1, 3)
        self.assertEqual([row[4] for row in rows], ["1"] * 3)
        self.assertEqual([row[7] for row in rows], ["node-0", "node-1", "node-3"])
        nodes[2] = self.node(2, "2:4")
        rows = self.seen(2, 4)
        self.assertEqual([row[4] for row in rows], ["1"] * 4)  # a newcomer costs nothing
        nodes[1].send_signal(signal.SIGTERM)
        rows = self.seen(3, 3)
        self.assertEqual([row[4] for row in rows], ["1"] * 3)  # nor does a node that announces its leave
        self.assertNotIn("node-1", [row[7] for row in rows])
        self.finish(nodes[1], 143)
        for rank in range(4):
            self.assertTrue((self.folder / f"saved.2.{rank}").exists(), rank)  # all were informed in time
        _, err = self.finish_all([nodes[0], nodes[2], nodes[3]])[0]
        self.assertIn("restart 1 of 3: round 1 starts", err)
        self.assertEqual(err.count("of 3: round"), 1, err)  # a planned change is no restart

    def test_an_agent_is_killed_and_started_again(self):
        agents = [self.node(k, "2") for k in range(2)]
        self.seen(0, 2)
        agents[1].kill()
        agents[1].wait()
        agents[1] = self.node(1, "2")
        rows = self.seen(1, 2)
        self.assertEqual([row[4] for row in rows], ["1", "1"])
        self.finish_all(agents)

    def test_the_server_is_killed_and_comes_back(self):
        nodes = [self.node(k, "2:3") for k in range(3)]
        self.seen(0, 3)
        nodes[0].kill()
        nodes[0].wait()
        nodes[0] = self.node(0, "2:3")
        rows = self.seen_since(1, 3)
        self.assertEqual([row[4] for row in rows], ["1"] * 3)  # the loss costs a restart, and the count goes on
        self.assertIn("node-0", [row[7] for row in rows])
        self.finish_all(nodes)

    def test_the_server_is_killed_and_no_restart_is_left(self):
        nodes = [self.node(k, "2", "--max-restarts=0") for k in range(2)]
        self.seen(0, 2)
        nodes[0].kill()
        nodes[0].wait()
        nodes[0] = self.node(0, "2", "--max-restarts=0")
        for process in nodes:
            self.finish(process, 138)

    def test_a_spare_takes_over(self):
        nodes = [self.node(k, "1:2") for k in range(2)]
        self.seen(0, 2)
        spare = self.node(2, "1:2")
        self.waits(spare, "the world has its 2 nodes: a spare waits for one to leave")
        nodes[1].send_signal(signal.SIGTERM)
        self.finish(nodes[1], 143)
        rows = self.seen(1, 2)
        self.assertEqual([row[7] for row in rows], ["node-0", "node-2"])
        self.finish_all([nodes[0], spare])

    def test_the_server_frozen_a_drain_goes_alone(self):
        nodes = [self.node(k, "2") for k in range(2)]
        self.seen(0, 2)
        nodes[0].send_signal(signal.SIGSTOP)
        try:
            nodes[1].send_signal(signal.SIGTERM)
            self.finish(nodes[1], 143)
        finally:
            nodes[0].send_signal(signal.SIGCONT)
        nodes[0].send_signal(signal.SIGTERM)
        self.finish(nodes[0], 143)

    def test_the_server_is_asked_to_end_and_comes_back(self):
        nodes = [self.node(k, "2") for k in range(2)]  # of three, another one would take over
        self.seen(0, 2)
        nodes[0].send_signal(signal.SIGTERM)
        _, err = self.finish(nodes[0], 143)
        self.assertIn("leaves, and the server with it: the others wait for it to come back", err)
        for rank in range(2):
            self.assertTrue((self.folder / f"saved.0.{rank}").exists(), rank)  # the server stayed until all had stopped
        self.waits(nodes[1], "server left; looking for it")
        nodes[0] = self.node(0, "2")
        rows = self.seen_since(1, 2)
        self.assertEqual([row[4] for row in rows], ["0"] * 2)  # it costs no restart, and the rounds go on
        self.assertEqual([row[7] for row in rows], ["node-0", "node-1"])
        for _, err in self.finish_all(nodes)[1:]:
            self.assertIn("server left: ", err)
            self.assertNotIn("server lost", err)

    def test_the_server_that_leaves_is_asked_how_it_is(self):
        stubborn = self.script("stubborn.sh", WORKER.replace("exit 0' TERM", "until [ -e let-go ]; do sleep 0.05; done; exit 0' TERM"))
        os.chmod(stubborn, 0o755)
        nodes = [self.node(k, "2:3", "--shutdown-timeout=500", rest=["--", stubborn if k == 1 else self.worker]) for k in range(3)]
        self.seen(0, 3)
        nodes[0].send_signal(signal.SIGTERM)

        def sees_off():
            status = self.status(nodes[0])
            return status and status["state"] == "OVER" and status["waiting"].startswith("leaving: waiting for ")

        wait_until(sees_off, "the server waits for the others, and says so")
        nodes[0].send_signal(signal.SIGTERM)
        self.wait_said(nodes[0], "already leaving: waiting for ")
        (self.folder / "let-go").touch()
        self.finish(nodes[0], 143)
        nodes[0] = self.node(0, "2:3")
        rows = self.seen_since(1, 3)
        self.assertEqual([row[4] for row in rows], ["0"] * 3)
        self.finish_all(nodes)

    def test_the_server_is_asked_to_end_between_two_rounds(self):
        fails = self.script("fails.sh", WORKER.replace("do sleep", "do [ -e fail ] && rm fail && exit 7; sleep"))
        os.chmod(fails, 0o755)
        nodes = [self.node(k, "2", "--restart-backoff=20", rest=["--", fails if k == 1 else self.worker]) for k in range(2)]
        for round_ in range(2):
            self.seen(round_, 2)
            (self.folder / "fail").touch()
        wait_until(lambda: (self.status(nodes[0]) or {}).get("state") == "WAITING", "the round after the second failure is held back")
        nodes[0].send_signal(signal.SIGTERM)
        self.finish(nodes[0], 143)
        self.waits(nodes[1], "server left; looking for it")
        nodes[0] = self.node(0, "2", "--restart-backoff=20")
        rows = self.seen_since(2, 2)
        self.assertEqual([row[4] for row in rows], ["2"] * 2)  # the failures' restarts, and no other
        self.finish_all(nodes)

    def test_the_server_is_asked_to_end_and_stays_away(self):
        nodes = [self.node(k, "2", "--join-timeout=12") for k in range(2)]
        self.seen(0, 2)
        self.wait_said(nodes[0], "there are two nodes and no spare: the job ends if this node is lost for good")
        nodes[0].send_signal(signal.SIGTERM)
        self.finish(nodes[0], 143)
        _, err = self.finish(nodes[1], 138)
        self.assertIn(f"127.0.0.1:{self.port} left on SIGTERM and did not come back within 12", err)
        self.assertIn("(--join-timeout); one of two nodes is no majority: a spare node would do", err)

    def test_all_are_asked_to_end_at_once(self):
        nodes = [self.node(k, "2:3") for k in range(3)]
        self.seen(0, 3)
        for process in nodes:
            process.send_signal(signal.SIGTERM)
        for process in nodes:
            self.finish(process, 143)

    def test_a_person_ends_the_server_and_all_with_it(self):
        nodes = [self.node(k, "2") for k in range(2)]
        self.seen(0, 2)
        nodes[0].send_signal(signal.SIGINT)
        for process in nodes:
            self.finish(process, 130)

    def test_a_spare_learns_how_it_ended(self):
        nodes = [self.node(k, "2") for k in range(2)]
        self.seen(0, 2)
        spare = self.node(2, "2")
        self.waits(spare, "the world has its 2 nodes")
        self.finish_all([*nodes, spare])


class TwoAgentsOfOneHost(ElasticTest):
    """The first serves, the second has joined it. A third one is elsewhere. While the first is gone, another one takes over."""

    def on_host(self, name, nnodes):
        return self.node(0, nnodes, env={"MUSTER_HOSTNAME": name})

    def three(self):
        first = self.on_host("node-0", "2:3")
        self.waits(first, "1 of at least 2 nodes")  # it serves
        nodes = [first, self.on_host("node-0b", "2:3"), self.node(1, "2:3")]
        rows = self.seen_since(0, 3)
        self.assertEqual(rows[0][7], "node-0")
        return nodes

    def comes_back(self, nodes, restarts):
        for node in nodes[1:]:
            self.wait_said(node, "stopping the workers")
        nodes[0] = self.on_host("node-0", "2:3")  # the port was free: no process took it in the meantime
        rows = self.seen_since(1, 3)
        self.assertNotEqual(self.status(nodes[1])["server"]["name"], "node-0")  # it may have the lost rank, and does not serve
        self.assertEqual([row[4] for row in rows], [restarts] * 3)
        self.finish_all(nodes)

    def test_the_first_is_killed_and_comes_back(self):
        nodes = self.three()
        nodes[0].kill()
        nodes[0].wait()
        self.comes_back(nodes, "1")

    def test_the_first_is_asked_to_end_and_comes_back(self):
        nodes = self.three()
        nodes[0].send_signal(signal.SIGTERM)
        self.finish(nodes[0], 143)
        self.comes_back(nodes, "0")

    def test_a_server_that_stands_still_holds_its_place(self):
        nodes = self.three()
        nodes[0].send_signal(signal.SIGSTOP)
        try:
            self.wait_said(nodes[1], "no server: ")
        finally:
            nodes[0].send_signal(signal.SIGCONT)
        self.seen_since(1, 3)  # it has joined the others
        self.finish_all(nodes)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
