"""muster run --worker-store=worker end to end: rank 0 serves the store itself, on a port that no other process gets in the meantime.

    MUSTER_BUILD=build python3 tests/e2e/worker_store_test.py [TestClass.test_name ...]

Rank 0 of the workers does what PyTorch's store does: it binds MASTER_PORT by number, with SO_REUSEADDR, and listens; the others
connect until one answers."""

import socket
import unittest

from harness import AgentTest, free_port, wait_until

WORKER = """import os, socket, sys, time
get = os.environ.get
rank, size, round_ = int(get("RANK")), int(get("WORLD_SIZE")), get("MUSTER_ROUND")
address, port = get("MASTER_ADDR"), int(get("MASTER_PORT"))

def tell(name, text):
    with open(f"{name}.{round_}.{rank}.new", "w") as file:
        file.write(text)
    os.rename(f"{name}.{round_}.{rank}.new", f"{name}.{round_}.{rank}")

tell("given", f"{get('TORCHELASTIC_USE_AGENT_STORE')} {address} {port}")
if rank == 0:
    with socket.socket() as other:  # a program that wants the port and knows nothing of us
        try:
            other.bind(("", port))
            sys.exit("the port was not held")
        except OSError:
            pass
    if sys.argv[1] == "wait":
        while not os.path.exists("go"):
            time.sleep(0.01)
        sys.exit(7 if round_ == "0" else 0)
    server = socket.socket(socket.AF_INET6)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.bind(("::", port))
    time.sleep(0.2)  # what a store does before it listens: the others are refused meanwhile
    server.listen(64)
    peers = [server.accept()[0] for _ in range(size - 1)]
    for peer in peers:
        peer.sendall(round_.encode())
else:
    while True:
        try:
            with socket.create_connection((address, port)) as peer:
                got = peer.recv(16).decode()
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    assert got == round_, got
tell("met", "")
if rank == size - 1 and sys.argv[1] == "fail" and round_ == "0":
    while not all(os.path.exists(f"met.0.{r}") for r in range(size)):  # its end ends the others
        time.sleep(0.01)
    sys.exit(3)
if sys.argv[1] == "fail" and round_ == "0":
    time.sleep(1000)
"""


class WorkerStore(AgentTest):
    def setUp(self):
        super().setUp()
        self.worker = self.script("worker.py", WORKER)

    def given(self, round_, rank):
        path = self.folder / f"given.{round_}.{rank}"
        return wait_until(lambda: path.exists() and path.read_text().split(), path.name)

    def met(self, round_, size):
        return all((self.folder / f"met.{round_}.{rank}").exists() for rank in range(size))

    def test_rank_0_serves_on_a_held_port(self):
        self.run_muster("--standalone", "--worker-store=worker", "--nproc-per-node=3", self.worker, "once")
        self.assertTrue(self.met(0, 3))
        given = [self.given(0, rank) for rank in range(3)]
        self.assertEqual(given, [given[0]] * 3)
        self.assertEqual(given[0][0], "False")

    def test_the_given_port_and_the_variable(self):
        port = free_port()
        self.run_muster(f"--master-port={port}", "--nproc-per-node=2", self.worker, "once", env={"MUSTER_WORKER_STORE": "worker"})
        self.assertTrue(self.met(0, 2))
        self.assertEqual(self.given(0, 0), ["False", "127.0.0.1", str(port)])

    def test_a_port_in_use_is_an_error_that_names_it(self):
        with socket.socket() as holder:
            holder.bind(("", 0))
            holder.listen()
            port = holder.getsockname()[1]
            _, err = self.run_muster(f"--master-port={port}", "--worker-store=worker", "true", code=138)
        self.assertRegex(err, rf"port {port} is in use by")

    def test_a_restart_meets_at_the_port_again(self):
        _, err = self.run_muster("--standalone", "--worker-store=worker", "--nproc-per-node=2", "--max-restarts=1", self.worker, "fail")
        self.assertTrue(self.met(0, 2) and self.met(1, 2))
        self.assertEqual(self.given(0, 0), self.given(1, 1))
        self.assertNotIn("in use", err)

    def test_a_restart_leaves_a_port_that_something_listens_on(self):
        agent = self.start("--standalone", "--worker-store=worker", "--nproc-per-node=1", "--max-restarts=1", self.worker, "wait")
        port = int(self.given(0, 0)[2])
        with socket.socket() as squatter:  # as a program would that outlived the round
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            squatter.bind(("", port))
            squatter.listen()
            self.script("go", "")
            _, err = self.finish(agent, 0)
        self.assertRegex(err, rf"port {port}, at which rank 0 served the last round, is in use: now it is \d+")
        self.assertNotEqual(self.given(1, 0)[2], str(port))

    def node(self, k, *arguments, **options):
        return self.start("--nnodes=2", "--nproc-per-node=2", "--worker-store=worker", "--max-restarts=1", *arguments, self.worker, "fail",
                          env={"MUSTER_HOSTNAME": f"node-{k}"}, **options)

    def two_nodes(self, address, *flags):
        agents = [self.node(k, *(flag(k) if callable(flag) else flag for flag in flags)) for k in range(2)]
        for agent in agents:
            self.finish(agent, 0)
        self.assertTrue(self.met(0, 4) and self.met(1, 4))
        given = {tuple(self.given(round_, rank)) for round_ in range(2) for rank in range(4)}
        self.assertEqual({row[:2] for row in given}, {("False", address)})
        ports = {round_: {self.given(round_, rank)[2] for rank in range(4)} for round_ in range(2)}
        self.assertEqual([len(ports[round_]) for round_ in range(2)], [1, 1])  # all of a round got the same
        return int(ports[0].pop())

    def test_two_nodes_with_ranks(self):
        port = free_port()
        told = self.two_nodes("127.0.0.1", lambda k: f"--node-rank={k}", "--master-addr=127.0.0.1", f"--master-port={port}")
        self.assertEqual(told, port + 1)

    def test_two_nodes_in_a_range(self):
        """Not next to the master's port, though that is free: a firewall may let nothing else through."""
        port, first = free_port(), free_port(21)
        with socket.socket() as taken:
            taken.bind(("", first))
            taken.listen()
            told = self.two_nodes("127.0.0.1", lambda k: f"--node-rank={k}", "--master-addr=127.0.0.1", f"--master-port={port}",
                                  f"--port-range={first}-{first + 20}")
        self.assertTrue(first < told <= first + 20, told)

    def test_two_nodes_that_meet(self):
        self.two_nodes("127.0.0.1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                       lambda k: f"--local-addr=127.0.0.{k + 1}", "--last-call-timeout=1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
