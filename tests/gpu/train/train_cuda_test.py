#!/usr/bin/env python3
"""muster-train --device=cuda on the fakes, as ranks of `muster run` that share one: it learns as the CPU does.

    MUSTER_BUILD=build python3 tests/gpu/train/train_cuda_test.py [--full] [-k NAME]

Every rank computes with the module over the emulator and the fake libraries (tests/gpu/lib). Losses are held against the CPU's by a
control: the same run on the CPU with another order of sums, which is what another device is too.

With MUSTER_ON_GPU=1 the same runs on a GPU that all ranks share: MUSTER_CUDA_MODULE and LD_LIBRARY_PATH name the module and the
libraries, and tests that ask the fakes for something are left out."""

import collections
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e"))

from harness.preload import preload  # noqa: E402

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
MUSTER, TRAIN = BUILD / "bin" / "muster", os.environ.get("MUSTER_TRAIN_PROGRAM", BUILD / "bin" / "muster-train")
FAKES = BUILD / "tests" / "gpu" / "lib"
MODULE = os.environ.get("MUSTER_TRAIN_MODULE", FAKES / "libmuster_cuda.so")
ON_GPU = os.environ.get("MUSTER_ON_GPU") == "1"
SANITIZED = os.environ.get("MUSTER_SANITIZED")
FULL = "--full" in sys.argv
LIMIT = 300 if SANITIZED else 60  # for any run, against a hang
FAULT_LIMIT = 60 if SANITIZED else 10  # within which a fault has ended every rank

PROSE = " ".join(f"the {adjective} {noun} {verb} over the {other} and then it rests." for adjective in ("quick", "slow", "old")
                 for noun in ("fox", "dog", "hen") for verb in ("jumps", "walks") for other in ("hill", "wall", "river")) + "\n"
CONFIG = """\
training: {{steps: 3, micro_batch: 1, global_batch: 4, sequence_length: 16, learning_rate: 3.0e-3, warmup_steps: 2, threads: 1,
           timeout: 20}}
model: {{layers: 2, channels: 32, heads: 2}}
data: {{path: "{text}"}}
logging: {{interval: 1, sample_length: 0}}
"""
PICTURES = """\
training: {{steps: 3, micro_batch: 2, global_batch: 4, learning_rate: 3.0e-3, threads: 1, timeout: 20}}
model: {{type: resnet, stages: 2, blocks: 1, filters: 8, input_channels: 1, input_size: 8, num_classes: 3}}
data: {{data_dir: "{folder}", mean: "0.5", std: "0.3"}}
logging: {{interval: 1}}
"""
BOUNCES = 2 << 20  # pinned memory of the device itself (runtime/cuda/device_cuda.h)
WORKSPACE = 32 << 20  # for products (runtime/cuda/products.h)
NCCL_STAGE = 2 * (64 << 10)  # pinned and device, for a host's variables, and
NCCL_BARRIER = 256  # of each communicator (runtime/cuda/comm_nccl.h)
STAGE = 4 << 20  # pinned, of each staged comm (runtime/comm/comm_staged.c)

needs_fakes = unittest.skipIf(ON_GPU, "asks the fakes for something")

Result = collections.namedtuple("Result", "status output losses planned seconds lines")  # lines: of log.jsonl


def relative(losses, others):
    assert len(losses) == len(others) and losses, (losses, others)
    return max(abs(a - b) / abs(b) for a, b in zip(losses, others))


class Cuda(unittest.TestCase):
    comm = "host"  # ranks share a device; "nccl": each has its own
    cpu = {}  # on_cpu's results
    wrapper = ()  # a program that starts muster-train

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster cuda ")
        self.path = pathlib.Path(self.folder.name)
        (self.path / "text").write_text(PROSE)
        (self.path / "config.yaml").write_text(CONFIG.format(text=self.path / "text"))
        self.runs = 0

    def tearDown(self):
        self.folder.cleanup()

    def job(self, *sets, ranks=1, device="cuda", launcher=(), **environment):
        """The command of a training, its variables, and the folder of its logs."""
        self.runs += 1
        logs = self.path / f"logs-{self.runs}"
        command = [MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", "--termination-log=", *launcher, *self.wrapper, TRAIN, self.path / "config.yaml",
                   f"--device={device}", "--set", f"logging.dir={logs}"]
        for change in sets:
            command += ["--set", change]
        if device == "cuda":
            command += [f"--comm={self.comm}"]
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        if not ON_GPU:
            variables.update({"MUSTER_CUDA_MODULE": str(MODULE), "LD_LIBRARY_PATH": str(FAKES)})
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            variables.pop(name, None)
        if self.comm == "nccl":
            variables["FAKE_CUDA_DEVICES"] = str(ranks)
        variables.update({name: str(value) for name, value in environment.items()})
        return [str(word) for word in command], variables, logs

    def train(self, *sets, limit=LIMIT, **options):
        """Trains and returns a Result, after any outcome."""
        command, variables, logs = self.job(*sets, **options)
        begun = time.monotonic()
        done = subprocess.run(command, env=variables, cwd=self.path, capture_output=True, text=True, errors="replace", timeout=limit, check=False)
        seconds = time.monotonic() - begun
        lines = [json.loads(line) for line in (logs / "log.jsonl").read_text().splitlines()] if (logs / "log.jsonl").exists() else []
        losses = [line["loss"] for line in lines if line["kind"] == "step"]
        planned = next((line["planned_memory"] for line in lines if "planned_memory" in line), None)
        return Result(done.returncode, done.stdout + done.stderr, losses, planned, seconds, lines)

    def learns(self, *sets, **options):
        result = self.train(*sets, **options)
        self.assertEqual(result.status, 0, result.output)
        return result

    def on_cpu(self, *sets):
        """The losses of one rank on the CPU, and those with another order of sums."""
        if sets not in self.cpu:
            self.cpu[sets] = [self.learns(*sets, *more, device="cpu").losses for more in ((), ("training.micro_batch=4",))]
        return self.cpu[sets]

    def same_losses(self, *sets, ranks, spread=(), steps=3, least=1e-6):
        """As the CPU's, by the rule: within `least` or three times what another order of sums makes on the CPU."""
        wanted, control = self.on_cpu(*sets)
        found = self.learns(*sets, *spread, ranks=ranks).losses
        self.assertEqual(len(found), steps)
        self.assertLessEqual(relative(found, wanted), max(least, 3 * relative(control, wanted)), (found, wanted, control))

    def every_strategy(self, *ranks):
        """On so many ranks; at one micro-batch of one sample they accumulate 4, 2 or 1 of them."""
        for count in ranks:
            for strategy in ("NO_SHARD", "SHARD_OPTIM", "SHARD_GRAD_OP", "FULL_SHARD"):
                with self.subTest(ranks=count, strategy=strategy):
                    self.same_losses(ranks=count, spread=(f"training.strategy={strategy}",))
            for replicas in {count, count // 2} - {0, 1}:
                with self.subTest(ranks=count, replicas=replicas):
                    self.same_losses(ranks=count, spread=("training.strategy=HYBRID_SHARD", f"training.replicas={replicas}"))

    def model(self, name="model"):
        return (self.path / name).read_bytes()

    # Operations of two layers wait for one other at most. fp16 with a fixed scale: a step that is skipped trains nothing.
    hybrid = ("training.strategy=HYBRID_SHARD", "training.replicas=2")
    four = ("model.layers=4", "model.vocabulary=259")  # a head with rows that devices pad
    types = {"fp32": (), "bf16": ("training.dtype=bf16",), "fp16": ("training.dtype=fp16", "training.loss_scale=256")}

    def four_layers(self, ranks, strategies, types, architectures=("gpt2", "llama")):
        for architecture in architectures:
            for dtype in types:
                for strategy in strategies:
                    with self.subTest(architecture=architecture, dtype=dtype, strategy=strategy, ranks=ranks):
                        spread = (f"training.strategy={strategy}",) + (("training.replicas=2",) if strategy == "HYBRID_SHARD" else ())
                        least = 1e-6 if dtype == "fp32" or ranks == 1 else 3e-5  # NCCL rounds a sum of 16 bits at each rank
                        self.same_losses(*self.four, f"model.architecture={architecture}", *self.types[dtype], ranks=ranks, spread=spread, least=least)


class Learns(Cuda):
    def test_every_strategy(self):
        self.every_strategy(1, 2, 4)

    def test_a_plan_of_four_layers(self):
        self.four_layers(1, ("NO_SHARD",), ("bf16", "fp16") if not FULL else self.types)
        self.four_layers(2, ("FULL_SHARD",), ("fp32",), ("gpt2",))
        if FULL:
            self.four_layers(4, ("FULL_SHARD", "HYBRID_SHARD"), self.types)

    def test_without_clipping_and_with_recomputing(self):
        self.same_losses("training.clip_norm=0", "training.recompute=all", ranks=2)

    def test_another_optimizer_an_average_and_an_evaluation(self):
        sets = ("training.optimizer=SGD", "training.momentum=0.9", "training.ema_decay=0.9", "training.evaluate_every=2",
                "training.ema_evaluate=true", "data.validation_share=0.2")
        self.same_losses(*sets, ranks=2)

    def test_tf32_is_asked_for_and_only_then(self):
        tf32 = "training.matmul_precision=tf32"
        plain = self.learns(FAKE_CUBLASLT_COMPUTE="fp32").losses
        rounded = self.learns(tf32, FAKE_CUBLASLT_COMPUTE="tf32").losses
        self.assertNotEqual(rounded, plain)
        self.assertLess(relative(rounded, plain), 1e-2)
        if ON_GPU:
            return
        for sets, compute in (((), "tf32"), ((tf32,), "fp32")):
            self.assertIn(f"FAKE_CUBLASLT_COMPUTE is {compute}", self.train(*sets, FAKE_CUBLASLT_COMPUTE=compute).output)
        self.assertEqual(self.learns(tf32, device="cpu").losses, self.learns(device="cpu").losses)
        refused = self.train(tf32, FAKE_CUDA_MAJOR=7)
        self.assertNotEqual(refused.status, 0)
        self.assertIn("(sm_70) has no tf32, which begins with sm_80: leave training.matmul_precision out", refused.output)

    @needs_fakes
    def test_gelu_is_a_kernel_behind_its_product(self):
        self.learns(FAKE_CUDA_COUNT=self.path / "count-%r")
        counts = (self.path / "count-0").read_text()
        self.assertIn("cublasLtMatmul ", counts)
        for kernel in ("activation_forward ", "linear_backward_activation "):  # with the gradient of the bias before it
            self.assertIn(kernel, counts)

    def test_an_evaluation_is_the_cpus(self):
        sets = ("training.evaluate_every=1", "data.validation_share=0.2", "training.evaluate_at_start=true")
        cpu, cuda = ([line["loss"] for line in self.learns(*sets, device=device).lines if "evaluat" in line["kind"]] for device in ("cpu", "cuda"))
        self.assertGreater(len(cpu), 2)
        self.assertLess(relative(cuda, cpu), 1e-5)

    def test_a_sample_is_the_cpus(self):
        sets = ("logging.sample_length=12", "model.architecture=llama", "training.steps=2")
        counts = self.path / "count-0"
        one, other = (self.learns(*sets, device=device, FAKE_CUDA_COUNT=self.path / "count-%r").output.split("sample:")[1].split("muster")[0] for device in ("cpu", "cuda"))
        self.assertEqual(one, other)
        if not ON_GPU:  # keys and values are kept: a token is one position of each layer
            self.assertIn("attention_past ", counts.read_text())

    def test_generate_draws_the_cpus_text(self):
        # a prompt of more than one pass over kept positions
        self.learns("training.steps=2", "training.global_batch=1", "training.sequence_length=96", f"training.output={self.path / 'model'}", "training.output_format=hf",
                    "model.architecture=llama", device="cpu")
        texts = []
        for device in "cpu", "cuda":
            _, variables, _ = self.job(device=device)
            words = [str(TRAIN), "generate", "--model", str(self.path / "model"), "--prompt", PROSE[:70], "--max-tokens=12", "--temperature=0", "--set", f"training.device={device}"]
            texts.append(subprocess.run(words, env=variables, cwd=self.path, capture_output=True, timeout=LIMIT, check=True).stdout)  # bytes
        self.assertEqual(texts[0], texts[1])
        self.assertGreater(len(texts[0]), 10)


class Values(Cuda):
    """training.values: dtype: layers compute in 16 bits, as the reference does on the CPU, within the type's rounding."""
    types = {"bf16": ("training.dtype=bf16", "training.values=dtype"), "fp16": ("training.dtype=fp16", "training.loss_scale=256", "training.values=dtype")}

    def agree(self, dtype, *sets, ranks=1, spread=()):
        """By the rule of same_losses; two devices round differently what two orders of sums leave alike."""
        self.same_losses(*self.four, *sets, *self.types[dtype], ranks=ranks, spread=spread, least=1e-4)

    def test_one_rank(self):
        self.agree("bf16", "model.architecture=gpt2")
        self.agree("fp16", "model.architecture=llama")

    def test_two_ranks(self):
        self.agree("fp16", "model.architecture=gpt2", ranks=2, spread=("training.strategy=FULL_SHARD",))

    @unittest.skipUnless(FULL, "long")
    def test_every_strategy_of_both_models(self):
        for architecture in "gpt2", "llama":
            for dtype in self.types:
                for ranks, strategy in ((1, "NO_SHARD"), (2, "NO_SHARD"), (2, "SHARD_OPTIM"), (2, "SHARD_GRAD_OP"), (4, "FULL_SHARD"), (4, "HYBRID_SHARD")):
                    with self.subTest(architecture=architecture, dtype=dtype, strategy=strategy, ranks=ranks):
                        more = ("training.replicas=2",) if strategy == "HYBRID_SHARD" else ()
                        self.agree(dtype, f"model.architecture={architecture}", ranks=ranks, spread=(f"training.strategy={strategy}", *more))

    @unittest.skipUnless(FULL, "long")
    def test_heads_of_64_and_128(self):
        for dtype in self.types:
            for heads in 1, 2:
                self.same_losses("model.layers=1", "model.channels=128", f"model.heads={heads}", *self.types[dtype],
                                 *(("training.loss_scale=0",) if dtype == "fp16" else ()), ranks=1, least=1e-3)

    @unittest.skipUnless(FULL, "long")
    def test_pictures(self):
        """A residual network: convolutions, batch norms with their running statistics, means."""
        generator = random.Random(5)
        folder = self.path / "pictures"
        folder.mkdir()
        labels = [n % 3 for n in range(24)]
        pixels = bytes(max(0, min(255, 80 * label + generator.randrange(60))) for label in labels for _ in range(64))
        (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, 24, 8, 8) + pixels)
        (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 24) + bytes(labels))
        (self.path / "config.yaml").write_text(PICTURES.format(folder=folder))
        for dtype in self.types:
            with self.subTest(dtype=dtype):
                self.same_losses("training.seed=3", *self.types[dtype], ranks=1, least=1e-3)

    def test_layers_read_and_write_16_bits(self):
        wide, narrow = (self.learns("training.dtype=bf16", f"training.values={values}") for values in ("fp32", "dtype"))
        self.assertLess(narrow.planned, wide.planned)
        self.assertNotEqual(narrow.losses, wide.losses)
        self.assertLess(relative(narrow.losses, wide.losses), 2**-8)
        self.assertEqual(self.learns("training.dtype=bf16", "training.values=dtype").losses, narrow.losses)  # the same bits again

    def test_a_sample_and_an_evaluation(self):
        sets = (*self.types["bf16"], "training.steps=2", "training.evaluate_every=2", "data.validation_share=0.2", "logging.sample_length=12")
        cpu, cuda = (self.learns(*sets, device=device) for device in ("cpu", "cuda"))
        self.assertIn("sample:", cuda.output)
        one, other = ([line["loss"] for line in result.lines if "evaluat" in line["kind"]] for result in (cpu, cuda))
        self.assertTrue(one and relative(one, other) < 1e-3, (one, other))

    @needs_fakes
    def test_a_device_without_bf16_says_so(self):
        result = self.train(*self.types["bf16"], FAKE_CUDA_MAJOR=7)
        self.assertNotEqual(result.status, 0)
        self.assertIn("(sm_70) has no bf16, which begins with sm_80: set training.dtype: fp16, or leave training.values out", result.output)


class Adapters(Cuda):
    """LoRA and QLoRA: the base is opened on the device, to the bits of the CPU's."""
    lora = ("model.architecture=llama", "lora.rank=4", "lora.alpha=32", "training.learning_rate=0.01")
    narrow = ("training.dtype=bf16", "training.values=dtype")

    @needs_fakes
    def test_gptq_is_the_cpus(self):
        self.learns(f"training.output={self.path / 'exported'}", "training.output_format=hf", device="cpu")
        tables, codes = {}, {}
        variables = {**os.environ, "MUSTER_CUDA_MODULE": str(FAKES / "libmuster_cuda.so"), "LD_LIBRARY_PATH": str(FAKES), "OMP_NUM_THREADS": "1"}
        for name, device, method in ("cpu", "cpu", "gptq"), ("cuda", "cuda", "gptq"), ("nearest", "cpu", "int4"):
            words = (TRAIN, "quantize", self.path / "config.yaml", "--model", self.path / "exported", "--to", self.path / name, "--group", "32", "--output=json",
                     f"--method={method}", *(("--calibration=4",) if method == "gptq" else ()), "--set", f"training.device={device}",
                     "--set", "data.validation_share=0.2")
            done = subprocess.run([str(word) for word in words], env=variables, cwd=self.path, capture_output=True, text=True, timeout=LIMIT, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            tables[name], codes[name] = json.loads(done.stdout), (self.path / name / "quantized.safetensors").read_bytes()
        for key in "loss_before", "loss_after":
            self.assertLess(abs(tables["cuda"][key] / tables["cpu"][key] - 1), 1e-5)
        differ = {name: sum(a != b for a, b in zip(codes[name], codes["cpu"], strict=True)) for name in ("cuda", "nearest")}
        self.assertLess(100 * differ["cuda"], differ["nearest"])  # sums in another order may turn a code now and then

    def test_a_base_in_four_bits(self):
        self.same_losses(*self.lora, "lora.base=nf4", ranks=2)
        if not ON_GPU:
            self.learns(*self.lora, "lora.base=nf4", "training.steps=1", FAKE_CUDA_COUNT=self.path / "count-%r")
            self.assertIn("stored_open ", (self.path / "count-0").read_text())

    @unittest.skipUnless(FULL, "long")
    def test_every_base_type_and_strategy(self):
        for base in "none", "nf4", "int8":
            for more, least in ((), 1e-6), (("lora.dropout=0.1", "lora.base_tables=true"), 1e-6), (self.narrow, 1e-3), (("training.dtype=fp16", "training.loss_scale=256", "training.values=dtype"), 2e-4):
                if base == "none" and "lora.base_tables=true" in more:
                    continue
                for ranks, strategy in (1, "NO_SHARD"), (2, "NO_SHARD"), (2, "FULL_SHARD"), (4, "HYBRID_SHARD"):
                    with self.subTest(base=base, more=more, ranks=ranks, strategy=strategy):
                        # the first gradients of B are near 0, and AdamW's first step has their signs
                        self.same_losses(*self.lora, f"lora.base={base}", *more, ranks=ranks, spread=(f"training.strategy={strategy}", *(("training.replicas=2",) if ranks == 4 else ())), least=least)

    @unittest.skipUnless(FULL, "long")
    def test_files_go_from_one_device_to_the_other(self):
        for base in "nf4", "int8":
            sets = (*self.lora, f"lora.base={base}", "training.steps=4", "training.global_batch=2")
            wanted = self.learns(*sets, device="cpu").losses
            for first, second in ("cpu", "cuda"), ("cuda", "cpu"):
                folder = self.path / f"{base}-{first}"
                kept = (*sets, f"training.checkpoint_dir={folder}", "training.checkpoint_every=2")
                self.learns(*kept, device=first, ranks=2)
                subprocess.run(["rm", "-rf", str(folder / "step-4")], check=True)
                merged = self.learns(*kept, "lora.merge=true", f"training.output={self.path / 'merged'}", "training.output_format=hf", device=second)
                self.assertIn("resumed from step 2", merged.output)
                self.assertLessEqual(relative(merged.losses, wanted[2:]), 1e-5)
                self.assertTrue((self.path / "merged").is_dir())
                subprocess.run(["rm", "-rf", str(self.path / "merged")], check=True)


def fields(message):
    """(number, value) of a message of protobuf: numbers, and bytes."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        elif key & 7 == 2:
            size = number()
            yield key >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {key & 7}")


def slices(path):
    """[track, category, name, begin, end] of a trace (trainer/report/trace.proto), in the order of their begins."""
    tracks, stacks, found = {}, {}, []
    for _, packet in fields(path.read_bytes()):
        parts = dict(fields(packet))
        if 60 in parts:
            track = dict(fields(parts[60]))
            tracks[track[1]] = track.get(2, b"").decode()
        if 11 in parts:
            event = dict(fields(parts[11]))
            stack = stacks.setdefault(event[11], [])
            if event[9] == 1:
                stack.append([tracks[event[11]], event[22].decode(), event[23].decode(), parts[8], None])
                found.append(stack[-1])
            else:
                stack.pop()[4] = parts[8]
    return sorted(found, key=lambda slice: slice[3])


class Traces(Cuda):
    """The operations of chosen steps, with their streams and the times of the device's events."""

    def traced(self, *sets, ranks, steps="2-4", **options):
        result = self.learns(f"logging.trace={steps}", *sets, ranks=ranks, **options)
        return result, [slices(self.path / f"logs-{self.runs}" / "trace" / f"rank-{rank}.perfetto-trace") for rank in range(ranks)]

    def holds(self, found, steps):
        """No slices of a track overlap, each step has its operations, and operations of compute are within it."""
        last = {}
        for track, category, name, begin, end in found:
            self.assertLessEqual(begin, end, name)
            self.assertLessEqual(last.get(track, 0), begin, (track, name))
            last[track] = end
        bounds = [(begin, end) for track, _, _, begin, end in found if track == "steps"]
        self.assertEqual(len(bounds), steps)
        for name, count in ("forward h.0", 4), ("backward h.1", 4):
            for begin, end in bounds:
                here = [slice for slice in found if slice[2] == name and begin <= slice[3] and slice[4] <= end + 2_000_000]
                self.assertGreaterEqual(len(here), count // 2, (name, found))
        return bounds

    def test_operations_and_their_streams(self):
        for self.comm in ("host",) if ON_GPU else ("nccl",):
            result, ranks = self.traced("training.steps=5", ranks=2)
            for found in ranks:
                bounds = self.holds(found, 3)
                self.assertEqual({slice[0] for slice in found}, {"steps", "compute", "gathers", "reductions"})
                self.assertTrue(any(slice[1] == "comm" and slice[2].startswith("all_gather") and slice[0] == "gathers" for slice in found))
                self.assertEqual([sum(slice[0] == track for slice in found) for track in ("gathers", "reductions")], [3 * 5, 3 * 8])  # also those for the next step
                self.assertTrue(any(slice[1] == "comm" and slice[2].startswith("reduce_scatter") and slice[0] == "reductions" for slice in found))
            exposed = [line["exposed_ms"] for line in result.lines if line["kind"] == "step"][1:4]
            for (begin, end), wanted in zip(bounds if len(ranks) == 1 else self.holds(ranks[0], 3), exposed, strict=True):
                waits = sum(slice[4] - slice[3] for slice in ranks[0] if slice[1] == "wait" and begin <= slice[3] < end) / 1e6
                # exposed_ms has each wait by itself, without the time that the host takes between two
                self.assertTrue(0.95 * wanted - 1 <= waits <= (end - begin) / 1e6, (waits, wanted, end - begin))

    @needs_fakes
    def test_nothing_is_left_and_no_bit_changes(self):
        sets = (f"training.output={self.path / 'model'}", "training.steps=4")
        self.learns(*sets)
        wanted = self.model()
        self.traced(*sets, "training.cuda_graphs=true", ranks=1, steps="2", FAKE_CUDA_REPORT=self.path / "report-%r")
        self.assertEqual(self.model(), wanted)
        report = dict(line.split() for line in (self.path / "report-0").read_text().splitlines())
        self.assertEqual({name for name, count in report.items() if "leaked" in name and int(count)}, set())

    @needs_fakes
    @unittest.skipUnless(FULL, "long")
    def test_transfers_between_stages(self):
        self.comm = "nccl"
        _, ranks = self.traced("mesh.pipeline=2", "training.steps=4", "training.micro_batch=1", ranks=2, steps="2-3")
        for found in ranks:
            self.assertIn("transfers", {slice[0] for slice in found})


class Models(Cuda):
    """The models of labelled texts and of pictures, and every page of trainer/docs that trains."""

    REVIEWS = "data: {{path: {path}/reviews.csv, label_key: sentiment, text_key: review, tokenizer: bytes}}\nmodel: {{architecture: {model}, channels: 32, vocabulary: 256{more}}}\n"
    PICTURES = "data: {{path: {path}/mnist, mean: 0.5, std: 0.5}}\nmodel: {{architecture: {model}, input_channels: 1, num_classes: 10, input_size: 12{more}}}\n"
    MORE = {"text_encoder": ", layers: 1, heads: 2", "resnet": ", stages: 2, blocks: 1, filters: 4"}
    STEPS = "training: {steps: 3, micro_batch: 1, global_batch: 4, SEQUENCElearning_rate: 3.0e-3, threads: 1, timeout: 60}\nlogging: {interval: 1}\n"

    def setUp(self):
        super().setUp()
        rows = [f'"the film was {"good and warm" if n % 2 else "bad and cold"}, seen on day {n}",{"positive" if n % 2 else "negative"}' for n in range(24)]
        (self.path / "reviews.csv").write_text("review,sentiment\n" + "\n".join(rows) + "\n")
        (self.path / "mnist").mkdir()
        size = struct.pack(">III", 24, 12, 12)
        (self.path / "mnist" / "train-images-idx3-ubyte").write_bytes(struct.pack(">I", 0x803) + size + bytes((i * 7 + i // 144 * 31) % 256 for i in range(24 * 144)))
        (self.path / "mnist" / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 24) + bytes(i % 10 for i in range(24)))

    def model_of(self, model):
        words = self.REVIEWS if model.startswith("text") else self.PICTURES
        (self.path / "config.yaml").write_text(self.STEPS.replace("SEQUENCE", "sequence_length: 32, " * model.startswith("text")) + words.format(path=self.path, model=model, more=self.MORE.get(model, "")))

    def test_a_classifier_of_texts(self):
        self.model_of("text_classifier")
        self.same_losses("model.architecture=text_classifier", ranks=1)

    @unittest.skipUnless(FULL, "long")
    def test_models_of_texts_and_pictures(self):
        for model in "text_classifier", "text_encoder", "simple_cnn", "resnet":
            self.model_of(model)
            for ranks, strategy in (1, "NO_SHARD"), (2, "FULL_SHARD"):
                with self.subTest(model=model, ranks=ranks):  # batch norm's losses depend on the micro-batch: no control by another one
                    few = ("training.steps=2", "training.global_batch=2")
                    wanted = self.learns(*few, device="cpu").losses
                    found = self.learns(*few, f"training.strategy={strategy}", ranks=ranks, limit=280).losses
                    self.assertLessEqual(relative(found, wanted), 1e-5, (found, wanted))

    @unittest.skipUnless(FULL, "long")
    def test_models_of_texts_in_16_bits(self):
        for model in "text_classifier", "text_encoder":
            self.model_of(model)
            for sets in Values.types.values():
                with self.subTest(model=model, sets=sets):
                    wanted, found = (self.learns(*sets, device=device).losses for device in ("cpu", "cuda"))
                    self.assertLessEqual(relative(found, wanted), 2**-7, (found, wanted))

    @needs_fakes
    @unittest.skipUnless(FULL, "long")
    def test_every_command_of_the_pages(self):
        """training.device is auto, and finds a GPU. Pictures are too many for the emulator, and a corpus is made without a device."""
        pages = pathlib.Path(__file__).resolve().parents[2] / "e2e" / "docs" / "trainer_pages_test.py"
        variables = {**os.environ, "MUSTER_CUDA_MODULE": str(FAKES / "libmuster_cuda.so"), "LD_LIBRARY_PATH": str(FAKES)}
        names = "adapters chats checkpoints compression configurations devices evaluation few_bits logs mesh models reviews stages".split()
        done = subprocess.run([sys.executable, str(pages), *(f"TrainerPages.test_{name}" for name in names)], env=variables, capture_output=True, text=True, errors="replace", timeout=3000, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-6000:])


class Behind(Cuda):
    """Checkpoints: the device's memory is copied between steps, and written while steps run."""

    @needs_fakes
    def test_a_checkpoint_is_written_behind_steps(self):
        self.wrapper = ("env", f"LD_PRELOAD={preload('slow_writes.so')}", "SLOW_WRITES_MS=500")
        output = self.learns(f"training.checkpoint_dir={self.path / 'checkpoints'}", "training.checkpoint_every=30", "training.steps=59", "training.global_batch=2").output
        waited = {int(step): float(seconds) for step, seconds in re.findall(r"checkpoint .*/step-(\d+): .* of which training waited ([\d.]+) s", output)}
        self.assertGreater(waited[59], 0.45, output)  # the run's end waits for its last one
        self.assertLess(waited[30], 0.3, output)

    @needs_fakes
    def test_training_waits_for_little_more_than_the_copies(self):
        copies, steps = [], 4
        for sets in (), ("training.checkpoint_every=1", f"training.checkpoint_dir={self.path / 'checkpoints'}"):
            output = self.learns("training.global_batch=1", f"training.steps={steps}", *sets, FAKE_CUDA_COUNT=self.path / "count-%r",
                                 FAKE_CUDA_COST="cudaMemcpyAsync:3000").output
            copies.append(int(dict(line.split() for line in (self.path / "count-0").read_text().splitlines())["cudaMemcpyAsync"]))
        waited = [float(seconds) for seconds in re.findall(r"of which training waited ([\d.]+) s", output)]
        self.assertEqual(len(waited), steps)
        begun = time.monotonic()
        for _ in range(50):  # as late as this machine's wake-ups are
            time.sleep(0.003)
        copy = (time.monotonic() - begun) / 50
        self.assertLess(min(waited[:-1]), 1.2 * copy * (copies[1] - copies[0]) / steps, output)  # the last one is waited for

    def test_it_is_whole_and_memory_for_it_may_be_missing(self):
        models = set()
        # work as late as it may run: copies are there because they are waited for. An embedding of more bytes than one checksum is of
        for name, environment in ("one", {"FAKE_CUDA_SCHEDULE": "late"}), ("two", {"FAKE_CUDA_FAIL": "cudaHostAlloc:5"}):
            folder = self.path / name
            sets = (f"training.checkpoint_dir={folder}", "training.checkpoint_every=2", "training.steps=6", f"training.output={self.path / 'model'}", "model.vocabulary=8448")
            self.learns(*sets, **environment)
            wanted = self.model()
            for step in sorted(folder.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))[1:]:
                subprocess.run(["rm", "-rf", str(step)], check=True)
            again = self.learns(*sets, device="cuda")
            self.assertIn("resumed from step 2", again.output)
            self.assertEqual(self.model(), wanted)
            models.add(wanted)
        self.assertEqual(len(models), 1)


class Moves(Cuda):
    def test_a_checkpoint_goes_from_one_device_to_the_other(self):
        # with NO_SHARD each rank writes a share of what all of them hold
        for first, second, ranks, strategy, dtype, architecture in (("cpu", "cuda", 2, "FULL_SHARD", "bf16", "gpt2"), ("cuda", "cpu", 2, "FULL_SHARD", "fp32", "llama"),
                                                                    ("cuda", "cuda", 2, "NO_SHARD", "fp16", "gpt2"), *((("cuda", "cuda", 1, "FULL_SHARD", "fp16", "gpt2"),) if FULL else ())):
            with self.subTest(f"{first} to {second}", ranks=ranks):
                folder = self.path / f"checkpoints-{first}-{second}-{ranks}"
                sets = (f"training.checkpoint_dir={folder}", "training.checkpoint_every=2")
                # the learning rate's schedule is that of 6 steps in both halves; of the vocabulary a GPU's layout has further rows, and no file
                shared = ("training.steps=6", "training.schedule=cosine", "training.global_batch=2", f"model.architecture={architecture}", *self.four, *self.types[dtype])
                half = self.train(*sets, *shared, f"training.strategy={strategy}", device=first, ranks=ranks)
                self.assertEqual(half.status, 0, half.output)
                steps = sorted(folder.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))
                for later in steps[1:]:
                    subprocess.run(["rm", "-rf", str(later)], check=True)
                rest = self.learns(*sets, *shared, device=second, ranks=3 - ranks)
                self.assertIn("resumed from step", rest.output)
                begun = int(re.search(r"resumed from step (\d+)", rest.output)[1])
                wanted = self.learns(*shared, device="cpu").losses
                control = self.learns(*shared, "training.micro_batch=2", device="cpu").losses
                least = 1e-6 if dtype == "fp32" else 3e-5  # a sum of two ranks is rounded to 16 bits
                bound = max(least, 3 * relative(control, wanted))
                self.assertLessEqual(relative(rest.losses, wanted[begun:]), bound, (rest.losses, wanted))


    @needs_fakes
    @unittest.skipUnless(FULL, "long")
    def test_a_checkpoint_goes_to_replicas_of_shards_and_back(self):
        self.comm = "nccl"
        shared = ("training.steps=6", "training.schedule=cosine", *self.four)
        wanted, control = (self.learns(*shared, *more, device="cpu").losses for more in ((), ("training.micro_batch=2",)))
        for number, ((first, ranks, sets), (second, others, changes)) in enumerate(((("cuda", 4, self.hybrid), ("cpu", 2, ())), (("cpu", 2, ()), ("cuda", 4, self.hybrid)),
                                                                                   (("cuda", 4, self.hybrid), ("cuda", 2, ())))):
            with self.subTest(first=first, second=second):
                folder = self.path / f"checkpoints-{number}"
                kept = (f"training.checkpoint_dir={folder}", "training.checkpoint_every=2")
                self.learns(*shared, *sets, *kept, device=first, ranks=ranks)
                for later in sorted(folder.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))[1:]:
                    subprocess.run(["rm", "-rf", str(later)], check=True)
                rest = self.learns(*shared, *changes, *kept, device=second, ranks=others)
                self.assertIn("resumed from step 2", rest.output)
                self.assertLessEqual(relative(rest.losses, wanted[2:]), max(1e-6, 3 * relative(control, wanted)), (rest.losses, wanted))


class Memory(Cuda):
    def report(self, name="report"):
        return {key: int(value) for key, value in (line.split() for line in (self.path / name).read_text().splitlines())}

    def beyond_the_plan(self, *sets, ranks=1):
        """Bytes of device and pinned memory that each rank has had next to its arenas; nothing is left of anything."""
        result = self.learns(*sets, ranks=ranks, FAKE_CUDA_REPORT=self.path / "report-%r")
        rest = set()
        for rank in range(ranks):
            report = self.report(f"report-{rank}")
            self.assertEqual({name: count for name, count in report.items() if "high_water" not in name and count}, {})
            rest.add(report["device_high_water"] + report["pinned_high_water"] - result.planned)
        self.assertEqual(len(rest), 1)
        return rest.pop()

    @needs_fakes
    def test_high_water_is_the_plan_and_nothing_is_left(self):
        for sets in (*self.four, *self.types["bf16"]), ("training.sequence_length=8", "model.architecture=llama", *self.types["fp16"]), ("training.cuda_graphs=true",):
            self.assertEqual(self.beyond_the_plan(*sets), WORKSPACE + BOUNCES)
        staged = self.beyond_the_plan(ranks=2) - WORKSPACE - BOUNCES
        self.assertEqual(staged % STAGE, 0)
        self.assertLessEqual(staged, 4 * STAGE)  # gathers, reductions on the shard's and the world's axis, between steps
        self.comm = "nccl"
        for sets in (), ("model.channels=128", "training.global_batch=8", *self.four):  # micro-batches whose gradients are added
            self.assertEqual(self.beyond_the_plan(*sets, ranks=2) - WORKSPACE - BOUNCES, NCCL_STAGE + NCCL_BARRIER)

    @needs_fakes
    def test_a_plan_is_that_of_the_devices_kernels(self):
        for device in "cuda", "cpu":
            run = self.learns(device=device, FAKE_CUDA_DEVICES=1)
            command = [TRAIN, self.path / "config.yaml", "--plan", "--output=json", f"--device={device}"]
            for module in FAKES / "libmuster_cuda.so", "/nowhere/x.so":  # a GPU need not be there, its kernels must
                variables = {**os.environ, "MUSTER_CUDA_MODULE": str(module), "LD_LIBRARY_PATH": str(FAKES), "FAKE_CUDA_DEVICES": "0"}
                done = subprocess.run([str(word) for word in command], env=variables, cwd=self.path, capture_output=True, text=True, timeout=LIMIT, check=False)
                if device == "cuda" and module == "/nowhere/x.so":
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn("a plan of training.device: cuda (plan with cpu for the CPU's sizes)", done.stderr)
                else:
                    self.assertEqual(json.loads(done.stdout)["bytes"], run.planned, (device, done.stderr))

    @needs_fakes
    @unittest.skipUnless(FULL, "long")
    def test_high_water_of_replicas_of_shards(self):
        self.comm = "nccl"
        for dtype in self.types.values():
            beyond = self.beyond_the_plan(*self.hybrid, *self.four, "training.global_batch=16", *dtype, ranks=4) - WORKSPACE - BOUNCES
            self.assertEqual(beyond, NCCL_STAGE + 3 * NCCL_BARRIER)  # all ranks, shards, replicas

    def plan(self, device, *sets, **environment):
        """The plan as JSON, or the error, on a machine without a driver."""
        variables = {**os.environ, "MUSTER_CUDA_MODULE": str(FAKES / "libmuster_cuda.so"), "LD_LIBRARY_PATH": str(FAKES), "FAKE_CUDA_DRIVER": "0"}
        variables.update({name: str(value) for name, value in environment.items()})
        command = [TRAIN, self.path / "config.yaml", f"--device={device}", "--output=json", *sets]
        done = subprocess.run([str(word) for word in command], env=variables, cwd=self.path, capture_output=True, text=True, timeout=LIMIT, check=False)
        return done.stderr if done.returncode else json.loads(done.stdout)

    @needs_fakes
    def test_a_plan_for_a_gpu_that_is_not_here(self):
        here = self.plan("cuda", "--plan")
        for name, gigabytes, comm, ranks, nccl in ("h100", 79, "auto", 2, 512 << 20), ("t4", 15, "auto", 1, 0), ("b200", 179, "host", 2, 0):
            found = self.plan(name, "--plan", f"--world-size={ranks}", f"--comm={comm}")
            device = found["device"]
            self.assertEqual((device["name"], device["memory"] >> 30, device["cublaslt"], device["nccl"]), (name, gigabytes, 160 << 20, nccl))
            self.assertEqual(device["left"], device["memory"] - device["plan"] - device["cublaslt"] - device["nccl"])
            if ranks == 1:
                self.assertEqual(found["bytes"], here["bytes"])
                self.assertEqual(device["plan"], sum(here["bytes_by_memory"][name] for name in ("device", "comm")))
        tf32, fp32 = (self.plan("h100", "--plan", "--set", f"training.matmul_precision={name}")["device"] for name in ("tf32", "fp32"))
        self.assertAlmostEqual(fp32["products_least_s"] / tf32["products_least_s"], 494.7 / 67, places=4)
        bf16 = self.plan("h100", "--plan", "--set", "training.dtype=bf16", "--set", "training.values=dtype")["device"]
        self.assertAlmostEqual(fp32["products_least_s"] / bf16["products_least_s"], 989.4 / 67, places=2)
        large = ("--set", "training.micro_batch=512", "--set", "training.global_batch=512", "--set", "training.sequence_length=512", "--set", "model.channels=1024", "--plan")
        self.assertRegex(self.plan("t4", *large), r"the plan needs .* but 14.8 GB .* is what the NVIDIA T4, 16 GB has next to its libraries; it fits with ")
        self.assertIn("T4, 16 GB (sm_75) has no tf32", self.plan("t4", "--plan", "--set", "training.matmul_precision=tf32"))
        for change in "training.matmul_precision=bf16", "training.products=onednn":
            for device in "h100", "cuda":
                self.assertIn("device cuda multiplies by its own library, in fp32 or tf32: leave ", self.plan(device, "--plan", "--set", change))
        self.assertIn("is not one of auto, cpu, cuda, t4, a100, h100, h200, b200", self.plan("h101", "--plan"))
        self.assertIn("h100 describes a GPU for --plan and --suggest: train with cuda", self.plan("h100"))
        self.assertIn("a prediction for training.device: h100: parts of a step are measured on the CPU alone", self.plan("h100", "--plan", "--predict"))

    @needs_fakes
    def test_a_plan_shows_the_nodes_memory(self):
        here = {"FAKE_CUDA_DRIVER": 13000, "FAKE_CUDA_DEVICES": 2}
        sets = "--set", "training.optimizer_memory=host", "--set", f"training.checkpoint_dir={self.path / 'c'}"
        alone, two = (self.plan("cuda", "--plan", f"--world-size={ranks}", *sets, **here) for ranks in (1, 2))
        memory = alone["bytes_by_memory"]
        self.assertEqual(alone["host"]["plan"], memory["pinned"] + memory["host"])
        self.assertAlmostEqual(two["host"]["checkpoint_copy"] / alone["host"]["checkpoint_copy"], 0.5, places=2)
        nodes = self.plan("h100", "--plan", "--world-size=16", "--set", "training.global_batch=16", *sets)["host"]
        self.assertEqual((alone["host"]["ranks"], two["host"]["ranks"], nodes["ranks"]), (1, 2, 8))
        for host in alone["host"], two["host"], nodes:
            self.assertEqual(host["node"], host["ranks"] * (host["plan"] + host["checkpoint_copy"]))
        self.assertLess(abs(two["host"]["available"] - alone["host"]["available"]), alone["host"]["available"] // 4)
        kept = self.beyond_the_plan(f"training.checkpoint_dir={self.path / 'kept'}", "training.checkpoint_every=2") - WORKSPACE - BOUNCES
        planned = self.plan("cuda", "--plan", "--set", f"training.checkpoint_dir={self.path / 'kept'}")["host"]["checkpoint_copy"]
        self.assertLess(abs(kept - planned), 64 * 100)  # each tensor's begin
        self.assertNotIn("host", self.plan("cpu", "--plan"))
        large = ["--plan", "--set", "model.channels=65536", "--set", "model.layers=4", "--set", "model.heads=64", *sets]
        variables = {**os.environ, "MUSTER_CUDA_MODULE": str(FAKES / "libmuster_cuda.so"), "LD_LIBRARY_PATH": str(FAKES), "FAKE_CUDA_DRIVER": "0"}
        done = subprocess.run([TRAIN, self.path / "config.yaml", "--device=b200", *large], env=variables, cwd=self.path, capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertRegex(done.stdout, r"the node's memory: a rank takes \S+ TB, pinned and host, and \S+ TB for the copy of a checkpoint; this machine has \S+ .B available\n"
                                      r"warning: on a node like this machine the plan needs .* of the host's memory on rank 0, but .* is all that this machine has for it; ")

    @needs_fakes
    def test_a_plan_of_a_found_gpu_is_that_of_a_named_device(self):
        here = {"FAKE_CUDA_DRIVER": 13000, "FAKE_CUDA_DEVICES": 2}
        sets = "--plan", "--world-size=2", "--set", "training.dtype=bf16", "--set", "training.values=dtype", "--set", "training.global_batch=8"
        found, named = (self.plan(device, *sets, **here) for device in ("auto", "cuda"))
        self.assertEqual((found["bytes_by_memory"], found["hash"]), (named["bytes_by_memory"], named["hash"]))

    @needs_fakes
    def test_meshes_are_suggested_for_the_gpus_memory(self):
        here = {"FAKE_CUDA_DRIVER": 13000, "FAKE_CUDA_MEMORY": 3 << 30, "FAKE_CUDA_DEVICES": 2}
        for device, ranks, memory in ("cuda", 1, (3 << 30) - (160 << 20)), ("auto", 2, (3 << 30) - (672 << 20)):
            self.assertEqual(self.plan(device, "--suggest", f"--world-size={ranks}", **here)["memory"], memory)
        self.assertEqual(self.plan("cuda", "--suggest", "--memory=5G")["memory"], 5 << 30)
        self.assertEqual(self.plan("cuda", "--suggest", "--set", "training.memory_limit=5G")["memory"], 5 << 30)
        described, by_cores = self.plan("h100", "--suggest", "--world-size=2"), self.plan("cuda", "--suggest", "--world-size=2", "--memory=5G")
        self.assertEqual((described["rates"], by_cores["rates"]), ("NVIDIA H100 SXM5, 80 GB", "ordinary cores"))
        self.assertLess(described["suggestions"][0]["step_s"], by_cores["suggestions"][0]["step_s"])
        for device in "cuda", "auto":  # the same GPU, here
            found = self.plan(device, "--suggest", "--world-size=2", **{**here, "FAKE_CUDA_MEMORY": 81559 << 20})
            self.assertEqual((found["rates"], found["suggestions"]), ("this machine's GPU, NVIDIA H100 SXM5, 80 GB", described["suggestions"]))
        other = self.plan("cuda", "--suggest", "--world-size=2", **here)
        self.assertEqual(other["rates"], "this machine's GPU, a fake of muster's tests (sm_90, 132 multiprocessors at 1980 MHz)")
        self.assertEqual(self.plan("cuda", "--suggest", **here, FAKE_CUDA_CLOCK=0)["rates"], "ordinary cores")
        unknown = self.plan("cuda", "--suggest")
        self.assertIn("the memory of a rank's GPU is not known; give it (--memory 80G of muster-train), set training.memory_limit, or name a GPU", unknown)
        self.assertIn("there is no NVIDIA driver on this machine", unknown)
        self.assertIn("a prediction for training.device: cuda: parts of a step are measured on the CPU alone", self.plan("auto", "--plan", "--predict", **here))
        least = {place: min(mesh["bytes"] for mesh in self.plan("cuda", "--suggest", "--memory=5G", "--set", f"training.optimizer_memory={place}")["suggestions"])
                 for place in ("device", "host")}
        self.assertRegex(self.plan("cuda", "--suggest", f"--memory={sum(least.values()) // 2}"),
                         "none of .* fits .* or shorter sequences, or training.optimizer_memory: host, with which a mesh needs")

    @needs_fakes
    def test_room_is_left_for_libraries(self):
        planned = self.learns().planned
        for memory, ranks, fits in ((planned + (64 << 20), 1, False), (planned + (170 << 20), 1, True), (planned + (170 << 20), 2, False)):
            self.comm = "nccl" if ranks > 1 else "host"
            result = self.train(ranks=ranks, FAKE_CUDA_MEMORY=memory)
            self.assertEqual(result.status == 0, fits, result.output)
            if not fits:
                self.assertRegex(result.output, r"is what the device has free next to \S+ MB for its libraries")
            else:
                self.assertIn("used on the host", result.output)

    @needs_fakes
    def test_a_limit_is_of_the_devices_memory(self):
        host = ("training.optimizer_memory=host",)
        planned = self.plan("cuda", "--plan", *(f"--set={change}" for change in host))["bytes_by_memory"]
        device = planned["device"] + planned["comm"]
        self.assertGreater(planned["pinned"] + planned["host"], 1 << 15)
        self.learns(*host, f"training.memory_limit={device}")
        refused = self.train(*host, f"training.memory_limit={device - 1}")
        self.assertNotEqual(refused.status, 0)
        self.assertRegex(refused.output, rf"the plan needs .* \({device} bytes\) of the device's memory on rank 0, but .* is the memory limit")
        self.learns(*host, FAKE_CUDA_MEMORY=device + (161 << 20))  # the libraries' 160 MiB, the device's own

    @needs_fakes
    def test_nothing_is_allocated_after_the_second_step(self):
        for self.comm, graphs, dtype in ("host", "false", "fp16"), ("nccl", "true", "bf16"):
            counts = []
            for steps in (2, 5):
                self.learns(f"training.steps={steps}", f"training.cuda_graphs={graphs}", "training.global_batch=2", *self.four, *self.types[dtype], ranks=2, FAKE_CUDA_COUNT=self.path / "count-%r")
                counts.append({key: int(value) for key, value in (line.split() for line in (self.path / "count-0").read_text().splitlines())})
            for name in ("cudaMalloc", "cudaHostAlloc", "cudaEventCreateWithFlags", "cudaStreamCreateWithPriority", "cudaFree", "cudaFreeHost",
                         "cudaGraphInstantiate", "cublasLtMatmulDescCreate", "cublasLtMatmulAlgoGetHeuristic", "ncclCommSplit"):
                self.assertEqual(counts[0].get(name), counts[1].get(name), name)
            for name in ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy"):
                self.assertNotIn(name, counts[1])
            self.assertGreater(counts[1]["adamw"], counts[0]["adamw"])

    @needs_fakes
    def test_nothing_is_allocated_once_layers_run(self):
        for self.comm, sets in (("host", ()), ("nccl", ()), ("nccl", ("training.embedding_gradient=rows",)), ("nccl", self.types["bf16"]),
                                ("nccl", ("training.strategy=NO_SHARD",))):
            self.learns("training.global_batch=8", "model.channels=128", *sets, ranks=2, FAKE_CUDA_NO_MEMORY_AFTER="embedding_forward")
        refused = self.train(ranks=1, FAKE_CUDA_NO_MEMORY_AFTER="cudaMalloc")
        self.assertIn("fake CUDA: cudaMalloc after the first cudaMalloc", refused.output)


class Graphs(Cuda):
    """Layers that are recorded and launched as one: the same bits, fewer launches."""

    graphs = "training.cuda_graphs=true"

    def counts(self, rank=0):
        return {key: int(value) for key, value in (line.split() for line in (self.path / f"count-{rank}").read_text().splitlines())}

    def test_no_bit_changes(self):
        variants = ("host", 1, "fp16", "llama"), ("host", 2, "fp32", "gpt2"), ("nccl", 2, "bf16", "gpt2")
        for self.comm, ranks, dtype, architecture in variants[: 2 if ON_GPU else 3]:
            sets = (f"training.output={self.path / 'model'}", "training.steps=3", "training.global_batch=2", f"model.architecture={architecture}",
                    *self.four, *self.types[dtype])
            plain = self.learns(*sets, ranks=ranks)
            wanted = self.model()
            for schedule in "early", "late":
                found = self.learns(*sets, self.graphs, ranks=ranks, FAKE_CUDA_SCHEDULE=schedule)
                self.assertEqual(found.losses, plain.losses)
                self.assertEqual(self.model(), wanted)

    @needs_fakes
    @unittest.skipUnless(FULL, "long")
    def test_no_bit_changes_in_replicas_of_shards(self):
        self.comm = "nccl"
        for dtype in self.types.values():
            sets = (f"training.output={self.path / 'model'}", *self.hybrid, *self.four, *dtype)
            plain = self.learns(*sets, ranks=4)
            wanted = self.model()
            self.assertEqual(self.learns(*sets, self.graphs, ranks=4).losses, plain.losses)
            self.assertEqual(self.model(), wanted)

    @needs_fakes
    def test_attention_by_cudnn_is_recorded_too(self):
        """The fake of cuDNN has the bits of muster's kernels, and spoils its workspace."""
        fake = BUILD / "tests" / "gpu" / "cudnn" / "fake"
        library = {"MUSTER_CUDA_MODULE": fake / "libmuster_cuda.so", "LD_LIBRARY_PATH": f"{fake}:{FAKES}", "FAKE_CUDA_COUNT": self.path / "count-%r"}
        sets = ("training.steps=4", "training.global_batch=2", "model.channels=64", "model.heads=1", "training.dtype=bf16", "training.values=dtype",
                "training.evaluate_every=2", "data.validation_share=0.2")
        wanted = self.learns(*sets).losses
        calls = []
        for more in (), (self.graphs,):
            found = self.learns(*sets, "training.attention=cudnn", *more, **library)
            self.assertEqual(found.losses, wanted)
            self.assertIn("cuDNN 9.19.0", found.output)
            calls.append([self.counts()[f"cudnn_attention_{direction}"] for direction in ("forward", "backward")])
        (forward, backward), (forward_graphs, backward_graphs) = calls
        self.assertEqual((backward, backward_graphs), (4 * 2 * 2, 2 * 2 * 2))  # steps, micro-batches, layers: two steps are not a replay
        self.assertLess(forward_graphs, forward)

    def test_an_evaluation_and_a_sample_between_steps(self):
        sets = (f"training.output={self.path / 'model'}", "training.steps=4", "training.evaluate_every=1", "data.validation_share=0.2",
                "logging.sample_length=8", "training.recompute=every")
        plain = self.learns(*sets)
        wanted = self.model()
        self.assertEqual(self.learns(*sets, self.graphs).losses, plain.losses)
        self.assertEqual(self.model(), wanted)

    @needs_fakes
    def test_layers_are_launched_once_they_are_recorded(self):
        launches = []
        for steps in 2, 5:
            self.learns(f"training.steps={steps}", self.graphs, FAKE_CUDA_COUNT=self.path / "count-%r")
            launches.append(self.counts())
        for name in ("layernorm_forward", "attention_backward", "cublasLtMatmul", "cudaStreamBeginCapture", "cudaGraphInstantiate"):
            self.assertEqual(launches[0][name], launches[1][name], name)
        layers = 2 + 2  # blocks, embedding and head
        self.assertEqual(launches[1]["cudaGraphLaunch"] - launches[0]["cudaGraphLaunch"], 3 * 4 * 2 * layers)  # steps, micro-batches
        self.assertEqual(launches[1]["adamw"] * 2, launches[0]["adamw"] * 5)

    @needs_fakes
    def test_a_fault_in_a_layer_names_it(self):
        self.learns("training.steps=1", FAKE_CUDA_COUNT=self.path / "count-%r")
        second_step = self.counts()["layernorm_backward"] + 3
        result = self.train(self.graphs, "training.steps=4", FAKE_CUDA_ASYNC=f"layernorm_backward:{second_step}")
        self.assertNotEqual(result.status, 0)
        self.assertRegex(result.output, r"cudaErrorIllegalAddress.*under way: .*(for|back)ward (embedding|h.0|h.1|head), .*and \d+ more of stream compute")

    @needs_fakes
    def test_it_is_refused_where_it_has_no_effect(self):
        for sets, device, words in (((), "cpu", "training.cuda_graphs has no effect with training.device: cpu"),
                                    ((), "auto", "training.cuda_graphs: device cpu launches no graphs"),
                                    (("training.sync_errors=true",), "cuda", "set either of them")):
            result = self.train(self.graphs, *sets, device=device, FAKE_CUDA_DEVICES=0 if device == "auto" else 1)
            self.assertNotEqual(result.status, 0)
            self.assertIn(words, result.output)


class Schedules(Cuda):
    def test_the_order_of_streams_changes_no_bit(self):
        schedules = [("early", 0), ("late", 0)] + [("shuffled", seed) for seed in range(100 if FULL else 1)]  # gpu_schedules: a hundred
        models = set()
        for schedule, seed in schedules:
            self.learns(f"training.output={self.path / 'model'}", ranks=2, FAKE_CUDA_SCHEDULE=schedule, FAKE_CUDA_SEED=seed)
            models.add(self.model())
        self.assertEqual(len(models), 1)


@needs_fakes
class Faults(Cuda):
    def counts(self):
        self.learns(ranks=2, FAKE_CUDA_COUNT=self.path / "count-%r")
        return {key: int(value) for key, value in (line.split() for line in (self.path / "count-1").read_text().splitlines())}

    def sweep(self, calls):
        """Each of (function, number) fails once, on rank 1. What failed is named by that rank, but for a few."""
        told = {True: 0, False: 0}
        for function, number in calls:
            with self.subTest(f"{function}:{number}"):
                result = self.train(ranks=2, limit=FAULT_LIMIT + 20, FAKE_CUDA_FAIL=f"{function}:{number}@1")
                if result.status == 0:  # how often is asked whether work is done depends on time
                    harmless = HARMLESS.search(function) or "was told to fail" not in result.output
                    at_the_end = function == "cudaGetDevice" and re.search("mean loss.*was told to fail", result.output, re.DOTALL)
                    self.assertTrue(harmless or at_the_end, result.output)
                    continue
                self.assertLess(result.seconds, FAULT_LIMIT, result.output)
                named = re.search(rf"rank 1: error: .*({function}|\w+: cuda\w+:|cuBLASLt: )", result.output)
                # a rank that fails while ranks find each other may be ended, for its peer's sake, before it tells why
                self.assertTrue(named or re.search(r"rank 0: error: .*rank 1", result.output), result.output)
                told[bool(named)] += 1
                self.assertNotRegex(result.output, r"Sanitizer|Assertion|SIGSEGV|SIGABRT")
        print(f"{told[True]} faults named by their rank, {told[False]} by the peer alone", file=sys.stderr)
        self.assertLessEqual(told[False], told[True] // 4)

    def test_each_call_fails_once(self):
        counts = self.counts()
        calls = []
        for function, count in sorted(counts.items()):
            if FULL:
                calls += [(function, number) for number in sorted({1, 2, count, *range(1, count + 1, max(1, count // 20))})]
            else:
                calls.append((function, (count + 1) // 2))
        self.sweep(calls)

    def test_an_asynchronous_fault_names_what_was_under_way(self):
        for exact in (False, True):
            result = self.train(*(["training.sync_errors=true"] if exact else []), ranks=2, FAKE_CUDA_ASYNC="adamw:2@1")
            self.assertNotEqual(result.status, 0)
            self.assertIn("cudaErrorIllegalAddress", result.output)
            self.assertRegex(result.output, r"under way: adamw of stream compute\n" if exact else r"under way: .*of stream")

    def test_a_kernel_that_hangs_is_named(self):
        result = self.train("training.timeout=1", FAKE_CUDA_HANG="layernorm_backward:4")
        self.assertNotEqual(result.status, 0)
        self.assertLess(result.seconds, FAULT_LIMIT)
        error = re.search(r"error: step 1: .*the device of rank 0 has come no further for 1.5 s: stream compute has not finished in time: of \d+ operations, (.*), and \d+ more", result.output)
        self.assertIn("layernorm_backward", error[1].split(", "), result.output)
        place = re.search(r"in step 1: compute has begun operation (\d+) of (\d+) last, (.*) of micro-batch 0", result.output)
        self.assertEqual(place[3], "backward h.1")
        self.assertLess(int(place[1]), int(place[2]) // 2)

    def test_a_restart_ends_with_the_undisturbed_weights(self):
        sets = (f"training.output={self.path / 'model'}", "training.checkpoint_every=1")
        self.learns(*sets, f"training.checkpoint_dir={self.path / 'one'}", ranks=2)
        undisturbed = self.model()
        for fault in ({"FAKE_CUDA_FAIL": "adamw:5@1"}, {"FAKE_CUDA_ASYNC": "cross_entropy:4@0"}):
            (self.path / "model").unlink()
            result = self.train(*sets, f"training.checkpoint_dir={self.path / next(iter(fault))}", ranks=2, launcher=("--max-restarts=1",), **fault)
            self.assertEqual(result.status, 0, result.output)
            self.assertIn("restart 1 of 1", result.output)
            self.assertEqual(self.model(), undisturbed)


class Stages(Cuda):
    """Pipelines: as one rank on the CPU, with NCCL and through the host's memory."""

    comms = ("host",) if ON_GPU else ("nccl", "host")
    schedules = {"1f1b": (), "gpipe": ("mesh.schedule=gpipe", "training.recompute=except_last"),
                 "interleaved": ("mesh.schedule=interleaved", "mesh.chunks=2")}

    def stages(self, ranks, *spread, sets=(), comms=None, least=1e-6):
        for comm in comms or self.comms:
            with self.subTest(comm=comm, ranks=ranks, spread=spread, sets=sets):
                self.comm = comm
                self.same_losses(*self.four, *sets, ranks=ranks, spread=spread, least=least)

    @needs_fakes
    def test_layers_are_timed_by_the_device(self):
        """The host enqueues in no time: a kernel that takes long is seen by the device's own timers alone."""
        folder = self.path / "checkpoints"
        self.comm = "nccl"
        output = self.learns(*self.four, "mesh.pipeline=2", f"training.checkpoint_dir={folder}", ranks=2, FAKE_CUDA_COST="embedding_forward:30000").output
        self.assertIn("by products and bytes", output)
        manifest = max(folder.glob("step-*/manifest.json")).read_text()
        seconds = [float(number) for number in re.search(r"mesh\.seconds=([-+.e\d ]+)", manifest).group(1).split()]
        self.assertEqual(len(seconds), 6)
        self.assertTrue(all(number > 0 for number in seconds), seconds)
        self.assertGreaterEqual(seconds[0], 4 * 0.03)  # micro-batches

    def test_two_stages(self):
        self.stages(2, "mesh.pipeline=2", "mesh.schedule=interleaved")

    @unittest.skipUnless(FULL, "long")
    def test_every_schedule(self):
        table = self.path / "calls.csv"
        table.write_text("0F0,0F1,0F2,0F3,2F0,2F1,2F2,2F3,2B0,2B1,0B0,2B2,0B1,2B3,0B2,0B3\n"
                         "1F0,1F1,1F2,1F3,3F0,3B0,3F1,3B1,3F2,1B0,3B2,1B1,3F3,3B3,1B2,1B3\n")
        for schedule in *self.schedules.values(), (f"mesh.schedule={table}",):
            self.stages(2, "mesh.pipeline=2", *schedule)
        self.stages(4, "mesh.pipeline=4")
        self.stages(3, "mesh.pipeline=3", "mesh.schedule=gpipe")
        self.stages(2, "mesh.pipeline=2", sets=("training.recompute=all", "training.clip_norm=0"))

    @unittest.skipUnless(FULL, "long")
    def test_every_strategy_in_a_stage(self):
        for strategy in "NO_SHARD", "SHARD_OPTIM", "SHARD_GRAD_OP", "FULL_SHARD":
            for schedule in self.schedules.values():
                self.stages(4, "mesh.pipeline=2", f"training.strategy={strategy}", *schedule)
        self.stages(8, "mesh.pipeline=2", "training.strategy=HYBRID_SHARD", "training.replicas=2", sets=("training.global_batch=8",))

    @unittest.skipUnless(FULL, "long")
    def test_types_and_models(self):
        for architecture in "gpt2", "llama":  # tied and untied
            for dtype in self.types.values():
                self.stages(4, "mesh.pipeline=2", "training.strategy=FULL_SHARD", sets=(f"model.architecture={architecture}", *dtype), least=3e-5 if dtype else 1e-6)
        self.stages(2, "mesh.pipeline=2", "mesh.schedule=gpipe", sets=("training.dtype=fp16", "training.loss_scale=0", "training.steps=3"), least=3e-5)

    @unittest.skipUnless(FULL, "long")
    def test_evaluations_and_samples(self):
        sets = (*self.four, "training.evaluate_every=1", "data.validation_share=0.2", "logging.sample_length=12")
        wanted = self.learns(*sets, device="cpu")
        evaluated = [[line["loss"] for line in wanted.lines if "evaluat" in line["kind"]]]
        for self.comm in self.comms:
            for schedule in self.schedules.values():
                found = self.learns(*sets, "mesh.pipeline=2", *schedule, ranks=2)
                self.assertEqual(*(run.output.split("sample:")[1].split("muster")[0] for run in (wanted, found)))
                self.assertLess(relative([line["loss"] for line in found.lines if "evaluat" in line["kind"]], evaluated[0]), 1e-5)

    @unittest.skipUnless(FULL, "long")
    def test_a_checkpoint_goes_to_other_meshes(self):
        shared = (*self.four, "training.steps=6", "training.schedule=cosine")
        wanted, control = (self.learns(*shared, *more, device="cpu").losses for more in ((), ("training.micro_batch=4",)))
        bound = max(1e-6, 3 * relative(control, wanted))
        for comm in self.comms:
            for first, second in (("cuda", 2), ("cpu", 1)), (("cpu", 1), ("cuda", 2)), (("cuda", 4), ("cuda", 2)):
                with self.subTest(comm=comm, first=first, second=second):
                    self.comm = comm
                    folder = self.path / f"checkpoints-{comm}-{first}-{second}"
                    sets = (*shared, f"training.checkpoint_dir={folder}", "training.checkpoint_every=2")
                    for step, (device, stages) in enumerate((first, second)):
                        run = self.learns(*sets, f"mesh.pipeline={stages}", device=device, ranks=stages)
                        for later in sorted(folder.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))[1:]:
                            subprocess.run(["rm", "-rf", str(later)], check=True)
                        self.assertEqual("resumed from step 2" in run.output, step == 1)
                    self.assertLessEqual(relative(run.losses, wanted[2:]), bound)

    @needs_fakes
    @unittest.skipUnless(FULL, "long")
    def test_a_death_ends_all_ranks(self):
        self.comm = "nccl"
        sets = (*self.four, "mesh.pipeline=2", f"training.output={self.path / 'model'}", "training.checkpoint_every=1")
        self.learns(*sets, f"training.checkpoint_dir={self.path / 'none'}", ranks=4)
        undisturbed = self.model()
        for number in 6, 11, 17, 23:
            with self.subTest(number=number):
                (self.path / "model").unlink()
                died = self.train(*sets, f"training.checkpoint_dir={self.path / 'ends'}-{number}", ranks=4, FAKE_NCCL_DIE=f"1:{number}")
                self.assertRegex(died.output, r"rank 1 \(pid \d+ on \S+\) was killed by signal 9")
                self.assertLess(died.seconds, FAULT_LIMIT / 2)
                again = self.train(*sets, f"training.checkpoint_dir={self.path / 'goes on'}-{number}", ranks=4, launcher=("--max-restarts=1",), FAKE_NCCL_DIE=f"1:{number}")
                self.assertEqual(again.status, 0, again.output)
                self.assertEqual(self.model(), undisturbed)

    @needs_fakes
    def test_a_rank_killed_under_a_comm_of_the_host_ends_all_ranks(self):
        """No fake knows of it: the comm itself sees that the peer has gone."""
        for ranks, spread in (2, ("training.strategy=FULL_SHARD",)), (4, ("mesh.pipeline=2", "training.strategy=NO_SHARD")):
            with self.subTest(spread=spread):
                command, variables, _ = self.job(*self.four, *spread, "training.steps=100000", "training.timeout=120", ranks=ranks, launcher=("--max-restarts=0",))
                run = subprocess.Popen(command, env=variables, cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
                begun = ""
                while "step 2/" not in begun and (line := run.stdout.readline()):
                    begun += line
                pids = [int(pid) for pid in subprocess.run(["ps", "--ppid", str(run.pid), "-o", "pid="], capture_output=True, text=True).stdout.split()]
                victim = next(pid for pid in pids if b"\0RANK=1\0" in b"\0" + pathlib.Path(f"/proc/{pid}/environ").read_bytes())
                os.kill(victim, signal.SIGKILL)
                killed = time.monotonic()
                rest = run.communicate(timeout=LIMIT)[0]
                self.assertLess(time.monotonic() - killed, FAULT_LIMIT / 2, rest)
                self.assertRegex(rest, rf"verdict: rank 1 \(pid {victim} on \S+\) was killed by signal 9")
                self.assertFalse([pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()])


class Compressed(Cuda):
    """Gradients that replicas compress: the losses of the same ranks on the CPU, which has the same bits of encoding and decoding."""

    comms = ("host",) if ON_GPU else ("nccl", "host")
    methods = {"topk": ("training.compression=topk", "training.compression_ratio=0.05"), "powersgd": ("training.compression=powersgd",)}
    small = ("training.compression_least=64", "training.steps=6", "training.strategy=NO_SHARD", "training.clip_norm=1")

    def compressed(self, ranks, *sets):
        plain = [self.learns(*self.small[1:], *more, device="cpu", ranks=ranks).losses for more in ((), ("training.micro_batch=2",))]
        cpu = self.learns(*self.small, *sets, device="cpu", ranks=ranks)
        for comm in self.comms:
            with self.subTest(comm=comm, ranks=ranks, sets=sets):
                self.comm = comm
                found = self.learns(*self.small, *sets, ranks=ranks)
                # the bytes that are sent depend on the gradients' last bits: a place more or less
                self.assertLess(relative(found.losses, cpu.losses), max(1e-4, 3 * relative(*plain)), (found.losses, cpu.losses))
                for key, bound in ("wire_bytes", 0), ("compression_error", 1e-2):
                    wanted, got = ([line[key] for line in run.lines if line["kind"] == "step"] for run in (cpu, found))
                    for a, b in zip(got, wanted, strict=True):
                        self.assertLessEqual(abs(a - b), bound * b)

    @unittest.skipUnless(FULL, "long")
    def test_as_on_the_cpu(self):
        for method in self.methods.values():
            self.compressed(2, *method)
            narrow = ("training.dtype=bf16",) + (() if method == self.methods["topk"] else ("training.reduce_dtype=fp32",))
            self.compressed(4, *method, "training.strategy=HYBRID_SHARD", "training.replicas=2", *narrow)
            self.compressed(2, *method, "training.compression_start=3", "training.clip_norm=0")

    @unittest.skipUnless(FULL, "long")
    def test_with_stages(self):
        for method in self.methods.values():
            self.compressed(4, *method, "mesh.pipeline=2")

    @unittest.skipUnless(FULL, "long")
    def test_a_checkpoint_goes_from_one_device_to_the_other(self):
        for name, method in self.methods.items():
            wanted = self.learns(*self.small, *method, device="cpu", ranks=2).losses
            for first, second in ("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda"):
                with self.subTest(method=name, first=first, second=second):
                    self.comm = self.comms[0]
                    folder = self.path / f"checkpoints-{name}-{first}-{second}"
                    sets = (*self.small, *method, f"training.checkpoint_dir={folder}", "training.checkpoint_every=2")
                    self.learns(*sets, device=first, ranks=2)
                    for later in sorted(folder.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))[1:]:
                        subprocess.run(["rm", "-rf", str(later)], check=True)
                    rest = self.learns(*sets, device=second, ranks=2)
                    self.assertIn("resumed from step 2", rest.output)
                    self.assertLess(relative(rest.losses, wanted[2:]), 1e-4)

    @unittest.skipUnless(FULL, "long")
    def test_the_same_run_has_the_same_bits_and_a_step_is_skipped_by_all(self):
        for name, method in self.methods.items():
            models = set()
            for schedule, seed in ("early", 0), ("late", 0), ("shuffled", 1), ("shuffled", 2):
                self.comm = self.comms[0]
                self.learns(*self.small, *method, f"training.output={self.path / 'model'}", ranks=2, FAKE_CUDA_SCHEDULE=schedule, FAKE_CUDA_SEED=seed)
                models.add(self.model())
            self.assertEqual(len(models), 1, name)
        # the first steps overflow: feedback stays as it is
        sets = ("training.dtype=fp16", "training.reduce_dtype=fp32", "training.loss_scale=0", "training.initial_scale_power=32")
        for method in self.methods.values():
            self.compressed(2, *method, *sets)


@needs_fakes
class Nccl(Cuda):
    """The same with a device for each rank, and NCCL between them."""

    comm = "nccl"

    def test_every_strategy(self):
        self.every_strategy(2, 4)

    def test_a_plan_of_four_layers(self):
        self.four_layers(2, ("FULL_SHARD",), ("fp32", "bf16"), ("gpt2",))
        self.four_layers(4, ("HYBRID_SHARD",), ("fp16",), ("llama",))
        if FULL:
            for ranks in 2, 4:
                self.four_layers(ranks, ("FULL_SHARD", "SHARD_GRAD_OP") + (("HYBRID_SHARD",) if ranks == 4 else ()), self.types)

    def alone(self, ranks=2, **environment):
        """Under another launcher: the variables of torchrun, and no store of an agent's."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "NCCL_"))}
        variables.update({"MUSTER_CUDA_MODULE": str(FAKES / "libmuster_cuda.so"), "LD_LIBRARY_PATH": str(FAKES), "OMP_NUM_THREADS": "1", "FAKE_CUDA_DEVICES": str(ranks),
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), **environment})
        started = [subprocess.Popen([str(TRAIN), str(self.path / "config.yaml"), "--device=cuda", "--comm=nccl", "--set", f"logging.dir={self.path / 'logs'}"], text=True, cwd=self.path,
                                    env={**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(ranks)]
        outputs = [process.communicate(timeout=LIMIT)[0] for process in started]
        self.assertEqual([process.returncode for process in started], [0] * ranks, outputs)
        return outputs

    def test_its_variables_are_decided_without_our_launcher(self):
        shown = {"FAKE_NCCL_SHOW": "NCCL_DEBUG"}  # set on every machine
        outputs = self.alone(**shown)
        self.assertEqual(outputs[0].count("NCCL: NCCL_DEBUG=WARN: "), 1, outputs[0])
        self.assertNotIn("NCCL: NCCL_DEBUG=WARN: ", outputs[1])  # rank 0 prints
        for output in outputs:
            self.assertIn("fake NCCL: NCCL_DEBUG is WARN", output)
            self.assertNotIn("GLOO", output)
        for environment, value in (({"NCCL_DEBUG": "INFO"}, "INFO"), ({"MUSTER_NCCL_TUNE": "off"}, "not set"), ({"MUSTER_ROUND": "0"}, "not set")):
            with self.subTest(value, **environment):
                outputs = self.alone(**shown, **environment)
                self.assertNotRegex(outputs[0], r"(?m)^NCCL: ")
                self.assertIn(f"fake NCCL: NCCL_DEBUG is {value}", outputs[1])
        self.assertIn("NCCL: warning: MUSTER_NCCL_POLICY=site.yaml is not read, as only muster run reads it", self.alone(MUSTER_NCCL_POLICY="site.yaml")[0])

    def test_one_communicator_for_all_streams(self):
        for ranks, sets, made in (2, (), 2), (4, ("training.strategy=HYBRID_SHARD", "training.replicas=2"), 4):  # and the first, which carries nothing
            self.learns(*sets, ranks=ranks, FAKE_CUDA_COUNT=self.path / "count-%r")
            counts = dict(line.split() for line in (self.path / "count-0").read_text().splitlines())
            self.assertEqual(int(counts["ncclCommInitRankConfig"]) + int(counts.get("ncclCommSplit", 0)), made)

    def test_products_leave_multiprocessors_to_collectives(self):
        for ranks, variables, blocks, products in (2, {}, 16, 116), (2, {"NCCL_MAX_CTAS": 24}, 24, 108), (1, {}, 0, 132), (2, {"NCCL_MIN_CTAS": 100}, 64, 66):
            self.learns(ranks=ranks, FAKE_CUDA_REPORT=self.path / "report-%r", **variables)
            report = dict(line.split() for line in (self.path / "report-0").read_text().splitlines())
            self.assertEqual((int(report.get("communicator_blocks_high_water", 0)), int(report["product_multiprocessors_high_water"])), (blocks, products), variables)

    def test_auto_takes_it(self):
        self.comm = "auto"
        result = self.learns(ranks=2, FAKE_CUDA_DEVICES=2, FAKE_CUDA_COUNT=self.path / "count-%r")
        self.assertTrue(result.losses)
        self.assertIn("ncclAllGather", (self.path / "count-0").read_text())

    def test_one_choice_for_all_ranks(self):
        self.comm = "auto"
        wrapper = self.path / "one lacks something"
        # rank 1 with another environment: its node is not as the other one's
        wrapper.write_text('#!/bin/sh\n[ "$RANK" != 1 ] || eval "export $ON_RANK_1"\nexec "$@"\n')
        wrapper.chmod(0o755)
        (self.path / "lib").mkdir()
        (self.path / "lib" / "libnccl.so.2").write_text("")
        lacking = f"LD_LIBRARY_PATH='{self.path}/lib:{FAKES}'"
        self.wrapper = (wrapper,)
        result = self.learns(ranks=2, FAKE_CUDA_DEVICES=2, ON_RANK_1=lacking, FAKE_CUDA_COUNT=self.path / "count-%r")
        self.assertRegex(result.output, r"comm: host, as rank 1 on \S+ has no NCCL: ")
        for rank in 0, 1:
            self.assertNotIn("ncclAllGather", (self.path / f"count-{rank}").read_text())
        result = self.learns(ranks=2, FAKE_CUDA_DEVICES=1, ON_RANK_1="NOTHING=1")
        self.assertRegex(result.output, r"comm: host, as ranks 0 and 1 share a GPU of \S+, which NCCL refuses")
        result = self.train(ranks=2, device="auto", ON_RANK_1="FAKE_CUDA_DEVICES=0")
        self.assertNotEqual(result.status, 0)
        self.assertRegex(result.output, r"rank \d: error: .*rank 0 on \S+ computes on cuda, but rank 1 on \S+ on cpu \(.*finds no device")

    def test_the_order_of_streams_changes_no_bit(self):
        models = set()
        for schedule, seed in [("early", 0)] + [("shuffled", seed) for seed in range(100 if FULL else 1)]:
            self.learns(f"training.output={self.path / 'model'}", ranks=2, FAKE_CUDA_SCHEDULE=schedule, FAKE_CUDA_SEED=seed)
            models.add(self.model())
        self.assertEqual(len(models), 1)

    def test_a_restart_ends_with_the_undisturbed_weights(self):
        sets = (f"training.output={self.path / 'model'}", "training.checkpoint_every=1")
        self.learns(*sets, f"training.checkpoint_dir={self.path / 'one'}", ranks=2)
        undisturbed = self.model()
        result = self.train(*sets, f"training.checkpoint_dir={self.path / 'two'}", ranks=2, launcher=("--max-restarts=1",), FAKE_CUDA_FAIL="ncclReduceScatter:4@1")
        self.assertEqual(result.status, 0, result.output)
        self.assertIn("restart 1 of 1", result.output)
        self.assertEqual(self.model(), undisturbed)

    def test_a_death_or_an_error_in_a_collective_is_named_and_restarted(self):
        sets = (f"training.output={self.path / 'model'}", "training.checkpoint_every=1")
        self.learns(*sets, f"training.checkpoint_dir={self.path / 'none'}", ranks=2)
        undisturbed = self.model()
        collective = r"\w+ #\d+ \(\w+ of \d+ \w+( by \w+)?(, \w+)?\) of comm \S+"
        for fault, words in (("DIE", r"rank 1 \(pid \d+ on \S+\) was killed by signal 9"),
                             ("ASYNC", rf"rank \d: error: .*{collective} on rank 1: NCCL: remote process exited")):
            with self.subTest(fault):
                (self.path / "model").unlink()
                result = self.train(*sets, f"training.checkpoint_dir={self.path / fault}", ranks=2, launcher=("--max-restarts=1",), **{f"FAKE_NCCL_{fault}": "1:14"})
                self.assertEqual(result.status, 0, result.output)
                self.assertRegex(result.output, words)
                self.assertIn("restart 1 of 1", result.output)
                self.assertEqual(self.model(), undisturbed)

    def test_a_hang_is_in_the_failure_report(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        result = self.train("training.timeout=2", ranks=2, launcher=(f"--log-dir={self.path / 'agent'}",), FAKE_NCCL_HANG="1:14", NCCL_RAS_ADDR=f"127.0.0.1:{port}")
        self.assertNotEqual(result.status, 0)
        self.assertLess(result.seconds, FAULT_LIMIT)
        cause = json.loads(next((self.path / "agent").glob("*/failure.json")).read_text())["first_cause"]
        self.assertRegex(cause["message"], r"\w+ #\d+ \(\w+ of \d+ \w+( by \w+)?\) of comm \S+ waited 2.0 s on rank \d; every rank has issued it")
        both = cause["traceback"] + result.output
        self.assertIn("comm of axis shard, gather, reduce, between steps: issued #", cause["traceback"])
        self.assertRegex(cause["traceback"], r"under way on the device: .*all_reduce.* of stream reduce")
        self.assertRegex(cause["traceback"], r"stream reduce has begun operation \d+ of \d+ last, all_reduce")
        place = re.search(r"compute has begun operation (\d+) of (\d+) last, copy\n", cause["traceback"])
        self.assertLess(int(place[1]), int(place[2]) - 8)  # the steps of the groups come after it
        self.assertRegex(both, r"Rank 1 has started 13 operations: fewer than others")

    def test_an_asynchronous_error_names_the_collective(self):
        result = self.train(ranks=2, FAKE_CUDA_ASYNC="AllGather:2@1")
        self.assertNotEqual(result.status, 0)
        self.assertRegex(result.output, r"cudaErrorIllegalAddress.*under way: .*all_gather")


class Refused(Cuda):
    @needs_fakes
    def test_what_is_missing_is_named(self):
        for environment, words in (({"FAKE_CUDA_DRIVER": 0}, "there is no NVIDIA driver"), ({"FAKE_CUDA_DRIVER": 12040}, "for CUDA 12.4"),
                                   ({"FAKE_CUDA_DEVICES": 0}, "finds no device"), ({"MUSTER_CUDA_MODULE": "/nowhere/x.so"}, "MUSTER_CUDA_MODULE")):
            with self.subTest(words):
                result = self.train(**environment)
                self.assertNotEqual(result.status, 0)
                self.assertIn(words, result.output)
        result = self.learns(device="auto", FAKE_CUDA_DEVICES=0)
        self.assertRegex(result.output, r"device: cpu, as training.device is auto and .*finds no device")

    @needs_fakes
    def test_a_library_that_cannot_be_loaded_is_named(self):
        self.comm = "nccl"
        broken = self.path / "lib"
        broken.mkdir()
        for library, words in (("libcublasLt.so.13", "device cuda needs cuBLASLt for matrix products"), ("libnccl.so.2", "collectives between GPUs need NCCL")):
            with self.subTest(library):
                (broken / library).write_text("")
                result = self.train(ranks=2, LD_LIBRARY_PATH=f"{broken}:{FAKES}")
                self.assertNotEqual(result.status, 0)
                self.assertIn(words, result.output)
                (broken / library).unlink()

    @needs_fakes
    def test_attention_by_cudnn_is_refused_where_it_cannot_be_had(self):
        asked = ("training.attention=cudnn", "training.dtype=bf16", "training.values=dtype")
        missing = r"training\.attention: cudnn(: this build is without it: build with MUSTER_CUDNN=1| needs cuDNN \(pip: nvidia-cudnn-cu13.*libcudnn\.so\.9)"
        for sets, device, major, words in ((asked, "cuda", 9, missing), (("training.attention=cudnn",), "cuda", 9, r"reads values of 16 bits, not of f32"),
                                           (("training.attention=cudnn", "training.dtype=fp16", "training.values=dtype"), "cuda", 7, r"sm_7\d, and cuDNN's attention begins with sm_80"),
                                           (("training.attention=cudnn",), "cpu", 9, r"training\.attention: cudnn: device cpu has kernels of muster's alone")):
            with self.subTest(device=device, sets=sets):
                result = self.train(*sets, device=device, FAKE_CUDA_MAJOR=major)
                self.assertNotEqual(result.status, 0)
                self.assertRegex(result.output, words)
        self.assertEqual(self.learns("training.attention=own", *asked[1:]).losses, self.learns(*asked[1:]).losses)


# Calls whose failure is no fault of the run: their objects are lost at the end anyway. cudaGetDevice is called for that too, where
# the run is over.
HARMLESS = re.compile(r"Free|Destroy|cudaMemGetInfo")

if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--full"], verbosity=2)
