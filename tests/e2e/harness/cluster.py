"""Many nodes on one machine, and harm done to them: kill, freeze, cut off, slow, lose, delay, and bring back.

    with Cluster(3, folder) as cluster:
        agents = [node.start(MUSTER, "run", "--nnodes=3", f"--node-rank={k}", "--master-addr=node0", program)
                  for k, node in enumerate(cluster.nodes)]
        cluster.nodes[1].cut()                     # drop all that it sends or is sent; cut("from"), cut("to"): one way
        cluster.nodes[1].heal()
        cluster.nodes[2].kill_pod()                # every process in it, at once
        cluster.nodes[2].restart("10.66.9.9")      # same name, empty, with another address
        cluster.publish("node0", "10.66.0.77")     # a wrong address; unpublish("node0"); delay=3 answers late
        agents[0].wait(60), agents[0].said()       # exit code, stderr

Each node is a set of namespaces (namespaces.py) named node0, node1, ... with the address 10.66.0.(k+1) on eth0; a hub, in
namespaces of its own, holds the bridge between them and a name server. Cluster(3, folder, family="6") has IPv6 alone (fd66::(k+1)),
family="both" both; a node's addresses are in node.addresses, the first one is node.address. All clusters of a machine have the same addresses and
never meet. Nothing is done to the machine's own network, and all of it ends with this process, however that ends. Logs are in
folder: NAME.agent.N.out and .err, N counting the programs of that name that were started in the node.

Harm lasts until it is taken back, by heal() or by the opposite call, and several kinds add up. A cut is made by dropping frames
in the hub, so the node does not see it; unplug() takes its link down instead. Standard library, iproute2, nftables and the
build's delay_line; needs root."""

import concurrent.futures
import ipaddress
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness
from harness import namespaces

NETWORK = "10.66.0.0/16"
HUB = "10.66.255.254"
HUB_6 = "fd66::ffff:ffff"
HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", HERE.parents[2] / "build")).resolve()
LIMIT = 240  # seconds, of anything that this module waits for by itself


def wait_until(condition, what, limit=LIMIT, step=0.02):
    return harness.wait_until(condition, what, limit, step)


def why_not():
    """Why no cluster can be made here; "" where one can."""
    missing = [tool for tool in ("ip", "tc", "nft", "nsenter", "unshare") if not shutil.which(tool)]
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing:
        return f"{', '.join(missing)} missing (packages iproute2, nftables, util-linux)"
    if not (BUILD / "tests" / "delay_line").exists():
        return f"{BUILD}/tests/delay_line was not built"
    try:
        with tempfile.TemporaryDirectory(prefix="muster probe ") as folder:
            hub = namespaces.Node(0, pathlib.Path(folder), name="probe")
            try:
                hub.ip("link", "add", "br0", "type", "bridge")
                namespaces.run(*hub.command("nft", "-f", "-"), given=ruleset({}))
            finally:
                hub.close()
    except OSError as error:
        return f"network namespaces cannot be made here: {error}"
    return ""


def need():
    """Ends a test where no cluster can be made: as skipped, but in CI as root as failed."""
    why = why_not()
    if not why:
        return
    print(f"skipped: {why}", flush=True)
    sys.exit(1 if os.environ.get("CI") == "true" and os.geteuid() == 0 else 77)


def ruleset(harm):
    """The hub's nft rules for {port: {"from": percent, "to": percent}}: how much of the traffic that comes from a port, or goes to it, is
    dropped."""
    lines = ["table bridge harm", "delete table bridge harm", "table bridge harm {"]
    for chain, hook, match in (("from", "prerouting", "iifname"), ("to", "postrouting", "oifname")):
        lines.append(f"chain {chain}_node {{ type filter hook {hook} priority 0; policy accept;")
        for port, percents in sorted(harm.items()):
            percent = percents.get(chain, 0)
            if percent >= 100:
                lines.append(f'{match} "{port}" drop')
            elif percent:
                lines.append(f'{match} "{port}" numgen random mod 10000 < {round(percent * 100)} drop')
        lines.append("}")
    return "\n".join([*lines, "}"]) + "\n"


def hardware_of(address):
    """A link address for an IP address, always the same, so that no neighbour table is ever wrong."""
    if ":" in address:
        return "02:66:" + ":".join(f"{byte:02x}" for byte in ipaddress.ip_address(address).packed[-4:])
    return "02:42:" + ":".join(f"{int(byte):02x}" for byte in address.split("."))


def program_of(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read().decode(errors="replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


class Process:
    """A program in a node; `pid` is its number outside."""

    def __init__(self, node, arguments, environment, log):
        self.pod, self.log = node.pod, log
        with open(f"{log}.out", "w") as out, open(f"{log}.err", "w") as err:
            self.outer = subprocess.Popen(
                node.pod.command("env", f"--chdir={node.folder}", *map(str, arguments)),
                env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
        self.pid = wait_until(self.begun, f"{arguments[0]} runs in {node.name}")

    def begun(self):
        for pid in namespaces.children(self.outer.pid):
            if program_of(pid) not in ("", "nsenter", "env"):
                return pid
        return -1 if self.outer.poll() is not None else None

    def poll(self):
        return self.outer.poll()

    def runs(self):
        return self.outer.poll() is None

    def wait(self, limit=LIMIT):
        """The exit code, -n for signal n."""
        try:
            return self.outer.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.log.name} has not ended within {limit} s:\n{self.said()}") from None

    def signal(self, number):
        if self.runs() and self.pid > 0:
            os.kill(self.pid, number)

    def said(self):
        return pathlib.Path(f"{self.log}.err").read_text(errors="replace")

    def printed(self):
        return pathlib.Path(f"{self.log}.out").read_text(errors="replace")

    def wait_said(self, text, limit=LIMIT):
        def is_there():
            over = not self.runs()  # asked first: an ended program writes no more
            if text in self.said():
                return True
            if over:
                raise AssertionError(f"{self.log.name} has ended with {self.poll()}, without '{text}':\n{self.said()}")
            return False

        wait_until(is_there, lambda: f"{self.log.name} has '{text}':\n{self.said()}\n", limit)


class Node:
    """A node of a cluster. Its pod, which is everything that runs in it, can be killed and begun again."""

    def __init__(self, cluster, number):
        self.cluster, self.number, self.name = cluster, number, f"node{number}"
        self.folder = cluster.folder / self.name  # where its programs run
        self.folder.mkdir()
        four, six = f"10.66.{number // 250}.{number % 250 + 1}", f"fd66::{number + 1:x}"
        self.addresses = {"4": [four], "6": [six], "both": [four, six]}[cluster.family]
        self.harm = {}  # for ruleset(): cut and lost
        self.cut_ways, self.lost = set(), 0
        self.pods, self.started, self.frozen = 0, {}, []
        self.pod = self.wire = None
        self.begin()

    @property
    def address(self):
        return self.addresses[0]

    # its life

    def begin(self):
        """An empty pod on the network, under its name."""
        self.pods += 1
        self.port = f"n{self.number}.{self.pods}"
        self.pod = namespaces.Node(self.number, self.cluster.folder, self.name, self.cluster.resolver)
        self.pod.hosts.write_text("".join(f"{address} {self.name}\n" for address in self.addresses))
        with open(self.pod.hosts, "a") as hosts:
            hosts.write("127.0.0.1 localhost\n" if self.cluster.family == "4" else "127.0.0.1 localhost\n::1 localhost\n")
        hub, pod = self.cluster.hub, self.pod
        there = ["peer", "name", self.port, "netns", str(hub.holder.pid)]
        pod.ip("link", "add", "eth0", "address", hardware_of(self.address), "type", "veth", *there)
        add_addresses(pod, "eth0", self.addresses)
        hub.ip("link", "set", self.port, "master", "br0", "up")
        pod.ip("link", "set", "eth0", "up")
        self.cluster.publish(self.name, *self.addresses)

    def start(self, *arguments, log="agent", **environment):
        """A program in the node, as a Process; its environment is this process's with the arguments' changes (None: without)."""
        self.started[log] = self.started.get(log, 0) + 1
        whole = {**os.environ, "TMPDIR": str(self.folder), **environment}
        kept = {name: value for name, value in whole.items() if value is not None}
        path = self.cluster.folder / f"{self.name}.{log}.{self.started[log]}"
        process = Process(self, arguments, kept, path)
        self.cluster.processes.append(process)
        return process

    def kill_pod(self, silently=False):
        """Every process in it; silently: as where the power goes, without the kernel's good-bye on its connections."""
        if silently:
            self.cut()
        for pid in namespaces.children(self.pod.holder.pid):
            os.kill(pid, signal.SIGKILL)
        self.end()

    def end(self):
        self.no_wire()
        self.pod.close()
        self.frozen = []
        if self.port in self.cluster.ports():  # else the kernel takes it away when it gets round to it
            try:
                self.cluster.hub.ip("link", "del", self.port)
            except OSError:
                pass  # it just has

    def restart(self, address=None):
        """The pod is killed, if it has not been, and begun again: same name, nothing runs; harm of its link is gone."""
        if self.pod.holder.poll() is None:
            self.kill_pod()
        self.addresses = [address] if address else self.addresses
        self.cut_ways, self.lost = set(), 0
        self.begin()
        self.cluster.apply_harm()

    # its processes

    def pids(self):
        return self.pod.pids([process.outer.pid for process in self.cluster.processes if process.pod is self.pod and process.runs()])

    def workers(self):
        """{local rank: pid} of the training processes in it."""
        found = {}
        for pid in self.pids():
            rank = environment_of(pid).get("LOCAL_RANK")
            if rank is not None and int(rank) not in found:
                found[int(rank)] = pid
        return found

    def kill_worker(self, local_rank=0, number=signal.SIGKILL):
        os.kill(self.workers()[local_rank], number)

    def freeze(self, process=None):
        """Stops everything in the pod, or one process; thaw() lets it go on."""
        wanted = (lambda: [process.pid]) if process else self.pids
        deadline = time.monotonic() + LIMIT
        while pids := [pid for pid in wanted() if not stands(pid)]:  # until no process is left that could start another
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGSTOP)
                    self.frozen.append(pid)
                except ProcessLookupError:
                    pass
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name} cannot be frozen: {pids}")
            time.sleep(0.002)

    def thaw(self):
        outer = [process.outer.pid for process in self.cluster.processes if process.runs()]  # nsenter stops with its child
        for pid in [*self.frozen, *outer]:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.frozen = []

    # its link

    def cut(self, way="both"):
        """Drops all frames that come "from" the node, go "to" it, or "both"."""
        self.cut_ways |= {"from", "to"} if way == "both" else {way}
        self.cluster.apply_harm()

    def lose(self, percent):
        """Drops so many of the frames at random, each way; 0 ends it."""
        self.lost = percent
        self.cluster.apply_harm()

    def dropped(self):
        return {way: 100 if way in self.cut_ways else self.lost for way in ("from", "to")}

    def unplug(self):
        self.cluster.hub.ip("link", "set", self.port, "down")

    def plug(self):
        self.cluster.hub.ip("link", "set", self.port, "up")

    def slow(self, rate=None, burst="32kb"):
        """At most so much each way, as in "1mbit"; None ends it."""
        for node, device in ((self.pod, "eth0"), (self.cluster.hub, self.port)):
            enter = node.command("tc", "qdisc")
            if rate:
                namespaces.run(*enter, "replace", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "latency", "400ms")
            else:
                subprocess.run([*enter, "del", "dev", device, "root"], stderr=subprocess.DEVNULL, check=False)

    def delay(self, milliseconds=0):
        """Holds every frame for so long, each way; 0 ends it."""
        self.no_wire()
        if not milliseconds:
            return
        hub, number = self.cluster.hub, f"{self.number}.{self.pods}"
        self.wire = self.cluster.helper(BUILD / "tests" / "delay_line", f"a{number}", f"b{number}", milliseconds)
        hub.ip("link", "add", f"x{number}", "type", "bridge", "mcast_snooping", "0")
        hub.ip("link", "set", f"x{number}", "up")
        for port, bridge in ((self.port, f"x{number}"), (f"a{number}", f"x{number}"), (f"b{number}", "br0")):
            hub.ip("link", "set", port, "master", bridge, "up")

    def no_wire(self):
        if not self.wire:
            return
        number = f"{self.number}.{self.pods}"
        end_helper(self.wire)
        self.wire = None
        self.cluster.hub.ip("link", "del", f"x{number}")
        if self.port in self.cluster.ports():
            self.cluster.hub.ip("link", "set", self.port, "master", "br0")

    def heal(self):
        """Ends all harm of the link."""
        self.cut_ways, self.lost = set(), 0
        self.cluster.apply_harm()
        self.plug()
        self.slow(None)
        self.delay(0)


def add_addresses(node, device, addresses):
    """The kernel does not look for their doubles first: they may be used at once."""
    if any(":" in address for address in addresses):
        namespaces.run(*node.command("sh", "-c", "for f in all default; do echo 0 > /proc/sys/net/ipv6/conf/$f/accept_dad; done"))
    for address in addresses:
        more = ["/64", "nodad"] if ":" in address else ["/16", "brd", "+"]
        node.ip("addr", "add", address + more[0], *more[1:], "dev", device)


def stands(pid):
    """Whether a process is stopped, or gone."""
    return namespaces.state_of(pid) in "TtZX"


def end_helper(process):
    process.stdin.close()
    try:
        process.wait(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


class Cluster:
    def __init__(self, count, folder, family="4"):
        self.folder, self.family = pathlib.Path(folder), family
        hub = HUB_6 if family == "6" else HUB
        self.processes, self.helpers, self.nodes, self.names = [], [], [], {}
        self.resolver = self.folder / "resolv.conf"
        self.resolver.write_text(f"nameserver {hub}\n")
        self.table = self.folder / "names.json"
        self.table.write_text("{}")
        self.hub = namespaces.Node(10000, self.folder, name="hub")
        try:
            self.hub.ip("link", "add", "br0", "address", hardware_of(HUB), "type", "bridge", "mcast_snooping", "0")
            add_addresses(self.hub, "br0", {"4": [HUB], "6": [HUB_6], "both": [HUB, HUB_6]}[family])
            self.hub.ip("link", "set", "br0", "up")
            self.helper(sys.executable, HERE / "name_server.py", self.table, hub)
            for number in range(count):
                self.nodes.append(Node(self, number))
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def add_node(self):
        self.nodes.append(Node(self, len(self.nodes)))
        return self.nodes[-1]

    def helper(self, *command):
        """A program of ours in the hub that prints "ready" and ends with its stdin. It stands for the network, which does not get slower
        where a machine has much to do."""
        with open(self.folder / "hub.log", "a") as log:
            process = subprocess.Popen(
                self.hub.command("nice", "-n", "-19", *map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.helpers.append(process)
        if process.stdout.readline() != "ready\n":
            raise OSError(f"{command[0]}: {(self.folder / 'hub.log').read_text()}")
        return process

    def ports(self):
        """The names of the hub's interfaces."""
        return {link["ifname"] for link in json.loads(namespaces.run(*self.hub.command("ip", "-j", "link")))}

    def apply_harm(self):
        namespaces.run(*self.hub.command("nft", "-f", "-"), given=ruleset({node.port: node.dropped() for node in self.nodes}))

    def publish(self, name, *addresses, delay=0):
        """From now on the name server answers so, after delay seconds; the nodes' programs see it when they next ask."""
        self.names[name] = {"addresses": addresses, "delay": delay}
        self.write_names()

    def unpublish(self, name):
        self.names.pop(name, None)
        self.write_names()

    def write_names(self):
        new = self.table.with_suffix(".new")
        new.write_text(json.dumps(self.names))
        new.rename(self.table)

    def close(self):
        """Kills the rest."""
        for node in self.nodes:
            if node.pod and node.pod.holder.poll() is None:
                for pid in namespaces.children(node.pod.holder.pid):
                    os.kill(pid, signal.SIGKILL)
                node.pod.close()
        for process in self.processes:
            process.outer.wait(timeout=LIMIT)
        for helper in self.helpers:
            if helper.poll() is None:
                end_helper(helper)
        self.hub.close()


def main(at_once=4):
    """Runs the tests of the script that calls it: named ones, or all, several at once in processes of their own: they
    wait most of the time, and their networks never meet."""
    need()
    if len(sys.argv) > 1:
        unittest.main(argv=sys.argv, verbosity=2)
    names = list(test_names(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])))
    failed = []
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for name, done in zip(names, pool.map(run_test, names)):
            print(done.stdout + done.stderr, flush=True)
            failed += [name] if done.returncode else []
    print(f"{len(names)} tests, {len(failed)} failed", *failed)
    sys.exit(1 if failed else 0)


def test_names(suite):
    if isinstance(suite, unittest.TestCase):
        yield suite.id().removeprefix("__main__.")
        return
    for part in suite:
        yield from test_names(part)


def run_test(name):
    return subprocess.run([sys.executable, sys.argv[0], name], capture_output=True, text=True, check=False)
