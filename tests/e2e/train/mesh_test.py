#!/usr/bin/env python3
"""Pipelines from the command line against one rank: a language model, labelled texts, adapters on a base in few bits, evaluation and export,
checkpoints that change their mesh, the log of samples, a killed rank, and the mistakes that are found before the first step."""
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
LIMIT = 120  # seconds, for any run
TRAINING = {"steps": 6, "micro_batch": 1, "global_batch": 8, "sequence_length": 32, "learning_rate": 0.003, "threads": 1, "evaluate_every": 3}
MODEL = {"layers": 4, "channels": 32, "heads": 4, "kv_heads": 2, "hidden": 64, "vocabulary": 256, "architecture": "llama"}
MESHES = ((2, {"pipeline": 2}, "NO_SHARD"), (4, {"pipeline": 2}, "FULL_SHARD"), (3, {"pipeline": 3, "schedule": "gpipe"}, "NO_SHARD"),
          (4, {"pipeline": 4, "cut": "even"}, "NO_SHARD"), (2, {"pipeline": 2, "cut": ["model.layers.1"]}, "NO_SHARD"), (2, {"pipeline": 2, "schedule": "interleaved"}, "NO_SHARD"),
          (4, {"pipeline": 2, "schedule": "Interleaved1F1B", "chunks": 3, "cut": "even"}, "FULL_SHARD"), (2, {"pipeline": 2, "schedule": "looped.csv"}, "NO_SHARD"))
LOOPED = [",".join([f"{part}F{micro}" for part in parts for micro in range(8)] + [f"{part}B{micro}" for part in parts[::-1] for micro in range(8)])
          for parts in ((0, 2), (1, 3))]


def tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: data[8 + size + row["data_offsets"][0]:8 + size + row["data_offsets"][1]] for name, row in header.items() if name != "__metadata__"}


def figures(text):
    return [float(value) for value in re.findall(r"(?:loss|norm) (\d\S*?),?(?:\s|$)", text)]


class Mesh(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster mesh ")
        self.addCleanup(scratch.cleanup)
        self.base, rng = pathlib.Path(scratch.name), random.Random(1)
        (self.base / "text").write_text(" ".join(rng.choice("the quick brown fox jumps over a lazy dog and then".split()) for _ in range(3000)))
        rows = [(rng.choice(("good nice fine", "bad poor awful")), " and so on" * rng.randrange(4)) for _ in range(96)]
        (self.base / "looped.csv").write_text("\n".join(LOOPED))
        (self.base / "split.csv").write_text("0F0,0I0,0W0\n1F0,1I0,1W0\n")
        (self.base / "vee.csv").write_text("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n")
        (self.base / "stuck.csv").write_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
        (self.base / "long.csv").write_text("0F0,2F0,4F0,6F0,6B0,4B0,2B0,0B0\n1F0,3F0,5F0,7F0,7B0,5B0,3B0,1B0\n")
        (self.base / "labels.csv").write_text("text,label\n" + "".join(f'"{text}{more}",{int(text[0] == "g")}\n' for text, more in rows))

    def command(self, ranks, mesh, *words, training=(), **sections):
        config = {"training": TRAINING | dict(training), "model": MODEL, "mesh": mesh, "logging": {"interval": 1},
                  "data": {"path": str(self.base / "text"), "tokenizer": "bytes", "validation_share": 0.1}} | sections
        path = self.base / "run.yaml"
        path.write_text(json.dumps(config))
        late = [word for word in words if word.endswith(".yaml")]  # a later file replaces settings
        return [MUSTER, "run", f"--nproc-per-node={ranks}", "--max-restarts=0", "--", TRAIN, *[word for word in words if word not in late], path, *late]

    def run_on(self, ranks, mesh, *words, fails=False, **settings):
        done = subprocess.run(self.command(ranks, mesh, *words, **settings), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=LIMIT, cwd=self.base)
        self.assertEqual(done.returncode != 0, fails, done.stdout)
        return done.stdout

    def same(self, found, wanted, limit=2e-4):  # four digits are printed
        self.assertEqual(len(found), len(wanted))
        for a, b in zip(found, wanted):
            self.assertLessEqual(abs(a - b), limit * max(1, abs(b)), (found, wanted))

    def test_losses_norms_and_evaluations_are_those_of_one_rank(self):
        wanted = figures(self.run_on(1, {}))
        self.assertGreater(len(wanted), 12)
        for ranks, mesh, strategy in MESHES:
            with self.subTest(mesh=mesh, strategy=strategy):
                text = self.run_on(ranks, mesh, training={"strategy": strategy, "recompute": "except_last"})
                self.assertIn(f"over {ranks} ranks, {mesh['pipeline']} stages", text)
                self.same(figures(text), wanted, 1e-2)

    def test_labelled_texts(self):
        labels = {"model": {"architecture": "text_encoder", "layers": 2, "channels": 32, "heads": 2, "vocabulary": 256},
                  "data": {"path": str(self.base / "labels.csv"), "tokenizer": "bytes", "validation_share": 0.25, "length_buckets": 1}}
        last = [re.findall(r"evaluation after step 6: (.*?) texts", self.run_on(ranks, mesh, training={"strategy": strategy}, **labels))
                for ranks, mesh, strategy in ((1, {}, "NO_SHARD"), (2, {"pipeline": 2}, "NO_SHARD"), (4, {"pipeline": 2}, "FULL_SHARD"))]
        self.assertEqual(len(last[0]), 1)
        self.assertEqual(last, [last[0]] * 3)

    def test_adapters_on_a_base_in_few_bits_are_equal_to_the_bit(self):
        self.run_on(1, {}, training={"output": "base", "output_format": "hf"})
        for base in ("none", "nf4"):
            found = []
            for ranks, mesh in ((1, {}), (2, {"pipeline": 2}), (3, {"pipeline": 3})):
                folder = f"adapters-{base}-{ranks}"
                self.run_on(ranks, mesh, training={"strategy": "NO_SHARD", "output": folder, "output_format": "peft"}, model={"path": "base"},
                            lora={"rank": 4, "base": base})
                found.append(tensors(self.base / folder / "adapter_model.safetensors"))
            self.assertEqual(found, [found[0]] * 3)

    def test_a_checkpoint_changes_its_mesh_and_the_commands_read_it(self):
        for folder, written, read in (("ck", {"pipeline": 2}, MESHES + ((1, {}, "NO_SHARD"),)),
                                      ("looped", {"pipeline": 2, "schedule": "interleaved"}, MESHES[1:3] + ((1, {}, "NO_SHARD"),))):
            self.run_on(4, written, training={"checkpoint_dir": folder, "output": "here.safetensors", "output_format": "safetensors"})
            for ranks, mesh, strategy in read:
                text = self.run_on(ranks, mesh, training={"strategy": strategy, "checkpoint_dir": folder, "output": "there.safetensors", "output_format": "safetensors"})
                self.assertIn("all 6 steps had been done already", text)
                self.assertEqual((self.base / "there.safetensors").read_bytes(), (self.base / "here.safetensors").read_bytes())
        stored = {"checkpoint_dir": "ck"}
        results = [(re.findall(r"loss (\S+),", self.run_on(ranks, mesh, "eval", training=stored)),
                    self.run_on(ranks, mesh, "generate", "--prompt", "the quick", "--max-tokens", "8", "--temperature", "0", training=stored).replace(
                        "muster: OMP_NUM_THREADS is not set: 1 for each of 2 workers", "")) for ranks, mesh in (
                        (2, {"pipeline": 2}), (2, {}), (2, {"pipeline": 2, "schedule": "interleaved", "chunks": 3}))]
        self.assertEqual(results, [results[0]] * 3)

    def test_ranks_that_no_stage_takes_wait_for_the_others(self):
        wanted = figures(self.run_on(4, {"pipeline": 2}))
        for ranks, waits in ((5, "1 of 5 ranks waits, as mesh.pipeline 2 takes 4"), (4, None)):
            command = self.command(ranks, {"pipeline": 2, "spare": True}, training={"steps": 6})
            command[2:2] = ["--hang-timeout=2"]
            text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT, cwd=self.base,
                                  check=True).stdout
            self.assertEqual(figures(text), wanted)
            self.assertEqual(re.findall(r"mesh.spare: (.*)", text), [waits] if waits else [])
            self.assertNotIn("hang", text)
            self.assertEqual("of 5 ranks waits" in self.run_on(1, {"pipeline": 2, "spare": True}, "--plan", "--world-size", str(ranks)), bool(waits))

    def test_the_measured_idle_share_is_shown(self):
        for ranks, mesh, shown in ((2, {"pipeline": 2}, 21), (2, {}, 0)):
            text = self.run_on(ranks, mesh, training={"steps": 31, "evaluate_every": 0})
            idle = [float(share) for share in re.findall(r"hidden\)  idle (\S+)%  mem", text)]
            self.assertEqual(len(idle), shown, text)
            self.assertTrue(all(0 < share < 100 for share in idle), idle)

    def test_samples_are_told_once(self):
        self.run_on(4, {"pipeline": 2}, logging={"samples": "samples"})
        lines = [json.loads(line) for path in (self.base / "samples").iterdir() for line in path.read_text().splitlines()]
        self.assertEqual(sorted(i for line in lines for i in line["samples"]), list(range(48)))

    def test_a_killed_stage_ends_all_ranks(self):
        for mesh in ({"pipeline": 4}, {"pipeline": 3, "schedule": "interleaved", "cut": "even"}):
            with self.subTest(mesh=mesh):
                self.kill_a_stage(mesh)

    def kill_a_stage(self, mesh):
        run = subprocess.Popen(self.command(mesh["pipeline"], mesh, training={"steps": 10**6, "evaluate_every": 0, "strategy": "NO_SHARD"}, data={
            "path": str(self.base / "text"), "tokenizer": "bytes"}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", cwd=self.base)
        for line in run.stdout:
            if line.startswith("step 20/"):
                break
        for pid in subprocess.run(["ps", "--ppid", str(run.pid), "-o", "pid="], capture_output=True, text=True).stdout.split():
            if b"\0RANK=2\0" in b"\0" + pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
        begun = time.monotonic()
        rest = run.communicate(timeout=LIMIT)[0]
        self.assertLess(time.monotonic() - begun, 5 + 10)  # the machine may be busy
        self.assertRegex(rest, r"verdict: rank 2 .* was killed by signal 9")

    def unfinished(self, folder):
        return [path for path in folder.iterdir() if path.is_dir() and not (path / "manifest.json").exists()] if folder.exists() else []

    def test_a_rank_killed_while_saving_leaves_a_whole_checkpoint(self):
        training = {"strategy": "HYBRID_SHARD", "replicas": 2, "steps": 60, "checkpoint_every": 1, "evaluate_every": 0, "output_format": "safetensors"}
        mesh, text = {"pipeline": 2}, {"path": str(self.base / "text"), "tokenizer": "bytes"}
        self.run_on(8, mesh, training=training | {"output": "whole", "checkpoint_dir": "whole-ck"}, data=text)
        training |= {"output": "killed", "checkpoint_dir": "killed-ck"}
        for rank in (0, 3, 5, 6):
            run = subprocess.Popen(self.command(8, mesh, training=training, data=text), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", cwd=self.base)
            begun = ""
            for line in run.stdout:
                begun += line
                if begun.count("\nstep ") > 3:
                    break
            self.assertEqual("resumed from step" in begun, rank > 0, begun)
            ranks = {}
            for pid in subprocess.run(["ps", "--ppid", str(run.pid), "-o", "pid="], capture_output=True, text=True).stdout.split():
                for word in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    if word.startswith(b"RANK="):
                        ranks[int(word[5:])] = int(pid)
            until = time.monotonic() + 20
            while not (seen := self.unfinished(self.base / "killed-ck")) and time.monotonic() < until:
                pass  # a save takes about a millisecond
            os.kill(ranks[rank], signal.SIGKILL)
            self.assertTrue(seen)
            rest = run.communicate(timeout=LIMIT)[0]
            self.assertNotEqual(run.returncode, 0, rest)
            self.assertRegex(rest, rf"verdict: rank {rank} .* was killed by signal 9")
        self.assertIn("resumed from step", self.run_on(8, mesh, training=training, data=text))
        self.assertEqual((self.base / "killed").read_bytes(), (self.base / "whole").read_bytes())

    def test_stages_are_cut_by_measured_times_and_a_restart_keeps_its_cut(self):
        cut = "model.layers.0"  # none that products and bytes, or times, ask for
        training = {"strategy": "NO_SHARD", "evaluate_every": 0, "clip_norm": 0.5}
        self.run_on(2, {"pipeline": 2, "cut": [cut]}, training=training | {"output": "whole", "output_format": "safetensors"})
        training |= {"checkpoint_dir": "cut-ck"}
        self.run_on(2, {"pipeline": 2, "cut": [cut]}, training=training | {"steps": 3})
        text = self.run_on(2, {"pipeline": 2, "cut": ["auto"]}, training=training | {"output": "kept", "output_format": "safetensors"})
        self.assertIn(f"mesh.cut: [{cut}], as in the last checkpoint", text)
        self.assertIn("the first steps' times ask for mesh.cut: [model.layers.", text)
        self.assertEqual((self.base / "kept").read_bytes(), (self.base / "whole").read_bytes())
        self.assertIn("mesh.seconds=", (self.base / "cut-ck/step-6/manifest.json").read_text())
        text = self.run_on(3, {"pipeline": 3}, training=training | {"steps": 8})
        self.assertRegex(text, r"mesh.cut: \[model.layers.\d, model.layers.\d\], by the times that the last checkpoint's run has measured")
        self.command(2, {"pipeline": 2}, training=TRAINING)
        plan = [TRAIN, "run.yaml", "--plan", "--world-size", "2", "--output=json"]
        counted, measured = (json.loads(subprocess.run(plan + more, capture_output=True, text=True, cwd=self.base, timeout=LIMIT, check=True).stdout)
                             for more in ([], ["--predict"]))
        self.assertEqual(measured["prediction"]["layer_kinds"], 3)  # layers of the second stage are no other kinds
        self.assertEqual(measured["prediction"]["cut"], measured["stages"][1]["first"])
        self.assertNotIn("prediction", counted)

    def test_requests_of_a_task_go_through_stages_several_at_a_time(self):
        self.run_on(1, {}, training={"output": "model.safetensors", "output_format": "safetensors", "steps": 3, "evaluate_every": 0})
        rng, words = random.Random(3), "the quick brown fox jumps over a lazy dog".split()
        rows = [{"question": " ".join(rng.choices(words, k=4)), "choices": {"text": [" ".join(rng.choices(words, k=1 + k)) for k in range(4)], "label": list("ABCD")},
                 "answerKey": rng.choice("ABCD")} for _ in range(19)]
        (self.base / "arc.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = []
        for ranks, mesh, strategy in ((1, {}, "FULL_SHARD"), (2, {"pipeline": 2}, "FULL_SHARD"), (4, {"pipeline": 2}, "FULL_SHARD"), (3, {}, "NO_SHARD"),
                                      (2, {"pipeline": 2, "schedule": "interleaved"}, "FULL_SHARD")):
            command = self.command(ranks, mesh, "eval", "--model", "model.safetensors", "--task", "arc", "arc.jsonl", "--output=json", training={"strategy": strategy, "evaluate_every": None})
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT, cwd=self.base)
            self.assertEqual(done.returncode, 0, done.stderr)
            found.append(json.loads(done.stdout[done.stdout.index("{"):])["loglikelihoods"])
            self.assertEqual(len(found[-1]), 4 * 19)
            self.assertEqual(found[-1], found[0], (ranks, mesh))

    def test_mistakes_are_named(self):
        for ranks, mesh, says in (
            (3, {"pipeline": 2}, "mesh: pipeline 2 needs a multiple of 2 ranks, and the world has 3: use 2 or 4, or mesh.spare: true (1 rank would wait)"),
            (2, {"pipeline": 3, "spare": True}, "mesh: pipeline 3 needs a multiple of 3 ranks, and the world has 2: use 3"),
            (2, {"pipeline": 12}, "mesh.pipeline 12 for a model of 6 layers; use 1 to 6"),
            (2, {"pipeline": 2, "cut": ["model.layers.9"]}, "mesh.cut names model.layers.9, and the model's layers are embedding, model.layers.0 to model.layers.3, head"),
            (2, {"pipeline": 2, "cut": ["model.layers.1", "head"]}, "mesh.cut makes 3 stages, mesh.pipeline is 2"),
            (3, {"pipeline": 3, "cut": ["model.layers.2", "model.layers.1"]}, "mesh.cut is not in the order of layers: model.layers.2 before model.layers.1"),
            (2, {"pipeline": 2, "schedule": "interleaving"}, "mesh.schedule: 'interleaving' is none of 1f1b, gpipe and interleaved, and there is no such file"),
            (2, {"pipeline": 2, "chunks": 2}, "mesh.chunks 2 needs mesh.schedule: interleaved, not 1f1b"),
            (2, {"chunks": 2, "schedule": "interleaved"}, "mesh.chunks 2 with mesh.pipeline 1"),
            (4, {"pipeline": 4, "chunks": 3, "schedule": "interleaved"}, "mesh.chunks 3 x mesh.pipeline 4 are 12 parts of a model of 6 layers"),
            (2, {"pipeline": 2, "schedule": "interleaved", "cut": ["head"]}, "mesh.cut makes 2 parts, mesh.pipeline 2 x mesh.chunks 2 are 4"),
            (3, {"pipeline": 3, "schedule": "looped.csv"}, "schedule looped.csv has 2 ranks, and mesh.pipeline is 3"),
            (2, {"pipeline": 2, "schedule": "looped.csv", "chunks": 1}, "schedule looped.csv, rank 0, call 9: 2F0: the model has 2 parts"),
            (2, {"pipeline": 2, "schedule": "long.csv"}, "schedule long.csv, rank 0, call 4: 6F0: the model has 6 layers, and so many parts at most"),
            (4, {"pipeline": 2, "schedule": "looped.csv"}, "the schedule has 8 micro-batches, and a step has 4"),
            (2, {"pipeline": 2, "schedule": "split.csv"}, "splits backwards"),
            (2, {"pipeline": 2, "schedule": "vee.csv"}, "places the parts in another way"),
            (2, {"pipeline": 2, "schedule": "stuck.csv"}, "schedule stuck.csv: deadlock: rank 0 waits for 1B0, which rank 1 calls after 1F1"),
        ):
            with self.subTest(mesh=mesh):
                training = {"global_batch": 1} if mesh.get("schedule") in ("split.csv", "vee.csv") else {}
                self.assertIn(says, self.run_on(ranks, mesh, fails=True, training=training))

    def test_suggested_meshes_are_pasted_and_trained(self):
        self.command(4, {"pipeline": 3}, training={"strategy": "HYBRID_SHARD", "replicas": 2, "micro_batch": 8})  # what is set is left aside
        suggest = [TRAIN, "run.yaml", "--suggest", "--nodes", "2", "--ranks-per-node", "2", "--link", "1M,1000"]
        text, data = (subprocess.run(suggest + more, capture_output=True, text=True, cwd=self.base, timeout=LIMIT, check=True).stdout for more in ([], ["--output=json"]))
        found = json.loads(data)
        blocks = re.findall(r"# (\d+): step (\S+) s, idle (\S+)%, (.*) a rank of the largest stage, (.*) between nodes\n(mesh: .*\ntraining: .*)\n", text)
        self.assertEqual((len(blocks), len(found["suggestions"]), found["schema"]), (10, 10, "muster-suggest-1"))
        self.assertEqual([block[0] for block in blocks], [str(i + 1) for i in range(10)])
        staged = [block[5] for block in blocks if "schedule" in block[5]]
        self.assertTrue(staged, text)
        for yaml in {blocks[0][5], *staged[:1], *[one for one in staged if "chunks" in one][:1]}:
            (self.base / "fast.yaml").write_text(yaml)
            self.assertIn("step 6/6", self.run_on(4, {}, "fast.yaml", training={"evaluate_every": 0}))

    def test_a_schedule_is_proved_without_a_model(self):
        for name, code, says in (("looped.csv", 0, "looped.csv: 2 ranks, 4 parts (a loop), 8 micro-batches, 64 calls: nothing waits for ever; idle 5.9%"),
                                 ("split.csv", 0, "6 calls, split backwards"), ("vee.csv", 0, "not in the order of ranks"),
                                 ("stuck.csv", 2, "schedule stuck.csv: deadlock: "), ("none.csv", 2, "cannot open none.csv")):
            done = subprocess.run([TRAIN, "--check-schedule", name], capture_output=True, text=True, cwd=self.base, timeout=LIMIT)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(says, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
