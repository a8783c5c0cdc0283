"""With --secret-file, muster's own keys in the workers' store are for processes that have the job's key: an unknown peer that reaches the port while the
ranks form is refused and named, and the job goes on.

    MUSTER_BUILD=build python3 tests/e2e/hostile/store_keys_test.py [TestClass.test_name ...]"""

import contextlib
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import BUILD, MUSTER, AgentTest, free_port  # noqa: E402

CONFIG = """
model: {architecture: gpt2, layers: 1, channels: 16, heads: 2, vocabulary: 256}
data: {path: text, tokenizer: bytes}
training: {steps: 3, micro_batch: 1, global_batch: 2, sequence_length: 16, output: out.safetensors}
logging: {interval: 1, sample_length: 0}
"""
GREETING = b"\0" + struct.pack("<I", 0x3C85F7CE)


def text(data):
    return struct.pack("<Q", len(data)) + data


def exactly(peer, count):
    got = b""
    while len(got) < count:
        more = peer.recv(count - len(got))
        if not more:
            raise ConnectionError("closed")
        got += more
    return got


class UnknownPeer(threading.Thread):
    """From the moment that the store listens: replaces every key that libmuster has, on connections that it opens anew."""

    def __init__(self, port):
        super().__init__()
        self.port, self.ends, self.refused, self.written, self.seen = port, False, 0, 0, set()

    def run(self):
        while not self.ends:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as peer:
                peer.sendall(GREETING + b"\x11")  # LIST_KEYS
                keys = [exactly(peer, struct.unpack("<Q", exactly(peer, 8))[0]) for _ in range(struct.unpack("<q", exactly(peer, 8))[0])]
                keys = [key for key in keys if key.startswith(b"/muster/")] or [b"/muster/0.0/agreement"]
                for key in keys:
                    self.seen.add(key)
                    try:
                        peer.sendall(b"\1" + text(key) + text(b"1234567") + b"\3" + text(key))  # SET, GET
                        exactly(peer, struct.unpack("<Q", exactly(peer, 8))[0])
                        self.written += 1
                    except OSError:
                        self.refused += 1
                        break


class StoreKeys(AgentTest):
    def job(self, *flags):
        (self.folder / "text").write_text("some words to learn " * 200)
        (self.folder / "run.yaml").write_text(CONFIG)
        port = free_port()
        return port, [self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", *flags, "--",
                                 str(BUILD / "bin" / "muster-train"), "run.yaml") for rank in range(2)]

    def secret(self):
        path = self.folder / "secret"
        path.write_bytes(subprocess.run([MUSTER, "secret"], check=True, capture_output=True).stdout)
        path.chmod(0o600)
        return f"--secret-file={path}"

    def test_an_unknown_peer_is_refused_and_the_job_goes_on(self):
        port, agents = self.job(self.secret())
        unknown = UnknownPeer(port + 1)
        unknown.start()
        try:
            ends = [self.finish(agent, 0) for agent in agents]
        finally:
            unknown.ends = True
            unknown.join()
        self.assertGreater(unknown.refused, 0)
        self.assertEqual(unknown.written, 0)
        self.assertRegex(ends[0][1], r'closed the connection of 127\.0\.0\.1 port \d+: (SET|GET) of key "/muster/[^"]*", which is muster\'s own: the peer has '
                                     r"not proven that it has the job's secret")
        self.assertTrue((self.folder / "out.safetensors").exists())

    def test_a_job_of_one_node_has_it_too(self):
        (self.folder / "text").write_text("some words to learn " * 200)
        (self.folder / "run.yaml").write_text(CONFIG)
        port, secret = free_port(), self.secret()
        agent = self.start("--nproc-per-node=2", f"--master-port={port}", secret, "--", str(BUILD / "bin" / "muster-train"), "run.yaml")
        unknown = UnknownPeer(port)
        unknown.start()
        try:
            _, err = self.finish(agent, 0)
        finally:
            unknown.ends = True
            unknown.join()
        self.assertGreater(unknown.refused, 0)
        self.assertEqual(unknown.written, 0)
        self.assertNotIn("has no effect", err)
        agent = self.start("--nproc-per-node=1", "--worker-store=worker", secret, "--", "true")
        self.assertIn("--secret-file has no effect: no other node joins this job, and a worker serves the store (--worker-store=worker)", self.finish(agent, 0)[1])

    def test_the_key_is_shown_nowhere(self):
        """Neither in the environment nor in the arguments of a worker; a worker whose descriptor was closed names the missing descriptor."""
        port = free_port()
        path = self.script("look.py", "import os, pathlib\n"
                           "fd = int(os.environ['MUSTER_STORE_KEY_FD'])\n"
                           "key = os.pread(fd, 100, 0)[8:]\n"
                           "assert len(key) == 16, key\n"
                           "secret = bytes.fromhex(pathlib.Path('secret').read_text().strip().split(':')[1])\n"
                           "for pid in ('self', str(os.getppid())):\n"
                           "    shown = pathlib.Path(f'/proc/{pid}/environ').read_bytes() + pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()\n"
                           "    for hidden in (key, key.hex().encode(), secret, secret.hex().encode()):\n"
                           "        assert hidden not in shown, pid\n"
                           "assert key not in secret and secret not in key\n"
                           "try:\n"
                           "    os.pwrite(fd, b'x', 0)\n"
                           "except PermissionError:\n"
                           "    print('sealed')\n")
        secret = self.secret()
        agents = [self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", secret, path) for rank in range(2)]
        for agent in agents:
            out, _ = self.finish(agent, 0)
            self.assertEqual(out.strip(), "sealed")
        # a program in between that closes unknown descriptors
        port, agents = self.job(secret)
        for agent in agents:
            self.finish(agent, 0)
        wrapper = self.script("closes.py", "import subprocess, sys\nsys.exit(subprocess.run(sys.argv[1:]).returncode)\n")
        port = free_port()
        agents = [self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", secret, wrapper,
                             str(BUILD / "bin" / "muster-train"), "run.yaml") for rank in range(2)]
        for agent in agents:
            _, err = self.finish(agent, 2)
            self.assertIn("is not the file with this job's key", err)


if __name__ == "__main__":
    unittest.main()
