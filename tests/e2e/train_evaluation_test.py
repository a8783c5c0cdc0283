#!/usr/bin/env python3
"""Evaluation in muster-train from end to end: it changes no number of the training, gives the same figure on any number of ranks, keeps
the best checkpoint, ends the training early, and all of that goes on where a killed run was."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
LIMIT = 120  # of any run, against a hang

CONFIG = """\
training: {{steps: 40, micro_batch: 2, global_batch: 12, sequence_length: 32, learning_rate: 1.0e-2, schedule: constant, warmup_steps: 5,
           threads: 1, output: "{folder}/model", checkpoint_dir: "{folder}/checkpoints", checkpoint_every: 7, checkpoint_keep: 1}}
model: {{layers: 2, channels: 32, heads: 2}}
data: {{path: "{folder}/text", validation_share: 0.2}}
logging: {{sample_length: 0, json: "{folder}/log"}}
"""
EVALUATED = ("training.evaluate_every=5", "training.evaluate_at_start=true", "training.keep_best=true")
AVERAGED = ("training.ema_decay=0.7", "training.ema_evaluate=true")


def prose():
    """The held-out end is the text from behind, so that its loss rises again."""
    words = random.Random(1)
    text = " ".join(words.choice("the quick brown fox jumps over a lazy dog and then".split()) for _ in range(1800))
    return text[:6400] + text[6400:8000][::-1]


def foreign(variable):
    return re.match(r"PET_|MUSTER_(?!BUILD)|TORCHELASTIC_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$", variable)


class Evaluation(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster evaluation ")
        self.addCleanup(scratch.cleanup)
        self.base = pathlib.Path(scratch.name)
        self.runs = 0
        self.fresh()

    def fresh(self):
        """A folder without checkpoints."""
        self.runs += 1
        self.folder = self.base / str(self.runs)
        self.folder.mkdir()
        (self.folder / "text").write_text(prose())
        (self.folder / "config.yaml").write_text(CONFIG.format(folder=self.folder))

    def start(self, *settings, ranks=0):
        command = [TRAIN, self.folder / "config.yaml", *(word for setting in settings for word in ("--set", setting))]
        if ranks:
            command = [MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", "--max-restarts=0", "--termination-log=", *command]
        environment = {k: v for k, v in os.environ.items() if not foreign(k)} | {"OMP_NUM_THREADS": "1"}
        run = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.stderr.close)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        return run

    def run_whole(self, *settings, code=0, **options):
        run = self.start(*settings, **options)
        out, err = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, code, out + err)
        return out + err

    def model(self):
        return (self.folder / "model").read_bytes()

    def steps(self):
        return sorted(int(path.name[5:]) for path in (self.folder / "checkpoints").iterdir() if path.name.startswith("step-"))

    def evaluations(self):
        """{step: entry}: of what was done twice the last."""
        entries = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        return {entry["step"]: entry for entry in entries if entry["kind"] == "evaluation"}

    def test_training_does_not_depend_on_it(self):
        for ranks in (0, 2):
            self.fresh()
            self.run_whole("training.evaluate_at_end=false", ranks=ranks)
            plain, log = self.model(), self.evaluations()
            self.assertEqual(log, {})
            for settings in (EVALUATED, EVALUATED + AVERAGED):
                self.fresh()
                self.run_whole(*settings, ranks=ranks)
                self.assertEqual(sorted(self.evaluations()), [0, 5, 10, 15, 20, 25, 30, 35, 40])
                self.assertEqual(self.model(), plain)

    def test_the_figure_is_the_same_on_any_number_of_ranks(self):
        figures = []
        for ranks in (0, 2, 3):
            self.fresh()
            self.run_whole(*EVALUATED, *AVERAGED, "training.steps=10", "training.evaluate_samples=13", ranks=ranks)
            figures.append(self.evaluations())
        for step, alone in figures[0].items():
            for entry in figures[1:]:
                self.assertEqual(entry[step]["tokens"], 13 * 32)
                self.assertAlmostEqual(entry[step]["loss"] / alone["loss"], 1, delta=1e-6)
                self.assertAlmostEqual(entry[step]["perplexity"] / alone["perplexity"], 1, delta=1e-5)

    def test_the_best_is_kept_and_exported_and_the_training_ends_early(self):
        patient = ("training.early_stop_patience=3", "training.export_best=true", "training.checkpoint_every=1")
        printed = self.run_whole(*EVALUATED, *patient, ranks=2)
        log = self.evaluations()
        best = min(log, key=lambda step: log[step]["loss"])
        last = max(log)
        self.assertLess(last, 40, printed)
        self.assertEqual([log[step]["best"] for step in log], [step <= best for step in log])  # it falls, then rises
        self.assertEqual(last, best + 3 * 5)
        self.assertIn(f"the training ends early, after step {last} of 40: 3 evaluations in a row were without a gain", printed)
        self.assertIn(f"the best parameters, of step {best}, take the place of those of step {last}", printed)
        self.assertEqual(self.steps(), [best, last])
        exported = self.model()
        printed = self.run_whole(*EVALUATED, *patient, ranks=2)  # it has ended, and is exported again
        self.assertNotRegex(printed, r"(?m)^step \d")
        self.assertEqual(self.model(), exported)
        self.fresh()
        self.run_whole(f"training.steps={best}", ranks=2)
        self.assertEqual(self.model(), exported)

    def test_a_killed_run_goes_on_as_if_it_were_not(self):
        settings = (*EVALUATED, *AVERAGED, "training.early_stop_patience=3", "training.export_best=true", "training.ema_export=true")
        self.run_whole(*settings)
        whole, expected = self.evaluations(), self.model()
        self.fresh()
        chance, kills = random.Random(3), 0
        while True:
            run = self.start(*settings)
            left = chance.randrange(2, 12)
            for line in run.stdout:
                left -= line.startswith(("step", "evaluation"))
                if not left and kills < 5:
                    run.send_signal(signal.SIGKILL)
                    kills += 1
                    break
            run.stdout.read()
            if run.wait(timeout=LIMIT) == 0:
                break
            self.assertEqual(run.returncode, -signal.SIGKILL, run.stderr.read())
        self.assertEqual(kills, 5)
        self.assertEqual(self.model(), expected)
        found = self.evaluations()
        for step, entry in whole.items():
            for name in ("loss", "best", "best_step", "best_loss", "without_gain", "tokens"):
                self.assertEqual(found[step][name], entry[name], f"{name} of step {step}")
        self.assertEqual(sorted(found), sorted(whole))

    def test_mistakes_are_named(self):
        for settings, text in ((("training.evaluate_every=5", "data.validation_share=0"),
                                "training.evaluate_every is set, and no samples are held out to evaluate: set data.validation_share or data.validation_path"),
                               (("training.keep_best=true",), "training.keep_best has no effect with training.evaluate_every: 0"),
                               (("training.early_stop_patience=2",), "set training.evaluate_every to more than 0"),
                               (("training.evaluate_every=5", "training.export_best=true"), "set training.keep_best to true"),
                               (("training.ema_export=true",), "training.ema_export has no effect with training.ema_decay: 0")):
            self.assertIn(text, self.run_whole(*settings, code=2))


if __name__ == "__main__":
    unittest.main()
