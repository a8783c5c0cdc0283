"""Unknown peers at the port of the workers' store, which has no secret: bytes of other programs, invalid requests in PyTorch's protocol, and more
connections than there are descriptors. Workers continue, and new ones are admitted.

    MUSTER_BUILD=build python3 tests/e2e/store_unknown_peers_test.py [TestClass.test_name ...]"""

import contextlib
import os
import random
import resource
import socket
import struct
import unittest

import security_test
from harness import wait_until

# All ranks take turns that no one can end without the others, each over a connection that it has and, unless there is a file named
# old-only, over a connection that is new in every turn and tried again where it is ended (as torch's client does: among thousands that say
# nothing it may have been slow to greet). The last to come to a turn decides whether it is the end.
WORKER = r"""
import contextlib, os, pathlib, socket, struct

rank, world = os.environ["RANK"], int(os.environ["WORLD_SIZE"])

def text(data):
    return struct.pack("<Q", len(data)) + data

def connect():
    store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=200)
    store.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE))
    return store

def exactly(store, count):
    got = b""
    while len(got) < count:
        more = store.recv(count - len(got))
        if not more:
            raise ConnectionError("the store has closed the connection")
        got += more
    return got

def add(store, key):
    store.sendall(b"\4" + text(key) + struct.pack("<q", 1))
    return struct.unpack("<q", exactly(store, 8))[0]

def come_anew():
    while True:
        with contextlib.suppress(ConnectionError), connect() as new:
            return add(new, b"/new")

def write(name, content):
    pathlib.Path(name + ".new").write_text(content)
    os.rename(name + ".new", name)

old, turn, end = connect(), 0, b"0"
write(f"seen.{rank}", f"MASTER_PORT={os.environ['MASTER_PORT']}\n")
while end == b"0":
    if not os.path.exists("old-only"):
        assert come_anew() > 0
    if add(old, b"/turn/%d" % turn) == world:
        old.sendall(b"\1" + text(b"/go/%d" % turn) + text(b"1" if os.path.exists("finish") else b"0"))
    old.sendall(b"\6" + struct.pack("<Q", 1) + text(b"/go/%d" % turn) + b"\3" + text(b"/go/%d" % turn))
    assert exactly(old, 1) == b"\0" and exactly(old, 8) == struct.pack("<Q", 1)
    end, turn = exactly(old, 1), turn + 1
    write(f"turn.{rank}", f"{turn}\n")
"""
VALIDATE = b"\0" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d" + b"echo"  # answered with the same four bytes


def text(data):
    return struct.pack("<Q", len(data)) + data


# Requests that are none: each costs its connection, and only that.
INVALID = [
    b"\xc8",  # an unknown query
    b"\x13",  # the first number after the last
    b"\0" + b"\0\0\0\0",  # another magic number
    b"\1" + struct.pack("<Q", 1 << 40),  # SET of a key of a terabyte
    b"\1" + struct.pack("<Q", (1 << 64) - 1),
    b"\1" + text(b"/k") + struct.pack("<Q", 1 << 62),  # a value's
    b"\1" + text(b"/k") + struct.pack("<Q", (8 << 20) + 1),
    b"\4" + struct.pack("<Q", 8193),  # ADD
    b"\6" + struct.pack("<Q", 1 << 63),  # WAIT for so many keys
    b"\6" + struct.pack("<Q", 131073),
    b"\x0b" + struct.pack("<Q", 1 << 50),  # MULTI_SET
    b"\x0a" + struct.pack("<Q", (1 << 64) - 1),  # MULTI_GET
    b"\1" + text(b"/word") + text(b"abc") + b"\4" + text(b"/word") + struct.pack("<q", 1),  # ADD to a text that is no number
]


class StoreUnknownPeers(security_test.SecurityTest):
    GROWTH_KB = 64 * 1024
    DESCRIPTORS = 1024  # the serving agent's: 768 are for connections to the store, and 128 of these for silent connections

    def job(self):
        """Two nodes with a secret; the store's port is open all the same."""
        secret, worker = self.secret(), self.script("turns.py", WORKER)
        limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (self.DESCRIPTORS, self.DESCRIPTORS))}
        self.nodes = [
            self.node(rank, f"--secret-file={secret}", rest=[worker], **(limit if rank == 0 else {})) for rank in range(2)
        ]
        self.store = int(self.seen(0)["MASTER_PORT"])
        self.assertNotEqual(self.store, self.port)
        self.go_on()
        self.before = self.peak()

    def turns(self):
        paths = [self.folder / f"turn.{rank}" for rank in range(2)]
        return [int(path.read_text()) if path.exists() else 0 for path in paths]

    def go_on(self, turns=10):
        """All workers take more turns."""
        before = self.turns()
        wait_until(lambda: all(now >= then + turns for now, then in zip(self.turns(), before)), f"{turns} turns after {before}")

    def peak(self):
        with open(f"/proc/{self.nodes[0].pid}/status") as file:
            return int(next(line for line in file if line.startswith("VmHWM:")).split()[1])

    def peer(self, data=b""):
        peer = socket.create_connection(("127.0.0.1", self.store), timeout=200)
        with contextlib.suppress(ConnectionError):  # the server may close before it has read all
            peer.sendall(data)
        return peer

    def is_closed(self, data):
        """The server closes a connection that sends this, while this side keeps it open; its answer."""
        return security_test.until_closed(self.peer(data))

    def end(self):
        err, other = self.finish_all(*self.nodes)
        self.assertNotIn("Too many open files", err + other)
        self.assertLess(len(err.splitlines()), 120)  # ten lines of refusals a period, and periods double
        return err

    def test_bytes_of_other_programs(self):
        self.job()
        for _ in range(300):
            self.peer().close()
        noise = random.Random(7)
        for said in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", security_test.TLS_HELLO, b"\xff" * 5000, b"\0" * 5000, b"SSH-2.0-x\r\n"):
            self.assertEqual(self.is_closed(said), b"")
        self.assertEqual(self.is_closed(security_test.GREETING), b"")  # an agent that takes this port for its server's
        for _ in range(60):  # may be the beginning of something longer: closed at the latest when nothing more can come
            peer = self.peer(noise.choice((b"", VALIDATE)) + noise.randbytes(noise.randrange(1, 3000)))
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_WR)
            security_test.until_closed(peer)
        self.go_on()
        self.assertLess(self.peak() - self.before, self.GROWTH_KB)
        err = self.end()
        self.assertRegex(err, rf"TCPStore on port {self.store}: .*127\.0\.0\.1")

    def test_invalid_requests(self):
        self.job()
        for request in INVALID:
            answer = self.is_closed(VALIDATE + PING + request)
            self.assertEqual(answer, b"echo", request)  # requests before it were served, and the request was not
        parked = [self.peer(VALIDATE + PING + b"\6" + struct.pack("<Q", 1) + text(b"/never %d" % k)) for k in range(200)]
        for peer in parked:
            self.assertEqual(peer.recv(4), b"echo")
        giants = [self.peer(VALIDATE + b"\1" + text(b"/giant") + struct.pack("<Q", 8 << 20)) for _ in range(50)]  # and no byte of it
        self.go_on()
        for peer in parked + giants:
            peer.close()
        self.go_on()
        self.assertLess(self.peak() - self.before, self.GROWTH_KB)
        self.end()

    @unittest.skipIf("thread" in os.environ.get("MUSTER_SANITIZED", ""), "that sanitizer makes the server slower than the peers")
    def test_more_silent_connections_than_descriptors(self):
        """Closed ones come again at once; in every turn every worker comes anew, and is admitted."""
        self.need(self.DESCRIPTORS + 600)
        self.job()
        with security_test.silent_crowd(self.DESCRIPTORS + 50, self.idle):
            self.go_on(30)
        self.go_on()
        self.assertLess(self.peak() - self.before, self.GROWTH_KB)
        self.assertIn("it had sent no request, and too many such connections are open", self.end())

    def test_more_greeted_connections_than_the_limit(self):
        """They look like workers that are silent. Members go on; a later one waits until a member leaves. That is the
        number beyond which members suffer: three quarters of the descriptors."""
        self.need(self.DESCRIPTORS + 600)
        self.job()
        (self.folder / "old-only").touch()
        self.go_on()
        peers = []
        for _ in range(600):  # with the workers' less than 768: each is in
            peers.append(self.peer(VALIDATE + PING))
            self.assertEqual(peers[-1].recv(4), b"echo")
        self.go_on()
        peers += [self.peer(VALIDATE + PING) for _ in range(300)]
        self.wait_said(self.nodes[0], "paused accepting at 768 connections: the limit is reached")
        self.go_on()
        (self.folder / "old-only").unlink()
        for peer in peers:
            peer.close()
        self.go_on()
        self.assertLess(self.peak() - self.before, self.GROWTH_KB)
        self.end()

    def need(self, descriptors):
        """So many in this process."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < descriptors:
            self.skipTest(f"so many connections need {descriptors} descriptors; the limit is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))

    def idle(self):
        peer = socket.socket()
        peer.setblocking(False)
        peer.connect_ex(("127.0.0.1", self.store))
        return peer


if __name__ == "__main__":
    unittest.main(verbosity=2)
