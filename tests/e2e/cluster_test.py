"""The tool itself: that each kind of harm keeps its name's promise, and can be taken back.

    MUSTER_BUILD=build python3 tests/e2e/cluster_test.py [TestClass.test_name ...]"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from harness import cluster
from harness.cluster import Cluster, wait_until

# answers every line with itself
ECHO = """
import socket, sys
server = socket.create_server(("", 7777))
while True:
    peer, _ = server.accept()
    for line in peer.makefile("rb"):
        peer.sendall(line)
"""
# asks it once, and prints how long that took
ASK = """
import socket, sys, time
began = time.monotonic()
try:
    address = socket.gethostbyname(sys.argv[1])
    looked = time.monotonic()
    with socket.create_connection((address, 7777), timeout=float(sys.argv[2])) as peer:
        peer.settimeout(float(sys.argv[2]))
        peer.sendall(sys.argv[3].encode() * int(sys.argv[4]) + b"\\n")
        peer.makefile("rb").readline()
    print(address, looked - began, time.monotonic() - looked)
except OSError as error:
    print("no", error)
"""
FLOOD = """
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(1000):
    out.sendto(b"x", (sys.argv[1], 9))
    if number % 100 == 99:
        time.sleep(0.02)  # a kernel that is busy drops what it cannot take at once
"""


class ClusterTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster cluster ")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.cluster = Cluster(2, self.folder)
        self.addCleanup(self.cluster.close)
        self.here, self.there = self.cluster.nodes
        self.echo()

    def echo(self):
        self.server = self.there.start(sys.executable, "-c", ECHO, log="echo")
        wait_until(lambda: self.ask(limit=20), "the echo answers")

    def ask(self, limit=1, size=1):
        """(address, seconds of the look-up, seconds of the answer), or None where there is none."""
        process = self.here.start(sys.executable, "-c", ASK, self.there.name, limit, "x", size, log="ask")
        self.assertEqual(process.wait(), 0, process.said())
        words = process.printed().split()
        return None if words[0] == "no" else (words[0], float(words[1]), float(words[2]))


class Links(ClusterTest):
    def test_cut_and_healed(self):
        for harm in (self.there.cut, lambda: self.there.cut("from"), lambda: self.there.cut("to"), self.there.unplug):
            harm()
            self.assertIsNone(self.ask())
            self.there.heal()
            wait_until(lambda: self.ask(limit=20), "healed")

    def test_delay(self):
        self.there.delay(150)
        self.assertGreaterEqual(self.ask(limit=40)[2], 4 * 0.150)  # two round trips: connect and ask
        self.assertIsNotNone(self.ask(limit=40, size=100_000))  # frames larger than the wire's are cut before it
        self.there.delay(0)
        self.answers_within(4 * 0.150)

    def answers_within(self, seconds, **question):
        """Sooner than harm allows: on a busy machine not at the first try."""

        def soon():
            answer = self.ask(limit=20, **question)
            return answer and answer[2] < seconds

        wait_until(soon, "healed")

    def test_rate(self):
        self.there.slow("400kbit")
        self.assertGreaterEqual(self.ask(limit=40, size=100_000)[2], 1)  # 100,000 bytes each way, less the first burst
        self.there.slow(None)
        self.answers_within(1, size=100_000)

    def test_loss(self):
        self.there.lose(50)
        text = subprocess.run(self.cluster.hub.command("nft", "list", "ruleset"), capture_output=True, text=True, check=True).stdout
        self.assertEqual(text.count("numgen random mod 10000 < 5000 drop"), 2, text)
        before = self.arrived()
        self.flood()
        wait_until(lambda: self.arrived() - before > 100, "some arrive")
        self.there.lose(0)
        self.assertLess(self.arrived() - before, 900)

        def all_arrive():
            before = self.arrived()
            self.flood()
            return self.arrived() - before >= 1000

        wait_until(all_arrive, "all arrive")

    def arrived(self):
        text = subprocess.run(self.there.pod.command("ip", "-j", "-s", "link", "show", "eth0"), capture_output=True, check=True).stdout
        return json.loads(text)[0]["stats64"]["rx"]["packets"]

    def flood(self):
        self.assertEqual(self.here.start(sys.executable, "-c", FLOOD, self.there.address, log="flood").wait(), 0)


class Names(ClusterTest):
    def test_late_wrong_and_none(self):
        self.assertEqual(self.ask(limit=20)[0], self.there.address)
        self.cluster.publish("node1", self.there.address, delay=0.7)
        self.assertGreaterEqual(self.ask(limit=20)[1], 0.7)
        self.cluster.publish("node1", "10.66.200.1")
        self.assertIsNone(self.ask())
        self.cluster.unpublish("node1")
        self.assertIsNone(self.ask())
        self.cluster.publish("node1", self.there.address)
        self.assertIsNotNone(self.ask(limit=20))


class Lives(ClusterTest):
    def test_frozen_and_thawed(self):
        self.there.freeze()
        self.assertIsNone(self.ask())
        self.there.thaw()
        wait_until(lambda: self.ask(limit=20), "thawed")
        self.assertTrue(self.server.runs())

    def test_killed_and_back_with_another_address(self):
        pid = self.server.pid
        self.there.kill_pod()
        self.assertEqual(self.server.wait(), -9)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        for address in (None, "10.66.7.7"):
            self.there.restart(address)
            self.assertIsNone(self.ask())
            self.echo()
            self.assertEqual(self.ask(limit=20)[0], self.there.address)
        self.assertEqual(self.there.address, "10.66.7.7")

    def test_names_and_memory_of_its_own(self):
        text = "import os, socket; print(socket.gethostname(), os.listdir('/dev/shm'), os.getpid() < 1000)"
        process = self.here.start(sys.executable, "-c", text)
        self.assertEqual((process.wait(), process.printed()), (0, "node0 [] True\n"), process.said())
        self.assertEqual(socket.gethostbyname("localhost"), "127.0.0.1")  # ours is as it was

    def test_everything_ends_with_the_process_that_made_it(self):
        text = f"""
import sys
sys.path.insert(0, {str(cluster.HERE.parent)!r})
from harness.cluster import Cluster
cluster = Cluster(1, {str(self.folder / "inner")!r})
process = cluster.nodes[0].start("sleep", "1000")
cluster.nodes[0].delay(10)
print(process.pid, cluster.nodes[0].wire.pid, flush=True)
sys.stdin.read()
"""
        (self.folder / "inner").mkdir()
        holder = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        pids = [int(word) for word in holder.stdout.readline().split()]
        self.assertEqual(len(pids), 2)
        holder.kill()
        holder.wait()
        for stream in (holder.stdin, holder.stdout):
            stream.close()
        wait_until(lambda: all(cluster.stands(pid) for pid in pids), "nobody is left")


if __name__ == "__main__":
    cluster.need()
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
