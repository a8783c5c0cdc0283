#!/usr/bin/env python3
"""Checkpoints of muster-train from end to end: killed at random and restarted, stopped and started again with other numbers of ranks,
on disks that are full or read-only; a resumed run equals an undisturbed run."""
import contextlib
import ctypes.util
import errno
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

from harness.preload import preload

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
LIMIT = 300  # for any run, against a hang
SANITIZED = os.environ.get("MUSTER_SANITIZED")
KILLS = 100 if "--full" in sys.argv else 6

CONFIG = """\
training: {{steps: {steps}, micro_batch: 1, global_batch: 12, sequence_length: 32, learning_rate: 3.0e-3, schedule: constant, warmup_steps: 5,
           threads: 1, output: "{folder}/model", checkpoint_dir: "{folder}/checkpoints", checkpoint_every: {every}}}
model: {{layers: 2, channels: 32, heads: 2}}
data: {{path: "{folder}/text"}}
logging: {{sample_length: 0, interval: 1}}
"""
PROSE = "the quick fox jumps over the hill and then it rests. " * 200


def foreign(variable):
    return re.match(r"PET_|MUSTER_(?!BUILD)|TORCHELASTIC_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$", variable)


class Checkpoints(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster checkpoints ")  # a space in every path
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "text").write_text(PROSE)
        self.checkpoints = self.folder / "checkpoints"

    def command(self, *words, ranks=0, steps=30, every=10, flags=()):
        config = self.folder / "config.yaml"
        config.write_text(CONFIG.format(folder=self.folder, steps=steps, every=every))
        command = [TRAIN, config, *(word for setting in words for word in ("--set", setting))]
        if ranks:
            command = [MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", "--termination-log=", *flags, *command]
        return [str(word) for word in command]

    def start(self, *words, environment={}, **options):
        environment = {k: v for k, v in os.environ.items() if not foreign(k)} | {"OMP_NUM_THREADS": "1"} | environment
        out, err = open(self.folder / "out", "w+"), open(self.folder / "err", "w+")
        self.addCleanup(out.close)
        self.addCleanup(err.close)
        run = subprocess.Popen(self.command(*words, **options), stdout=out, stderr=err, cwd=self.folder, env=environment)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        self.length, self.text = 0, ""
        return run

    def printed(self):
        """All of it, of which only new lines are read, every few milliseconds."""
        with open(self.folder / "out", "rb") as file:
            file.seek(self.length)
            piece = file.read()
        self.length += len(piece)
        self.text += piece.decode(errors="replace")
        return self.text

    def said(self):
        return (self.folder / "err").read_text(errors="replace")

    def ends(self, run, code=0):
        self.assertEqual(run.wait(timeout=LIMIT), code, self.said())
        return self.printed()

    def run_whole(self, *words, code=0, **options):
        return self.ends(self.start(*words, **options), code)

    def model(self):
        return (self.folder / "model").read_bytes()

    def steps(self):
        """Checkpoints that there are, and nothing else next to them."""
        names = sorted(path.name for path in self.checkpoints.iterdir())
        self.assertTrue(all(re.fullmatch(r"step-\d+", name) for name in names), names)
        return sorted(int(name[5:]) for name in names)

    def undisturbed(self, **options):
        other = self.folder / "other"
        self.run_whole("training.checkpoint_every=0", f"training.checkpoint_dir={other}", **options)
        shutil.rmtree(other)
        return self.model()

    def workers(self):
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [str(TRAIN).encode(), str(self.folder / "config.yaml").encode()]:
                found.append(int(path.parent.name))
        return found

    def wait_until(self, there, run):
        deadline = time.monotonic() + LIMIT
        while not there():
            self.assertIsNone(run.poll(), "it ended too soon: " + self.said())
            self.assertLess(time.monotonic(), deadline, self.said())
            time.sleep(0.002)

    # ---- a rank that stops ----

    def test_after_a_hang_every_ranks_place_stands_in_the_report(self):
        flags = ("--hang-timeout=2", f"--log-dir={self.folder / 'logs'}")
        run = self.start("training.timeout=60", ranks=3, steps=1000000, every=0, flags=flags)
        self.wait_until(lambda: "\nstep 20/" in self.printed(), run)
        stopped = next(pid for pid in self.workers() if b"\0RANK=1\0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        os.kill(stopped, signal.SIGSTOP)
        self.ends(run, 134)
        report = self.said()[self.said().index("ChildFailedError"):]
        root = report.index("Root Cause")
        self.assertIn("rank      : 1 ", report[root:])
        for rank in (0, 2):  # the stopped rank cannot answer; the others name their operation
            place = re.search(rf"  rank {rank} \(local_rank: {rank}\) \(pid: \d+\) ended by SIGABRT\n    place   : (.*(?:\n      .*)*)", report[:root])
            self.assertIsNotNone(place, report)
            self.assertRegex(place[1], r"comm of axis \w+, \w+: issued #\d+ \(.*\) last, finished #\d+ \(.*\) last")
            self.assertRegex(place[1], r"in step \d+: compute has begun operation \d+ of \d+ last")
        (file,) = (self.folder / "logs").rglob("failure.json")
        told = json.loads(file.read_text())["terminated_by_launcher"]
        self.assertEqual([(one["rank"], "in step" in one["place"]) for one in told], [(0, True), (2, True)])

    # ---- another way of sharding ----

    def test_parameters_kept_whole_are_resumed_sharded_and_the_other_way_round(self):
        def losses(text):
            return [float(loss) for loss in re.findall(r"^step \d+/\d+  loss ([0-9.]+)", text, re.M)]

        whole, last = "training.keep_whole_below=2K", 12
        expected = losses(self.run_whole(steps=last, every=0))
        for first, then, ranks in (([whole], [], (2, 3)), ([], [whole], (3, 2))):
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            self.run_whole(*first, ranks=ranks[0], steps=last // 2)
            found = losses(self.run_whole(*then, ranks=ranks[1], steps=last))
            self.assertEqual(len(found), last // 2)
            for loss, wanted in zip(found, expected[last // 2:]):
                self.assertAlmostEqual(loss, wanted, delta=2e-4)  # printed with four digits

    # ---- kill -9 ----

    def is_writing(self):
        return any(name.endswith(".new") for name in os.listdir(self.checkpoints))

    def test_killed_at_random_ends_as_if_undisturbed(self):
        steps = 120 * KILLS  # some 50 are taken from one kill to the next, and 120 where the machine is quick
        expected = self.undisturbed(ranks=2, steps=steps)
        chance = random.Random(7)
        run = self.start(ranks=2, steps=steps, every=3, flags=("--max-restarts=1000", "--restart-backoff=0"))
        inside = 0
        begun = 0  # where the last round's output begins

        def steps_are_taken():
            at = self.printed().find("data: ", begun)
            return at >= 0 and self.text.find("\nstep ", at) >= 0

        for kill in range(KILLS):
            self.wait_until(steps_are_taken, run)
            if kill:  # the first kill may come before any checkpoint; later ones have one to go on from
                self.wait_until(lambda: any(re.fullmatch(r"step-\d+", name) for name in os.listdir(self.checkpoints)), run)
            begun = self.text.rfind("data: ") + 1
            if kill % 2:  # inside of a write
                self.wait_until(self.is_writing, run)
                time.sleep(chance.random() * 0.002)
            else:
                time.sleep(chance.random() * 0.1)
            os.kill(chance.choice(self.workers()), signal.SIGKILL)
            inside += self.is_writing()
        out = self.ends(run)
        self.assertEqual(out.count("data: "), KILLS + 1)  # each of them cost a round
        self.assertGreater(out.count("resumed from step"), KILLS // 2)
        self.assertGreater(inside, KILLS // 10)
        self.assertNotIn("refused", self.said())
        self.assertEqual(self.model(), expected)
        self.assertEqual(len(self.steps()), 3)  # training.checkpoint_keep; half-written files are gone

    # ---- planned stops, requests ----

    def test_a_stop_writes_one_and_the_next_start_goes_on(self):
        for ranks in (0, 2):
            run = self.start("training.checkpoint_every=0", ranks=ranks, steps=100000)
            self.wait_until(lambda: "\nstep 20/" in self.printed(), run)
            run.send_signal(signal.SIGTERM)
            out = self.ends(run, 143)
            step = int(re.search(r"all ranks end after step (\d+) of 100000\n", self.said()).group(1))
            self.assertEqual(self.steps(), [step])
            self.assertNotIn("saved ", out)  # the work is in the checkpoint
            steps = step + 100  # wherever the stop came: the learning rate does not follow from their number
            out = self.run_whole(ranks=ranks, steps=steps, every=0)
            self.assertIn(f"resumed from step {step} (", out)
            self.assertIn(f"; sample {12 * step} is the next", out)
            self.assertEqual(re.findall(r"\nstep (\d+)/", out)[0], str(step + 1))
            found = self.model()
            self.assertIn(f"all {steps} steps had been done already", self.run_whole(ranks=ranks, steps=steps))
            self.assertEqual(self.model(), found)
            self.assertEqual(found, self.undisturbed(ranks=ranks, steps=steps))
            shutil.rmtree(self.checkpoints)

    def test_one_is_written_on_request(self):
        for ranks in (0, 2):
            run = self.start("training.checkpoint_keep=100", ranks=ranks, steps=100000, every=0)
            for count in (1, 2):
                self.wait_until(lambda: "\nstep " in self.printed().rsplit("checkpoint ", 1)[-1], run)
                if ranks:
                    asked = subprocess.run([MUSTER, "checkpoint", "--pid", str(run.pid)], capture_output=True, text=True, timeout=LIMIT)
                    self.assertEqual((asked.returncode, asked.stderr), (0, ""))
                    found = re.fullmatch(r"asked rank \d \(pid (\d+)\) for a checkpoint\ncheckpoint (.*/step-\d+): .* a rank in \d+\.\d\d s, of which .*\n", asked.stdout)
                    self.assertIn(int(found.group(1)), self.workers())
                    self.assertTrue((pathlib.Path(found.group(2)) / "manifest.json").is_file())  # when the command ends it is there
                else:
                    os.kill(random.choice(self.workers()), signal.SIGUSR2)
                self.wait_until(lambda: len(re.findall(r"\ncheckpoint .*/step-\d+: ", self.printed())) == count, run)
            run.send_signal(signal.SIGTERM)
            self.ends(run, 143)
            self.assertEqual(len(self.steps()), 3)
            shutil.rmtree(self.checkpoints)

    def test_what_does_not_come_of_a_request_is_named(self):
        def ask(*flags):
            return subprocess.Popen([MUSTER, "checkpoint", "--pid", str(run.pid), *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        run = self.start(ranks=2, steps=100000, every=0)
        self.wait_until(lambda: "\nstep 5/" in self.printed(), run)
        shutil.rmtree(self.checkpoints)
        self.checkpoints.write_text("in the way")
        out, err = ask().communicate(timeout=LIMIT)
        self.assertIn("muster checkpoint: error: the checkpoint was not written: checkpoint of step ", err)
        self.assertIn("asked rank ", out)
        self.checkpoints.unlink()
        stopped = self.workers()  # nothing is written while one is stopped
        for worker in stopped:
            os.kill(worker, signal.SIGSTOP)
        asked = ask("--timeout", "0.5")
        out, err = asked.communicate(timeout=LIMIT)
        self.assertEqual(asked.returncode, 1)
        self.assertRegex(err, r"error: no checkpoint of rank \d \(pid \d+\) within 0.5 s: .*--no-wait")
        asked = ask()
        self.assertIn("asked rank", subprocess.run([MUSTER, "checkpoint", "--no-wait", "--pid", str(run.pid)], capture_output=True, text=True, check=True).stdout)
        time.sleep(0.2)  # the other one has asked too, and waits
        for worker in stopped:
            with contextlib.suppress(ProcessLookupError):  # after the first one's end the agent ends the other, and may have done so
                os.kill(worker, signal.SIGKILL)
        out, err = asked.communicate(timeout=LIMIT)
        self.assertEqual(asked.returncode, 1)
        self.assertRegex(err, r"error: (rank \d \(pid \d+\) has ended before the checkpoint was written|after rank \d \(pid \d+\) was asked: )")
        self.assertEqual(run.wait(timeout=LIMIT), 137)

    # ---- gradients that are not finite ----

    def test_a_run_that_diverges_goes_back_three_times_and_ends(self):
        diverging = ("training.learning_rate=100", "training.weight_decay=100", "training.on_nonfinite=roll_back")
        lines = self.folder / "lines.jsonl"  # for other numbers of targets each, which the step before sums
        lines.write_text("".join(json.dumps({"text": "so many letters " * (i % 7) + "."}) + "\n" for i in range(400)))
        announced = ("data.packing=documents", f"data.path={lines}")
        for ranks, settings in ((0, ()), (2, ()), (2, announced), (3, announced)):
            out = self.run_whole(*diverging, *settings, ranks=ranks, steps=60, every=1, code=1)
            back = re.findall(r"^muster-train: warning: back to the checkpoint of step (\d+); the samples since then are left out, number (\d+) is the next$", self.said(), re.M)
            self.assertGreaterEqual(len(back), 4, self.said())
            steps = [int(step) for step, _ in back]
            self.assertEqual(steps[-4:], [steps[-1]] * 4)
            samples = [int(sample) for _, sample in back]
            self.assertEqual(samples, sorted(set(samples)))  # other ones each time
            self.assertIn(f"after going back to the checkpoint of step {steps[-1]} 3 times", self.said())
            self.assertIn("resumed from step", out)
            shutil.rmtree(self.checkpoints)
        self.run_whole(*diverging, steps=60, every=0, code=1)  # none to go back to: as skip
        self.assertIn("20 steps in a row", self.said())

    # ---- other numbers of ranks, other settings ----

    def test_4_then_3_then_2_then_4_ranks(self):
        alone = re.findall(r"step \d+/40  loss ([\d.]+)", self.run_whole("training.checkpoint_dir=" + str(self.folder / "other"), steps=40))
        losses = []
        for part, ranks in enumerate((4, 3, 2, 4)):
            out = self.run_whole(ranks=ranks, steps=10 * (part + 1), every=0)
            losses += re.findall(r"step \d+/\d+  loss ([\d.]+)", out)
            if part:
                self.assertIn(f"resumed from step {10 * part} (", out)
                self.assertIn(f"sample {120 * part} is the next", out)
                self.assertIn(f"the numerics differ, so that the last bits will: world_size {(4, 3, 2)[part - 1]}, now {ranks}", self.said())
        self.assertEqual(len(losses), 40)
        for a, b in zip(alone, losses):
            self.assertAlmostEqual(float(a), float(b), delta=2e-4)

    def test_values_of_16_bits_go_on_as_storage_and_the_other_way_round(self):
        narrow, wide = ("training.dtype=bf16", "training.values=dtype"), ("training.dtype=bf16",)
        text = self.run_whole(*narrow, ranks=2, steps=3, every=3)
        self.assertRegex(text, r"\nvalues: activations and parameters as layers read them are bf16, .*; products by (OpenBLAS .*; oneDNN .*|loops of the reference, which are slow)\n")
        text = self.run_whole(*wide, steps=5, every=1)
        self.assertIn("resumed from step 3", text)
        self.assertNotIn("\nvalues: ", text)
        self.assertRegex(self.said(), "the numerics differ.*kernels (ref-bf16|cpu-avx512bf16) bf16, now cpu-")
        text = self.run_whole(*narrow, steps=7, every=1)
        self.assertIn("resumed from step 5", text)
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+) ", text)]
        self.assertEqual(len(losses), 2, text)
        self.assertEqual(self.steps()[-1], 7)
        again = self.run_whole(*narrow, "training.device=cpu", steps=7, every=1)
        self.assertNotIn("loss ", again)  # nothing is left to do
        run = self.start("training.values=dtype", "training.dtype=fp16", "training.device=cuda", steps=9, every=1)
        self.assertNotEqual(run.wait(timeout=LIMIT), 0)

    @unittest.skipUnless(ctypes.util.find_library("dnnl"), "one library of products alone: libdnnl is not installed")
    def test_a_checkpoint_goes_from_one_library_of_products_to_the_other(self):
        self.run_whole("training.products=openblas", steps=3, every=3)
        self.run_whole("training.products=onednn", "training.resume_numerics=refuse", steps=5, every=1, code=2)
        self.assertRegex(self.said(), r"the numerics differ from the checkpoint's: kernels cpu-\w+ f32, now cpu-\w+-onednn f32")
        for products, step, was, now in (("onednn", 5, r"cpu-\w+", r"cpu-\w+-onednn"), ("openblas", 7, r"cpu-\w+-onednn", r"cpu-\w+")):
            out = self.run_whole(f"training.products={products}", steps=step, every=1)
            self.assertIn(f"resumed from step {step - 2} (", out)
            self.assertRegex(self.said(), rf"the numerics differ, so that the last bits will: kernels {was} f32, now {now} f32; blas ")

    def test_what_does_not_fit_is_named(self):
        self.run_whole(ranks=2, steps=10)
        kept = self.steps()
        for words, code, says in (
                (("training.resume_numerics=refuse",), 2, "world_size 2, now 1"),
                (("training.seed=1",), 2, "training.seed is 1, and the checkpoint was written with 42"),
                (("training.sequence_length=16", "model.positions=32"), 2, "training.sequence_length is 16"),
                (("model.channels=64",), 2, "is of another model: its parameter 0 is wte.weight (256, 32), and this model's is wte.weight (256, 64)"),
                (("training.optimizer=SGD",), 2, "training.optimizer"),
                (("training.resume=none",), 2, "has checkpoints up to step 10"),
                (("training.checkpoint_dir=/proc/nowhere",), 2, "/proc/nowhere"),
                (("training.checkpoint_dir=",), 2, "training.checkpoint_every has no effect with training.checkpoint_dir"),
                (("training.learning_rate=0.001", "training.steps=12"), 0, "warning: training.learning_rate is 0.001")):
            self.run_whole(*words, code=code, steps=10)
            self.assertIn(says, self.said())
            self.assertNotIn("restart", self.said())
            self.assertEqual([step for step in self.steps() if step <= 10], kept)

    def test_other_data_are_named_and_refused_until_they_are_accepted(self):
        expected = self.undisturbed(ranks=2, steps=40)
        self.run_whole(ranks=2, steps=10)
        text = self.folder / "text"
        text.rename(self.folder / "elsewhere")  # the same text at another path
        self.run_whole(f"data.path={self.folder / 'elsewhere'}", ranks=2, steps=20)
        self.assertNotIn("data", self.said())
        text.write_text(PROSE.replace("fox", "cow"))  # the same size's
        for settings, says in (((), "the data differ from the checkpoint's: data is 1 file of 10600 bytes ("),
                               (("data.packing=documents",), "packing is documents, and was stream"),
                               (("data.validation_share=0.1",), "validation_share is 0.1, and was 0")):
            self.run_whole(*settings, ranks=2, steps=40, code=2, flags=("--max-restarts=2",))
            self.assertIn(says, self.said())
            self.assertIn("training.resume_data: warn", self.said())
            self.assertEqual(len(re.findall(r"^muster-train: rank \d: error: the data differ", self.said(), re.M)), 1, self.said())
            self.assertNotIn("restart 1 of", self.said())
        accepted = self.run_whole("training.resume_data=warn", ranks=2, steps=30)
        self.assertIn("resumed from step 20", accepted)
        self.assertIn("warning: the data differ from the checkpoint's", self.said())
        self.assertIn("resumed from step 30", self.run_whole(ranks=2, steps=40))  # which these are now
        self.assertNotEqual(self.model(), expected)

    def test_a_path_begins_a_run_in_a_new_folder(self):
        expected = self.undisturbed(steps=30)
        self.run_whole(steps=10, every=0)
        path, new = self.checkpoints / "step-10", self.folder / "new"
        elsewhere = (f"training.checkpoint_dir={new}", f"training.resume={path}")
        self.assertIn("resumed from step 10", self.run_whole(*elsewhere, steps=20, every=5))
        self.assertEqual(sorted(p.name for p in new.iterdir()), ["step-15", "step-20"])
        self.assertIn("resumed from step 20", self.run_whole(*elsewhere, steps=30, every=5))  # the folder's own come first
        self.assertIn("is not used: ", self.said())
        self.assertEqual(self.model(), expected)
        self.assertEqual(self.steps(), [10])

    # ---- copies on the node ----

    @staticmethod
    def flip(path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)

    def test_copies_on_the_node_are_read_in_place_of_the_shared_files(self):
        local = self.folder / "on the node"
        copies = f"training.checkpoint_local_dir={local}"
        expected = self.undisturbed(ranks=2, steps=40)
        self.run_whole(copies, ranks=2, steps=30)
        self.assertEqual(sorted(path.name for path in local.iterdir()), ["step-20", "step-30"])  # the newest, and one next to it
        for rank in (0, 1):
            name = f"step-30/rank-{rank}.safetensors"
            self.assertEqual((local / name).read_bytes(), (self.checkpoints / name).read_bytes())
        kept = {path: path.read_bytes() for folder in (local, self.checkpoints) for path in folder.glob("step-30/rank-*")}

        def goes_on(step, files, **options):
            out = self.run_whole(copies, ranks=2, steps=40, **options)
            self.assertRegex(out, rf"resumed from step {step} \(.*written by 2 ranks; {files} files read on this node\)")
            self.assertNotIn("refused", self.said())
            self.assertEqual(self.model(), expected)
            for folder in (local, self.checkpoints):
                shutil.rmtree(folder / "step-40")
                for path, data in kept.items():
                    path.parent.mkdir(exist_ok=True)
                    path.unlink(missing_ok=True)
                    path.write_bytes(data)

        manifest = self.checkpoints / "step-30/manifest.json"
        times = manifest.stat().st_atime_ns, manifest.stat().st_mtime_ns
        for path in (manifest, *(self.checkpoints / f"step-30/rank-{rank}.safetensors" for rank in (0, 1))):
            whole = path.read_bytes()
            path.write_bytes(bytes(len(whole)))  # all of it is unreadable, and looks as before
            if path == manifest:
                text = whole
                os.utime(path, ns=times)
        goes_on(30, "manifest and 1 of 1")  # so nothing of the shared folder is read
        manifest.write_bytes(text)
        for rank in (0, 1):
            self.flip(self.checkpoints / f"step-30/rank-{rank}.safetensors")
        goes_on(30, "1 of 1")  # the shared manifest is another one than was copied
        os.utime(manifest, ns=times)
        copied = (local / "step-30/manifest.json")
        copied.write_bytes(text[:len(text) // 2] + text[len(text) // 2:].replace(b"1", b"2", 1))
        os.utime(copied, ns=times)
        goes_on(30, "1 of 1")  # a damaged copy of it
        copied.write_bytes(text)
        os.utime(copied, ns=times)
        for call, part, number, found in (("read", "rank-0.safetensors", errno.EIO, "manifest and 0 of 1"), ("open", "manifest.json", errno.EACCES, "1 of 1")):
            goes_on(30, found, environment={"LD_PRELOAD": preload("failing_files.so"), "FAILING_FILES": f"{call}:node/step-30/{part}:{number}"})
            self.assertRegex(self.said(), rf"warning: rank 0: a copy on this node is not used, the shared folder is read: .*{local}/step-30/{part}.*{os.strerror(number)}")
        self.flip(local / "step-30/rank-0.safetensors")
        goes_on(30, "manifest and 1 of 1")  # a damaged copy on the node
        self.assertNotIn("a copy on this node", self.said())
        (local / "step-30/rank-0.safetensors").write_bytes(b"")
        goes_on(30, "manifest and 0 of 1")
        shutil.rmtree(local)
        local.mkdir()
        goes_on(30, "0 of 1")  # another node

    def test_without_room_on_the_node_there_is_no_copy_and_a_warning(self):
        self.run_whole("training.checkpoint_local_dir=/proc/nowhere", ranks=2, steps=20)
        self.assertRegex(self.said(), r"rank [01]: warning: step 20 has no copy on this node: .*/proc/nowhere")
        self.assertEqual(self.steps(), [10, 20])

    # ---- disks ----

    @contextlib.contextmanager
    def small_disk(self, size):
        if os.getuid():
            self.skipTest("mounting a small file system needs root")
        self.checkpoints.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.checkpoints)], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", str(self.checkpoints)], check=True)

    def test_on_a_full_disk_the_oldest_makes_room_for_the_newest(self):
        expected = self.undisturbed(ranks=2, steps=60)
        with self.small_disk("1200K"):  # two fit
            self.run_whole("training.checkpoint_keep=9", ranks=2, steps=50, every=10)
            self.assertRegex(self.said(), r"warning: checkpoint of step 30: cannot write .*No space left on device; the last one is that of step 20")
            self.assertIn("that of step 10 was removed to make room", self.said())
            full = re.findall(r"checkpoint of step (\d+): cannot write .*No space left on device", self.said())
            self.assertEqual(set(full), {"30"}, self.said())  # by one rank or both; from then on one place stays free
            self.assertEqual(self.steps(), [50])
            out = self.run_whole("training.checkpoint_keep=1", ranks=2, steps=60, every=0)
            self.assertIn("resumed from step 50", out)
            self.assertNotIn("refused", self.said())
            self.assertEqual(self.model(), expected)

    def test_where_one_fits_alone_it_stays_and_the_run_does_not_end_with_0(self):
        with self.small_disk("700K"):
            for ranks in (0, 2):
                self.run_whole(ranks=ranks, steps=10)
                self.run_whole(ranks=ranks, steps=20, code=138)
                self.assertRegex(self.said(), r"error: the last checkpoint, of step 20, is not saved \(see the warning before\); the newest is that of step 10")
                self.assertNotIn("removed to make room", self.said())
                self.assertEqual(self.steps(), [10])
                self.assertTrue((self.folder / "model").exists())  # possible writes are done
                self.assertIn("resumed from step 10", self.run_whole("training.checkpoint_dir=" + str(self.folder / "other"), f"training.resume={self.checkpoints / 'step-10'}",
                                                                     ranks=ranks, steps=20))
                shutil.rmtree(self.checkpoints / "step-10")
                shutil.rmtree(self.folder / "other")
            (self.checkpoints / "other").write_bytes(bytes(200 << 10))
            self.run_whole("training.output=" + str(self.checkpoints / "model"), steps=20, every=0, code=138)  # the model does not fit then
            self.assertRegex(self.said(), r"error: cannot write .*model.*: No space left on device")

    # ---- addresses ----

    def test_addresses_are_refused_by_name(self):
        def refused(command, says):
            run = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=self.folder, timeout=LIMIT,
                                 env={k: v for k, v in os.environ.items() if not foreign(k)})
            self.assertEqual(run.returncode, 2, (command, run.stderr))
            self.assertIn(says, run.stderr)
            self.assertEqual(before, sorted(os.listdir(self.folder)))  # no folder "s3:"

        command = self.command()
        before = sorted(os.listdir(self.folder))
        for setting in ("training.checkpoint_dir", "training.checkpoint_local_dir", "training.output", "training.resume", "model.path", "lora.path", "data.path",
                        "data.validation_path", "data.tokenizer", "data.cache_dir", "data.info_dir", "logging.dir", "logging.json", "logging.samples"):
            refused([*command, "--set", f"{setting}=s3://bucket/a"], f"{setting}: s3://bucket/a is an address and no path of a file system")
        refused([*command, "--set", "data.sources=0.5 gs://bucket/a"], "data.sources: gs://bucket/a is an address")
        refused([*command, "--set", "model.path=hf://org/model"], "model.path: hf://org/model is a repository of the Hugging Face hub, and folders and files are meant: download it")
        refused([TRAIN, "s3://bucket/config.yaml"], "s3://bucket/config.yaml is an address")
        refused([TRAIN, "eval", self.folder / "config.yaml", "--checkpoint", "az://bucket/step-1"], "--checkpoint: az://bucket/step-1 is an address")
        refused([TRAIN, "quantize", self.folder / "config.yaml", "--to", "abfs://bucket/a"], "--to: abfs://bucket/a is an address")
        for flag in ("input_dir", "output_dir"):
            refused([TRAIN, "prepare", f"--{flag}=s3://bucket/a"], "s3://bucket/a is an address")
        for flag in ("log-dir", "state-dir", "secret-file", "termination-log", "hostfile", "accelerate-config"):
            refused([MUSTER, "run", "--standalone", f"--{flag}=gs://bucket/a", "true"], "gs://bucket/a is an address")
        refused([MUSTER, "run", "--standalone", "--log-dir=file:///tmp/a", "true"], "write the path alone, without file://")

    # ---- a command after each ----

    def command_log(self):
        log = self.folder / "log"
        return log.read_text().split() if log.exists() else []

    def test_a_command_is_run_after_each_checkpoint(self):
        copies = self.folder / "copies"
        copies.mkdir()
        command = f'test -s "$MUSTER_CHECKPOINT/manifest.json" && cp -r "$MUSTER_CHECKPOINT" "{copies}/$MUSTER_CHECKPOINT_NAME" && echo $MUSTER_CHECKPOINT_STEP >> "{self.folder}/log"'
        records = self.folder / "records.jsonl"
        for ranks in (0, 2):
            out = self.run_whole(f"training.checkpoint_command={command}", f"logging.json={records}", ranks=ranks, steps=20)
            self.assertEqual(self.command_log()[-1], "20")
            self.assertRegex(out, r"(?m)^checkpoint command of step 20: done in \d+\.\d\d s$")
            written = [json.loads(line) for line in records.read_text().splitlines()]
            self.assertEqual([(one["step"], one["saved"], one["last_step"]) for one in written if one.get("kind") == "checkpoint_command"][-1], (20, True, 20))
            self.assertEqual((copies / "step-20/manifest.json").read_bytes(), (self.checkpoints / "step-20/manifest.json").read_bytes())
            count = len(self.command_log())
            self.run_whole(f"training.checkpoint_command={command}", ranks=ranks, steps=20)
            self.assertEqual(len(self.command_log()), count)  # it has succeeded for that one
            for folder in (copies, self.checkpoints):
                shutil.rmtree(folder)
            copies.mkdir()
            records.unlink()

    def test_a_command_that_fails_is_in_the_exit_code_and_run_again(self):
        for ranks in (0, 2):
            self.run_whole("training.checkpoint_command=echo no bucket >&2; echo of that name >&2; exit 7", ranks=ranks, steps=20, code=138)
            self.assertIn("checkpoint command of step 20: the command exited with code 7; it printed: no bucket | of that name; it has not succeeded yet", self.said())
            self.assertRegex(self.said(), r"error: the last run of training.checkpoint_command has failed")
            self.assertEqual(self.steps(), [10, 20])
            out = self.run_whole(f"training.checkpoint_command=echo $MUSTER_CHECKPOINT_STEP >> '{self.folder}/log'", ranks=ranks, steps=20)
            self.assertEqual(self.command_log()[-1:], ["20"])  # without a step
            self.assertIn("checkpoint command of step 20: done", out)
            shutil.rmtree(self.checkpoints)

    def test_training_does_not_wait_for_a_command_and_what_it_reads_stays(self):
        slow = f'until test -e "{self.folder}/go"; do sleep 0.02; done; test -s "$MUSTER_CHECKPOINT/manifest.json" && echo $MUSTER_CHECKPOINT_STEP >> "{self.folder}/log"'
        run = self.start(f"training.checkpoint_command={slow}", "training.checkpoint_keep=1", ranks=2, steps=100000, every=10)
        self.wait_until(lambda: "\nstep 60/" in self.printed(), run)
        self.wait_until(lambda: "checkpoint command of step 20: it is skipped: step " in self.said(), run)
        self.assertIn("step-10", os.listdir(self.checkpoints))  # though one is kept
        self.assertLessEqual(len([name for name in os.listdir(self.checkpoints) if name.startswith("step-")]), 4)
        (self.folder / "go").touch()
        self.wait_until(lambda: len(self.command_log()) >= 2, run)
        run.send_signal(signal.SIGTERM)
        out = self.ends(run, 143)
        last = max(int(name[5:]) for name in os.listdir(self.checkpoints) if name.startswith("step-"))
        self.assertEqual(self.command_log()[0], "10")
        self.assertEqual(self.command_log()[-1], str(last))  # that of the end is awaited
        self.assertIn(f"checkpoint command of step {last}: done", out)

    def test_a_command_is_ended_at_a_stop_s_deadline_and_after_its_time_out(self):
        marks = f"sleep 3600 & echo $$ >> '{self.folder}/log'; wait"
        run = self.start(f"training.checkpoint_command={marks}", ranks=2, steps=100000, every=10, flags=("--shutdown-timeout=6",))
        self.wait_until(self.command_log, run)
        run.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        self.ends(run, 143)
        self.assertLess(time.monotonic() - begun, 15)
        self.assertIn("was ended: there was no more time", self.said())
        self.run_whole(f"training.checkpoint_command={marks}", "training.checkpoint_command_timeout=1", "training.checkpoint_dir=" + str(self.folder / "other"), steps=10, code=138)
        self.assertIn("was ended: it took longer than training.checkpoint_command_timeout", self.said())
        for pid in self.command_log():
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

    def test_a_read_only_disk(self):
        if os.getuid():
            self.skipTest("mounting needs root")
        self.run_whole(steps=20)
        subprocess.run(["mount", "--bind", str(self.checkpoints), str(self.checkpoints)], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(self.checkpoints)], check=True)
            for ranks in (0, 2):
                self.run_whole(ranks=ranks, steps=30, code=138)  # before the first step, not at the first checkpoint
                self.assertIn("Read-only file system", self.said())
                self.assertNotIn("\nstep ", self.printed())
            self.assertEqual(self.steps(), [10, 20])
        finally:
            subprocess.run(["umount", str(self.checkpoints)], check=True)

    def bytes_of_all(self):
        return {path: path.read_bytes() for path in self.checkpoints.rglob("*") if path.is_file()}

    @unittest.skipIf(SANITIZED, "its runtime has to be loaded first")
    def test_one_that_cannot_be_read_is_no_damage(self):
        self.run_whole(ranks=2, steps=20)
        kept = self.bytes_of_all()

        def refused(rule, says, ranks=0, flags=(), **more):
            failing = {"LD_PRELOAD": preload("failing_files.so"), "FAILING_FILES": rule}
            out = self.run_whole(ranks=ranks, steps=30, code=138, flags=flags, environment=failing, **more)
            self.assertRegex(self.said(), says)
            self.assertNotIn("\nstep ", out)
            self.assertNotIn("damaged", self.said())
            self.assertEqual(self.bytes_of_all(), kept)

        newest = r"error: (rank \d cannot go on: |rank \d: )?checkpoint \S.*/step-20 cannot be read, and no older one takes its place .*: "
        refused(f"open:step-20/manifest.json:{errno.EACCES}", newest + r".*manifest.json: Permission denied")
        refused(f"read:step-20/manifest.json:{errno.EIO}", newest + r".*manifest.json: Input/output error")
        refused(f"open:step-20/rank-1.safetensors:{errno.ESTALE}", newest + r".*rank-1.safetensors: Stale file handle")
        refused(f"read:step-20/rank-0.safetensors:{errno.EIO}", newest + r".*rank-0.safetensors: Input/output error")
        refused(f"open:step-20/rank-1.safetensors:{errno.EMFILE}", newest + r".*Too many open files")
        # on one rank of two: all end, after a restart that tried again
        refused(f"read:step-20/rank-1.safetensors:{errno.EIO}:1", newest + r".*Input/output error", ranks=2, flags=("--max-restarts=1", "--restart-backoff=0"))
        self.assertIn("restart 1 of 1", self.said())
        self.assertNotIn("a restart does not mend", self.said())
        self.assertIn("resumed from step 20", self.run_whole(ranks=2, steps=30))

    def test_all_are_damaged(self):
        self.run_whole(steps=20)
        for path in self.checkpoints.rglob("rank-0.safetensors"):
            os.truncate(path, path.stat().st_size - 1)
        kept = self.bytes_of_all()
        for ranks in (0, 2):
            out = self.run_whole(ranks=ranks, steps=20, code=2, flags=("--max-restarts=2",))
            self.assertIn("all 2 checkpoints in ", self.said())
            self.assertIn("training.resume_damaged: anew", self.said())
            self.assertNotIn("\nstep ", out)
            self.assertEqual(self.bytes_of_all(), kept)
        self.run_whole("training.resume_damaged=anew", ranks=2, steps=20)
        self.assertIn("are damaged: the run begins at step 0 and replaces them", self.said())
        self.assertEqual(self.steps(), [10, 20])
        self.assertIn("all 20 steps", self.run_whole(ranks=2, steps=20))

    def test_a_damaged_one_is_named_and_the_one_before_is_used(self):
        expected = self.undisturbed(ranks=2, steps=40)
        self.run_whole(ranks=2, steps=30)
        file = self.checkpoints / "step-30" / "rank-1.safetensors"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 4
        file.write_bytes(data)
        out = self.run_whole(ranks=2, steps=40)
        self.assertRegex(self.said(), r"warning: refused \S.*/step-30: .*rank-1.safetensors is damaged: the checksum of .* differs")
        self.assertIn("resumed from step 20", out)
        self.assertEqual(self.model(), expected)
        self.assertEqual(self.steps(), [20, 30, 40])  # 30 is a new one
        self.assertIn("all 40 steps", self.run_whole(ranks=2, steps=40))


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[word for word in sys.argv if word != "--full"])
