#!/usr/bin/env python3
"""Ranks of muster-train that stay when others are lost: their processes are the same, no checkpoint is opened, and the parameters have the
bits of a run without a loss. State comes from replicas, from copies in memory, or from the disk where neither is left.

    MUSTER_BUILD=build python3 tests/e2e/train/regroup_test.py [--kills N] [TestClass.test_name ...]

--kills N: so many kills in each of the long runs, of workers, agents and nodes in turn (the full tier has 200)."""

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
from harness import BUILD, MUSTER, free_port, wait_until

TRAIN = BUILD / "bin" / "muster-train"
KILLS = 0
if "--kills" in sys.argv:
    at = sys.argv.index("--kills")
    KILLS = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]
LIMIT = 240 if KILLS else 120  # seconds without a step more
MODEL = {"architecture": "gpt2", "vocabulary": 256, "positions": 32, "channels": 32, "heads": 2, "layers": 3}
TRAINING = {"micro_batch": 1, "global_batch": 4, "sequence_length": 32, "threads": 1, "learning_rate": 0.003}
REPLICAS = {"strategy": "NO_SHARD"}
HYBRID = {"strategy": "HYBRID_SHARD", "replicas": 2}
COPIES = {"strategy": "FULL_SHARD", "memory_copies": 10}


def children(pid, name="muster-train"):
    """The workers of an agent."""
    done = subprocess.run(["pgrep", "-P", str(pid), name], capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def can_trace(folder):
    try:
        return subprocess.run(["strace", "-o", str(folder / "probe"), "true"], capture_output=True, text=True).returncode == 0
    except FileNotFoundError:
        return False


class Job:
    """Agents on loopback addresses with two ranks each; those beyond `nodes` are spare. begins: so many come at once."""

    def __init__(self, test, name, training, nodes=2, spares=0, tracer=(), least=None, nproc=2, begins=None, **sections):
        self.test, self.folder, self.port = test, test.base / name, free_port()
        self.folder.mkdir()
        config = {"training": TRAINING | training | {"output": str(self.folder / "model")}, "model": MODEL, "logging": {"interval": 20},
                  "data": {"path": str(test.base / "text"), "tokenizer": "bytes"}, **sections}
        (self.folder / "run.yaml").write_text(json.dumps(config))
        self.nodes, self.tracer, self.nproc = f"{least or nodes}:{nodes}", list(tracer), nproc
        self.agents = [self.agent(k) for k in range(begins or nodes)]
        for k in range(nodes, nodes + spares):  # the first ones to come make the world
            self.workers(k - 1)
            self.agents.append(self.agent(k))

    def agent(self, k):
        log = open(self.folder / f"log-{k}", "ab")
        environment = {name: text for name, text in os.environ.items() if not name.startswith("MUSTER_")}
        process = subprocess.Popen(
            [MUSTER, "run", f"--nnodes={self.nodes}", f"--nproc-per-node={self.nproc}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}",
             f"--local-addr=127.0.0.{k + 1}", "--max-restarts=100000", "--restart-backoff=0", "--last-call-timeout=1", "--regroup-interval=0.1", "--", *self.tracer, TRAIN, self.folder / "run.yaml"],
            stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment | {"MUSTER_HOSTNAME": f"node-{k}"})
        self.test.addCleanup(lambda: (process.kill(), process.wait()))
        log.close()
        return process

    def said(self, k=0):
        return (self.folder / f"log-{k}").read_text(errors="replace")

    def step(self):
        """The last step that any rank 0 has printed."""
        return max((int(n) for k in range(len(self.agents)) for n in re.findall(r"(?:^|\W)step (\d+)/", self.said(k))), default=0)

    def await_step(self, step):
        wait_until(lambda: self.step() >= step or self.over(), lambda: f"step {step}: {self.said()[-2000:]}")

    def over(self):
        return all(agent.poll() is not None for agent in self.agents)

    def workers(self, k):
        """The pids of node k's ranks; none where the job is over."""

        def found():
            pids = children(self.agents[k].pid)
            return (pids,) if len(pids) == self.nproc or self.over() else None

        return wait_until(found, lambda: f"the workers of node {k}: {''.join(self.said(n)[-1500:] for n in range(len(self.agents)))}", LIMIT)[0]

    def regroups(self):
        """Those that rank 0 has printed: it was not the rank that was lost."""
        return sum(self.said(k).count("regrouped in") for k in range(len(self.agents)))

    def end_of(self, k, agent):
        """An agent's exit code; a busy machine may take long for all steps, but makes some of them."""
        while True:
            before = self.step()
            try:
                return agent.wait(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                if self.step() == before:
                    self.test.fail(f"node {k} does not end:\n{self.said(k)[-4000:]}")

    def finish(self):
        for k, agent in enumerate(self.agents):
            self.test.assertIn(self.end_of(k, agent), (0, -9), self.said(k)[-4000:])
        return (self.folder / "model").read_bytes()


class Regroup(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster regroup ")
        self.addCleanup(scratch.cleanup)
        self.base, rng = pathlib.Path(scratch.name), random.Random(1)
        (self.base / "text").write_text(" ".join(rng.choice("the quick brown fox jumps over a lazy dog".split()) for _ in range(4000)))

    def undisturbed(self, training):
        return Job(self, "undisturbed", training).finish()

    def in_time(self, play):
        """play(steps) disturbs a job of so many steps, and returns whether it came before the end: a starved test looks late."""
        self.assertTrue(any(play(steps) for steps in (800, 8000, 80000)), "the job was over each time")

    def test_a_worker_and_then_an_agent_is_killed(self):
        """The worker is replaced on its node, the agent's ranks on a spare. A rank that is stopped holds the others up meanwhile."""
        for name, training in (("replicas", REPLICAS), ("hybrid", HYBRID), ("copies", COPIES)) if KILLS else (("copies", COPIES),):
            with self.subTest(name):
                self.in_time(lambda steps: self.kill_two(f"{name} {steps}", training | {"steps": steps}))

    def kill_two(self, name, training):
        job = Job(self, name, training, spares=1)
        stays, lost = job.workers(0), job.workers(1)
        job.await_step(20)
        if job.over() or not os.path.exists(f"/proc/{lost[0]}"):
            return False
        os.kill(lost[0], signal.SIGSTOP)
        time.sleep(0.05)
        os.kill(lost[0], signal.SIGKILL)
        wait_until(lambda: job.regroups() == 1 or job.over(), lambda: f"the ranks regroup: {job.said()[-2000:]}")
        again = set(job.workers(1))
        if len(again) < 2:
            return False
        self.assertEqual((job.workers(0) or stays, again & set(lost)), (stays, {lost[1]}))
        try:
            os.kill((again - {lost[1]}).pop(), signal.SIGSTOP)
        except ProcessLookupError:
            return False  # it has ended with the job
        job.agents[1].kill()
        wait_until(lambda: job.regroups() == 2 or job.over(), lambda: f"the ranks regroup: {job.said()[-2000:]}")
        if job.regroups() < 2:
            return False
        self.assertEqual(children(job.agents[0].pid) or stays, stays)
        model = job.finish()
        self.assertEqual(re.findall(r"restart (\d+) of", job.said())[-1], "2", job.said())
        self.assertNotIn("resumed", job.said())
        base = self.undisturbed(training)
        self.assertTrue(model == base, "the bits of the undisturbed run")
        shutil.rmtree(self.base / "undisturbed")
        return True

    def test_a_node_leaves_and_a_spare_takes_its_place(self):
        """In order: no restart is used, the others keep their processes, and nothing is written."""
        self.in_time(lambda steps: self.leave(f"moved {steps}", REPLICAS | {"steps": steps}))

    def leave(self, name, training):
        job = Job(self, name, training, spares=1)
        stays = job.workers(0)
        job.await_step(20)
        job.agents[1].send_signal(signal.SIGTERM)
        if job.agents[1].wait(timeout=LIMIT) == 0:
            return False
        self.assertEqual(job.agents[1].returncode, 143)
        wait_until(lambda: job.regroups() == 1 or job.over(), lambda: f"the ranks regroup: {job.said()[-2000:]}", LIMIT)
        self.assertEqual(children(job.agents[0].pid) or stays, stays)
        del job.agents[1]
        model = job.finish()
        self.assertNotIn("restart 1", job.said())
        self.assertTrue(model == self.undisturbed(training), "the bits of the undisturbed run")
        return True

    def test_the_new_rank_is_lost_before_it_has_come(self):
        """The others wait for it in the store, and their waits end with its round."""
        late = '[ "$MUSTER_ROUND.$RANK" = 1.2 ] && exec sleep 600; exec "$@"'
        job = Job(self, "second", REPLICAS | {"steps": 1000000}, nodes=1, nproc=3, tracer=("sh", "-c", late, "sh"))
        before = job.workers(0)
        lost = next(pid for pid in before if b"\0RANK=2\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        job.await_step(20)
        os.kill(lost, signal.SIGKILL)
        new = wait_until(lambda: children(job.agents[0].pid, "sleep"), "the new rank", LIMIT)
        os.kill(new[0], signal.SIGKILL)
        wait_until(lambda: job.regroups() or job.over(), lambda: f"the ranks regroup: {job.said()[-2000:]}", LIMIT)
        job.await_step(job.step() + 40)
        self.assertEqual(set(before) - set(job.workers(0)), {lost})
        job.agents[0].kill()

    @unittest.skipUnless(KILLS, "the long one")
    def test_the_new_rank_is_lost_while_it_calls(self):
        """The others have its address and wait for its call: strace kills it at the system call. The fourth would be the next communicator's."""
        if not can_trace(self.base):
            self.skipTest("strace cannot trace here (ptrace is refused, or there is no strace)")
        for call in (1, 2, 3):
            with self.subTest(call=call):
                late = f"""[ "$MUSTER_ROUND.$RANK" = 1.2 ] && exec strace -D -f -qq -o /dev/null -e trace=connect -e inject=connect:signal=KILL:when={call} "$@"; exec "$@\""""
                job = Job(self, f"call-{call}", REPLICAS | {"steps": 1000000}, nodes=1, nproc=3, tracer=("sh", "-c", late, "sh"))
                before = job.workers(0)
                lost = next(pid for pid in before if b"\0RANK=2\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes())
                job.await_step(20)
                os.kill(lost, signal.SIGKILL)
                wait_until(lambda: "restart 2 of" in job.said() and job.regroups() or job.over(), lambda: f"the ranks regroup: {job.said()[-2000:]}", LIMIT)
                self.assertEqual(set(before) - set(job.workers(0)), {lost})
                job.agents[0].kill()

    def go_on(self, job, ranks, stays, lost, change):
        """After the change there are so many ranks, which go on where they were; those of node 0 keep their processes. A busy machine may
        have a node lost and found in between, so that regroups are not counted."""
        before, seen = job.step(), job.regroups()
        change()

        def done():
            worlds = re.findall(r"over (\d+) ranks?\b", job.said())
            return (job.regroups() > seen and int(worlds[-1]) == ranks) or job.over()

        wait_until(done, lambda: f"{ranks} ranks: {job.said()[-2000:]}", LIMIT)
        after = int(re.findall(r"step (\d+) is the next", job.said())[-1])
        self.assertGreater(after, max(1, before - 5 * lost), job.said()[-3000:])
        job.await_step(after + 40)
        self.assertEqual(children(job.agents[0].pid), stays)

    def test_a_world_that_shrinks_and_grows(self):
        """A node is lost, and none takes its place; then one joins, and leaves again. The job goes on until the test ends."""
        rows = (("replicas", REPLICAS, 2), ("one", REPLICAS, 1), ("copies", COPIES, 2)) if KILLS else (("copies", COPIES, 1),)
        for name, training, nproc in rows:
            with self.subTest(name):
                job = Job(self, name, training | {"steps": 1000000}, least=1, nproc=nproc)
                lost = training.get("memory_copies", 0)
                stays = job.workers(0)
                job.await_step(60)
                self.go_on(job, nproc, stays, lost, job.agents[1].kill)
                self.go_on(job, 2 * nproc, stays, lost, lambda: job.agents.append(job.agent(2)))
                self.assertEqual(len(job.workers(2)), nproc)
                self.go_on(job, nproc, stays, lost, job.agents[2].terminate)
                self.assertEqual(job.agents[2].wait(timeout=LIMIT), 143)
                for agent in job.agents:
                    agent.kill()

    @unittest.skipUnless(KILLS, "the long one")
    def test_a_job_that_began_with_one_rank(self):
        """It has no communicator, and no peer yet."""
        job = Job(self, "alone", REPLICAS | {"steps": 1000000}, nodes=2, least=1, nproc=1, begins=1)
        stays = job.workers(0)
        job.await_step(60)
        self.go_on(job, 2, stays, 0, lambda: job.agents.append(job.agent(1)))
        job.workers(1)
        self.go_on(job, 1, stays, 0, job.agents[1].kill)
        for agent in job.agents:
            agent.kill()

    def test_stages_of_which_a_rank_is_left_over(self):
        """Two ranks of each stage, and one that waits: after a loss it may take part, and stages may be cut anew. Four ranks have no such one,
        and keep their cut: the new rank times its layers with the others."""
        saves = {"checkpoint_dir": str(self.base / "saved"), "checkpoint_every": 1000000}
        for ranks, more in ((5, saves), (4, {})):
            with self.subTest(ranks=ranks):
                job = Job(self, f"{ranks}", {"strategy": "NO_SHARD", "steps": 1000000} | more, nodes=1, nproc=ranks, mesh={"pipeline": 2, "spare": True})
                self.lose_ranks(job, (2, ranks - 1))

    def lose_ranks(self, job, ranks):
        for lost in ranks:
            workers = {int(re.search(rb"\0RANK=(\d)", pathlib.Path(f"/proc/{pid}/environ").read_bytes()).group(1)): pid for pid in job.workers(0)}
            job.await_step(20)
            before, seen = job.step(), job.regroups()
            os.kill(workers[lost], signal.SIGKILL)
            wait_until(lambda: job.regroups() > seen or job.over(), lambda: f"the ranks regroup: {job.said()[-2000:]}", LIMIT)
            after = int(re.findall(r"step (\d+) is the next", job.said())[-1])
            self.assertGreater(after, before - 1)
            job.await_step(after + 40)
            self.assertEqual(set(workers.values()) - set(job.workers(0)), {workers[lost]})
        job.agents[0].kill()

    @unittest.skipUnless(KILLS, "the long one")
    def test_stages_in_worlds_of_other_sizes(self):
        """Of five ranks one waits; four are two of each stage; of three one waits again."""
        job = Job(self, "sizes", {"strategy": "NO_SHARD", "steps": 1000000}, nodes=5, least=2, nproc=1, mesh={"pipeline": 2})
        stays = [job.workers(k)[0] for k in range(5)]
        job.await_step(60)
        self.go_on(job, 4, job.workers(0), 0, job.agents[4].kill)
        self.assertEqual([children(agent.pid)[0] for agent in job.agents[:4]], stays[:4])
        self.go_on(job, 4, job.workers(0), 0, lambda: job.agents.append(job.agent(5)))
        job.workers(5)
        for lost, ranks in ((5, 4), (3, 2)):
            self.go_on(job, ranks, job.workers(0), 0, job.agents[lost].kill)
        self.assertEqual([children(agent.pid)[0] for agent in job.agents[:3]], stays[:3])
        for agent in job.agents:
            agent.kill()

    @unittest.skipUnless(KILLS, "the long one")
    def test_nothing_is_left_of_a_shard(self):
        """FULL_SHARD without copies: the survivors keep their processes, and all go back to the disk; without checkpoints they begin anew."""
        training = {"strategy": "FULL_SHARD", "steps": 600, "checkpoint_dir": str(self.base / "saved"), "checkpoint_every": 40}
        job = Job(self, "disk", training)
        stays, lost = job.workers(0), job.workers(1)
        job.await_step(60)
        os.kill(lost[1], signal.SIGKILL)
        wait_until(lambda: job.regroups() == 1 or job.over(), lambda: f"the ranks regroup: {job.said()[-2000:]}")
        self.assertEqual(children(job.agents[0].pid) or stays, stays)
        model = job.finish()
        self.assertIn("resumed from step", job.said())
        self.assertRegex(job.said(), r"state is gone from memory: training goes back to the checkpoint of step \d+0; replicas")
        job = Job(self, "anew", {"strategy": "FULL_SHARD", "steps": 600})
        lost = job.workers(1)
        job.await_step(60)
        os.kill(lost[1], signal.SIGKILL)
        self.assertTrue(job.finish() == model, "the bits of a run that began anew")
        self.assertEqual(job.regroups(), 1)
        self.assertIn("state is gone from memory: training begins anew; replicas", job.said())

    @unittest.skipUnless(KILLS, "the long one")
    def test_a_rank_and_its_neighbour_are_lost(self):
        """With both copies of the first one's state. The warning recommends no copies to a job that makes them."""
        job = Job(self, "both", COPIES | {"steps": 1000000}, nodes=1, nproc=3)
        before = job.workers(0)
        job.await_step(60)
        subprocess.run(["kill", "-9", *map(str, before[1:])], check=True)
        wait_until(lambda: "gone from memory" in job.said() or job.over(), lambda: f"the loss is told: {job.said()[-2000:]}", LIMIT)
        self.assertIn("begins anew; no rank is left that kept a copy of theirs (training.memory_copies); replicas (training.strategy) keep a state, and", job.said())
        self.assertEqual(job.workers(0)[0], before[0])
        job.agents[0].kill()

    @unittest.skipUnless(KILLS, "the long one")
    def test_groups_that_are_stepped_one_by_one_are_told(self):
        stepped = {"clip_norm": 0, "on_nonfinite": "stop"}
        for row, (more, told) in enumerate((({"on_nonfinite": "stop"}, 0), (stepped, 1), ({"clip_norm": 0}, 0), (stepped | {"memory_copies": 5}, 0))):
            job = Job(self, f"row {row}", REPLICAS | {"steps": 3} | more)
            job.finish()
            self.assertEqual(job.said().count("a loss of ranks during a step leaves no whole state in memory"), told, job.said())

    @unittest.skipUnless(KILLS, "the long one")
    def test_copies_of_stages_with_unequal_states(self):
        """They are refused before the first step, by all ranks alike."""
        job = Job(self, "unequal", {"strategy": "NO_SHARD", "steps": 30, "memory_copies": 5}, nodes=1, nproc=4, mesh={"pipeline": 2})
        self.assertNotEqual(job.agents[0].wait(timeout=LIMIT), 0)
        self.assertIn("training.memory_copies: the ranks of mesh.pipeline 2 have states of ", job.said())
        self.assertEqual((job.step(), "restart 1 of" in job.said()), (0, False), job.said())

    @unittest.skipUnless(KILLS, "the long one")
    def test_a_training_in_stages(self):
        """The rank that is new begins in the others' stage, of which there is no checkpoint yet."""
        stages = [{"steps": 60}, {"name": "long", "steps": 400, "learning_rate": 0.001}, {"steps": 40}]
        for name, training in (("replicas", REPLICAS), ("copies", COPIES), ("nothing", {"strategy": "FULL_SHARD"})):
            with self.subTest(name):
                job = Job(self, name, training | {"stages": stages, "checkpoint_dir": str(self.base / f"{name} saved"), "checkpoint_every": 2000})
                stays, lost = job.workers(0), job.workers(1)
                job.await_step(120)
                os.kill(lost[1], signal.SIGKILL)
                wait_until(lambda: job.regroups() == 1 or job.over(), lambda: f"the ranks regroup: {job.said()[-2000:]}")
                self.assertEqual(children(job.agents[0].pid) or stays, stays)
                model = job.finish()
                self.assertEqual(job.said().count("stage 1 of 3 begins"), 1)
                base = Job(self, "undisturbed", training | {"stages": stages, "checkpoint_dir": str(self.base / "undisturbed saved"), "checkpoint_every": 2000})
                self.assertTrue(model == base.finish(), "the bits of the undisturbed run")
                shutil.rmtree(self.base / "undisturbed")
                shutil.rmtree(self.base / "undisturbed saved")

    @unittest.skipUnless(KILLS, "the long one")
    def test_no_checkpoint_is_opened(self):
        """Neither by ranks that stay nor by the one that is new: strace sees each file that a process opens."""
        if not can_trace(self.base):
            self.skipTest("strace cannot trace here (ptrace is refused, or there is no strace)")
        saved = self.base / "saved"
        training = COPIES | {"steps": 400, "checkpoint_dir": str(saved), "checkpoint_every": 40}
        trace = self.base / "trace"
        job = Job(self, "traced", training, tracer=("strace", "-D", "-ff", "--seccomp-bpf", "-e", "trace=open,openat,openat2", "-o", str(trace)))
        stays, lost = job.workers(0), job.workers(1)
        job.await_step(100)
        os.kill(lost[1], signal.SIGKILL)
        wait_until(lambda: job.regroups() == 1 or job.over(), lambda: f"the ranks regroup: {job.said()[-2000:]}")
        new = [pid for pid in job.workers(1) if pid not in lost]
        self.assertEqual(len(new), 1)
        self.assertEqual(children(job.agents[0].pid) or stays, stays)
        job.finish()
        self.assertTrue(list(saved.glob("step-*")), "there were checkpoints")

        def read():
            """Files of checkpoints that were opened to be read, by any thread."""
            lines = [line for path in self.base.glob("trace.*") for line in path.read_text(errors="replace").splitlines()]
            return [line for line in lines if "/saved/step-" in line and "O_RDONLY" in line and "O_DIRECTORY" not in line and "ENOENT" not in line]

        for pid in [*stays, *lost, *new]:
            self.assertGreater(len(pathlib.Path(f"{trace}.{pid}").read_text(errors="replace").splitlines()), 10, "its files were seen")
        self.assertEqual(read(), [])
        Job(self, "resumed", training | {"steps": 420}, tracer=job.tracer).finish()
        self.assertTrue(read(), "a rank that resumes is seen to read")

    def kill_at_random(self, name, training, kills):
        """Workers, and agents that come back, at any moment of a step. Of three voters two that are restarted at once are too many, so an
        agent is killed when the one before has been in its place for a while."""
        rng, agent_at = random.Random(7), time.monotonic()
        job = Job(self, name, training, spares=1)
        for number in range(kills):
            job.await_step(min(20, training["steps"]))
            time.sleep(rng.uniform(0.05, 0.4))
            if job.over():
                break
            k = rng.randrange(1, len(job.agents))
            if rng.random() < 0.3 and time.monotonic() - agent_at > 6 and job.agents[k].poll() is None:
                agent_at = time.monotonic()
                job.agents[k].kill()
                job.agents[k].wait()
                job.agents[k] = job.agent(k)
                continue
            workers = children(job.agents[rng.randrange(len(job.agents))].pid)
            if workers:
                subprocess.run(["kill", "-9", str(rng.choice(workers))], stderr=subprocess.DEVNULL)  # it may have ended
        return job.finish(), job

    @unittest.skipUnless(KILLS, "the long one")
    def test_many_kills(self):
        for name, training in (("replicas", REPLICAS), ("hybrid", HYBRID), ("copies", COPIES)):
            with self.subTest(name):
                training = training | {"steps": 200 * KILLS}
                model, job = self.kill_at_random(name, training, KILLS)
                print(f"{name}: {job.regroups()} regroups in {KILLS} kills", flush=True)
                self.assertTrue(model == self.undisturbed(training), "the bits of the undisturbed run")
                shutil.rmtree(self.base / "undisturbed")


if __name__ == "__main__":
    unittest.main()
