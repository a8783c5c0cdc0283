"""Attackers that fill the memory of an agent: anything that an unknown peer can send to its ports, at once and on many connections, while workers work.
The agent stays below 64 MB, logs whom it closed, and the workers go on.

    MUSTER_BUILD=build python3 tests/e2e/hostile/floods_test.py [--full] [TestClass.test_name ...]"""

import contextlib
import os
import pathlib
import re
import selectors
import socket
import struct
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import AgentTest, free_port, wait_until  # noqa: E402

LIMIT_KB, GIVEN_BACK_KB = 64 << 10, 32 << 10
CROWD = 25  # connections of one attack
FULL = "--full" in sys.argv
SECONDS = 2 if FULL else 0.6  # for each

# Counts its turns together with the other rank, over a connection that it keeps.
WORKER = r"""
import os, pathlib, socket, struct

rank = os.environ["RANK"]
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=60)
store.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE))

def exactly(count):
    got = b""
    while len(got) < count:
        more = store.recv(count - len(got))
        if not more:
            raise ConnectionError("the store has closed the connection")
        got += more
    return got

def text(data):
    return struct.pack("<Q", len(data)) + data

turn, word = 0, b"go"
while word == b"go":
    key = b"/turn/%d" % turn
    store.sendall(b"\4" + text(key + b"/count") + struct.pack("<q", 1))
    if struct.unpack("<q", exactly(8))[0] == int(os.environ["WORLD_SIZE"]):
        store.sendall(b"\1" + text(key) + text(b"stop" if os.path.exists("stop") else b"go"))  # SET
    store.sendall(b"\6" + struct.pack("<Q", 1) + text(key))  # WAIT
    assert exactly(1) == b"\0"
    store.sendall(b"\3" + text(key))  # GET
    word = exactly(struct.unpack("<Q", exactly(8))[0])
    if turn:
        store.sendall(b"\x08" + text(b"/turn/%d" % (turn - 1)))  # DELETE_KEY
        exactly(8)
    turn += 1
    pathlib.Path(f"turns.{rank}.new").write_text(str(turn))
    os.rename(f"turns.{rank}.new", f"turns.{rank}")
"""


def text(data):
    return struct.pack("<Q", len(data)) + data


GREETING = b"\0" + struct.pack("<I", 0x3C85F7CE)
MEGABYTE = bytes(1 << 20)


# Each gives the bytes that a connection sends, one piece after the other, for as long as they are taken.
def unfinished_multi_set(_):
    yield GREETING + b"\x0b" + struct.pack("<Q", 100000)
    while True:
        yield text(b"/key") + text(MEGABYTE)


def unread_multi_get(number):
    key = b"/large/%d" % number
    yield GREETING + b"\1" + text(key) + text(MEGABYTE * 4)
    while True:
        yield b"\x0a" + struct.pack("<Q", 8) + text(key) * 8


def values(number):
    yield GREETING
    for i in range(1 << 30):
        yield b"\1" + text(b"/%d/%d" % (number, i)) + text(MEGABYTE * 4)


def queue_items(_):
    yield GREETING
    while True:
        yield b"\x0e" + text(b"/queue") + text(MEGABYTE)


def waits(number):
    yield GREETING + b"\6" + struct.pack("<Q", 100000)
    for i in range(100000 // 100):
        yield b"".join(text(b"/%d/%d" % (number, i * 100 + k)) for k in range(100))
    while True:
        yield b"\x0d"


def short_strings(_):
    yield GREETING + b"\5" + struct.pack("<Q", 131072)
    while True:
        yield text(b"") * 8192


# ZMTP 3.0: the greeting, READY of a DEALER, then frames of which each announces that another one follows.
ZMTP = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\0" + bytes(31)
READY = b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"


def endless_message(_):
    yield ZMTP + READY
    while True:
        yield (b"\x03" + struct.pack(">Q", 60000) + bytes(60000)) * 16


def endless_empty_frames(_):
    yield ZMTP + READY
    while True:
        yield b"\x01\x00" * (64 << 10)


def whole_messages(_):
    yield ZMTP + READY
    while True:
        yield (b"\x02" + struct.pack(">Q", 60000) + bytes(60000)) * 16


def flood(host, port, attack):
    """CROWD connections send the attack's bytes, each for as long as it is taken, and begin anew where they are closed."""
    until, selector, closed = time.monotonic() + SECONDS, selectors.DefaultSelector(), 0

    def begin(number):
        with contextlib.suppress(OSError):
            peer = socket.create_connection((host, port), timeout=5)
            peer.setblocking(False)
            selector.register(peer, selectors.EVENT_WRITE, [number, attack(number), b""])

    for number in range(CROWD):
        begin(number)
    while time.monotonic() < until:
        for key, _ in selector.select(timeout=0.1):
            number, pieces, left = key.data
            try:
                left = left or next(pieces)
                key.data[2] = left[key.fileobj.send(left):]
            except BlockingIOError:
                continue
            except OSError:
                closed += 1
                selector.unregister(key.fileobj)
                key.fileobj.close()
                begin(number)
    for key in list(selector.get_map().values()):
        key.fileobj.close()
    selector.close()
    return closed


class Floods(AgentTest):
    def rss_kb(self, process, name="VmHWM"):
        return int(re.search(rf"{name}:\s+(\d+) kB", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1])

    def turns(self):
        with contextlib.suppress(OSError, ValueError):
            return min(int((self.folder / f"turns.{rank}").read_text()) for rank in range(2))
        return 0

    def check(self, agents, ports, attacks, what, metrics=0):
        stays, closed = False, 0
        wait_until(lambda: self.turns() > 3, "the workers work")
        for port, attack in ((port, attack) for port in ports for attack in attacks):
            before = self.turns()
            closed += flood("127.0.0.1", port, attack)
            peak = self.rss_kb(agents[0])
            with self.subTest(attack=attack.__name__):
                self.assertLess(peak, LIMIT_KB, "kB at most")
                wait_until(lambda before=before: self.turns() > before + 3, "the workers go on")
                if attack not in self.STAYS and not stays:
                    wait_until(lambda: self.rss_kb(agents[0], "VmRSS") < GIVEN_BACK_KB, "memory is given back")
                stays = stays or attack in self.STAYS
            if FULL:
                print(f"{attack.__name__}: {peak} kB at most, {self.rss_kb(agents[0], 'VmRSS')} kB after it")
        self.assertGreater(closed, 0)
        if metrics:
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=60) as answer:
                figures = dict(line.split() for line in answer.read().decode().splitlines() if line.startswith("muster_store"))
            self.assertGreater(int(figures["muster_store_crowded_out_total"]), 0)
            self.assertLessEqual(int(figures["muster_store_bytes"]), int(figures["muster_store_bytes_budget"]))
            self.assertEqual(int(figures["muster_store_bytes_budget"]), (40 << 20) + 2 * (64 << 10))
        (self.folder / "stop").touch()
        for agent in agents:
            _, err = self.finish(agent, 0)
            if agent is agents[0]:
                self.assertRegex(err, what)

    STORE = (unfinished_multi_set, unread_multi_get, values, queue_items, waits, short_strings)

    STAYS = unread_multi_get, values, queue_items  # written values stay when their writer leaves, as in PyTorch's store

    def test_the_store_of_one_node(self):
        port, metrics = free_port(), free_port()
        agent = self.start(f"--master-port={port}", "--nproc-per-node=2", f"--metrics-port={metrics}", "--metrics-addr=127.0.0.1", self.script("worker.py", WORKER))
        self.check([agent], [port], self.STORE, r"closed the connection of 127\.0\.0\.1 port \d+: it needs \d+ bytes more .* \(muster run --store-memory\)", metrics)

    def two_nodes(self, *flags):
        port = free_port()
        script = self.script("worker.py", WORKER)
        return port, [self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", *flags, script) for rank in range(2)]

    @unittest.skipUnless(FULL, "a slow tier's")
    def test_the_store_of_a_job_with_a_secret(self):
        secret = self.folder / "secret"
        secret.write_text("muster-secret-1:" + "5a" * 32 + "\n")
        secret.chmod(0o600)
        port, agents = self.two_nodes(f"--secret-file={secret}")
        self.check(agents, [port + 1], self.STORE[:2], "it needs")

    def test_the_rendezvous_port(self):
        port, agents = self.two_nodes()
        self.check(agents, [port], [endless_message, endless_empty_frames, whole_messages], r"refused 127\.0\.0\.1: it sent more than the largest message without an end: closed")


ATTACKS = (unfinished_multi_set, unread_multi_get, values, queue_items, waits, short_strings, endless_message, endless_empty_frames, whole_messages)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--attack"]:  # HOST PORT NUMBER: one attack, on any listener (worlds/kills_test.py)
        flood(sys.argv[2], int(sys.argv[3]), ATTACKS[int(sys.argv[4]) % len(ATTACKS)])
        sys.exit()
    sys.argv = [name for name in sys.argv if name != "--full"]
    unittest.main()
