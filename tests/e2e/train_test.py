#!/usr/bin/env python3
"""muster-train from end to end: alone and under `muster run`, good and bad input, bit-identical runs, no files or processes left."""
import contextlib
import ctypes.util
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import tempfile
import termios
import unittest

from harness.ports import free_port

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"

LIMIT = 300  # seconds of any run, against a hang; below training.timeout, 600 s

# A few thousand characters of prose that a small model can learn something from in a few steps.
PROSE = " ".join(f"the {adjective} {noun} {verb} over the {other} and then it rests." for adjective in ("quick", "slow", "old")
                 for noun in ("fox", "dog", "hen") for verb in ("jumps", "walks") for other in ("hill", "wall", "river")) + "\n"

CONFIG = """\
training: {{steps: {steps}, micro_batch: 2, global_batch: 4, sequence_length: 32, learning_rate: 3.0e-3, warmup_steps: 5,
           threads: 1, output: "{output}"}}
model: {{layers: 2, channels: 32, heads: 2}}
data: {{path: "{path}"}}
logging: {{sample_length: 40}}
"""


def shared_memory():
    return set(os.listdir("/dev/shm"))


def has_products_of_bf16():
    flags = set(re.findall(r"\w+", pathlib.Path("/proc/cpuinfo").read_text()))
    return flags & {"avx512_bf16", "amx_bf16"} and ctypes.util.find_library("dnnl")


def processes(path):
    """Processes of the machine whose words name the path."""
    found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(path) in line]


def tensors(path, layout="in_out"):
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__")
    assert metadata["linear_layout"] == layout and "\nblas=" in metadata["numerics"], metadata
    return header, data[8 + length:]


class Train(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster train ")  # a space in every path
        self.path = pathlib.Path(self.folder.name)
        (self.path / "text").write_text(PROSE)
        self.shared = shared_memory()

    def tearDown(self):
        if os.environ.get("TEST_APART"):  # else other tests share /dev/shm
            self.assertEqual(shared_memory() - self.shared, set(), "files left in /dev/shm")
        self.assertEqual(processes(self.path), [], "processes left")
        self.folder.cleanup()

    def config(self, steps=30, path=None, extra="", output="model.safetensors"):
        file = self.path / "config.yaml"
        output = self.path / output if output else ""
        file.write_text(CONFIG.format(steps=steps, output=output, path=path or self.path / "text") + extra)
        return file

    def run_program(self, *words, ranks=0, timeout=LIMIT, program=TRAIN, **more):
        command = [str(program), *map(str, words)]
        if ranks:
            command = [str(MUSTER), "run", "--standalone", f"--nproc_per_node={ranks}", *command]
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")} | more
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=self.path, env=environment,
                              errors="replace")

    def losses(self, output):
        return [float(x) for x in re.findall(r"step \d+/\d+  loss ([0-9.]+)", output)]

    def check_good(self, run, steps):
        self.assertEqual(run.returncode, 0, run.stderr)
        losses = self.losses(run.stdout)
        self.assertEqual(len(losses), steps)
        self.assertLess(losses[-1], losses[0] - 1.0)
        header, data = tensors(self.path / "model.safetensors")
        self.assertEqual(header["wte.weight"]["shape"], [256, 32])
        self.assertEqual(max(t["data_offsets"][1] for t in header.values()), len(data))
        self.assertIn("mean loss of the last", run.stdout)
        sample = run.stdout.split("sample:\n", 1)[1]
        self.assertGreaterEqual(len(sample), 20)

    def test_alone(self):
        self.check_good(self.run_program(self.config()), 30)

    def test_two_ranks(self):
        self.check_good(self.run_program(self.config(), ranks=2), 30)

    def test_a_stop_that_is_announced_ends_all_ranks_after_the_same_step(self):
        for ranks in (1, 2):
            command = [MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", "--shutdown-timeout=200", TRAIN,
                       self.config(steps=1000000)]
            run = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.path)
            for line in run.stdout:
                if line.startswith("step "):
                    break
            run.send_signal(signal.SIGTERM)
            out, err = run.communicate(timeout=LIMIT)
            self.assertEqual(run.returncode, 143, err)
            after = re.search(r"all ranks end after step (\d+) of 1000000; training.checkpoint_dir is not set, so the next round restarts at step 1", err)
            self.assertTrue(after, err)
            self.assertEqual(re.findall(r"step (\d+)/", out)[-1], after.group(1))
            self.assertNotIn("still runs", err)  # every rank left by itself
            self.assertIn("saved ", out)
            self.assertNotIn("sample:", out)
            header, data = tensors(self.path / "model.safetensors")
            self.assertEqual(max(t["data_offsets"][1] for t in header.values()), len(data))

    def test_same_run_twice_is_the_same_to_the_bit(self):
        for ranks in (0, 2):
            files = []
            for _ in range(2):
                run = self.run_program(self.config(steps=12), ranks=ranks)
                self.assertEqual(run.returncode, 0, run.stderr)
                files.append(((self.path / "model.safetensors").read_bytes(), self.losses(run.stdout),
                              run.stdout.split("sample:\n", 1)[1]))
            self.assertEqual(files[0], files[1], f"{ranks} ranks")

    def test_strategies_and_worlds_agree(self):
        expected = None
        for ranks in (0, 2):
            for strategy in ("NO_SHARD", "FULL_SHARD"):
                for micro in (1, 2):
                    run = self.run_program(self.config(steps=10, output=""), "--set", f"training.strategy={strategy}", "--set",
                                           f"training.micro_batch={micro}", ranks=ranks)
                    self.assertEqual(run.returncode, 0, run.stderr)
                    losses = self.losses(run.stdout)
                    expected = expected or losses
                    for a, b in zip(expected, losses):
                        self.assertAlmostEqual(a, b, delta=2e-4, msg=f"{ranks} ranks {strategy} micro_batch {micro}")

    def test_hybrid_shard_has_replicas(self):
        hybrid = "--set", "training.strategy=HYBRID_SHARD", "--set", "training.micro_batch=1"
        alone = self.losses(self.run_program(self.config(steps=6, output=""), *hybrid[2:]).stdout)
        for ranks, replicas in (2, 1), (2, 2), (4, 2):
            run = self.run_program(self.config(steps=6, output=""), *hybrid, "--set", f"training.replicas={replicas}", ranks=ranks)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(f"HYBRID_SHARD over {ranks} ranks in {replicas} replicas,", run.stdout)
            for a, b in zip(alone, self.losses(run.stdout), strict=True):
                self.assertAlmostEqual(a, b, delta=2e-4, msg=f"{ranks} ranks, {replicas} replicas")
        plan = self.run_program(self.config(), "--plan", *hybrid, "--set", "training.replicas=2", "--world-size", 4)
        self.assertIn("replicate 2, shard 2", plan.stdout)
        for words, says in (([], "all 2 ranks run on one node; set replicas"), (["--set", "training.replicas=3"], "does not divide a world of 2"),
                            (["--set", "training.replicas=2", "--set", "training.strategy=FULL_SHARD"], "only HYBRID_SHARD has replicas")):
            self.check_rejected(self.run_program(self.config(), *hybrid, *words, ranks=2), 2, says)

    def check_rejected(self, run, code, *words):
        self.assertEqual(run.returncode, code, run.stderr)
        lines = [line for line in run.stderr.splitlines() if line.startswith("muster-train:")]
        self.assertTrue(lines, run.stderr)
        for word in words:
            self.assertIn(word, lines[0])
        self.assertFalse((self.path / "model.safetensors").exists())

    def test_bad_input_is_one_clear_line(self):
        missing = self.path / "nowhere"
        empty = self.path / "empty"
        empty.write_text("")
        short = self.path / "short"
        short.write_text("abc")
        for ranks in (0, 2):
            self.check_rejected(self.run_program(self.config(path=missing), ranks=ranks), 2, str(missing), "No such file")
            self.check_rejected(self.run_program(self.config(path=empty), ranks=ranks), 2, str(empty), "no text")
            self.check_rejected(self.run_program(self.config(path=short), ranks=ranks), 2, "3 tokens", "32")
            self.check_rejected(self.run_program(self.config(extra="loging: {}\n"), ranks=ranks), 2, "config.yaml:6:1", "'loging'",
                               "'logging'")
        self.check_rejected(self.run_program(self.path / "no.yaml"), 2, "no.yaml")
        self.check_rejected(self.run_program(), 2, "no configuration file")
        self.check_rejected(self.run_program("--pln", self.config()), 2, "--pln", "--plan")
        self.check_rejected(self.run_program(self.config(), "--set", "training.micro_batch=5"), 2, "global_batch 4", "micro_batch 5")

    def test_a_plan_larger_than_memory_is_rejected(self):
        for ranks in (0, 2):
            run = self.run_program(self.config(), "--set", "training.memory_limit=100K", ranks=ranks)
            self.check_rejected(run, 2, "the plan needs", "100.0 KB", "memory limit", "use more ranks")
            run = self.run_program(self.config(), "--set", "model.channels=65536", "--set", "model.layers=125", ranks=ranks)
            self.check_rejected(run, 2, "the plan needs", "TB", "what this machine has")

    def test_unreadable_data(self):
        if os.getuid() == 0:
            self.skipTest("root reads everything")
        secret = self.path / "secret"
        secret.write_text(PROSE)
        secret.chmod(0)
        self.check_rejected(self.run_program(self.config(path=secret)), 2, str(secret), "Permission denied")

    def test_a_plan_predicts_its_step_when_asked(self):
        self.check_rejected(self.run_program("--predict", self.config()), 2, "--predict goes with --plan")
        plain = self.run_program(self.config(), "--plan", "--world-size", 2)
        for world, said in ((1, "1 rank of"), (2, "ranks of")):
            run = self.run_program(self.config(), "--plan", "--predict", "--world-size", world)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertRegex(run.stdout, r"a step takes [0-9.]+ ms: [0-9.]+ ms compute, .*\npredicted from the schedule, .*: 3 kinds")
            self.assertIn(said, run.stdout)
        self.assertTrue(run.stdout.startswith(plain.stdout))
        values = ("--set", "training.dtype=bf16", "--set", "training.values=dtype")
        run = self.run_program(self.config(), "--plan", "--predict", "--world-size", 2, *values)
        self.assertRegex(run.stdout, r"arithmetic in bf16\n(.*\n)*a step takes [0-9.]+ ms")
        run = self.run_program(self.config(), "--plan", "--predict", "--output=json", "--world-size", 2)
        plan = json.loads(run.stdout)
        self.assertGreater(plan["prediction"]["step_s"], 0)
        self.assertEqual(plan["prediction"]["layer_kinds"], 3)
        self.assertEqual(plan["world_size"], 2)

    def test_plan_for_any_world(self):
        for world in (1, 8, 512):
            run = self.run_program(self.config(), "--plan", "--world-size", world, "--set", f"training.global_batch={2 * world}")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("param_shard", run.stdout)
        alone = self.run_program(self.config(), "--plan", "--verbose", "--world-size", "1")
        self.assertNotIn("all_gather", alone.stdout)
        verbose = self.run_program(self.config(), "--plan", "--verbose", "--world-size", "2")
        for operation in ("forward", "backward", "all_gather", "reduce_scatter", "step"):
            self.assertIn(operation, verbose.stdout)
        self.assertGreater(len(verbose.stdout), 2000)

    def test_an_output_that_cannot_be_written(self):
        run = self.run_program(self.config(steps=2, output="no/such/folder/model"))
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("no/such/folder", run.stderr)
        self.assertNotIn("step 1/", run.stdout)  # printed before the first step, not after the last

    def without_launcher(self, words_of_rank, stdout=subprocess.PIPE, variables="RANK={rank} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1"):
        """Two ranks as mpirun would start them: nothing kills one when the other fails. Returns their codes and errors."""
        port = free_port()
        ranks = []
        for rank, words in enumerate(words_of_rank):
            place = dict(word.split("=") for word in variables.format(rank=rank).split()) | {"MASTER_PORT": str(port)}
            environment = {k: v for k, v in os.environ.items() if k not in ("TORCHELASTIC_USE_AGENT_STORE", "RANK", "WORLD_SIZE")} | place
            ranks.append(subprocess.Popen([str(TRAIN), *map(str, words)], stdout=stdout, stderr=subprocess.PIPE, text=True,
                                          errors="replace", cwd=self.path, env=environment))
        try:
            self.printed, errors = zip(*(rank.communicate(timeout=LIMIT) for rank in ranks))
        finally:
            for rank in ranks:
                rank.kill()
        return [rank.returncode for rank in ranks], errors

    def test_ranks_of_other_launchers_are_one_world(self):
        for variables in ("OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK={rank} OMPI_COMM_WORLD_LOCAL_SIZE=2",
                          "PMI_RANK={rank} PMI_SIZE=2 MPI_LOCALRANKID={rank} MPI_LOCALNRANKS=2",
                          "SLURM_PROCID={rank} SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID={rank} SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2"):
            codes, errors = self.without_launcher([[self.config(steps=2)]] * 2, variables=variables)
            self.assertEqual(codes, [0, 0], errors)
            self.assertIn("over 2 ranks", self.printed[0], variables)

    def test_what_one_rank_cannot_do_ends_all_without_a_launcher(self):
        config = self.config()
        for rank in range(2):
            for words, says in (("--set", "training.memory_limit=100K"), "the plan needs"), (("--set", "data.path=nowhere"), "nowhere"):
                codes, errors = self.without_launcher([[config, *words] if i == rank else [config] for i in range(2)])
                self.assertEqual(codes, [2, 2], errors)
                # printed by one rank; by both where the store went with rank 0 before rank 1 could ask it
                self.assertIn("".join(errors).count(says), (1, 2), errors)
                if says in errors[0] and says in errors[1]:
                    self.assertIn(f"rank {1 - rank}: error: rank {rank} cannot go on: ", errors[1 - rank])

    def test_a_reader_that_goes_away_ends_nothing(self):
        read, write = os.pipe()
        os.close(read)
        codes, errors = self.without_launcher([[self.config()]] * 2, stdout=write)
        os.close(write)
        self.assertEqual(codes, [138, 0], errors)  # the sample could not be printed, and rank 0 reports it
        self.assertIn("cannot print the sample: Broken pipe", errors[0])
        self.assertEqual(tensors(self.path / "model.safetensors")[0]["wte.weight"]["shape"], [256, 32])

    def test_a_closed_standard_output_is_not_taken_for_a_file(self):
        run = self.run_program("-c", f'exec "{TRAIN}" "$@" >&- 2>&- <&-', "sh", self.config(steps=3), program="sh")
        self.assertEqual(run.returncode, 0)
        header, data = tensors(self.path / "model.safetensors")
        self.assertEqual(max(t["data_offsets"][1] for t in header.values()), len(data))

    def on_terminal(self, columns, *words):
        """Output of a run on a terminal of so many columns."""
        main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        run = subprocess.Popen([str(TRAIN), str(self.config(steps=5)), *words], stdin=subprocess.DEVNULL, stdout=other,
                               stderr=subprocess.STDOUT, cwd=self.path)
        os.close(other)
        output = b""
        with contextlib.suppress(OSError):  # EIO: the last process that had the terminal open is gone
            while piece := os.read(main, 65536):
                output += piece
        os.close(main)
        return run.wait(timeout=LIMIT), output.decode(errors="surrogateescape").replace("\r\n", "\n")

    def test_a_progress_line_is_written_over_where_it_fits(self):
        code, output = self.on_terminal(240, "--set", "logging.sample_length=300")
        self.assertEqual(code, 0, output)
        sample = output.partition("sample:\n")[2]  # the sample of a model that has learned nothing: random bytes
        self.assertRegex(sample, r"\\x[0-9a-f]{2}")
        self.assertIsNone(re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", sample), ascii(sample))
        self.assertEqual(output.count("\rstep "), 5)
        self.assertEqual(output.count("\nstep "), 0)
        code, output = self.on_terminal(80)  # overwriting the line would leave a row for every step
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("\nstep "), 5)
        self.assertNotIn("\r", output)

    def test_labels_of_a_file_cannot_steer_the_terminal(self):
        (self.path / "rows.csv").write_text("text,label\n" + "good,\x1b[31mred\nbad,gr\u00fcn\n" * 8)
        config = self.path / "labels.yaml"
        config.write_text(f"model: {{architecture: text_classifier}}\ndata: {{path: {self.path}/rows.csv, cache_dir: {self.path}/cache}}\n")
        main, other = pty.openpty()
        with open(other, "wb") as terminal:
            subprocess.run([str(TRAIN), "preprocess", str(config)], stdout=terminal, check=True, timeout=LIMIT)
            shown = os.read(main, 65536).decode()
        os.close(main)
        self.assertIn("\\x1b[31mred", shown)
        self.assertIn("gr\u00fcn", shown)
        self.assertNotIn("\x1b", shown)

    def test_a_full_disk_under_standard_output_is_a_failure(self):
        for flag in ("--help", "--version"):
            with open("/dev/full", "w") as full:
                self.assertEqual(subprocess.run([str(TRAIN), flag], stdout=full).returncode, 1)

    def test_each_command_has_its_own_help(self):
        options = {command: set(re.findall(r"(?m)^  (?:-h, )?(--[a-z-]+)", self.help_of(*command.split())))
                   for command in ("", "eval", "generate", "preprocess", "quantize")}
        self.assertEqual(options["preprocess"], {"--set", "--output", "--help"})
        for command, own in ("", "--plan"), ("eval", "--task"), ("generate", "--prompt"), ("quantize", "--to"):
            self.assertEqual([other for other in options if own in options[other]], [command])
        other = subprocess.run([str(TRAIN), "eval", "--prompt", "x"], capture_output=True, text=True)
        self.assertEqual((other.returncode, other.stderr), (2, "muster-train: error: --prompt is an option of muster-train generate, "
                                                               "not of muster-train eval (muster-train --help)\n"))

    def help_of(self, *command):
        return subprocess.run([str(TRAIN), *command, "--help"], capture_output=True, text=True, check=True).stdout

    def test_a_llama_is_trained(self):
        extra = ("--set", "model.architecture=llama", "--set", "model.kv_heads=1", "--set", "model.rope_scaling=linear")
        plan = self.run_program(self.config(), "--plan", "--world-size", 2, *extra)
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertTrue(plan.stdout.startswith("llama-"), plan.stdout)
        run = self.run_program(self.config(), *extra, ranks=2)
        self.assertEqual(run.returncode, 0, run.stderr)
        losses = self.losses(run.stdout)
        self.assertLess(losses[-1], losses[0] - 1.0)
        self.assertIn("model: llama, ", run.stdout)
        header, _ = tensors(self.path / "model.safetensors", layout="out_in")
        self.assertEqual(header["model.embed_tokens.weight"]["shape"], [256, 32])
        self.assertIn("lm_head.weight", header)
        self.assertGreaterEqual(len(run.stdout.split("sample:\n", 1)[1]), 20)
        (self.path / "model.safetensors").unlink()
        # a folder with the name of an architecture is a folder
        written = self.run_program(self.config(steps=1, output="llama"), *extra, "--set", "training.output_format=hf")
        self.assertEqual(written.returncode, 0, written.stderr)
        config = self.config()
        config.write_text(re.sub(r"(?m)^model: .*$", "model: {path: llama}", config.read_text()))
        plan = self.run_program(config, "--plan")
        self.assertEqual(plan.returncode, 0, plan.stderr)
        self.assertTrue(plan.stdout.startswith("llama-2x32"), plan.stdout[:100])
        for setting, words in (("model.kv_heads=3", "must be a multiple of kv_heads (3)"),
                               ("model.rope_factor=2", "no effect with model.rope_scaling: none"),
                               ("model.heads=32", "a head has 1 elements")):
            self.check_rejected(self.run_program(self.config(), *extra[:2], "--set", setting), 2, words)
        self.check_rejected(self.run_program(self.config(), "--set", "model.tied=true"), 2, "model.tied has no effect with model.architecture: auto")

    def test_a_larger_vocabulary_than_bytes_can_be_sampled(self):
        run = self.run_program(self.config(steps=3), "--set", "model.vocabulary=300")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("sample:\n", run.stdout)

    def diverge(self, *words, ranks=0):
        return self.run_program(self.config(steps=60), "--set", "training.learning_rate=100", "--set", "training.weight_decay=100",
                                *words, ranks=ranks)

    def test_a_gradient_that_is_not_finite_is_named_and_ends_a_run_or_is_skipped(self):
        for clip in ("0", "1"):
            clipped = ("--set", f"training.clip_norm={clip}")
            run = self.diverge(*clipped, "--set", "training.on_nonfinite=stop")
            self.assertEqual(run.returncode, 1, run.stdout)
            self.assertRegex(run.stderr, r"step \d+.*the gradient of (wte|wpe|h\.\d|ln_f)\S+ is not finite")
            run = self.diverge(*clipped, ranks=2)
            self.assertEqual(run.returncode, 1, run.stdout)
            self.assertRegex(run.stderr, r"warning: step \d+: the gradient of \S+ is not finite \(rank [01] has it\); the step was skipped")
            self.assertIn("20 steps in a row", run.stderr)
        run = self.diverge("--set", "training.on_nonfinite=roll_back")
        self.assertEqual(run.returncode, 2, run.stdout)
        self.assertIn("roll_back needs checkpoints to go back to: set training.checkpoint_dir", run.stderr)

    def test_16_bits(self):
        for dtype in ("bf16", "fp16"):
            set_dtype = ("--set", f"training.dtype={dtype}")
            run = self.run_program(self.config(), *set_dtype, ranks=2)
            self.check_good(run, 30)
            self.assertIn(f"precision: parameters are kept and gathered in {dtype}, gradients reduced in {dtype}; masters", run.stdout)
            multiplies = r"factors rounded to bf16, sums in fp32, by .*oneDNN" if dtype == "bf16" and has_products_of_bf16() else "fp32"
            self.assertRegex(run.stdout, f"\nproducts: {multiplies}")
            if dtype == "fp16":
                self.assertIn("products: fp32; fp16 is storage and traffic on this processor, as products of fp16 are for GPUs alone", run.stdout)
            if dtype == "bf16":
                kept = self.run_program(self.config(), *set_dtype, "--set", "training.matmul_precision=fp32", "--set", "training.steps=1", ranks=2)
                self.assertIn("products: fp32; bf16 is storage and traffic on this processor, as training.matmul_precision is set", kept.stdout)
            plan = self.run_program(self.config(), "--plan", "--world-size", "2", *set_dtype)
            for kind in ("master", "wide_param", "reduce_slot"):
                self.assertRegex(plan.stdout, rf"\n  {kind} +\d+")
            scratch = re.search(r"\n  scratch +(\d+)", plan.stdout)  # blocks of products, of each thread
            self.assertEqual(scratch and int(scratch[1]) // (13 << 19), 1 if dtype == "bf16" and has_products_of_bf16() else None)
            planned = re.search(r"([\d.]+ .B) a rank planned", run.stdout)[1]
            self.assertIn(f"{planned}\n", re.search(r"\n  total.*\n", plan.stdout)[0])
        for words, says in ((("training.hysteresis=3",), "no effect without fp16"),
                            (("training.matmul_precision=bf16", "training.products=openblas"), "bf16 needs oneDNN, and training.products is openblas")):
            run = self.run_program(self.config(), *(word for setting in words for word in ("--set", setting)))
            self.assertEqual(run.returncode, 2, run.stdout)
            self.assertIn(says, run.stderr)

    @unittest.skipUnless(has_products_of_bf16(), "a processor with products of bf16, and libdnnl")
    def test_a_bound_of_onednn_is_named(self):
        for words, says in (((), "warning: oneDNN is held below AVX-512 by ONEDNN_MAX_CPU_ISA=SSE41, and is slow or unused: unset the variable"),
                            (("training.dtype=bf16",), "as ONEDNN_MAX_CPU_ISA or DNNL_MAX_CPU_ISA bounds libdnnl")):
            run = self.run_program(self.config(), "--set", "training.steps=1", *(word for setting in words for word in ("--set", setting)),
                                   ONEDNN_MAX_CPU_ISA="SSE41")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(says, run.stdout + run.stderr)

    @unittest.skipUnless(has_products_of_bf16(), "a processor with products of bf16, and libdnnl")
    def test_a_broken_libdnnl_and_too_many_threads_are_named(self):
        folder, threads = self.path / "broken", len(os.sched_getaffinity(0)) + 1
        folder.mkdir()
        (folder / "libdnnl.so.3").touch()
        (folder / "libdnnl.so.2").touch()
        run = self.run_program(self.config(), "--set", "training.steps=1", "--set", f"training.threads={threads}", LD_LIBRARY_PATH=str(folder))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, r"warning: libdnnl is there and cannot be used, so OpenBLAS multiplies: .*libdnnl.so.3: file too short")
        self.assertRegex(run.stderr, rf"warning: {threads} threads of a rank share \d+ processors?, and wait for each other: take fewer")


if __name__ == "__main__":
    unittest.main(verbosity=2)
