#!/usr/bin/env python3
"""A checkpoint that muster-train wrote in November 2026 (commit f1ad5b93), before meshes had stages, goes on in each mesh of today:
the losses are those that the writer had in the steps after it.

checkpoint_of_2026_11/step-3 is of two ranks, FULL_SHARD, the numbers from 1 to 3000 as text."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
WRITTEN = pathlib.Path(__file__).resolve().parent / "checkpoint_of_2026_11"
LOSSES = [5.254463285207748, 5.2074684128165245, 5.202544867992401]  # of steps 4 to 6 by the writer
BOUND = 1e-6  # relative: another mesh adds up in another order
CONFIG = """model: {layers: 2, heads: 1, channels: 8}
data: {path: text}
training: {steps: 6, global_batch: 8, micro_batch: 2, sequence_length: 8, checkpoint_every: 100, learning_rate: 0.01, warmup_steps: 0,
  checkpoint_dir: ck}
logging: {dir: log, sample_length: 0}
"""


class OldCheckpoint(unittest.TestCase):
    def goes_on(self, ranks, *settings):
        with tempfile.TemporaryDirectory(prefix="muster old checkpoint ") as name:
            folder = pathlib.Path(name)
            shutil.copytree(WRITTEN, folder / "ck")
            (folder / "text").write_text("".join(f"{number} " for number in range(1, 3001)))
            (folder / "run.yaml").write_text(CONFIG)
            done = subprocess.run([MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", "--no-python", TRAIN, "run.yaml",
                                   *(word for setting in settings for word in ("--set", setting))],
                                  cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("resumed from step 3 (ck, written by 2 ranks); sample 24 is the next", done.stdout + done.stderr)
            entries = [json.loads(line) for line in (folder / "log/log.jsonl").read_text().splitlines()]
        losses = [entry["loss"] for entry in entries if entry["kind"] == "step"]
        self.assertEqual(len(losses), len(LOSSES), losses)
        for found, wanted in zip(losses, LOSSES):
            self.assertLessEqual(abs(found - wanted), BOUND * wanted, losses)

    def test_in_the_mesh_of_the_writer(self):
        self.goes_on(2)

    def test_on_one_rank(self):
        self.goes_on(1)

    def test_in_stages(self):
        self.goes_on(4, "mesh.pipeline=2")

    def test_in_replicas(self):
        self.goes_on(4, "training.strategy=HYBRID_SHARD", "training.replicas=2")


if __name__ == "__main__":
    unittest.main()
