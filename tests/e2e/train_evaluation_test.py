#!/usr/bin/env python3
"""Evaluation in muster-train from end to end: it changes no number of the training, gives the same figure on any number of ranks, keeps
the best checkpoint, ends the training early, and all of that goes on where a killed run was."""
import json
import math
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
LIMIT = 120  # for any run, against a hang

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
    """The held-out end is the text from after, so that its loss rises again."""
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

    def start(self, *settings, ranks=0, verb=(), options=()):
        command = [TRAIN, *verb, self.folder / "config.yaml", *options, *(word for setting in settings for word in ("--set", setting))]
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
        """{step: entry}: the last entry of repeated steps."""
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

    def evaluate(self, *settings, ranks=0, options=(), code=0):
        """What `muster-train eval` prints: the object, and standard error."""
        run = self.start(*settings, ranks=ranks, verb=["eval"], options=["--output=json", *options])
        out, err = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, code, out + err)
        return (json.loads(out) if code == 0 else None), err

    def test_the_rate_falls_where_the_loss_does_not(self):
        plateau = ("training.schedule=ReduceLROnPlateau", "training.warmup_steps=0", "training.plateau_factor=0.5", "training.plateau_patience=1",
                   "training.plateau_cooldown=1", "training.evaluate_every=2", "training.min_learning_rate=0.003")
        printed = self.run_whole(*plateau)
        expected, losses = self.model(), [entry["loss"] for _, entry in sorted(self.evaluations().items())]
        rate, best, waits, cooldown, rates = 0.01, math.inf, 0, 0, [0.01]  # torch's class, of those losses
        for loss in losses:
            best, waits = (loss, 0) if loss < best * (1 - 1e-4) else (best, waits + 1)
            if cooldown:
                cooldown, waits = cooldown - 1, 0
            if waits > 1:
                rate, cooldown, waits = max(rate * 0.5, 0.003), 1, 0
            rates.append(rate)
        self.assertEqual(sorted(set(rates)), [0.003, 0.005, 0.01])
        entries = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        used = {entry["step"]: entry["learning_rate"] for entry in entries if entry["kind"] == "step"}
        self.assertEqual([used[step] for step in range(1, 41)], [rates[(step - 1) // 2] for step in range(1, 41)])
        self.assertIn("ReduceLROnPlateau: the learning rate is 0.005 from here", printed)
        self.fresh()  # ended after each kind of rate, and gone on with
        fallen = 2 * (rates.index(0.005) + 1)
        for steps in (3, fallen, fallen + 3, 40):
            self.run_whole(*plateau, f"training.steps={steps}", "training.evaluate_at_end=false")
        self.assertEqual(self.model(), expected)
        self.assertIn("follows evaluations, and there are none: set training.evaluate_every", self.run_whole(*plateau, "training.evaluate_every=0", code=2))
        self.assertIn("training.plateau_factor has no effect with training.schedule", self.run_whole("training.plateau_factor=0.5", code=2))

    def test_eval_gives_the_figures_of_the_training_to_the_bit(self):
        kept = ("training.steps=10", "training.checkpoint_every=5", "training.checkpoint_keep=9", "training.evaluate_every=5")
        for ranks, settings in ((0, kept), (2, kept), (2, (*kept, *AVERAGED))):
            self.fresh()
            self.run_whole(*settings, ranks=ranks)
            log, checkpoints = self.evaluations(), self.folder / "checkpoints"
            before = sorted((str(path), path.stat().st_mtime_ns) for path in self.folder.rglob("*"))
            newest, said = self.evaluate(*settings, ranks=ranks)
            self.assertEqual((newest["loss"], newest["tokens"], newest["step"], newest["ranks"]), (log[10]["loss"], log[10]["tokens"], 10, ranks or 1))
            self.assertEqual(newest["perplexity"], log[10]["perplexity"])
            self.assertNotIn("step 1", said.replace("step 10", ""))
            for path, step in ((checkpoints / "step-5", 5), (checkpoints, 10)):
                found, _ = self.evaluate(*settings, ranks=ranks, options=["--checkpoint", path])
                self.assertEqual((found["loss"], found["step"]), (log[step]["loss"], step))
            if settings == kept:  # the file has the parameters, not their average
                (self.folder / "model").rename(self.base / "model.safetensors")
                exported, _ = self.evaluate(*settings, ranks=ranks, options=["--model", self.base / "model.safetensors"])
                (self.base / "model.safetensors").rename(self.folder / "model")
                self.assertEqual((exported["loss"], exported["step"]), (log[10]["loss"], 0))
            self.assertEqual(sorted((str(path), path.stat().st_mtime_ns) for path in self.folder.rglob("*")), before)  # it writes nothing

    def test_eval_of_other_settings_and_other_texts(self):
        self.run_whole("training.steps=10")
        log = self.evaluations()
        printed = self.run_whole(verb=["eval"])
        self.assertIn(f"evaluation: loss {log[10]['loss']:.4f}, perplexity {log[10]['perplexity']:.2f}, {log[10]['tokens']} tokens in ", printed)
        other, _ = self.evaluate("training.sequence_length=16", "model.positions=32", "training.seed=7")  # nothing goes on: no setting has to be as it was
        self.assertEqual((other["step"], other["tokens"]), (10, log[10]["tokens"]))
        some, _ = self.evaluate("training.evaluate_samples=3")
        self.assertEqual((some["samples"], some["tokens"]), (3, 3 * 32))
        text = self.folder / "other text"
        text.write_text(prose()[:1000])
        alone, _ = self.evaluate("data.path=", "data.validation_share=0", f"data.validation_path={text}")
        whole, _ = self.evaluate(f"data.path={text}", "data.validation_share=0")  # none of it is held out: all of it
        self.assertEqual((alone["tokens"], alone["loss"]), (whole["tokens"], whole["loss"]))
        self.assertEqual(whole["tokens"], 999 // 32 * 32)

    def test_eval_names_mistakes(self):
        for settings, options, text in (
                ((), [], f"there is no checkpoint in {self.folder}/checkpoints: name another one with --checkpoint, or a model's files with --model"),
                ((), ["--checkpoint", self.folder / "nowhere"], f"there is no checkpoint in {self.folder}/nowhere"),
                ((), ["--checkpoint", "a", "--model", "b"], "--model and --checkpoint a: one of the two"),
                ((), ["--plann"], "unknown option '--plann'"),
                (("data.path=", f'data.sources={self.folder / "text"}', "data.validation_share=0"), [], "nothing of them is held out to evaluate")):
            self.assertIn(text, self.evaluate(*settings, options=options, code=2)[1])
        config = self.folder / "config.yaml"
        self.assertIn("there is no checkpoint in", self.run_whole(ranks=2, verb=["eval"], code=2))  # by a rank or the launcher; no rank hangs
        config.write_text(re.sub(r"checkpoint_\w+: [^,}]*,? ?", "", config.read_text()))
        self.assertIn("there are no parameters: name a model's files with --model", self.run_whole(verb=["eval"], code=2))

    def test_eval_of_an_exported_folder_takes_its_sizes(self):
        self.run_whole("training.steps=5", "training.output_format=hf", f"training.output={self.folder}/exported")
        found, _ = self.evaluate(options=["--model", self.folder / "exported"])
        self.assertEqual(found["loss"], self.evaluations()[5]["loss"])

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
