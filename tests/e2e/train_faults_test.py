"""muster-train and what befalls its job on one node: a rank or the agent is killed, a rank freezes, TERM; and several ranks a node.

    MUSTER_BUILD=build python3 tests/e2e/train_faults_test.py [TrainFaults.test_name ...]

What befalls it on several nodes plays train_matrix_test.py. A node is a set of namespaces here (cluster.py). Ranks of one node share
memory, jobs of several speak TCP, and the model is the same to the last bit. Checkpoints are off here: a restart begins at step 0,
and ends with the same bytes as an undisturbed run. Needs root."""

import functools
import os
import pathlib
import re
import signal
import tempfile
import time
import unittest

from harness import cluster

MUSTER, TRAIN = (str(cluster.BUILD / "bin" / name) for name in ("muster", "muster-train"))
STEPS = (400, 1000, 4000, 16000)  # long enough to be in the middle of it; more where training was over before this process got a look at it
UNDISTURBED_STEPS = 200  # where nothing is done to it
CONFIG = """\
training: {{steps: {steps}, micro_batch: {batch}, global_batch: 4, sequence_length: 32, warmup_steps: 5, threads: 1, strategy: {strategy},
           output: "{output}"}}
model: {{layers: 2, channels: 32, heads: 2}}
data: {{path: "{text}"}}
logging: {{interval: 1, sample_length: 0}}
"""
PROSE = "the quick fox jumps over the hill and then it rests. " * 200
FAULTS = ("--max-restarts=3", "--restart-backoff=0", "--termination-log=")


class TooShort(Exception):
    """Training was over before anything could be done to it."""


def in_the_middle_of_it(test):
    """A test that does something to a training that goes on: with more steps where it came too late."""

    @functools.wraps(test)
    def with_more_steps(self):
        for self.steps in STEPS:
            try:
                return test(self)
            except TooShort:
                self.doCleanups()
                self.setUp()
        self.fail(f"{STEPS[-1]} steps were taken before anybody looked")

    return with_more_steps


class TrainFaults(unittest.TestCase):
    batch, strategy = 2, "FULL_SHARD"  # batch: of a rank
    steps = STEPS[0]
    undisturbed = {}  # by the number of steps: files that an undisturbed run leaves

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster train faults ")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "text").write_text(PROSE)

    def nodes(self, count):
        nodes = cluster.Cluster(count, self.folder)
        self.addCleanup(nodes.close)
        return nodes.nodes

    def start(self, node, name, *flags, ranks=2):
        """Trains into the file of that name."""
        config = self.folder / f"{name}.yaml"
        output, text = self.folder / name, self.folder / "text"
        config.write_text(CONFIG.format(steps=self.steps, batch=self.batch, strategy=self.strategy, output=output, text=text))
        foreign = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$")
        dropped = {variable: None for variable in os.environ if foreign.match(variable)}
        flags = [f"--nproc-per-node={ranks}", *FAULTS, *flags]
        return node.start(MUSTER, "run", *flags, TRAIN, config, log=name, OMP_NUM_THREADS="1", **dropped)

    def in_the_middle(self, agent, round_=0):
        """Step 20 of that round is over."""

        def there():
            if agent.poll() is not None:
                self.assertEqual(agent.poll(), 0, agent.said())
                raise TooShort
            return len(re.findall(rf"step 20/{self.steps} ", agent.printed())) > round_

        cluster.wait_until(there, "training is in the middle")
        if f"step {self.steps // 2}/" in agent.printed().rsplit(f"step 20/{self.steps} ", 1)[1]:
            raise TooShort  # it would be over before anything is done

    def signal_rank(self, node, rank, number):
        workers = node.workers()
        if rank not in workers:
            raise TooShort
        os.kill(workers[rank], number)

    def ended_by_it(self, agent, code):
        if agent.wait() == 0:
            raise TooShort
        self.assertEqual(agent.poll(), code, agent.said())

    def ended_well(self, agent, restarts, says=""):
        self.assertEqual(agent.wait(), 0, agent.said())
        self.assertIn(f"step {self.steps}/{self.steps} ", agent.printed())
        if says:
            self.assertRegex(agent.said(), says)
        self.assertEqual(agent.said().count(f"restart {restarts} of 3: round"), 1 if restarts else 0, agent.said())

    def same_as_undisturbed(self, node, name):
        if self.steps not in self.undisturbed:
            self.ended_well(self.start(node, "undisturbed"), 0)
            self.undisturbed[self.steps] = (self.folder / "undisturbed").read_bytes()
        self.assertEqual((self.folder / name).read_bytes(), self.undisturbed[self.steps])

    @in_the_middle_of_it
    def test_a_rank_is_killed(self):
        (node,) = self.nodes(1)
        agent = self.start(node, "disturbed")
        self.in_the_middle(agent)
        self.signal_rank(node, 1, signal.SIGKILL)
        self.in_the_middle(agent, 1)
        self.signal_rank(node, 0, signal.SIGKILL)
        self.ended_well(agent, 2, r"rank 1 .* was killed by signal 9 \(SIGKILL\)")
        self.same_as_undisturbed(node, "disturbed")

    @in_the_middle_of_it
    def test_a_rank_freezes_and_is_found(self):
        (node,) = self.nodes(1)
        agent = self.start(node, "disturbed", "--hang-timeout=5")
        self.in_the_middle(agent)
        self.signal_rank(node, 1, signal.SIGSTOP)
        self.ended_well(agent, 1, r"stopping the workers: rank 1 \(pid \d+ on node0\) hung after step \d+")
        self.assertRegex(agent.said(), r"rank 1 \(pid \d+\) was stopped by a signal or a debugger")
        self.same_as_undisturbed(node, "disturbed")

    @in_the_middle_of_it
    def test_all_freeze_and_thaw(self):
        (node,) = self.nodes(1)
        agent = self.start(node, "disturbed")
        self.in_the_middle(agent)
        node.freeze()
        before = len(agent.printed())
        time.sleep(3)  # the fault's length
        self.assertEqual(len(agent.printed()), before)
        node.thaw()
        self.ended_well(agent, 0)
        self.same_as_undisturbed(node, "disturbed")

    @in_the_middle_of_it
    def test_the_agent_is_killed_and_another_starts(self):
        (node,) = self.nodes(1)
        agent = self.start(node, "disturbed")
        self.in_the_middle(agent)
        agent.signal(signal.SIGKILL)
        self.ended_by_it(agent, -signal.SIGKILL)
        cluster.wait_until(lambda: not node.workers(), "nobody outlives the agent")
        self.assertFalse((self.folder / "disturbed").exists())
        self.ended_well(self.start(node, "disturbed"), 0)
        self.same_as_undisturbed(node, "disturbed")

    @in_the_middle_of_it
    def test_term_ends_it_between_two_steps(self):
        (node,) = self.nodes(1)
        agent = self.start(node, "disturbed")
        self.in_the_middle(agent)
        agent.signal(signal.SIGTERM)
        self.ended_by_it(agent, 143)
        self.assertEqual(node.workers(), {})
        self.assertNotIn("error", agent.said())

    # several nodes, and TCP between them

    def run_on(self, nodes, ranks):
        flags = (f"--nnodes={len(nodes)}", "--master-addr=node0")
        agents = [self.start(node, "disturbed", *flags, f"--node-rank={k}", ranks=ranks) for k, node in enumerate(nodes)]
        for agent in agents:
            self.assertEqual(agent.wait(), 0, agent.said())
        self.assertEqual(sum(agent.printed().count(f"step {self.steps}/{self.steps} ") for agent in agents), 1)

    def test_four_nodes_train_the_model_of_one(self):
        self.batch, self.steps = 1, UNDISTURBED_STEPS
        nodes = self.nodes(4)
        self.run_on(nodes, ranks=1)
        self.ended_well(self.start(nodes[0], "alone", ranks=4), 0)
        self.assertEqual((self.folder / "disturbed").read_bytes(), (self.folder / "alone").read_bytes())

    def test_two_ranks_on_each_of_two_nodes_by_the_other_strategies(self):
        self.batch, self.steps = 1, UNDISTURBED_STEPS
        nodes = self.nodes(2)
        for self.strategy in ("NO_SHARD", "SHARD_OPTIM", "SHARD_GRAD_OP"):
            self.run_on(nodes, ranks=2)
            self.ended_well(self.start(nodes[0], "alone", ranks=4), 0)
            self.assertEqual((self.folder / "disturbed").read_bytes(), (self.folder / "alone").read_bytes(), self.strategy)


if __name__ == "__main__":
    cluster.need()
    unittest.main()
