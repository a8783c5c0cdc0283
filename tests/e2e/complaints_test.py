"""What users of torchrun and of the PyTorchJob operator complain of, shown cured. launcher/docs/complaints.md lists the complaints with
the test of each, here or elsewhere.

    MUSTER_BUILD=build python3 tests/e2e/complaints_test.py [TestClass.test_name ...]"""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import threading
import unittest

from harness import MUSTER, AgentTest, environment, free_port, wait_until

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# Writes that it is up, by round and rank, and stays until there is a file "go".
WAITER = """echo "$MUSTER_HOSTNAME $GROUP_RANK $TORCHELASTIC_RESTART_COUNT" > up.$MUSTER_ROUND.$RANK.new
mv up.$MUSTER_ROUND.$RANK.new up.$MUSTER_ROUND.$RANK
while [ ! -e go ]; do sleep 0.02; done
"""

# PyTorch's store, spoken by hand: GET of a key without waiters, then SET.
STORE = """import os, socket, struct
s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
def text(t):
    return struct.pack("<Q", len(t)) + t
def read(n):
    got = b""
    while len(got) < n:
        more = s.recv(n - len(got))
        assert more, "the store closed the connection"
        got += more
    return got
s.sendall(b"\\0" + struct.pack("<I", 0x3C85F7CE) + b"\\x0d" + struct.pack("<I", 7))
assert struct.unpack("<I", read(4)) == (7,)
s.sendall(b"\\x05" + struct.pack("<Q", 1) + text(b"/nccl_id"))
print("missing" if read(1) == b"\\1" else "stale", flush=True)
s.sendall(b"\\1" + text(b"/nccl_id") + text(os.environ["TORCHELASTIC_RESTART_COUNT"].encode()))
s.sendall(b"\\x05" + struct.pack("<Q", 1) + text(b"/nccl_id"))
assert read(1) == b"\\0"
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3)
"""


class Complaint(AgentTest):
    def waiter(self):
        return ["--", "sh", self.script("waiter.sh", WAITER)]

    def up(self, round_, size):
        """The rows that the workers of a round wrote, once all have."""

        def read():
            paths = [self.folder / f"up.{round_}.{rank}" for rank in range(size)]
            return [path.read_text().split() for path in paths] if all(map(os.path.exists, paths)) else None

        return wait_until(read, f"{size} workers in round {round_}")

    def static(self, rank, port, *arguments, name=None, **options):
        return self.start(
            "--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", *arguments,
            env={"MUSTER_HOSTNAME": name or f"pod-{rank}"}, **options,
        )

    def elastic(self, name, address, port, nnodes, *arguments):
        return self.start(
            f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", f"--local-addr={address}",
            "--last-call-timeout=8", "--regroup-interval=1", *arguments, env={"MUSTER_HOSTNAME": name},
        )


class Ports(Complaint):
    def test_many_jobs_on_a_host_need_no_ports(self):
        path = self.script(
            "store.py",
            "import os, socket, time\n"
            "socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))).close()\n"
            "print(os.environ['MASTER_PORT'])\n"
            "open(f'{os.getpid()}.here', 'w').close()\n"
            "while len([n for n in os.listdir() if n.endswith('.here')]) < 8:\n"
            "    time.sleep(0.01)\n",  # all eight hold their ports at the same time
        )
        jobs = [self.start(path) for _ in range(8)]
        self.assertEqual(len({self.finish(job, 0)[0] for job in jobs}), 8)

    def test_a_second_job_on_a_port_is_rejected_and_the_first_continues(self):
        port = free_port()
        mine = [self.static(0, port, "--rdzv-id=mine", *self.waiter())]
        wait_until(lambda: self.answers(port), "the first job's server")
        _, err = self.finish(self.static(1, port, "--rdzv-id=yours", "true"), 1)
        self.assertIn('job id: this agent has "yours", the server "mine"', err)
        _, err = self.finish(self.static(0, port, "--rdzv-id=yours", "true"), 1)
        self.assertRegex(err, rf"port {port} is in use by pid {mine[0].pid} \(muster\)")
        mine.append(self.static(1, port, "--rdzv-id=mine", *self.waiter()))
        self.up(0, 2)
        (self.folder / "go").touch()
        for process in mine:
            self.finish(process, 0)

    def test_jobs_without_an_id_of_different_shape_do_not_mix(self):
        port = free_port()
        first = self.static(0, port, *self.waiter())
        wait_until(lambda: self.answers(port), "the first job's server")
        foreign = self.start("--nnodes=3", "--node-rank=1", "--master-addr=127.0.0.1", f"--master-port={port}", "true")
        _, err = self.finish(foreign, 1)
        self.assertIn("nnodes", err)
        first.send_signal(signal.SIGTERM)
        self.finish(first, 143)

    @staticmethod
    def answers(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def test_a_port_where_something_else_answers_is_named(self):
        """A server that hangs up at our greeting: another launcher, a proxy, a sidecar."""
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            port = server.getsockname()[1]

            def hang_up():
                while True:
                    try:
                        peer, _ = server.accept()
                    except OSError:
                        return
                    with peer, contextlib.suppress(OSError):  # it may have gone
                        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

            thread = threading.Thread(target=hang_up)
            thread.start()
            _, err = self.finish(self.static(1, port, "--join-timeout=6", "true"), 138)
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
        self.assertIn(f"127.0.0.1:{port}", err)
        self.assertRegex(err, "torchrun|proxy|something else")


class Names(Complaint):
    def in_own_hosts(self, hosts, *arguments):
        """An agent that sees these lines as /etc/hosts; later ones may be added to the file."""
        if os.geteuid() or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
            self.skipTest("no mount namespaces here")
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + hosts)
        process = subprocess.Popen(
            ["unshare", "-m", "--propagation=private", "sh", "-c", 'mount --bind hosts /etc/hosts && exec "$@"', "sh", MUSTER, "run",
             *arguments],
            env=environment(E2E_FOLDER=str(self.folder)), cwd=self.folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def test_rank_0_serves_where_its_name_is_not_an_address_of_its_own(self):
        """A Service's address, or a name that only the others resolve."""
        port = free_port()
        first = self.in_own_hosts(
            "10.99.99.99 job-master-0\n", "--nnodes=2", "--node-rank=0", "--master-addr=job-master-0", f"--master-port={port}",
            "--", "sh", "-c", "echo $MASTER_ADDR",
        )
        self.finish(self.static(1, port, "true"), 0)
        out, err = self.finish(first, 0)
        self.assertEqual(out, "job-master-0\n")
        self.assertIn("serving the job on every address of this machine", err)

    def test_a_name_may_appear_late(self):
        port = free_port()
        second = self.in_own_hosts(
            "", "--nnodes=2", "--node-rank=1", "--master-addr=late.invalid", f"--master-port={port}", "--", "sh", "-c", "echo in"
        )
        first = self.static(0, port, "true")
        self.waits(second, "the name late.invalid does not resolve yet")
        with open(self.folder / "hosts", "a") as file:
            file.write("127.0.0.1 late.invalid\n")
        self.assertEqual(self.finish(second, 0)[0], "in\n")
        self.finish(first, 0)

    def test_addresses_are_never_looked_up_in_reverse(self):
        for path in [*SOURCE.glob("launcher/**/*.c"), *SOURCE.glob("rendezvous/**/*.c")]:
            text = path.read_text()
            for call in ("gethostbyaddr(", "getnameinfo("):  # numbers are written by proto/base/address.h, which asks no server
                self.assertNotIn(call, text, path)


class Ranks(Complaint):
    def test_rank_0_is_on_the_host_that_serves_whatever_the_names(self):
        port = free_port()
        nodes = [self.elastic("zebra", "127.0.0.1", port, "2:3", *self.waiter()), self.elastic("ant", "127.0.0.2", port, "2:3", *self.waiter())]
        self.assertEqual([row[0] for row in self.up(0, 2)], ["zebra", "ant"])
        nodes.append(self.elastic("aardvark", "127.0.0.3", port, "2:3", *self.waiter()))  # sorts first, takes nothing over
        self.assertEqual([row[0] for row in self.up(1, 3)][0], "zebra")
        (self.folder / "go").touch()
        for node in nodes:
            self.finish(node, 0)

    def test_a_vanished_node_is_counted_and_the_budget_ends(self):
        """torchrun restarts without a limit when nodes leave and return, --max-restarts=0 or not."""
        port = free_port()
        nodes = [self.elastic(f"node-{k}", f"127.0.0.{k + 1}", port, "2", "--max-restarts=1", *self.waiter()) for k in (0, 1)]
        self.up(0, 2)
        for round_ in (1, 2):
            nodes[1].kill()
            nodes[1].wait()
            if round_ == 1:
                nodes[1] = self.elastic("node-1", "127.0.0.2", port, "2", "--max-restarts=1", *self.waiter())
                self.assertEqual([row[2] for row in self.up(1, 2)], ["1", "1"])
        _, err = self.finish(nodes[0], 138)
        self.assertIn("node-1", err)

    def test_no_old_keys_in_the_store_after_a_restart(self):
        out, _ = self.run_muster("--max-restarts=1", self.script("store.py", STORE))
        self.assertEqual(out.split(), ["missing", "missing"])

    def test_cores_are_shared_and_said_once(self):
        cores = len(os.sched_getaffinity(0))
        process = subprocess.run(
            [MUSTER, "run", "--standalone", "--nproc-per-node=2", "--", "sh", "-c", "echo $OMP_NUM_THREADS"],
            env={k: v for k, v in environment().items() if k != "OMP_NUM_THREADS"}, capture_output=True, text=True, cwd=self.folder,
        )
        self.assertEqual(process.returncode, 0, process.stderr)
        threads = process.stdout.split()
        self.assertEqual(len(set(threads)), 1)
        self.assertTrue(1 <= int(threads[0]) <= max(1, cores // 2))
        self.assertEqual(process.stderr.count("OMP_NUM_THREADS"), 1)


class Losses(Complaint):
    def test_a_static_pod_that_was_restarted_in_place_is_taken_back(self):
        """The operator recreates a killed worker under the same name: the world forms again, all workers start again."""
        port = free_port()
        first, second = [self.static(rank, port, "--max-restarts=2", *self.waiter()) for rank in (0, 1)]
        self.up(0, 2)
        second.kill()
        second.wait()
        again = self.static(1, port, "--max-restarts=2", *self.waiter())
        self.up(1, 2)
        (self.folder / "go").touch()
        for process in (first, again):
            self.finish(process, 0)

    def test_a_node_that_falls_silent_is_given_up(self):
        """Power lost, network gone: no packet reports it."""
        port = free_port()
        first, second = [self.static(rank, port, *self.waiter()) for rank in (0, 1)]
        self.up(0, 2)
        second.send_signal(signal.SIGSTOP)
        _, err = self.finish(first, 138)  # torchrun: hours
        self.assertIn("pod-1", err)
        second.send_signal(signal.SIGCONT)
        self.finish(second, 138)

    def test_the_pod_that_decides_leaves_last(self):
        """The master's end is the job's: it waits for the others, though its own work is done."""
        port = free_port()
        nodes = [
            self.static(0, port, "--", "true"),
            self.static(1, port, "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done"),
        ]
        wait_until(lambda: (self.status(nodes[0]) or {}).get("state") == "DONE", "node 0 has nothing left to do")
        self.assertIsNone(nodes[0].poll())
        (self.folder / "go").touch()
        for node in nodes:
            self.finish(node, 0)

    def test_a_failure_of_one_node_frees_all_at_once(self):
        """torchrun's other nodes keep their GPUs for five minutes."""
        port = free_port()
        path = self.script(
            "segv.py",
            "import os, time\n"
            "open(f'up.0.{os.environ[\"RANK\"]}', 'w').close()\n"
            "while not (os.path.exists('up.0.0') and os.path.exists('up.0.1')):\n"
            "    time.sleep(0.01)\n"
            "if os.environ['RANK'] == '1':\n"
            "    os.kill(os.getpid(), 11)\n"
            "time.sleep(1000)\n",
        )
        nodes = [self.static(rank, port, path) for rank in (0, 1)]
        for node in nodes:
            _, err = self.finish(node, 139)
            self.assertIn("SIGSEGV", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
