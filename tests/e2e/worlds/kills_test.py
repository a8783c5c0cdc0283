"""muster-train killed at random, again and again: a worker, an agent, a whole node in its namespaces; the result at the end is, to the last
bit, an undisturbed run's.

    MUSTER_BUILD=build python3 tests/e2e/worlds/kills_test.py [--kills N] [--mode static|elastic|changing] [--nodes N] [--seed N]
        [--all | --serving] [--keep FOLDER]

Checkpoints are frequent, so that about half of the kills fall into the writing of one. An agent that ended is started again on its node,
as Kubernetes would. The job never has another number of nodes: elastic means that nodes meet without ranks. But where it is changing, the
others go on without a node that was killed: then the samples are held to exact cover, and the losses to one rank's. Needs root.

--all: what else befalls a job, too: an agent killed together with a guardian, or with its guardians stopped; all programs of that name at once;
a checkpoint damaged; unknown peers that flood the store's port and the rendezvous port; a disk of checkpoints that is full, or read-only, or
refused (EACCES) to a node that starts; a system call refused to a node that starts. No agent may take more than 64 MB, and nothing is left.

--serving: each kill is that of the node that serves the job, or of its agent. No other agent may end, and each kill costs one restart."""

import argparse
import contextlib
import errno
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import cluster, lineage
from harness.preload import preload

MUSTER, TRAIN = (str(cluster.BUILD / "bin" / name) for name in ("muster", "muster-train"))
PORT, BATCH = 23456, 6
CONFIG = """\
training: {{steps: {steps}, micro_batch: 1, global_batch: {batch}, sequence_length: 32, learning_rate: 1.0e-3, schedule: constant, warmup_steps: 5,
           threads: 1, timeout: 60, output: "{name}.model", checkpoint_dir: "{name}.checkpoints", checkpoint_every: {every}}}
model: {{layers: 2, channels: 32, heads: 2}}
data: {{path: "{folder}/text"}}
logging: {{sample_length: 0, interval: 1, samples: "{name}.samples", json: "{name}.jsonl"}}
"""
PROSE = "the quick fox jumps over the hill and then it rests. " * 200
FLAGS = ("--max-restarts=100000", "--restart-backoff=0", "--join-timeout=120", "--last-call-timeout=1", "--regroup-interval=0.2",
         "--termination-log=")  # fmt: skip


FLOODS = pathlib.Path(__file__).resolve().parents[1] / "hostile" / "floods_test.py"
AGENT_KB = 64 << 10


def name_of(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


class Kills:
    def __init__(self, nodes, mode, seed):
        self.largest_kb = 0
        self.nodes, self.mode, self.random = nodes.nodes, mode, random.Random(seed)
        self.folder = nodes.folder
        self.agents, self.deeds, self.written = {}, [], 0
        (self.folder / "text").write_text(PROSE)

    def config(self, name, steps, every):
        path = self.folder / f"{name}.yaml"
        path.write_text(CONFIG.format(folder=self.folder, name=self.folder / name, steps=steps, every=every, batch=BATCH))
        return path

    def start(self, node, *flags, config, log="agent", prefix=(), **variables):
        drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$")
        dropped = {variable: None for variable in os.environ if drop.match(variable)}
        flags = ["--nproc-per-node=1", *FLAGS, *flags]
        return node.start(*prefix, MUSTER, "run", *flags, TRAIN, config, log=log, **{"OMP_NUM_THREADS": "1", **dropped, **variables})

    def start_agent(self, node, **how):
        if self.mode != "static":
            least = len(self.nodes) - (self.mode == "changing")
            place = [f"--nnodes={least}:{len(self.nodes)}", "--rdzv-backend=c10d", f"--rdzv-endpoint=node0:{PORT}"]
        else:
            place = [f"--nnodes={len(self.nodes)}", f"--node-rank={node.number}", "--master-addr=node0", f"--master-port={PORT}"]
        self.agents[node] = self.start(node, *place, config=self.disturbed, **how)

    def tails(self):
        found = []
        for agent in self.agents.values():
            found += [f"{agent.log.name} (exit code {agent.poll()}):", *agent.said().splitlines()[-12:]]
        return "\n".join([*self.deeds, *found])

    def start_what_ended(self):
        for node, agent in self.agents.items():
            if not agent.runs():
                assert agent.poll() != 0, f"the job ended by itself\n{self.tails()}"
                self.deeds.append(f"{node.name}: started, the last one left with {agent.poll()}")
                self.start_agent(node)

    def until(self, condition, what):
        def there():
            self.start_what_ended()
            return condition()

        try:
            cluster.wait_until(there, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tails()}") from None

    def newest(self):
        """The last checkpoint that is whole."""
        with contextlib.suppress(OSError):
            return max((int(path.name[5:]) for path in (self.folder / "disturbed.checkpoints").glob("step-*") if path.name[5:].isdigit()), default=0)
        return 0

    def run(self):
        return lineage.latest(self.folder / "disturbed.samples")

    # victims

    def kill_worker(self, node):
        with contextlib.suppress(KeyError, ProcessLookupError):  # it has just ended with another one
            node.kill_worker(0)

    def kill_agent(self, node):
        self.agents[node].signal(signal.SIGKILL)
        self.agents[node].wait()

    def kill_node(self, node):
        node.kill_pod(silently=self.random.random() < 0.3)  # as where the power goes
        node.restart()
        self.agents[node].wait()

    # the node that serves

    def status(self, node):
        asked = subprocess.run(node.pod.command(MUSTER, "status", "--output=json"), capture_output=True, text=True, check=False)
        return json.loads(asked.stdout) if asked.returncode == 0 and asked.stdout.startswith("{") else {}

    def serving(self):
        """All agree on it."""
        states = [self.status(node) for node in self.nodes]
        names = {state["server"]["name"] if state.get("server") else "" for state in states}
        rounds = {(state.get("world") or {}).get("round") for state in states}
        return next((node for node in self.nodes if names == {node.name} and len(rounds) == 1), None)

    def kill_serving(self):
        before = self.newest()
        self.until(lambda: self.newest() >= before + 2, "a round goes on")
        found = []
        self.until(lambda: found.append(self.serving()) or found[-1], "one node serves")
        node = found[-1]
        how = self.random.choice((self.kill_agent, self.kill_node))
        self.deeds.append(f"{how.__name__} {node.name}, which serves, behind step {self.newest()}")
        self.killed = self.run()[0]
        self.measure()
        how(node)

    def check_serving(self, test, kills):
        """After so many kills, while the last round goes on: their restarts, and the agents that ended."""
        restarts = {self.status(node).get("restarts") for node in self.nodes}
        test.assertEqual(restarts, {kills}, self.tails())
        ended = [deed for deed in self.deeds if "left with" in deed and not deed.endswith(" -9")]
        test.assertEqual(ended, [], self.tails())

    # what else befalls them

    def guardians(self, node):
        return [pid for pid in node.pids() if name_of(pid) in ("rank-guardian", "rank-watchman")]

    def kill_agent_with_a_guardian(self, node):
        for pid in self.guardians(node)[:1]:
            os.kill(pid, signal.SIGKILL)
        self.kill_agent(node)

    def kill_agent_behind_stopped_guardians(self, node):
        """Guardians of a dead agent end by themselves first: once stopped, no other death would continue them."""
        self.until(lambda: len(self.guardians(node)) == 2, "a guardian and a watchman, those of the agent")
        for pid in self.guardians(node):
            os.kill(pid, signal.SIGSTOP)
        self.kill_agent(node)

    def kill_by_name(self, node):
        for pid in node.pids():
            if name_of(pid) == "muster":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.agents[node].wait()

    def damage_newest(self):
        """False: it has made place for a newer one, before or after its files were listed."""
        files = sorted((self.disk / f"step-{self.newest()}").glob("*.safetensors"))
        with contextlib.suppress(OSError, IndexError), open(self.random.choice(files), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
            return True
        return False

    def damage_checkpoint(self, node):
        self.until(self.damage_newest, "a checkpoint is damaged")
        self.kill_worker(node)

    def flood(self, node):
        ports = [PORT] + [int(found) for pid in node.workers().values() if (found := cluster.environment_of(pid).get("MASTER_PORT"))]
        attacker = node.start(sys.executable, str(FLOODS), "--attack", "node0", str(self.random.choice(ports)), str(self.random.randrange(100)),
                              log="attacker")
        attacker.wait()

    # disks and calls: each lasts a moment in which the job goes on, restarts or ends with 138, and is mended then

    @property
    def disk(self):
        return self.folder / "disturbed.checkpoints"

    def moment(self, node):
        """A worker is killed, so that the fault meets a restart as well, and everything that ended is started again for a second."""
        self.kill_worker(node)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            self.start_what_ended()
            time.sleep(0.05)

    def fill_disk(self, node):
        filler = self.disk / ".filler"
        try:
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            self.moment(node)
        finally:
            filler.unlink(missing_ok=True)

    def remount(self, how):
        return subprocess.run(["mount", "-o", f"remount,{how}", str(self.disk)], capture_output=True, check=False).returncode == 0

    def read_only_disk(self, node):
        for _ in range(1000):  # busy while a checkpoint is written
            if self.remount("ro"):
                break
            time.sleep(0.002)
        try:
            self.moment(node)
        finally:
            assert self.remount("rw")

    def restart_with(self, node, **how):
        """An agent that lasts a second at most; then one as before."""
        self.kill_agent(node)
        self.start_agent(node, **how)
        end = time.monotonic() + 1
        while time.monotonic() < end and self.agents[node].runs():
            time.sleep(0.05)
        if self.agents[node].runs():
            self.kill_agent(node)
        else:
            code = self.agents[node].poll()
            assert code in (1, 2, 137, 138, 143), self.tails()
            self.deeds.append(f"{node.name}: ended with {code}")

    def refuse_checkpoints(self, node):
        self.restart_with(node, LD_PRELOAD=preload("failing_files.so"), FAILING_FILES=f"open:{self.disk.name}:{errno.EACCES}")

    def refuse_a_call(self, node):
        refuse = cluster.BUILD / "tests" / "refuse"
        calls = subprocess.run([refuse, "--list"], capture_output=True, text=True, check=True).stdout.split()
        call = self.random.choice(calls)
        self.deeds.append(f"{call} is refused on {node.name}")
        self.restart_with(node, prefix=(refuse, call, self.random.choice(("EPERM", "ENOSYS")), "--"))

    def measure(self):
        for agent in self.agents.values():
            with contextlib.suppress(OSError, TypeError):
                text = pathlib.Path(f"/proc/{agent.pid}/status").read_text()
                self.largest_kb = max(self.largest_kb, int(re.search(r"VmHWM:\s+(\d+)", text)[1]))

    def check_remains(self, test):
        test.assertLess(self.largest_kb, AGENT_KB, "kB of an agent")
        cluster.wait_until(lambda: not any(self.guardians(node) or node.workers() for node in self.nodes), "nothing is left")

    ALL = ("kill_worker", "kill_agent", "kill_node", "kill_agent_with_a_guardian", "kill_agent_behind_stopped_guardians", "kill_by_name",
           "damage_checkpoint", "flood", "fill_disk", "read_only_disk", "refuse_checkpoints", "refuse_a_call")  # fmt: skip

    def kill(self, kind):
        before = self.newest()
        self.until(lambda: self.newest() >= before + 2, "a round goes on")
        time.sleep(self.random.random() * 0.1)
        node = self.random.choice(self.nodes)
        writing = any((self.folder / "disturbed.checkpoints").glob("*.*")) or any(
            not path.name[5:].isdigit() for path in (self.folder / "disturbed.checkpoints").iterdir())
        self.written += writing
        self.deeds.append(f"{kind} {node.name} behind step {self.newest()}{', a checkpoint is written' if writing else ''}")
        self.killed = self.run()[0]
        self.measure()
        getattr(self, kind)(node)
        self.measure()

    # the run

    def play(self, kills, kinds=("kill_worker", "kill_agent", "kill_node")):
        """Kills so many, ends the job by a planned stop; its last step."""
        self.disturbed = self.config("disturbed", 10**6, 1)
        for node in self.nodes:
            self.start_agent(node)
        for number in range(kills):
            if kinds:
                self.kill(kinds[number] if number < len(kinds) else self.random.choice(kinds))
            else:
                self.kill_serving()
            if (number + 1) % 50 == 0:
                print(f"{number + 1} kills, step {self.newest()}", flush=True)
        if kinds == self.ALL:
            self.kill("kill_worker")  # a flood ends no round
        # Not by its checkpoints alone: a killed round's may still be written.
        self.until(lambda: self.run()[0] > self.killed and self.run()[2] >= 3, "the last round goes on")
        if not kinds:
            self.until(self.serving, "one node serves")
            self.check_serving(unittest.TestCase(), kills)
        for node in reversed(self.nodes):
            self.agents[node].signal(signal.SIGTERM)
        for agent in self.agents.values():
            assert agent.wait() in (143, 138, 0), self.tails()
        return self.newest()

    def model(self, name, steps, ranks=None, micro_batch=1):
        """The model of that run after so many steps, by ranks of one node: as many as there are nodes, or so many."""
        config = self.config(name, steps, 0)
        config.write_text(config.read_text().replace("micro_batch: 1", f"micro_batch: {micro_batch}"))
        agent = self.start(self.nodes[0], "--standalone", f"--nproc-per-node={ranks or len(self.nodes)}", config=config, log=name)
        assert agent.wait() == 0, agent.said()
        return (self.folder / f"{name}.model").read_bytes(), agent.printed() + agent.said()

    def check_model(self, test, steps):
        """To the byte that of an undisturbed run in the same world."""
        found, said = self.model("disturbed", steps)
        test.assertIn(f"all {steps} steps had been done already", said)
        test.assertNotIn("refused", said)
        test.assertEqual(found, self.model("undisturbed", steps)[0], "another model than that of a job that nothing befell")

    def check_losses(self, test, steps):
        """One rank's losses, within 3 times the effect of another order of sums on them: in the first 100 steps, as long as T1 is promised. Much
        later the text is learnt by heart, and any rounding is as large as the loss."""
        losses, held = [], min(steps, 100)
        for micro_batch in (1, 2, 3, BATCH):
            self.model(f"alone{micro_batch}", held, 1, micro_batch)
            losses.append(lineage.losses(self.folder / f"alone{micro_batch}.jsonl"))
        bound = max(1e-6, 3 * max(lineage.deviation(control, losses[0]) for control in losses[1:]))
        found = lineage.deviation(lineage.losses(self.folder / "disturbed.jsonl")[:held], losses[0])
        print(f"{held} losses are {found:.2e} apart, bound {bound:.2e}")
        test.assertLessEqual(found, bound)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--mode", choices=("static", "elastic", "changing"), default="static")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--serving", action="store_true")
    parser.add_argument("--keep")
    options = parser.parse_args()
    cluster.need()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, {options.mode}, {options.nodes} nodes, {options.kills} kills", flush=True)
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="muster kills "))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    test = unittest.TestCase()
    disk = folder / "disturbed.checkpoints"
    if options.all:
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32M", "tmpfs", str(disk)], check=True)
    try:
        with cluster.Cluster(options.nodes, folder) as nodes:
            kills = Kills(nodes, options.mode, seed)
            try:
                begun = time.monotonic()
                steps = kills.play(options.kills, *([Kills.ALL] if options.all else [()] if options.serving else []))
                kills.check_remains(test)
                took = time.monotonic() - begun
                lineage.check_samples(test, folder / "disturbed.samples", steps, BATCH)
                (kills.check_losses if options.mode == "changing" else kills.check_model)(test, steps)
            except BaseException:
                print(kills.tails())
                raise
        print("\n".join(kills.deeds))
        print(f"{steps} steps, {kills.written} of {options.kills} kills beside a checkpoint that was written, {took:.1f} s")
    finally:
        if options.all:
            subprocess.run(["umount", "--lazy", str(disk)], check=False)
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
