#!/usr/bin/env python3
"""muster-train with configurations as their users have them: DeepSpeed's, the Trainer's, scripts' options, ConfigMaps, several at once.
Each file either trains three steps, its sizes made small by --set, or is refused with the line that is wrong and why."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
CONFIGS = pathlib.Path(os.environ["MUSTER_SOURCE"]) / "tests" / "data" / "configs"
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"

LIMIT = 300  # for any run, against a hang
SMALL = [word for text in ("training.steps=3", "training.global_batch=4", "training.micro_batch=2", "training.sequence_length=32",
                           "training.threads=1", "model.layers=1", "model.channels=32", "model.heads=2", "logging.sample_length=0", "logging.interval=1")
         for word in ("--set", text)]


class Configs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster configs ")
        self.path = pathlib.Path(self.folder.name)
        (self.path / "text").write_text("the quick brown fox jumps over the lazy dog and rests.\n" * 100)
        for file in CONFIGS.iterdir():
            shutil.copy(file, self.path)

    def tearDown(self):
        self.folder.cleanup()

    def run_program(self, *words, ranks=0):
        command = [str(TRAIN), *map(str, words)]
        if ranks:
            command = [str(MUSTER), "run", "--standalone", f"--nproc_per_node={ranks}", *command]
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT, cwd=self.path, env=environment)

    def trains(self, *words, ranks=0):
        run = self.run_program(*words, ranks=ranks)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(re.findall(r"step (\d+)/3 ", run.stdout), ["1", "2", "3"], run.stdout)
        return run

    def refused(self, message, *words):
        run = self.run_program(*words)
        self.assertEqual(run.returncode, 2, run.stdout)
        self.assertIn(message, run.stderr)
        self.assertNotIn("step 1/", run.stdout)

    def settings(self, *words):
        run = self.run_program(*words, "--print-config", "--output=json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def test_deepspeed(self):
        for file in (["ds_config.json"], ["--deepspeed", "ds_config.json"], ["--deepspeed", "--deepspeed_config=ds_config.json"]):
            run = self.trains(*file, *SMALL, "--data_path=text", ranks=2 if len(file) == 1 else 0)
            self.assertIn("FULL_SHARD over", run.stdout)
            self.assertIn("kept and gathered in fp16", run.stdout)
            # rank 0 alone lists keys without effect
            self.assertEqual(run.stderr.count("no effect here: zero_optimization.contiguous_gradients, "), 1, run.stderr)
        self.refused("ds_config.json: data.path is missing", "ds_config.json")

    def test_deepspeed_batch(self):
        rest = ["ds_config.json", "--data_path", "text", "--print-config"]
        run = self.run_program(*rest, "--world-size", 8)
        self.assertIn("ds_config.json:4:36 gradient_accumulation_steps: 1 micro-batches a step do not fit: a batch of 1024 is 8 "
                      "micro-batches of 16 on 8 ranks, which is taken", run.stderr)
        run = self.run_program(*rest, "--world-size", 64, "--set", "training.strict_batch=true")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("micro-batches a step do not fit", run.stderr)
        self.refused("train_batch_size 1024 is not train_micro_batch_size_per_gpu 16 x gradient_accumulation_steps 1 x 8 ranks", *rest,
                     "--world-size", 8, "--set", "training.strict_batch=true")

    def test_stage_2_and_the_plan(self):
        (self.path / "two.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
        run = self.run_program("two.json", "--data_path=text", "--plan", "--world-size", 4)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("SHARD_GRAD_OP on 4 ranks", run.stdout)
        self.assertIn("every rank keeps all P parameters from forward to backward: 2P bytes", run.stdout)

    def test_sections_of_a_script(self):
        self.refused("cannot read ./data", "training_config.yaml")
        lines = (self.path / "training_config.yaml").read_text().splitlines()
        kept = [line for line in lines if not re.search("type:|input_channels|num_classes|dataset:", line)]
        (self.path / "training_config.yaml").write_text("\n".join(kept) + "\n")
        self.trains("training_config.yaml", *SMALL, "--set", "data.path=text")

    def test_config_map(self):
        self.trains("configmap.yaml", *SMALL, "--data_path=text")
        (self.path / "job.yaml").write_text("apiVersion: batch/v1\nkind: Job\n")
        self.refused("job.yaml:2:7: this is a manifest of Kubernetes (Job), not a configuration", "job.yaml")

    def test_command_of_a_script(self):
        command = ["--config", "training_config.json", "--model_config", "model_config.json", "--data_path", "text", "--output_dir", "out/",
                   "--num_gpus", 8, "--gradient_accumulation_steps", 16, "--batch_size_per_gpu", 4]
        self.refused("model_config.json:2:19: model_type: 'custom_llm' is not supported; supported: gpt2", *command, *SMALL)
        llama = ["--set", "model.architecture=llama", "--set", "model.hidden=64", "--set", "model.vocabulary=256"]
        run = self.trains(*command, *SMALL, *llama)
        self.assertIn("--num_gpus 8: the launcher starts the ranks, and these are 1", run.stderr)
        self.assertTrue((self.path / "out" / "model" / "config.json").is_file(), run.stdout)
        self.assertTrue(any(path.name != "model" for path in (self.path / "out").iterdir()), "no checkpoint")

    def test_folder_and_printing(self):
        folder = self.path / "configs"
        folder.mkdir()
        (folder / "a.json").write_text('{"learning_rate": 0.5, "max_steps": 9, "warmup_steps": 0}')
        (folder / "b.yaml").write_text("data: {path: text}\ntraining: {learning_rate: 0.25}\n")
        settings = self.settings("configs", "--set", "training.seed=7", "--max-steps=11")
        self.assertEqual(settings["training.learning_rate"], {"value": 0.25, "from": "file", "source": "configs/b.yaml:2:27"})
        self.assertEqual(settings["training.steps"], {"value": 11, "from": "flag", "source": "--max-steps"})
        self.assertEqual(settings["training.seed"], {"value": 7, "from": "flag", "source": "--set"})
        self.assertEqual(settings["training.optimizer"]["source"], "default")
        again = self.run_program("configs", "--print-config")
        (self.path / "printed.yaml").write_text(again.stdout)
        self.assertIn("in place of 0.5 from configs/a.json:1:19 learning_rate", again.stderr)
        values = {name: row["value"] for name, row in self.settings("configs").items()}
        self.assertEqual(values, {name: row["value"] for name, row in self.settings("printed.yaml").items()})

    def test_a_printed_configuration_needs_no_data(self):
        self.assertEqual(self.settings("ds_config.json")["data.path"]["value"], "")
        self.assertEqual(self.settings("ds_config.json", "--data_path=not/there")["data.path"]["value"], "not/there")
        run = self.run_program("ds_config.json", "--print-config", "--set", "training.nesterov=true")  # other errors are printed
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("training.nesterov has no effect", run.stderr)

    def test_a_length_that_nobody_chose(self):
        (self.path / "model.json").write_text('{"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 256, "n_positions": 2048}')
        few = ("model.json", "--data_path=text", "--set", "training.steps=1", "--set", "training.threads=1", "--set", "training.global_batch=1")
        line = "the model takes 2048 positions, and is trained on sequences of 128, as training.sequence_length is not set"
        self.assertIn(line, self.run_program(*few).stdout)
        self.assertNotIn("the model takes", self.run_program(*few, "--max_seq_length=128").stdout)

    def test_once_in_an_epoch(self):
        (self.path / "args.json").write_text(json.dumps({
            "output_dir": "out", "num_train_epochs": 3, "per_device_train_batch_size": 8, "max_seq_length": 32, "validation_split": 0.1,
            "eval_strategy": "epoch", "save_strategy": "epoch", "logging_strategy": "epoch", "warmup_ratio": 0.1, "lr_scheduler_type": "cosine"}))
        run = self.run_program("args.json", *[word for word in SMALL if not re.search("steps|batch|length=32|interval", word) and word != "--set"
                                              for word in ("--set", word)], "--data_path=text")
        self.assertEqual(run.returncode, 0, run.stderr)
        steps = int(re.search(r"are (\d+) steps", run.stdout)[1])
        ends = [str(end) for end in (-(-steps // 3), 2 * -(-steps // 3), steps)]
        self.assertEqual(re.findall(r"evaluation after step (\d+)", run.stdout), ends, run.stdout)
        self.assertEqual(re.findall(rf"step (\d+)/{steps} ", run.stdout), ends, run.stdout)
        self.assertEqual(sorted(path.name for path in (self.path / "out").glob("step-*")), sorted(f"step-{end}" for end in ends))

        args = json.loads((self.path / "args.json").read_text()) | {"max_steps": 25, "output_dir": "steps"}
        (self.path / "args.json").write_text(json.dumps(args))
        run = self.run_program("args.json", "--set", "training.threads=1", "--set", "logging.sample_length=0", "--data_path=text")
        ends = re.findall(r"evaluation after step (\d+)", run.stdout)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([int(end) for end in ends], [*range(int(ends[0]), 25, int(ends[0])), 25], run.stdout)
        self.assertEqual(int(ends[0]), -(-steps // 3))

    def test_wrong_words(self):
        self.refused("unknown option '--learnin_rat'; did you mean '--learning_rate'?", "ds_config.json", "--learnin_rat=1")
        self.refused("--deepspeed_config needs a value", "--deepspeed_config")
        self.refused("--plan and --print-config: one of the two", "ds_config.json", "--plan", "--print-config")
        self.refused("--learning_rate: 'fast' is not a number", "ds_config.json", "--learning_rate=fast")
        self.refused("--set: unknown key 'training.step'; did you mean 'training.steps'?", "ds_config.json", "--set", "training.step=1")
        self.refused("--set: unknown key 'model.n_embd'; did you mean 'model.channels'?", "ds_config.json", "--set", "model.n_embd=1")

    def test_no_run_writes_over_what_it_was_started_from(self):
        before = (self.path / "ds_config.json").read_text()
        output = "--set", "training.output=./ds_config.json"
        self.refused("training.output ./ds_config.json is the configuration itself", "ds_config.json", *output, "--data_path=text")
        self.refused("training.output text is what data is read from", "ds_config.json", "--data_path=text", "--set", "training.output=text")
        self.assertEqual((self.path / "ds_config.json").read_text(), before)


if __name__ == "__main__":
    unittest.main()
