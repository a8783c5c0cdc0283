"""muster run --hosts over real sshd in network namespaces: the job runs, and no process outlives a part that was killed
for longer than two seconds.

    MUSTER_BUILD=build python3 tests/e2e/hosts/hosts_test.py [--full] [TestClass.test_name ...]

Skipped (77) where no cluster of namespaces can be made or Debian's openssh-server is not installed."""

import collections
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import MUSTER, Machine, cluster, environment  # noqa: E402
from harness.cluster import Cluster, wait_until  # noqa: E402

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
FULL = "--full" in sys.argv
GONE_S = 2
RANKS = """
import os, socket
get = os.environ.get
print(f"rank {get('RANK')} of {get('WORLD_SIZE')} local {get('LOCAL_RANK')} at {get('MASTER_ADDR')} word {get('NCCL_WORD')}\\n", end="")
"""
SLEEPS = """
import os, time
open(f"here.{os.environ['RANK']}", "w").close()
time.sleep(600)
"""
SSHD_CONFIG = """Port 22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
MaxStartups 200
AcceptEnv none
"""
SSH_CONFIG = """Host *
IdentityFile {folder}/user_key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
GlobalKnownHostsFile /dev/null
LogLevel ERROR
IdentitiesOnly yes
"""


def marked(mark, but=()):
    """{pid: command line} of the processes that carry a mark in their environment, or are a session's sshd of it."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in but:
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if mark not in file.read():
                    continue
            with open(f"/proc/{entry}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] == b"Z":
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                found[int(entry)] = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


class HostsTest(unittest.TestCase):
    NODES = 3

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="muster_hosts_")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        os.makedirs("/run/sshd", exist_ok=True)
        for name in "host_key", "user_key":
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", cls.folder / name], check=True)
        (cls.folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=cls.folder))
        (cls.folder / "ssh_config").write_text(SSH_CONFIG.format(folder=cls.folder))
        cls.cluster = Cluster(cls.NODES, cls.folder)
        cls.addClassCleanup(cls.cluster.close)
        cls.mark = f"E2E_HOSTS={cls.folder.name}".encode()
        cls.daemons = [node.start(SSHD, "-D", "-e", "-f", cls.folder / "sshd_config", log="sshd") for node in cls.cluster.nodes]
        for daemon in cls.daemons:
            daemon.wait_said("Server listening")

    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(dir=self.folder))

    def script(self, text):
        (self.work / "train.py").write_text(text)
        return str(self.work / "train.py")

    def start(self, *flags, hosts=None, program=None, **variables):
        """The starting host is node0, in whose shell the user sits."""
        names = hosts or ",".join(f"{node.name}:2" for node in self.cluster.nodes)
        variables = {"TMPDIR": str(self.work), "MUSTER_SSH": f"ssh -F {self.folder}/ssh_config", "E2E_HOSTS": self.folder.name, **variables}
        kept = {name: None for name in os.environ if name not in environment()}
        words = ["env", f"--chdir={self.work}", MUSTER, "run", *([f"--hosts={names}"] if names != "none" else []), *flags, program]
        return self.cluster.nodes[0].start(*words, log="head", **{**kept, **variables, "NCCL_WORD": self.folder.name})

    def ours(self):
        """{pid: command line} of everything of this job on any host: what inherited a word that is passed on, the starting host's own
        included, and what runs in sessions of sshd."""
        found = marked(b"NCCL_WORD=" + self.folder.name.encode())
        found.update({pid: command_line(pid) or name for pid, name in self.sessions().items()})
        return found

    def sessions(self):
        """sshd processes of connections, and their children, by ancestry."""
        parents, names = {}, {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/stat", "rb") as file:
                        text = file.read()
                    fields = text.rpartition(b")")[2].split()
                    if fields[0] == b"Z":
                        continue
                    parents[int(entry)] = int(fields[1])
                    names[int(entry)] = text[text.index(b"(") + 1 : text.rindex(b")")].decode()
                except OSError:
                    continue
        roots = {daemon.pid for daemon in self.daemons}

        def below(pid):
            while pid > 1 and pid not in roots:
                pid = parents.get(pid, 0)
            return pid in roots

        return {pid: names[pid] for pid in parents if pid not in roots and below(pid)}

    def assert_nothing_is_left(self, since):
        wait_until(lambda: not self.ours() or time.monotonic() - since > GONE_S, "the end", limit=60)
        left = self.ours()
        if left:
            time.sleep(0.1)
            left = {pid: name for pid, name in self.ours().items() if pid in left}
        self.assertEqual(left, {})


class Jobs(HostsTest):
    def test_a_job_on_three_hosts(self):
        process = self.start(program=self.script(RANKS))
        self.assertEqual(process.wait(), 0, process.said())
        ranks = re.findall(r"rank (\d) of 6 local (\d) at node0 word (\S+)", process.printed())
        self.assertEqual(sorted(ranks), [(str(rank), str(rank % 2), self.folder.name) for rank in range(6)], process.said())
        self.assertNotIn("anyone who reaches", process.said())  # the secret is there
        self.assert_nothing_is_left(time.monotonic())

    def test_host_files(self):
        script = self.script(RANKS)
        (self.work / "hosts").write_text("# DeepSpeed's\nnode1 slots=2\nroot@node2 slots=1 max_slots=4\n")
        process = self.start("--hostfile=hosts", hosts="none", program=script)
        self.assertEqual(process.wait(), 0, process.said())
        self.assertEqual(sorted(re.findall(r"rank (\d) of 3 local \d at node1", process.printed())), ["0", "1", "2"])

    def test_the_first_failure_is_the_exit_code(self):
        process = self.start(program=self.script("import os, sys; sys.exit(9 if os.environ['RANK'] == '5' else 0)"))
        self.assertEqual(process.wait(), 9, process.said())
        self.assert_nothing_is_left(time.monotonic())

    def test_a_host_that_is_not_there(self):
        process = self.start(hosts="node1:1,nohost:1", program=self.script(SLEEPS))
        self.assertEqual(process.wait(), 138, process.said())
        self.assertIn("host nohost: the connection ended with ssh's exit code 255", process.said())
        self.assert_nothing_is_left(time.monotonic())

    def test_signals_reach_the_workers(self):
        script = self.script(
            "import os, signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: (open(f\"told.{os.environ['RANK']}\", 'w').close(), sys.exit(0)))\n" + SLEEPS
        )
        process = self.start(program=script)
        wait_until(lambda: len(list(self.work.glob("here.*"))) == 6, "all ranks run")
        process.signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 143, process.said())
        self.assertEqual(len(list(self.work.glob("told.*"))), 6)
        self.assert_nothing_is_left(time.monotonic())

    def test_the_secret_is_on_no_command_line(self):
        process = self.start(program=self.script(SLEEPS))
        wait_until(lambda: len(list(self.work.glob("here.*"))) == 6, "all ranks run")
        for pid, command in self.ours().items():
            for name in "cmdline", "environ":
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    self.assertNotIn(b"muster-secret-1:", file.read(), command)
        os.kill(process.pid, signal.SIGKILL)
        self.assert_nothing_is_left(time.monotonic())


FIRST = "as soon as there is one"
KINDS = {  # victim: its command line
    "ssh": r"^ssh -F",
    "head": r"^/.*/muster run --hosts",
    "node": r"^(/.*/)?muster host-node",
    "agent": r"^muster run ",
    "sshd": r"^sshd: ",
}


class Tree(HostsTest):
    NODES = 2

    @unittest.skipUnless(FULL, "forty agents: --full")
    def test_hosts_below_hosts(self):
        """Forty names of two machines: more than a host has connections, so that some are started by others."""
        names = [f"h{number}" for number in range(40)]
        alias = "\n".join(f"Host {name}\nHostName {self.cluster.nodes[number % 2].name}\n" for number, name in enumerate(names))
        (self.folder / "ssh_config").write_text(alias + SSH_CONFIG.format(folder=self.folder))
        script = self.script("import os, time\nprint('below', flush=True)\nopen(f\"here.{os.environ['RANK']}\", 'w').close()\n"
                             "while not os.path.exists('go'): time.sleep(0.1)")
        process = self.start("--dry-run", hosts=",".join(names), program=script)
        self.assertEqual(process.wait(), 0, process.said())
        self.assertEqual(len(process.printed().splitlines()), 40)
        process = self.start("--max-restarts=0", "--master-addr=node0", "--join-timeout=200", hosts=",".join(f"{name}:1" for name in names), program=script)
        wait_until(lambda: len(list(self.work.glob("here.*"))) == 40, "all ranks run")
        ours = self.ours()
        connections = [pid for pid, command in ours.items() if re.search(KINDS["ssh"], command)]
        (head,) = [pid for pid, command in ours.items() if re.search(KINDS["head"], command)]
        self.assertEqual(len(connections), 40)  # one a host
        direct = sum(parent(pid) == head for pid in connections)
        self.assertLessEqual(direct, 32)
        self.assertTrue(all(re.search(KINDS["node"], command_line(parent(pid))) for pid in connections if parent(pid) != head))
        (self.work / "go").touch()
        self.assertEqual(process.wait(), 0, process.said())
        self.assertEqual(process.printed().count("below"), 40)
        self.assert_nothing_is_left(time.monotonic())


class Kills(HostsTest):
    NODES = 8 if FULL else 3

    def victims(self, kind):
        found = [pid for pid, command in self.ours().items() if re.search(KINDS[kind], command)]
        # a guardian is called as its agent is, and is not meant here
        return [pid for pid in found if kind != "agent" or re.search(KINDS["node"], command_line(parent(pid)))]

    def kill_one(self, kind, delay, choice):
        """Returns how long after the kill the last process of the job was gone, and how slow the machine was then."""
        for path in self.work.glob("here.*"):
            path.unlink()
        process = self.start(program=self.script(SLEEPS))
        if delay is None:
            wait_until(lambda: len(list(self.work.glob("here.*"))) == 2 * self.NODES, "all ranks run")
        elif delay is FIRST:
            wait_until(lambda: self.victims(kind), f"a first {kind}")
        else:
            time.sleep(delay)
        victims = self.victims(kind)
        if delay is None:
            self.assertEqual(len(victims), 1 if kind == "head" else self.NODES, self.ours())
        self.killed[kind if victims else "head"] += 1  # there is none of it yet
        victims = victims or [process.pid]
        with Machine() as machine:
            try:
                os.kill(victims[choice % len(victims)], signal.SIGKILL)
            except ProcessLookupError:
                pass
            killed = time.monotonic()
            wait_until(lambda: not self.ours(), f"the end after {kind} was killed", limit=60)
            took = time.monotonic() - killed
        self.assertLess(took, machine.bound(GONE_S), f"{kind} was killed; {machine}\n{process.said()}")
        return took

    def setUp(self):
        super().setUp()
        self.killed = collections.Counter()

    @unittest.skipIf(FULL, "--full has more")
    def test_a_kill_of_each_kind(self):
        """Once all ranks run, and an agent before they do: the others wait for it, and only the hosts' tree can stop them."""
        took = {kind: self.kill_one(kind, None, number) for number, kind in enumerate(KINDS)}
        took["the first agent"] = self.kill_one("agent", FIRST, 0)
        print(", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in took.items()), file=sys.stderr)

    @unittest.skipUnless(FULL, "200 kills: --full")
    def test_random_kills(self):
        seed = int(os.environ.get("E2E_SEED", "7"))
        chance, took = random.Random(seed), []
        for number in range(int(os.environ.get("E2E_KILLS", "200"))):
            kind, delay = chance.choice(list(KINDS)), chance.choice([None, chance.uniform(0, 2.5), chance.uniform(0, 2.5)])
            with self.subTest(number=number, seed=seed, kind=kind, delay=delay):
                took.append(self.kill_one(kind, delay, chance.randrange(1000)))
        print(f"{len(took)} kills ({dict(self.killed)}): gone after {statistics.median(took):.2f} s, {max(took):.2f} s at most", file=sys.stderr)
        self.assertTrue(all(self.killed[kind] for kind in KINDS), self.killed)


if __name__ == "__main__":
    if not os.access(SSHD, os.X_OK) or not shutil.which("ssh"):
        print("skipped: no sshd (package openssh-server)", flush=True)
        sys.exit(77)
    cluster.need()
    unittest.main(argv=[word for word in sys.argv if word != "--full"], verbosity=2)
