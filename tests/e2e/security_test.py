"""Admission to a job, and what unauthenticated peers at its port can do: real agents on loopback addresses, with and without a secret.

    MUSTER_BUILD=build python3 tests/e2e/security_test.py [TestClass.test_name ...]"""

import contextlib
import os
import pathlib
import random
import re
import resource
import select
import signal
import socket
import subprocess
import threading
import time
import unittest

from harness import LIMIT, MUSTER, AgentTest, environment, free_port, repeated_beside, wait_until

# writes its environment and waits for a file named finish
WORKER = """#!/bin/sh
{ env; echo "core=$(ulimit -c)"; } > "seen.$RANK.new" && mv "seen.$RANK.new" "seen.$RANK"
while [ ! -e finish ]; do sleep 0.05; done
"""
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY" + b"\x0bSocket-Type\0\0\0\x06DEALER" + b"\x08Identity\0\0\0\0"
READY = bytes([4, len(READY)]) + READY
HELD_MS = 500
NO_SECRET_UNTOLD = "does not speak muster's protocol: torchrun, or another program on this port"
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(190))


SOURCE = pathlib.Path(__file__).resolve().parents[2]
CORPUS = SOURCE / "tests" / "fuzz" / "corpus" / "wire"  # a frame of each kind
VERSION = int(re.search(r"ROSTER_PROTOCOL_VERSION = (\d+)", (SOURCE / "rendezvous" / "roster" / "roster.h").read_text())[1])


class Fixed(int):
    """A number of 64 bits on the wire."""


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def protobuf(fields):
    """{number: int, Fixed or bytes} as protobuf has it."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, Fixed):
            out += varint(number << 3 | 1) + value.to_bytes(8, "little")
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def join(**lies):
    """A JOIN that the server of these tests would take, but for the lies."""
    fields = {"version": VERSION, "job_id": b"none", "min_nodes": 2, "max_nodes": 2, "elastic": 0, "agent_name": b"outsider", "node_rank": 2}
    fields |= {"high": Fixed(7), "low": Fixed(8), "local": 1, "role": b"default", "store": b"10.0.0.1", "port": 29500, **lies}
    numbers = dict(job_id=1, min_nodes=2, max_nodes=3, elastic=4, agent_name=5, node_rank=6, high=7, low=8, local=9, role=10)
    numbers |= dict(vote_addr=25, vote_port=26, known=27, store=11, port=12, held=13, number=14, restarts=15, epoch=16, last=17, last_nodes=18, held_done=19, server_done=20)
    body = protobuf({numbers[name]: value for name, value in fields.items() if name in numbers})
    return protobuf({1: fields["version"], 2: body})


def frame(data):
    """One ZeroMQ message."""
    return (b"\0" + bytes([len(data)]) if len(data) < 256 else b"\2" + len(data).to_bytes(8, "big")) + data


@contextlib.contextmanager
def silent_crowd(count, connect):
    """So many silent connections; a closed one is opened again at once."""
    held = [connect() for _ in range(count)]

    def come_again():
        for k, peer in enumerate(held):
            try:
                if peer.recv(100):
                    continue  # the server's greeting
            except BlockingIOError:
                continue
            except OSError:
                pass
            peer.close()
            held[k] = connect()
        time.sleep(0.01)

    try:
        with repeated_beside(come_again):
            yield
    finally:
        for peer in held:
            peer.close()


class SecurityTest(AgentTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.worker = self.script("worker.sh", WORKER)
        os.chmod(self.worker, 0o755)

    def secret(self, name="secret", mode=0o600):
        path = self.folder / name
        path.write_bytes(subprocess.run([MUSTER, "secret"], check=True, capture_output=True).stdout)
        path.chmod(mode)
        return path

    def node(self, rank, *arguments, port=None, join=60, rest=None, **options):
        return self.start(
            "--nnodes=2",
            f"--node-rank={rank}",
            "--master-addr=127.0.0.1",
            f"--master-port={port or self.port}",
            f"--join-timeout={join}",
            *arguments,
            *(rest or ["--", self.worker]),
            **{"env": {"MUSTER_HOSTNAME": f"node-{rank}"}, **options},
        )

    def seen(self, rank):
        path = self.folder / f"seen.{rank}"
        wait_until(path.exists, f"{path} is there")
        return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)

    def finish_all(self, *processes):
        (self.folder / "finish").touch()
        return [self.finish(process, 0)[1] for process in processes]

    def refused(self, reason, err):
        """It is in the log, with the peer's address or without: a rejected peer may be gone before its address is read."""
        self.assertRegex(err, r"refused (127\.0\.0\.1|a peer): " + re.escape(reason))

    def not_taken(self, words, *flags, join=45, instead=None):
        """A node whose flags do not go together with the server's gives up and prints why. instead: text that it may print at the time-out:
        libzmq's server closes as soon as it has read a greeting that it does not like, often before its own has left, and then
        no peer can inform the node better."""
        process = self.node(1, *flags, join=join)
        _, err = process.communicate(timeout=join + LIMIT)
        if process.returncode == 138 and instead:
            self.assertIn(instead, err)
        else:
            self.assertEqual(process.returncode, 1, err)
            self.assertIn(f"does not admit this node: {words}", err)

    def breaks_off(self, *flags):
        """A node with another secret gives up at its time-out; where that was too short to receive anything it tries for longer."""
        for join in (4, 16, 64):
            process = self.node(1, *flags, join=join)
            _, err = process.communicate(timeout=join + LIMIT)
            self.assertEqual(process.returncode, 138, err)
            if "closes the connection during the handshake: its job secret is not the one in this node's --secret-file" in err:
                return
        self.fail(err)

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        return self.finish(process, 143)[1]

    def stream(self, data=b""):
        """A connection to the server that has sent data."""
        peer = wait_until(self.connected, "the server listens")
        peer.settimeout(LIMIT)
        with contextlib.suppress(OSError):  # the server may close before it has read all
            peer.sendall(data)
        return peer

    def connected(self):
        try:
            return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)
        except OSError:
            return None


def until_closed(peer):
    """Bytes until the server closed the connection."""
    got = b""
    with contextlib.suppress(ConnectionError), peer:
        while more := peer.recv(65536):
            got += more
    return got


class TheSecret(SecurityTest):
    def test_who_has_it_joins(self):
        secret = self.secret()
        nodes = [self.node(rank, f"--secret-file={secret}") for rank in range(2)]
        self.seen(1)
        for err in self.finish_all(*nodes):  # a busy machine may have other things to say
            self.assertNotRegex(err, "secret|refused|WHOEVER")

    def test_the_server_turns_away_who_has_another_none_or_another_job(self):
        """and still takes the expected one."""
        secret, other = self.secret(), self.secret("other")
        server = self.node(0, f"--secret-file={secret}")
        self.breaks_off(f"--secret-file={other}")
        self.not_taken("the server has a job secret and this node was started without one", instead=NO_SECRET_UNTOLD)
        self.not_taken("the server has this job secret and another job id: --rdzv-id", f"--secret-file={secret}", "--rdzv-id=another")
        right = self.node(1, f"--secret-file={secret}")
        self.seen(1)
        err, _ = self.finish_all(server, right)
        self.refused("it has another secret", err)
        self.refused("it has no secret, and this job has one", err)
        self.refused("it has this secret, but another job id", err)
        for reason in ("no secret", "another secret", "another job id"):
            self.assertRegex(err, rf"connections that were refused: .*\b\d+ \({reason}\)")

    def test_a_secret_that_only_the_client_has(self):
        server = self.node(0)
        words = "this node was started with --secret-file and the server without"
        self.not_taken(words, f"--secret-file={self.secret()}", instead="closes the connection during the handshake")
        self.assertIn("it has a secret, and this server was started without one", self.stop(server))

    def test_the_server_hears_of_a_mismatch_that_the_node_saw_first(self):
        """The wire holds a node's bytes after its first bytes until the node has had time to read the server's greeting: libzmq
        then ends the connection, and the server never sees the rest."""
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.relay_late, args=(listener,), daemon=True).start()
        self.addCleanup(listener.close)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)  # ends the accept
        server = self.node(0)
        wait_until(self.connected, "the server listens").close()
        late = self.node(1, f"--secret-file={self.secret()}", port=listener.getsockname()[1])
        _, err = self.finish(late, 1)
        self.assertIn("this node was started with --secret-file and the server without", err)
        self.wait_said(server, "it has a secret, and this server was started without one")
        self.stop(server)

    def relay_late(self, listener):
        def up(near, far):
            with contextlib.suppress(OSError):
                first = 11  # signature and version, upon which the server sends the rest of its greeting
                while first > 0 and (data := near.recv(first)):
                    far.sendall(data)
                    first -= len(data)
                end = select.poll()
                end.register(near, select.POLLRDHUP)
                if not end.poll(HELD_MS):
                    while data := near.recv(65536):
                        far.sendall(data)
            with contextlib.suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)

        def down(near, far):
            with contextlib.suppress(OSError):
                while data := far.recv(65536):
                    near.sendall(data)
                near.shutdown(socket.SHUT_RDWR)

        with contextlib.suppress(OSError), contextlib.ExitStack() as sockets:
            while True:
                near = sockets.enter_context(listener.accept()[0])
                far = sockets.enter_context(socket.create_connection(("127.0.0.1", self.port)))
                for job in up, down:
                    threading.Thread(target=job, args=(near, far), daemon=True).start()

    def test_members_continue_while_an_outsider_tries(self):
        secret = self.secret()
        nodes = [self.node(rank, f"--secret-file={secret}") for rank in range(2)]
        self.seen(1)
        self.not_taken("the server has a job secret", "--max-restarts=3", instead=NO_SECRET_UNTOLD)
        err, _ = self.finish_all(*nodes)
        self.refused("it has no secret, and this job has one", err)

    def test_elastic_jobs_have_it_too(self):
        secret = self.secret()
        arguments = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", f"--secret-file={secret}"]
        nodes = [
            self.start(*arguments, f"--local-addr=127.0.0.{k + 1}", "--", self.worker, env={"MUSTER_HOSTNAME": f"node-{k}"})
            for k in range(2)
        ]
        self.seen(1)
        self.finish_all(*nodes)

    def test_a_recorded_session_is_of_no_use(self):
        """A relay receives everything: it learns nothing, and sending the same again does not admit it."""
        secret, name, said = self.secret(), "a-name-to-look-for", bytearray()
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.relay, args=(listener, said), daemon=True).start()
        self.addCleanup(listener.close)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)  # ends the accept
        server = self.node(0, f"--secret-file={secret}", f"--rdzv-id={name}")
        client = self.node(1, f"--secret-file={secret}", f"--rdzv-id={name}", port=listener.getsockname()[1])
        self.seen(1)
        recorded = bytes(said)
        self.assertIn(b"CURVE", recorded)
        self.assertNotIn(name.encode(), recorded)
        self.assertNotIn(b"node-1", recorded)
        answer = until_closed(self.stream(recorded))
        self.assertNotIn(b"\x05READY", answer)
        err, _ = self.finish_all(server, client)
        self.refused("", err)

    def relay(self, listener, said):
        def pump(source, sink, heard):
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    if heard is not None:
                        heard += data
                    sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)

        with contextlib.suppress(OSError), contextlib.ExitStack() as sockets:
            while True:
                near = sockets.enter_context(listener.accept()[0])
                try:
                    far = sockets.enter_context(socket.create_connection(("127.0.0.1", self.port)))
                except OSError:
                    near.close()
                    continue
                for job in ((near, far, said), (far, near, None)):
                    threading.Thread(target=pump, args=job, daemon=True).start()


class Keeping(SecurityTest):
    @unittest.skipIf(os.environ.get("MUSTER_SANITIZED"), "a sanitizer allows no core file, and its memory is too large to be searched")
    def test_it_is_in_no_worker_and_nowhere_else(self):
        secret = self.secret()
        text = secret.read_text().strip()
        cores = (4096 * 512, resource.getrlimit(resource.RLIMIT_CORE)[1])
        if cores[1] != resource.RLIM_INFINITY and cores[1] < cores[0]:
            self.skipTest("core files are forbidden here")

        def preexec():
            resource.setrlimit(resource.RLIMIT_CORE, cores)

        variables = {"MUSTER_SECRET_FILE": str(secret), "MUSTER_REQUIRE_AUTH": "1"}
        nodes = [
            self.node(k, env={"MUSTER_HOSTNAME": f"node-{k}", **variables}, preexec_fn=preexec, rest=["--", self.worker])
            for k in range(2)
        ]
        seen = [self.seen(k) for k in range(2)]
        for worker in seen:
            self.assertEqual([name for name in worker if name in variables], [])
            self.assertIn(worker["core"], ("2048", "4096"))  # blocks of 1,024 or 512 bytes
        for node in nodes:
            with open(f"/proc/{node.pid}/limits") as file:
                self.assertRegex(file.read(), r"Max core file size +[01] ")
            with open(f"/proc/{node.pid}/cmdline") as line, open(f"/proc/{node.pid}/environ") as inherited:
                self.assertNotIn(text, line.read() + inherited.read())
            memory = self.memory(node.pid)
            self.assertIn(str(secret).encode(), memory)  # the search finds a present text
            digits = text.split(":")[1]
            self.assertNotIn(digits.encode(), memory)
            self.assertNotIn(bytes.fromhex(digits), memory)
        self.finish_all(*nodes)

    def memory(self, pid):
        """All that the process can write to."""
        found = []
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
            for line in maps:
                first, last = (int(part, 16) for part in line.split()[0].split("-"))
                if line.split()[1].startswith("rw") and "[v" not in line:
                    mem.seek(first)
                    with contextlib.suppress(OSError):
                        found.append(mem.read(last - first))
        return b"\n".join(found)

    def test_a_file_that_others_can_read_is_warned_of(self):
        for mode, words in ((0o644, "every user of this machine"), (0o640, "its group")):
            node = self.node(1, f"--secret-file={self.secret(mode=mode)}", join=0.5)
            self.assertRegex(self.finish(node, 138)[1], rf"warning: secret file .*/secret has mode {mode:04o}, {words} can read")

    def test_a_file_that_holds_none_is_bad_usage(self):
        junk = self.folder / "junk"
        junk.write_text("replace-me\n")
        _, err = self.finish(self.node(0, f"--secret-file={junk}"), 2)
        self.assertIn("holds no job secret: it does not begin with 'muster-secret-1:'; muster secret makes one", err)
        _, err = self.finish(self.node(0, f"--secret-file={self.folder}/missing"), 2)
        self.assertIn("missing: No such file or directory", err)

    def test_one_node_reads_it_for_its_store(self):
        _, err = self.run_muster("--standalone", "--secret-file=/nowhere", "--", "true", code=2)
        self.assertIn("secret file /nowhere: No such file or directory", err)
        self.run_muster("--standalone", "--require-auth", "--", "true")  # no other node can join

    def test_making_and_checking(self):
        def call(*arguments):
            return subprocess.run([MUSTER, "secret", *arguments], capture_output=True, text=True, env=environment())

        self.assertRegex(call().stdout, r"\Amuster-secret-1:[0-9a-f]{64}\n\Z")
        self.assertEqual(call("--check", str(self.secret())).returncode, 0)
        self.assertEqual(call("--check", "/dev/null").returncode, 1)
        manifest = call("--output=kubernetes", "--name=job-secret", "--namespace=training")
        self.assertRegex(manifest.stdout, r'\n  name: "job-secret"\n  namespace: "training"\n')


class WithoutOne(SecurityTest):
    def reached_from_outside(self, *arguments):
        """A server by a name that is not the loopback's, so that it binds every address."""
        return self.start(
            "--nnodes=2", "--node-rank=0", f"--master-addr={socket.gethostname()}", f"--master-port={self.port}", *arguments, "--", "true"
        )

    def test_it_is_said_loudly_and_once(self):
        server = self.reached_from_outside()
        self.stream().close()
        err = self.stop(server)
        self.assertEqual(err.count(f"ANY PEER THAT REACHES PORT {self.port} OF THIS MACHINE CAN JOIN THE JOB OR STOP IT"), 1)

    def test_with_a_secret_or_on_the_loopback_nothing_is_said(self):
        server = self.reached_from_outside("--require-auth", f"--secret-file={self.secret()}")
        self.stream().close()
        self.assertNotIn("WHOEVER", self.stop(server))
        server = self.node(0, "--require-auth")
        self.stream().close()
        self.assertNotIn("WHOEVER", self.stop(server))

    def test_require_auth_makes_it_an_error_on_every_node(self):
        for rank in range(2):
            arguments = ["--nnodes=2", f"--node-rank={rank}", "--master-addr=10.1.2.3", "--master-port=29500"]
            _, err = self.run_muster(*arguments, "--require-auth", "--", "true", code=2)
            self.assertIn("--require-auth: 2 nodes with a rendezvous at '10.1.2.3' need the job's secret", err)
            self.assertNotIn("warning", err)


class HostilePeers(SecurityTest):
    HALF_OPEN = 400
    GROWTH_KB = 64 * 1024

    def peak(self, process):
        with open(f"/proc/{process.pid}/status") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1))

    def scan(self):
        for _ in range(300):
            self.stream().close()

    def talk(self):
        """What other programs say, and noise: every one is closed in the end."""
        noise = random.Random(7)
        said = [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", TLS_HELLO, b"\0" * 5000, b"\xff" * 5000]
        said += [noise.randbytes(noise.randrange(1, 3000)) for _ in range(40)]
        said += [GREETING[:12] + noise.randbytes(200) for _ in range(20)]
        said += [GREETING + noise.randbytes(noise.randrange(1, 300)) for _ in range(20)]
        for peer in [self.stream(data) for data in said]:
            until_closed(peer)

    def giant_frames(self):
        for flags in (0x02, 0x06):
            frame = bytes([flags]) + (1 << 40).to_bytes(8, "big")
            for data in (frame, GREETING + frame, GREETING + READY + frame + b"x" * 100000):
                until_closed(self.stream(data))

    def attack(self, server, between):
        """between: actions while hundreds of connections say nothing."""
        before = self.peak(server)
        self.scan()
        self.talk()
        self.giant_frames()
        idle = [self.stream() for _ in range(self.HALF_OPEN)]
        between()
        for peer in idle:
            until_closed(peer)
        self.assertLess(self.peak(server) - before, self.GROWTH_KB)

    def check_log(self, err):
        lines = [line for line in err.splitlines() if "refused" in line]
        total = sum(int(count) for count in re.findall(r"(\d+) \(", lines[-1]))
        self.assertIn("connections that were refused: ", lines[-1])
        self.assertGreater(total, 300 + self.HALF_OPEN)
        self.assertLess(len(lines), 15)
        self.assertLess(len(err.splitlines()), 60)

    def test_with_a_secret(self):
        secret = self.secret()
        server = self.node(0, f"--secret-file={secret}")
        client = []

        def join():
            client.append(self.node(1, f"--secret-file={secret}"))
            self.seen(1)

        self.stream().close()
        self.attack(server, join)
        handshake = self.stream(GREETING + READY)
        self.assertNotIn(b"READY", until_closed(handshake))
        err, _ = self.finish_all(server, client[0])
        self.check_log(err)
        self.refused("it has no secret, and this job has one", err)

    def test_without_one_members_go_on(self):
        server, client = self.node(0), self.node(1)
        self.seen(1)
        peers = [self.let_in() for _ in range(200)]  # in, and silent
        peers[0].sendall(b"\0\x40" + bytes(64))  # a message that is none
        peers[1].sendall(b"\1\0\1\0\0\0")  # many frames
        peers[2].sendall(b"\2" + (65537).to_bytes(8, "big") + bytes(65537))  # a byte too long
        until_closed(peers[2])
        self.attack(server, lambda: None)
        for peer in peers:
            peer.close()
        err, _ = self.finish_all(server, client)
        self.check_log(err)

    @unittest.skipIf("thread" in os.environ.get("MUSTER_SANITIZED", ""), "that sanitizer makes the server slower than the peers")
    def test_more_silent_connections_than_descriptors(self):
        """Connections that say nothing, one for every descriptor that the server may have and more: closed ones come again
        at once. Nodes join, workers start, the job ends well."""
        few, (soft, hard) = 2048, resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < few + 500:
            self.skipTest(f"so many connections need {few + 500} descriptors; the limit is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        secret = self.secret()
        limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))}
        server = self.node(0, f"--secret-file={secret}", **limit)
        self.stream().close()
        with silent_crowd(few + 50, self.idle):
            client = self.node(1, f"--secret-file={secret}")
            self.seen(0), self.seen(1)
            err, _ = self.finish_all(server, client)
        self.assertRegex(err, "connection limit reached: closed the oldest connection|it connected and did not complete the handshake")
        self.assertNotIn("Too many open files", err)

    def idle(self):
        peer = socket.socket()
        peer.setblocking(False)
        peer.connect_ex(("127.0.0.1", self.port))
        return peer

    def test_frames_that_lie(self):
        """Without a secret any peer may send: unsuitable JOINs are rejected one by one, and the members continue."""
        world = protobuf({1: Fixed(99), 2: 4000000000})
        lies = [
            dict(version=999), dict(version=0), dict(job_id=b"another"), dict(job_id=b"x" * 300), dict(job_id=b""), dict(elastic=1),
            dict(min_nodes=-1), dict(min_nodes=1 << 40), dict(max_nodes=4096), dict(agent_name=b""), dict(agent_name=b"y" * 60000),
            dict(agent_name=b"\xff\xfe\x1b[2J"), dict(node_rank=0), dict(node_rank=4), dict(node_rank=(1 << 32) - 2),
            dict(node_rank=1 << 63), dict(high=Fixed(0), low=Fixed(0)), dict(local=0), dict(local=-(1 << 31)), dict(role=b"z" * 64),
            dict(store=b"w" * 256), dict(port=65536), dict(held=world), dict(held=b"\x0b" * 2000), dict(restarts=(1 << 63) - 1),
            dict(vote_port=65536), dict(vote_addr=b"1" * 64), dict(known=b"\x0b" * 200), dict(known=protobuf({1: Fixed(99), 2: 7, 5: 3})),
            dict(last=world, last_nodes=2, epoch=Fixed(99)), dict(held=world, last=world, epoch=Fixed(99), held_done=1, server_done=1),
        ]  # fmt: skip
        noise, frames = random.Random(11), [path.read_bytes() for path in sorted(CORPUS.iterdir())]
        self.assertGreater(len(frames), 10)
        for original in list(frames):
            for _ in range(40):
                mutated = bytearray(original)
                for _ in range(noise.randrange(1, 5)):
                    mutated[noise.randrange(len(mutated))] = noise.randrange(256)
                frames.append(bytes(mutated[: noise.randrange(1, len(mutated) + 1)]))
        frames += [noise.randbytes(noise.randrange(1, 400)) for _ in range(200)]
        server, client = self.node(0), self.node(1)
        self.seen(1)
        before = self.peak(server)
        for lie, words in ({"job_id": b"another"}, b'job id: this agent has "another"'), ({}, b"held by agent"):
            with self.let_in() as peer:
                peer.sendall(frame(join(**lie)))
                answer = b""
                while words not in answer:
                    more = peer.recv(4096)
                    self.assertTrue(more, answer)
                    answer += more
        for lie in lies:
            self.say_all([join(**lie)])
        self.say_all(frames)
        self.say_all([join(node_rank=0), *frames])
        self.assertLess(self.peak(server) - before, self.GROWTH_KB)
        err, _ = self.finish_all(server, client)
        self.assertIn("not a muster frame", err)
        self.assertIn("(further ones are not logged)", err)
        self.assertLess(len(err.splitlines()), 60)

    def let_in(self):
        """A connection whose greeting is done: bytes before that count as a part of it."""

        def greeted():
            peer, answer = self.stream(GREETING + READY), b""
            while b"ROUTER\x08Identity\0\0\0\0" not in answer:
                try:
                    more = peer.recv(4096)
                except ConnectionError:
                    more = b""
                if not more:  # a server that got no processor for seconds gives greetings up
                    peer.close()
                    return None
                answer += more
            return peer

        return wait_until(greeted, "a peer is admitted")

    def say_all(self, frames):
        """From one connection, to its end."""
        peer = self.let_in()
        with contextlib.suppress(OSError):
            for each in frames:
                peer.sendall(frame(each))
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass
        peer.close()

    def test_an_old_key_while_members_run(self):
        old, secret = self.secret("old"), self.secret()
        nodes = [self.node(rank, f"--secret-file={secret}") for rank in range(2)]
        self.seen(1)
        self.breaks_off(f"--secret-file={old}")
        err, _ = self.finish_all(*nodes)
        self.refused("it has another secret", err)

    def test_a_flood_of_messages_does_not_stop_the_clock(self):
        """An admitted peer sends as fast as it can; the server still detects that a member is lost."""
        server, client = self.node(0), self.node(1)
        self.seen(1)
        over, flood = threading.Event(), self.stream(GREETING + READY)
        flood.settimeout(None)

        def pour():
            with contextlib.suppress(OSError):
                while not over.is_set():
                    flood.sendall((b"\0\x10" + bytes(16)) * 3000)

        thread = threading.Thread(target=pour)
        thread.start()
        client.send_signal(signal.SIGSTOP)
        try:
            _, err = self.finish(server, 138)
        finally:
            over.set()
            with contextlib.suppress(OSError):
                flood.shutdown(socket.SHUT_RDWR)
            flood.close()
            thread.join()
            client.kill()
        self.assertIn("node-1", err)
        self.assertLess(len(err.splitlines()), 80)


if __name__ == "__main__":
    unittest.main(verbosity=2)
