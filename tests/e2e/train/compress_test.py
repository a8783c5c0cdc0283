#!/usr/bin/env python3
"""Compressed gradients from the command line: the mistakes that are found before the first step, what --plan, the progress line and the log
say, a killed rank whose restart is equal to the byte, and other numbers of replicas.

    compress_test.py [Stated | Resumed]"""
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
LIMIT = 120  # seconds, for any run
TRAINING = {"steps": 6, "micro_batch": 1, "global_batch": 8, "sequence_length": 32, "learning_rate": 0.003, "threads": 1, "strategy": "NO_SHARD",
            "compression": "topk"}
MODEL = {"layers": 2, "channels": 32, "heads": 4, "vocabulary": 256}
# Shapes of GPT-2's parameters, with the number of each.
SHAPES = [((256, 32), 1), ((32, 32), 1), ((32,), 4 * 2 + 2), ((96, 32), 2), ((96,), 2), ((32, 32), 2), ((32,), 2 * 2), ((128, 32), 2), ((128,), 2),
          ((32, 128), 2)]


def numbers(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def wire_bytes(replicas, ratio=0, rank=0, least=1024):
    total = 0
    for shape, count in SHAPES:
        elements = numbers(shape)
        dense = 2 * 4 * elements * (replicas - 1) / replicas
        if elements < least or (rank and len(shape) < 2):
            total += count * dense
        elif rank:
            total += count * 2 * 4 * rank * sum(shape) * (replicas - 1) / replicas
        else:
            total += count * 8 * max(1, int(ratio * elements)) * (replicas - 1)
    return total


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster compress ")
        self.addCleanup(scratch.cleanup)
        self.base, rng = pathlib.Path(scratch.name), random.Random(1)
        (self.base / "text").write_text(" ".join(rng.choice("the quick brown fox jumps over a lazy dog and then".split()) for _ in range(3000)))

    def command(self, ranks, *words, restarts=0, training=(), **sections):
        settings = TRAINING | dict(training)
        config = {"training": {key: value for key, value in settings.items() if value is not None}, "model": MODEL, "logging": {"interval": 1},
                  "data": {"path": str(self.base / "text"), "tokenizer": "bytes"}} | sections
        path = self.base / "run.yaml"
        path.write_text(json.dumps(config))
        return [MUSTER, "run", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", "--", TRAIN, *words, path]

    def run_on(self, ranks, *words, fails=False, **settings):
        done = subprocess.run(self.command(ranks, *words, **settings), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=LIMIT, cwd=self.base)
        self.assertEqual(done.returncode != 0, fails, done.stdout)
        return done.stdout


class Stated(Case):
    def test_mistakes_are_named(self):
        for training, says in (
            ({"strategy": "FULL_SHARD"}, "training.compression needs replicas: FULL_SHARD has none; use training.strategy: NO_SHARD or HYBRID_SHARD"),
            ({"strategy": None}, "training.compression needs replicas: FULL_SHARD has none"),
            ({"strategy": "SHARD_OPTIM"}, "training.compression needs replicas: SHARD_OPTIM has none"),
            ({"compression_ratio": 1.5}, "training.compression_ratio 1.5; use above 0 to 1"),
            ({"compression_ratio": 0}, "training.compression_ratio 0; use above 0 to 1"),
            ({"compression_ratio": -0.1}, "training.compression_ratio -0.1; use above 0 to 1"),
            ({"compression": "powersgd", "reduce_dtype": "bf16"}, "training.compression powersgd with training.reduce_dtype bf16: its factors are of f32; use "
             "training.reduce_dtype: fp32, training.compression: topk, or training.compression: none"),
            ({"compression": "powersgd", "dtype": "fp16"}, "training.compression powersgd with training.reduce_dtype fp16"),
            ({"compression_rank": 4}, "training.compression_rank has no effect with training.compression: topk"),
            ({"compression": "none", "compression_start": 4}, "training.compression_start has no effect with training.compression: none"),
            ({"compression": "powersgd", "compression_rank": 0}, "compression_rank"),
            ({"compression": "top-k"}, "none, topk, powersgd"),
            ({"embedding_gradient": "rows"}, "gradients of embeddings as rows"),
        ):
            with self.subTest(training=training):
                done = subprocess.run([TRAIN, "--plan", "--world-size", "2", self.command(2, training=training)[-1]], capture_output=True, text=True, cwd=self.base)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(says, done.stderr)

    def plan(self, ranks, *words, **training):
        return subprocess.run([TRAIN, "--plan", "--world-size", str(ranks), *words, self.command(2, training=training)[-1]], capture_output=True, text=True,
                              cwd=self.base, check=True).stdout

    def test_the_plan_says_what_is_sent(self):
        self.assertIn("from 10 replicas on, top-k with compression_ratio 0.1 moves more than dense gradients\n", self.plan(4, global_batch=16))
        self.assertIn("moves more than dense gradients: use a smaller ratio, or powersgd", self.plan(16, global_batch=16))
        self.assertIn("from 100 replicas on", self.plan(2, compression_ratio=0.01))
        for replicas in (2, 4, 16):
            for options in ({"ratio": 0.1}, {"ratio": 0.03, "least": 0}, {"rank": 2}, {"rank": 1, "least": 5000}):
                training = {"global_batch": 16, "compression": "powersgd" if "rank" in options else "topk"}
                training |= {f"compression_{key}": value for key, value in options.items()}
                found = json.loads(self.plan(replicas, "--output=json", **training))
                self.assertLess(abs(found["wire_bytes"] - wire_bytes(replicas, **options)), 64, (replicas, options))  # a sum of a group is padded
        found = json.loads(self.plan(2, "--output=json", global_batch=16, dtype="bf16"))  # values of 2 bytes, and places of 4
        kept = sum(count * int(0.1 * numbers(shape)) for shape, count in SHAPES if numbers(shape) >= 1024)
        self.assertLess(abs(found["wire_bytes"] - wire_bytes(2, 0.1) + 2 * kept), 64)
        self.assertIn("from 7 replicas on, top-k", self.plan(4, global_batch=16, dtype="bf16"))
        self.assertNotIn("wire_bytes", self.plan(2, "--output=json", compression="none"))

    def test_the_progress_line_and_the_log(self):
        text = self.run_on(2, training={"group_bytes": 1 << 30, "compression_start": 2}, logging={"interval": 1, "dir": "log"})
        found = re.findall(r"wire (\d+) B, error (\S+) ", text)
        self.assertEqual([int(wire) for wire, _ in found[2:]], [wire_bytes(2, 0.1)] * 4)
        self.assertGreater(int(found[0][0]), 4 * wire_bytes(2, 0.1))
        self.assertEqual([float(error) > 0 for _, error in found], [False] * 2 + [True] * 4)
        rows = [json.loads(line) for path in (self.base / "log").rglob("*.jsonl") for line in path.read_text().splitlines()]
        self.assertEqual([row["wire_bytes"] for row in rows if row.get("wire_bytes")][2:], [wire_bytes(2, 0.1)] * 4)


class Resumed(Case):
    """Restarts after kill -9, and other numbers of replicas."""

    def export(self, name):
        return (self.base / name).read_bytes()

    def train(self, ranks, name, folder, **training):
        return self.run_on(ranks, training={"checkpoint_dir": folder, "output": name, "output_format": "safetensors"} | training)

    def test_killed_runs_end_equal_to_the_byte(self):
        for ranks, kind, more in ((2, "topk", {"dtype": "bf16"}), (3, "powersgd", {}), (4, "topk", {"strategy": "HYBRID_SHARD", "replicas": 2}),
                                  (4, "powersgd", {"strategy": "HYBRID_SHARD", "replicas": 2})):
            with self.subTest(ranks=ranks, kind=kind):
                training = {"steps": 60, "checkpoint_every": 7, "compression": kind, "output_format": "safetensors", "global_batch": 12} | more
                self.run_on(ranks, training=training | {"output": "whole", "checkpoint_dir": f"whole-{kind}-{ranks}"})
                killed = training | {"output": "killed", "checkpoint_dir": f"killed-{kind}-{ranks}"}
                run = subprocess.Popen(self.command(ranks, restarts=3, training=killed), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                       errors="replace", cwd=self.base)
                for line in run.stdout:
                    if re.match(r"step (1[1-9]|2\d)/", line):
                        break
                children = subprocess.run(["ps", "--ppid", str(run.pid), "-o", "pid="], capture_output=True, text=True).stdout.split()
                for pid in children:
                    if b"\0RANK=1\0" in b"\0" + pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                        os.kill(int(pid), signal.SIGKILL)
                rest = run.communicate(timeout=LIMIT)[0]
                self.assertEqual(run.returncode, 0, rest)
                self.assertRegex(rest, r"killed by signal 9")
                self.assertEqual(self.export("killed"), self.export("whole"))

    def test_other_numbers_of_replicas_go_on_alike(self):
        for kind in ("topk", "powersgd"):
            self.train(4, "first", f"from-{kind}", steps=4, compression=kind)
            for ranks, more in ((2, {}), (1, {}), (4, {"strategy": "HYBRID_SHARD", "replicas": 2}), (8, {})):
                found = []
                for turn in range(2):
                    folder = f"go-{kind}-{ranks}-{len(more)}-{turn}"
                    subprocess.run(["cp", "-r", f"from-{kind}", folder], check=True, cwd=self.base)
                    self.train(ranks, "there", folder, steps=8, compression=kind, **more)
                    found.append(self.export("there"))
                self.assertEqual(found[0], found[1])

    def test_compression_may_be_turned_off(self):
        self.train(2, "one", "off", steps=3)
        text = self.train(2, "two", "off", steps=5, compression="none")
        self.assertIn("what replicas had not sent of their gradients is dropped", text)
        self.train(2, "three", "off", steps=7, compression="powersgd")


if __name__ == "__main__":
    unittest.main(verbosity=2)
