"""muster-train on worlds that change: the same global batch on any number of ranks, nodes that join and leave, configurations that are
wrong in a later round.

    MUSTER_BUILD=build python3 tests/e2e/worlds/elastic_test.py [TestClass.test_name ...]

Losses are held to one rank's: within 3 times the effect of another order of sums on that rank (the control), as in DESIGN's T1."""

import pathlib
import random
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import BUILD, LIMIT, AgentTest, free_port, lineage, wait_until
from harness.preload import lingers

TRAIN, TAP = (str(BUILD / "bin" / "muster-train"), str(BUILD / "tests" / "step_tap"))
BATCH = 16
CONFIG = """\
training: {{steps: 100000, micro_batch: 1, global_batch: {batch}, sequence_length: 16, learning_rate: 1.0e-3, schedule: constant, warmup_steps: 5,
           threads: 1, timeout: 60, checkpoint_dir: "{folder}/checkpoints"}}
model: {{layers: 2, channels: 16, heads: 2}}
data: {{path: "{folder}/text"}}
logging: {{sample_length: 0, interval: 1, samples: "{folder}/samples", json: "{folder}/log.jsonl"}}
"""
PROSE = "the quick fox jumps over the hill and then it rests. " * 200


class TrainElastic(AgentTest):
    def setUp(self):
        super().setUp()
        (self.folder / "text").write_text(PROSE)
        self.config = self.script("config.yaml", CONFIG.format(folder=self.folder, batch=BATCH))
        self.samples = self.folder / "samples"

    def elsewhere(self, name):
        """Settings of a run next to the test's."""
        return [f"training.checkpoint_dir={self.folder}/{name}", f"logging.samples={self.folder}/{name}.samples",
                f"logging.json={self.folder}/{name}.jsonl"]  # fmt: skip

    def run_whole(self, ranks, steps, *words, code=0):
        settings = [part for word in (f"training.steps={steps}", *words) for part in ("--set", word)]
        run = self.start("--standalone", f"--nproc-per-node={ranks}", "--termination-log=", TRAIN, self.config, *settings)
        out, err = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, code, err)
        return out + err

    def alone(self, steps):
        """(losses of one rank, the bound for any other world's)."""
        found = []
        for micro_batch in (1, 2, 4, BATCH):
            name = f"alone{micro_batch}"
            self.run_whole(1, steps, f"training.micro_batch={micro_batch}", *self.elsewhere(name))
            found.append(lineage.losses(self.folder / f"{name}.jsonl"))
        return found[0], max(1e-6, 3 * max(lineage.deviation(control, found[0]) for control in found[1:]))

    def check(self, steps, stages=1):
        """Every sample once, and the losses of one rank."""
        runs = lineage.check_samples(self, self.samples, steps, BATCH, stages)
        alone, bound = self.alone(steps)
        found = lineage.deviation(lineage.losses(self.folder / "log.jsonl"), alone)
        print(f"{steps} steps: losses are {found:.2e} apart, bound {bound:.2e}", flush=True)
        self.assertLess(alone[-1], 0.9 * alone[0])
        self.assertLessEqual(found, bound)
        return runs


class Resumed(TrainElastic):
    def be_later(self):
        """As if the clock had been years ahead until now, and was set back: later runs have larger numbers all the same."""
        for path in self.samples.glob("rank-*.jsonl"):
            path.write_text(re.sub(r'"run": \d+', '"run": 2000000000000000000', path.read_text()))

    def test_4_then_3_then_2_then_4_ranks(self):
        for part, ranks in enumerate((4, 3, 2, 4)):
            out = self.run_whole(ranks, 25 * (part + 1))
            if part:
                self.assertIn(f"resumed from step {25 * part} (", out)
            self.assertEqual("empty" in out, ranks == 3)
            if not part:
                self.be_later()
        runs = self.check(100)
        self.assertEqual([len(by_run) for by_run in runs.values()], [1] * 100)  # no step was taken twice

    def test_1_2_3_and_5_ranks_and_more_than_samples(self):
        steps = 40
        alone, bound = self.alone(steps)
        for ranks in (2, 3, 5):
            name = f"world{ranks}"
            self.run_whole(ranks, steps, *self.elsewhere(name))
            lineage.check_samples(self, self.folder / f"{name}.samples", steps, BATCH)
            self.assertLessEqual(lineage.deviation(lineage.losses(self.folder / f"{name}.jsonl"), alone), bound, ranks)
        self.run_whole(5, 10, *self.elsewhere("few"), "training.global_batch=3")
        lineage.check_samples(self, self.folder / "few.samples", 10, 3)


class Nodes(TrainElastic):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def node(self, k, *words, config=None, restarts=0, most=3, hang="0"):
        """The agent node-k on 127.0.0.<k+1>; node 0 serves. step_tap lets a step take 50 ms and ends all when there is a file finish."""
        settings = [part for word in words for part in ("--set", word)]
        return self.start(
            f"--nnodes=2:{most}", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}",
            f"--local-addr=127.0.0.{k + 1}", "--last-call-timeout=3", "--regroup-interval=0.2", f"--max-restarts={restarts}",
            f"--hang-timeout={hang}", "--restart-backoff=0",
            "--termination-log=", "--", TAP, *lingers(), TRAIN, config or self.config, *settings,
            env={"MUSTER_HOSTNAME": f"node-{k}", "STEP_FOLDER": str(self.folder), "STEP_MS": "50"},
        )  # fmt: skip

    def trains(self, ranks, since):
        """The run, newer than that one, in which so many ranks train."""

        def found():
            run, size, steps = lineage.latest(self.samples)
            return run if run > since and size == ranks and steps >= 3 else 0

        return wait_until(found, lambda: f"{ranks} ranks train: {lineage.latest(self.samples)}")

    def test_a_third_node_joins_and_leaves_five_times(self):
        nodes = [self.node(k) for k in range(2)]
        run = self.trains(2, 0)
        for _ in range(5):
            third = self.node(2)
            run = self.trains(3, run)
            third.send_signal(signal.SIGTERM)
            self.finish(third, 143)
            run = self.trains(2, run)
        (self.folder / "finish").touch()
        said = [err for _, err in (self.finish(node, 0) for node in nodes)]
        self.assertNotRegex("".join(said), r"restart \d|: error:")  # and none was left
        steps = lineage.losses(self.folder / "log.jsonl")
        runs = self.check(len(steps))
        self.assertEqual([len(by_run) for by_run in runs.values()], [1] * len(steps))  # a change costs no step
        self.assertEqual(len({run for by_run in runs.values() for run in by_run}), 11)

    def test_a_pipeline_takes_the_ranks_that_fit(self):
        """2, 3, 4, 3 and 2 nodes under pipeline 2: of three ranks one waits, and is used when a fourth has joined."""
        words = ("mesh.pipeline=2",)
        nodes = [self.node(k, *words, most=4) for k in range(2)]
        run = self.trains(2, 0)
        nodes.append(self.node(2, *words, most=4))
        run = self.trains(2, run)
        fourth = self.node(3, *words, most=4)
        run = self.trains(4, run)
        fourth.send_signal(signal.SIGTERM)
        self.finish(fourth, 143)
        run = self.trains(2, run)
        nodes[2].send_signal(signal.SIGTERM)  # it waits
        self.finish(nodes.pop(), 143)
        self.trains(2, run)
        (self.folder / "finish").touch()
        said = [err for _, err in (self.finish(node, 0) for node in nodes)]
        self.assertNotRegex("".join(said), r"restart \d|: error:|hang")
        steps = lineage.losses(self.folder / "log.jsonl")
        runs = self.check(len(steps), stages=2)
        self.assertEqual([len(by_run) for by_run in runs.values()], [1] * len(steps))
        self.assertEqual(len({run for by_run in runs.values() for run in by_run}), 5)

    @unittest.skipUnless("--full" in sys.argv, "takes a minute")
    def test_8_then_6_then_7_then_8_ranks_of_a_pipeline_by_kills(self):
        """Nodes killed at random: with 7 one waits, hang detection or not, and works in the next round."""
        pick, words = random.Random(1), ("mesh.pipeline=2", "training.checkpoint_every=4")
        nodes = {k: self.node(k, *words, restarts=100, most=8, hang="4") for k in range(8)}
        run = self.trains(8, 0)
        for _ in range(3):
            for k in pick.sample(range(1, 8), 2):  # node 0 has the server
                nodes[k].kill()
                self.finish(nodes.pop(k), -signal.SIGKILL)
            run = self.trains(6, run)
            for ranks, wanted in ((7, 6), (8, 8)):
                k = min(set(range(8)) - set(nodes))
                nodes[k] = self.node(k, *words, restarts=100, most=8, hang="4")
                run = self.trains(wanted, run)
                if ranks == 7:
                    time.sleep(6)  # the rank that waits takes no step for longer than the hang time-out
                    self.assertEqual(lineage.latest(self.samples)[0], run)
        (self.folder / "finish").touch()
        outs, said = zip(*(self.finish(node, 0) for node in nodes.values()))
        self.assertIn("mesh.spare: 1 of 7 ranks waits, as mesh.pipeline 2 takes 6", "".join(outs))
        self.assertNotRegex("".join(said), "hung after|hang")
        self.check(len(lineage.losses(self.folder / "log.jsonl")), stages=2)

    def test_a_configuration_that_is_wrong_in_a_later_round_ends_the_job_at_once(self):
        wrong = {
            "data.path=/nowhere": "cannot read data.path /nowhere",
            "training.colour=red": "training.colour",
        }
        for word, says in wrong.items():
            nodes = [self.node(k, restarts=5) for k in range(2)]
            self.trains(2, lineage.latest(self.samples)[0])
            nodes.append(self.node(2, word, restarts=5))
            said = "".join(self.finish(node, 2)[1] for node in nodes)
            self.assertEqual(sum(line.startswith("muster-train: rank") and says in line for line in said.splitlines()), 1, said)
            self.assertIn("not restarted, since a restart does not mend it; exit code 2", said)
            self.assertNotIn("restart 1 of 5", said)


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--full"], verbosity=2)
