#!/usr/bin/env python3
"""A training in stages from end to end: it equals plain runs one after the other, to the bit, on any number of ranks; killed, damaged, on
other ranks it goes on in the right stage at the right step; stages that end early; and its mistakes, which are found before the first step."""
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
LIMIT = 120  # for any run, against a hang

TOP = {"micro_batch": 2, "global_batch": 6, "sequence_length": 32, "learning_rate": 0.01, "schedule": "cosine", "warmup_steps": 2, "min_learning_rate": 1e-4,
       "threads": 1, "clip_norm": 1, "checkpoint_every": 4, "checkpoint_keep": 2}
FROZEN = ["wte.weight", "wpe*", "*.attn.*"]
FIRST = {"name": "short", "steps": 10, "data": {"path": "a"}}
SECOND = {"name": "long", "tokens": 3000, "sequence_length": 64, "learning_rate": 0.003, "schedule": "linear", "frozen": FROZEN, "data": {"path": "b"}}
THIRD = {"steps": 5, "schedule": "constant"}
LENGTHS = (10, 8, 5)  # 3000 tokens are 8 steps of 6 x 64
OWN = re.compile(r"PET_|MUSTER_(?!BUILD)|TORCHELASTIC_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$")


def prose():
    words = random.Random(1)
    return " ".join(words.choice("the quick brown fox jumps over a lazy dog and then".split()) for _ in range(1800))


def tensors(path):
    """{name: bytes} of a file of safetensors."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: data[8 + size + row["data_offsets"][0]:8 + size + row["data_offsets"][1]] for name, row in header.items() if name != "__metadata__"}


class Stages(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster stages ")
        self.addCleanup(scratch.cleanup)
        self.base = pathlib.Path(scratch.name)
        (self.base / "a").write_text(prose()[:5000])
        (self.base / "b").write_text(prose()[5000:8000][::-1])
        (self.base / "one").write_text("0123456789" * 4)  # one sample of 33 bytes

    def config(self, name, *stages, data=None, **training):
        """A folder of its own, whose name the output, the checkpoints and the log have."""
        folder = self.base / name
        folder.mkdir(exist_ok=True)
        own = {"output": str(folder / "model.safetensors"), "output_format": "safetensors", "checkpoint_dir": str(folder / "ck")} | TOP | training
        own = {key: value for key, value in own.items() if value is not None}
        own |= {"stages": self.placed(stages)} if stages else {}
        (folder / "run.yaml").write_text(json.dumps({
            "training": own, "model": {"layers": 2, "channels": 32, "heads": 2, "positions": 64}, "data": self.placed([{"data": data or {"path": "a"}}])[0]["data"],
            "logging": {"sample_length": 0, "json": str(folder / "log"), "samples": str(folder / "samples"), "interval": 1}}))
        return folder

    def placed(self, stages):
        """Paths of data are in the base folder."""
        return [stage | {"data": {key: str(self.base / value) if key.endswith("path") else value for key, value in stage["data"].items()}}
                if isinstance(stage, dict) and "data" in stage else stage for stage in stages]

    def start(self, folder, ranks=0, options=()):
        command = [TRAIN, folder / "run.yaml", *options]
        if ranks:
            command = [MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", "--max-restarts=0", "--termination-log=", *command]
        environment = {k: v for k, v in os.environ.items() if not OWN.match(k)} | {"OMP_NUM_THREADS": "1"}
        run = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True)
        for clean in (run.stdout.close, run.stderr.close, run.wait, run.kill):
            self.addCleanup(clean)
        return run

    def train(self, folder, code=0, **options):
        run = self.start(folder, **options)
        out, err = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, code, out + err)
        return out + err

    def log(self, folder, kind="step"):
        """{step: entry}: the last entry of repeated steps."""
        entries = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
        return {entry["step"]: entry for entry in entries if entry["kind"] == kind}

    def plain(self, name, stage, *before, ranks=0, **training):
        """A run of one stage alone, from the model of the run before."""
        own = {key: value for key, value in stage.items() if key not in ("name", "data")} | training
        folder = self.config(name, data=stage.get("data"), **own)
        self.train(folder, ranks=ranks, options=[f"--set=model.path={before[0] / 'model.safetensors'}"] if before else [])
        return folder

    def test_equal_to_plain_runs_to_the_bit(self):
        found = {}
        for ranks in (0, 2, 3, 4):
            staged = self.config(f"staged {ranks}", FIRST, SECOND, THIRD)
            printed = self.train(staged, ranks=ranks)
            first = self.plain(f"first {ranks}", FIRST, ranks=ranks)
            second = self.plain(f"second {ranks}", SECOND, first, ranks=ranks)
            third = self.plain(f"third {ranks}", THIRD, second, ranks=ranks, min_learning_rate=None)  # without effect, which a stage leaves out
            self.assertEqual((staged / "model.safetensors").read_bytes(), (third / "model.safetensors").read_bytes(), printed)
            log, place = self.log(staged), 0
            for folder, steps in zip((first, second, third), LENGTHS):
                for step, entry in self.log(folder).items():
                    for figure in ("loss", "learning_rate", "grad_norm"):
                        self.assertEqual(log[place + step][figure], entry[figure], (ranks, place, step, figure))
                place += steps
            self.assertEqual(sorted(log), list(range(1, place + 1)))
            before, after = tensors(first / "model.safetensors"), tensors(second / "model.safetensors")
            same = {name for name in before if before[name] == after[name]}
            self.assertEqual(same, {name for name in before if re.match(r"wte.weight|wpe|.*\.attn\.", name)})
            self.assertIn("stage 2 of 3 (long) begins after step 10: steps 11 to 18, sequences of 64 tokens, learning rate 0.003 (linear), frozen: wte.weight, "
                          "wpe*, *.attn.*; the optimizer's moments begin at zero", printed)
            self.assertEqual([(row["stage"], row["first_step"], row["last_step"]) for row in self.log(staged, "stage").values()], [(1, 0, 10), (2, 10, 18), (3, 18, 23)])
            found[ranks] = log
        for log in found.values():  # in any world, but for rounding
            for step, entry in log.items():
                self.assertAlmostEqual(entry["loss"] / found[0][step]["loss"], 1, delta=2e-4)

    def test_killed_it_goes_on_in_its_stage(self):
        stages = (FIRST, SECOND, THIRD)
        expected = self.config("whole", *stages)
        self.train(expected)
        folder = self.config("killed", *stages, checkpoint_every=2)
        chance, kills, begun = random.Random(5), 0, set()
        while True:
            run = self.start(folder)
            left = chance.randrange(1, 12) if kills < 9 else 0  # lines until then: of steps, checkpoints and stages
            for line in run.stdout:
                begun |= set(re.findall(r"stage (\d) of 3", line))
                left -= line.startswith(("step", "checkpoint", "stage", "resumed"))
                if left == 0:
                    run.send_signal(signal.SIGKILL)
                    kills += 1
                    left = -1000
            if run.wait(timeout=LIMIT) == 0:
                break
            self.assertEqual(run.returncode, -signal.SIGKILL, run.stderr.read())
        self.assertGreaterEqual(kills, 3)  # no run comes further than 12 lines
        self.assertEqual(begun, {"1", "2", "3"})
        self.assertEqual((folder / "model.safetensors").read_bytes(), (expected / "model.safetensors").read_bytes())
        self.assertEqual({step: entry["loss"] for step, entry in self.log(folder).items()}, {step: entry["loss"] for step, entry in self.log(expected).items()})
        printed = self.train(folder)
        self.assertNotRegex(printed, r"(?m)^step \d")
        self.assertIn("all 5 steps of the stage had been done already", printed)

    def samples(self, folder):
        """{step: sorted samples} of all ranks, the last samples of repeated steps."""
        rows = [json.loads(line) for path in (folder / "samples").iterdir() for line in path.read_text().splitlines()]
        steps = collections.defaultdict(dict)
        for row in sorted(rows, key=lambda row: row["run"]):
            mine = steps[row["step"]]
            if mine.get("run") != row["run"]:
                mine.clear()
                mine["run"] = row["run"]
            mine[row["rank"]] = row["samples"]
        return {step: sorted(number for rank, taken in mine.items() if rank != "run" for number in taken) for step, mine in steps.items()}

    def test_on_other_ranks_no_sample_is_missed(self):
        folder, alone = self.config("worlds", FIRST, SECOND, THIRD), self.config("alone", FIRST, SECOND, THIRD)
        for ranks, number in ((2, 9), (3, 11), (1, 17), (4, 0)):
            run = self.start(folder, ranks=ranks)
            for line in run.stdout:
                if number and re.search(rf"\bstep {number}/", line):
                    run.send_signal(signal.SIGTERM)  # a stop notice: a checkpoint, and the end
            run.wait(timeout=LIMIT)
            self.assertTrue(number or run.returncode == 0, run.stderr.read())
        self.train(alone)
        self.assertEqual(self.samples(folder), self.samples(alone))
        log = self.log(folder)
        for step, entry in self.log(alone).items():
            self.assertAlmostEqual(log[step]["loss"] / entry["loss"], 1, delta=2e-4)
            self.assertEqual(log[step]["learning_rate"], entry["learning_rate"])

    def test_a_damaged_begin_is_trained_again(self):
        """The only checkpoint of the second stage and that of the end of the first one are damaged: on from the one before, in the first."""
        for ranks in (0, 2):
            folder = self.config(f"damaged {ranks}", FIRST, SECOND | {"steps": 3, "tokens": 0}, checkpoint_keep=4)
            self.train(folder, ranks=ranks)
            expected = (folder / "model.safetensors").read_bytes()
            for step in (13, 12, 10):
                for path in (folder / "ck" / f"step-{step}").glob("rank-0.*"):
                    data = bytearray(path.read_bytes())
                    data[-5] ^= 4
                    path.write_bytes(data)
            (folder / "model.safetensors").unlink()
            printed = self.train(folder, ranks=ranks)
            self.assertIn("going on in stage 1: ", printed)
            self.assertIn("stage 1 of 2 (short) goes on after step 8", printed)
            self.assertIn("stage 2 of 2 (long) begins after step 10", printed)
            self.assertEqual((folder / "model.safetensors").read_bytes(), expected)

    def test_moments_may_be_kept(self):
        same = {"sequence_length": 32, "schedule": "constant", "warmup_steps": 0, "min_learning_rate": None, "global_batch": 1, "micro_batch": 1}
        whole = self.config("whole", data={"path": "one"}, steps=9, **same)
        kept = self.config("kept", {"steps": 4}, {"steps": 5}, data={"path": "one"}, stage_moments="keep", **same)
        reset = self.config("reset", {"steps": 4}, {"steps": 5}, data={"path": "one"}, **same)
        for folder in (whole, kept, reset):
            printed = self.train(folder)
        self.assertEqual((kept / "model.safetensors").read_bytes(), (whole / "model.safetensors").read_bytes())
        self.assertNotEqual((reset / "model.safetensors").read_bytes(), (whole / "model.safetensors").read_bytes(), printed)
        thaws = self.config("thaws", {"steps": 4, "frozen": FROZEN}, {"steps": 5}, data={"path": "one"}, stage_moments="keep", **same)
        self.assertRegex(self.train(thaws, code=2), r"has no moment1 of \S+, and this run's optimizer needs it")
        freezes = self.config("freezes", {"steps": 4}, {"steps": 5, "frozen": FROZEN}, data={"path": "one"}, stage_moments="keep", **same)
        self.train(freezes)
        self.assertNotEqual((freezes / "model.safetensors").read_bytes(), (kept / "model.safetensors").read_bytes())

    def test_early_stopping_ends_a_stage(self):
        """The first stage overfits: its validation is its text from after."""
        (self.base / "held").write_text(prose()[:1500][::-1])
        over = {"steps": 60, "evaluate_every": 2, "early_stop_patience": 3, "data": {"path": "a", "validation_path": "held"}}
        folder = self.config("early", over, {"epochs": 0.15}, keep_best=True, checkpoint_keep=99, schedule="constant", min_learning_rate=None)
        printed = self.train(folder)
        ended = int(re.search(r"the stage ends early, after step (\d+) of 60", printed)[1])
        log = self.log(folder, "evaluation")
        best = min((step for step in log if step <= ended), key=lambda step: log[step]["loss"])
        self.assertEqual(ended, best + 6)
        self.assertIn(f"stage 2 of 2 begins after step {ended}: steps {ended + 1} to {ended + 4}", printed)
        self.assertEqual(max(self.log(folder)), ended + 4)
        plain = self.plain("plain", over, schedule="constant", min_learning_rate=None, early_stop_patience=3)
        after = self.plain("after", {"steps": 4}, plain, schedule="constant", min_learning_rate=None)
        self.assertEqual((folder / "model.safetensors").read_bytes(), (after / "model.safetensors").read_bytes())
        self.assertNotRegex(self.train(folder), r"(?m)^step \d")
        for path in (folder / "ck").glob("step-*"):  # as if it had been killed where the stage ended
            if int(path.name[5:]) > ended:
                shutil.rmtree(path)
        printed = self.train(folder, ranks=2)
        self.assertNotRegex(printed, rf"(?m)\bstep {ended}/")
        self.assertIn(f"stage 2 of 2 begins after step {ended}", printed)

    def test_adapters(self):
        """Each stage has the base of model.path, and the adapters of the stage before."""
        base = self.config("base", steps=3, **{key: None for key in ("schedule", "min_learning_rate")})
        self.train(base)

        def adapted(name, *stages, path=None, **training):
            folder = self.config(name, *stages, data={"path": "b"} if path else None, output=str(self.base / name / "adapters"), output_format="peft", min_learning_rate=None,
                                 schedule="constant", **training)
            config = json.loads((folder / "run.yaml").read_text())
            config["model"]["path"] = str(base / "model.safetensors")
            config["lora"] = {"dropout": 0.1} | ({"path": str(path)} if path else {"rank": 4})
            (folder / "run.yaml").write_text(json.dumps(config))
            self.train(folder, ranks=2)
            return folder / "adapters"

        staged = adapted("staged", {"steps": 6}, {"steps": 5, "learning_rate": 0.003, "data": {"path": "b"}})
        first = adapted("first", steps=6)
        second = adapted("second", path=first, steps=5, learning_rate=0.003)
        self.assertEqual((staged / "adapter_model.safetensors").read_bytes(), (second / "adapter_model.safetensors").read_bytes())
        self.assertNotEqual((staged / "adapter_model.safetensors").read_bytes(), (first / "adapter_model.safetensors").read_bytes())

    def test_without_its_checkpoint_a_stage_does_not_begin(self):
        folder = self.config("full", FIRST, SECOND, checkpoint_every=0)
        (folder / "ck").mkdir()
        (folder / "ck" / ".step-10.new").write_text("in the way")
        printed = self.train(folder, code=138, ranks=2)
        self.assertIn("stage 1 has ended after step 10, and there is no checkpoint of it in", printed)
        self.assertNotIn("step 11/", printed)
        (folder / "ck" / ".step-10.new").unlink()
        self.assertIn("stage 2 of 2 (long) begins after step 10", self.train(folder, ranks=2))

    def test_evaluated_planned_and_printed(self):
        folder = self.config("shown", FIRST, SECOND, THIRD, checkpoint_keep=9)
        self.train(folder)
        environment = {k: v for k, v in os.environ.items() if not OWN.match(k)}

        def said(*words):
            return subprocess.run([str(word) for word in words], capture_output=True, text=True, env=environment, check=True, timeout=LIMIT).stdout

        for step in (10, 16, 23):  # for each stage, with any frozen parameters
            for more in ((), ("--set", "training.schedule=constant")):  # so that the minimum is of the stages alone
                self.assertIn("evaluation: loss", said(TRAIN, "eval", folder / "run.yaml", "--checkpoint", folder / "ck" / f"step-{step}", *more))
        plan = said(TRAIN, folder / "run.yaml", "--plan")
        self.assertEqual(re.findall(r"(?m)^stage .*", plan), ["stage 1 (short)", "stage 2 (long)", "stage 3"])
        self.assertIn("3 x 2 x 64 tokens a rank and step", plan)
        (self.base / "again").mkdir()
        (self.base / "again" / "run.yaml").write_text(said(TRAIN, folder / "run.yaml", "--print-config"))
        again, once = (json.loads(said(TRAIN, path / "run.yaml", "--print-config", "--output=json")) for path in (self.base / "again", folder))
        self.assertEqual({key: row["value"] for key, row in again.items()}, {key: row["value"] for key, row in once.items()})
        fewer = self.config("shown", FIRST)
        self.assertIn("is of stage 3, and training.stages has 1", self.train(fewer, code=2))
        self.config("shown")
        self.assertIn("the checkpoint is of stage 3 of a training in stages, and training.stages is not set", self.train(folder, code=2))

    def test_mistakes_are_found_before_the_first_step(self):
        held = "training.evaluate_every is set, and no samples are held out"
        for stages, training, message in (
                ([FIRST, {"stepz": 3}], {}, r"run.yaml:1:\d+: unknown key 'training.stepz' of a stage; did you mean 'training.steps'\?"),
                ([FIRST, {"steps": 0}], {}, r"run.yaml:1:\d+: training.steps"),
                ([FIRST, {"output": "x"}], {}, "training.output is a setting of the whole training: it belongs next to training.stages"),
                ([FIRST, {"data": {"tokenizer": "bytes"}}], {}, "data.tokenizer is a setting of the whole training"),
                ([FIRST, ["steps"]], {}, "list found where a stage is expected: a mapping"),
                ([FIRST, {"steps": 3, "epochs": 1}], {}, r"training.stages\[1\]: training.epochs 1 and training.steps 3 are both set"),
                ([FIRST, {"steps": 3, "min_learning_rate": 1}], {}, r"training.stages\[1\]: training.min_learning_rate 1 is above"),
                ([FIRST, {"sequence_length": 65}], {}, r"training.stages\[1\]: training.sequence_length 65 is above model.positions 64"),
                ([FIRST], {"checkpoint_dir": None, "checkpoint_every": None, "checkpoint_keep": None}, "training.stages needs training.checkpoint_dir"),
                ([FIRST], {"cycle_decay_rate": 0.5}, "training.cycle_decay_rate has no effect in any of the 1 stages"),
                ([FIRST, {"frozen": ["no.such"]}], {}, "stage 2: training.frozen: 'no.such' matches no parameter"),
                ([FIRST, {"data": {"path": "missing"}}], {}, "stage 2: .*missing.*No such file"),
                ([FIRST], {"stage_moments": "keep", "stages": None}, "training.stage_moments has no effect with training.stages"),
                ([FIRST, {"evaluate_every": 2}], {}, held)):
            plain = "stages" in training
            folder = self.config("wrong", *(() if plain else stages), **{key: value for key, value in training.items() if key != "stages"})
            ranks = 2 if "stage 2" in message else 0
            printed = self.train(folder, code=2, ranks=ranks)
            self.assertRegex(printed, message)
            if message != held:  # which is found when the stage begins
                self.assertNotIn("step 1/", printed)
                self.assertFalse((folder / "ck").exists())


if __name__ == "__main__":
    unittest.main()
