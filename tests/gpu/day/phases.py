"""The phases of a trial, in the order in which a figure is worth having where time runs out: a function each, of Lines and a Place.

PHASES: name, seconds, function. The seconds are limits; together they are at most 480. FURTHER gets the rest."""

import json
import pathlib
import re
import shlex
import shutil
import statistics
import sys
import tempfile
import time

import kernel_times
from place import SOURCE
from runner import Skip
from training import Trainings, kill, relative, worker

sys.path.insert(0, str(SOURCE / "benchmarks"))
from train_cpu import Server, loss_difference  # noqa: E402

WHOLE = 480
ROUNDS = 10


def rounds(place):
    return 2 if place.rehearsal else ROUNDS


def step_words(place, sizes, *more):
    words = [place.program("benchmarks/train_step"), "--device", "cuda"]
    for name, value in sizes.items():
        words += [f"--{name}", value]
    return [str(word) for word in (*words, *more)]


# ---- the machine ----


def facts(lines, place):
    """The machine, and rates of copies and products."""
    with lines.trying("muster doctor"):
        if place.rehearsal:
            raise Skip("there is no GPU to describe")
        described = place.run(place.program("bin/muster"), "doctor", "--describe", seconds=10)
        lines.add("machine", description=json.loads(described))
    with lines.trying("rates"):
        sizes = (1 << 16, 64) if place.rehearsal else (1 << 30, 8192)
        output = place.run(place.program("tests/gpu_rates"), *sizes, seconds=30)
        found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        for line in found:
            lines.add(**line)
        lines.check("rates", len([line for line in found if line["kind"] == "figure"]) >= 6, f"{len(found)} lines")


def rate_of(lines, figure):
    """A figure of the first phase; None where it has none."""
    for path in lines.path.parent.glob("01-*.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            if line.get("figure") == figure:
                return line["value"]
    return None


# ---- speed ----


def step(lines, place):
    """A step of GPT-2 124M in tf32, as heads with rows of any length and 64 MiB chunks have it, with larger chunks, with padded rows."""
    heads = ("padded", "plain", "chunks")
    servers = []
    for head in heads:
        servers.append(Server(head, step_words(place, place.gpt2, "--matmul", place.precision, "--head", head), place.environment()))
    for _ in range(rounds(place) + 2):
        for server in servers:
            server.ask()
    for server in servers:
        server.close()
    tokens = place.gpt2["batch"] * place.gpt2["positions"]
    for head, server in zip(heads, servers):
        times = [taken[0] for taken in server.times[2:]]
        middle = statistics.median(times)
        lines.figure(f"step in {place.precision}, {head} head", middle, "ms", least=min(times), most=max(times), tokens_per_s=round(1e3 * tokens / middle))
        if head != "padded":
            lines.check(f"losses of the {head} head", loss_difference(servers[0], server, 1e-3) <= 1e-3)


def pytorch(lines, place):
    """PyTorch eager and compiled in tf32 and bf16, and ours, in turns."""
    place.need_torch()
    words = [sys.executable, SOURCE / "benchmarks/train_gpu.py", "--build", place.build(), "--torch-python", place.torch, "--rounds", rounds(place)]
    if place.rehearsal:
        sizes = " ".join(str(place.gpt2[name]) for name in ("layers", "channels", "heads", "vocab"))
        words += ["--peers", "eager", "--shape", "1x32", "--precisions", "tf32,bf16", "--rehearse"]
        output = place.run(*words, seconds=440, MUSTER_BENCH_GPT2=sizes)
    else:
        output = place.run(*words, "--precisions", f"{place.precision},bf16", seconds=100)
    found = re.search(r"^results: (.*)$", output, re.MULTILINE)
    lines.check("a result", bool(found), "the benchmark wrote none")
    for figure in json.loads(pathlib.Path(found[1]).read_text())["runs"][-1]["figures"]:
        lines.add("benchmark", **figure)
    for name, milliseconds, tokens in re.findall(r"^  (\S+ +\S.*?) +([\d.]+) ms \(.*?\) +(\d+) tokens/s", output, re.MULTILINE):
        lines.figure(f"step, {name}", float(milliseconds), "ms", tokens_per_s=int(tokens))


def profile(lines, place):
    """Where the time of one step goes, kernel by kernel, by ncu."""
    profiler = [sys.executable, str(SOURCE / "tests/gpu/day/fake_ncu.py")] if place.rehearsal else [shutil.which("ncu")]
    if not profiler[0]:
        raise Skip("there is no ncu")
    with tempfile.TemporaryDirectory() as folder:
        lines_in = pathlib.Path(folder, "lines")
        lines_in.write_text("go\n")
        command = shlex.join(map(str, step_words(place, place.gpt2, "--matmul", place.precision)))
        output = place.run(*profiler, *kernel_times.OPTIONS, "sh", "-c", f"exec {command} <{shlex.quote(str(lines_in))}", seconds=40, status=None)
    rows = kernel_times.read(output)
    if not rows:
        raise Skip("ncu gave no table: " + " | ".join(line for line in output.splitlines() if line.startswith("=="))[-300:])
    whole = sum(row.nanoseconds for row in rows)
    lines.figure("kernels of a first step, one after the other", whole * 1e-6, "ms")
    for row in kernel_times.by_name(rows):
        lines.add("kernel", kernel=row.name, calls=row.calls, milliseconds=round(row.nanoseconds * 1e-6, 4), share=round(row.nanoseconds / whole, 4),
                  gb_per_s=round(row.bytes / row.nanoseconds, 1) if row.nanoseconds else None)
    lines.check("kernels", len(rows) > 50, f"{len(rows)} launches")


def memory(lines, place):
    """High water of the device against the plan, for 124M and 1.5B."""
    for name, sizes, gigabytes in ("124M", place.gpt2, 12), ("1.5B", place.xl, 40):
        with lines.trying(name):
            place.need_memory(gigabytes, name)
            server = Server(name, step_words(place, sizes, "--matmul", place.precision, "--memory", 1), place.environment())
            for _ in range(2):
                server.ask()
            server.process.stdin.close()
            planned, kept, used = (int(word) for word in server.process.stdout.read().split()[-3:])
            server.process.wait()
            lines.figure(f"{name} planned", planned * 1e-9, "GB")
            lines.figure(f"{name} allowed for libraries", kept * 1e-9, "GB")
            lines.figure(f"{name} used", used * 1e-9, "GB")
            lines.figure(f"{name} step", statistics.median(taken[0] for taken in server.times[1:]), "ms")
            lines.check(f"{name} within the plan, its extras and 3%", used <= 1.03 * (planned + kept), f"{used} of {planned} + {kept}")


def llama_block(lines, place):
    """One layer of Llama 3 8B, whose heads have 128 elements: right, and how long it takes."""
    small = ("model.architecture=llama", "model.layers=1", "model.channels=256", "model.heads=2", "model.kv_heads=1", "model.hidden=512", "training.steps=3")
    large = ("model.architecture=llama", "model.layers=1", "model.channels=4096", "model.heads=32", "model.kv_heads=8", "model.hidden=14336",
             "training.sequence_length=8192", "training.global_batch=1", "training.steps=5", f"training.matmul_precision={place.precision}")
    with Trainings(place) as trainings:
        with lines.trying("losses with heads of 128"):
            difference = relative(*(trainings.run(*small, device=device, seconds=30).losses for device in ("cuda", "cpu")))
            lines.figure("largest difference of losses from the CPU's", difference, "relative")
            lines.check("losses with heads of 128", difference < 1e-5, f"{difference:.1e}")
        with lines.trying("a block of 8B"):
            place.need_memory(24, "the block")
            run = trainings.run(*(small if place.rehearsal else large), seconds=40)
            steps = [line for line in run.lines if line["kind"] == "step"]
            milliseconds = statistics.median(line["step_ms"] for line in steps[1:])
            lines.figure("step of one block and its ends", milliseconds, "ms", tokens=steps[-1]["tokens"])
            # 6 operations a weight and token, and the causal half of scores and values
            flops = 8192 * 6 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 6 * 8192 * 8192 * 4096
            rate = rate_of(lines, f"products in {place.precision}")
            if not place.rehearsal:
                lines.figure("of the block's operations", flops / milliseconds * 1e-9, "TFLOP/s")
                if rate:
                    lines.figure("share of the rate of large products", flops / milliseconds * 1e-9 / rate, "of 1")


# ---- right or wrong ----


def programs(lines, place, *names, seconds=60):
    for name in names:
        with lines.trying(name):
            output = place.run(place.program(f"tests/{name}"), seconds=seconds)
            passed = re.search(r"\[ *PASSED *\] (\d+)", output)
            lines.check(name, True, f"{passed[1]} passed" if passed else "")


def alignment(lines, place):
    """What cuBLASLt, cudart and our products make of pointers and layouts of every alignment."""
    programs(lines, place, "gpu_cublaslt_conformance", "gpu_products_real", "gpu_cudart_conformance")


def reference(lines, place):
    """Every kernel, product and attention against the reference, in all types that they have; the device by its table."""
    programs(lines, place, "kernels_cuda_status_test", "kernels_cuda_test", "kernels_cuda_more_test", "kernels_cuda_attention_test", "kernels_cuda_attention_narrow_test", "gpu_kernels_table_real", "gpu_device", "gpu_device_more")


def float64(lines, place):
    """Losses and gradients against PyTorch in float64, for GPT-2 and Llama, in fp32, values of fp16 and, where they are, tf32 and values of bf16."""
    place.need_torch(cuda=False)
    output = place.run(place.torch, SOURCE / "tests/gpu/day/against_float64.py", "2" if place.rehearsal else "20", place.precision, seconds=240 if place.rehearsal else 60, status=None)
    found = re.findall(r"^(ok|FAILED) +(.*): (\S+) \(at most (\S+)\)", output, re.MULTILINE)
    for verdict, what, difference, bound in found:
        lines.check(what, verdict == "ok", f"{difference}, at most {bound}")
    lines.check("every comparison was made", len(found) == (26 if place.precision == "tf32" else 14), output[-300:])


def same_bits(lines, place):
    """The same run three times: the same losses and weights, bit for bit."""
    with Trainings(place) as trainings:
        models = set()
        for _ in range(3):
            output = trainings.folder / "model"
            run = trainings.run(f"training.output={output}", f"training.matmul_precision={place.precision}", f"training.steps={2 if place.rehearsal else 20}", seconds=30)
            models.add((tuple(run.losses), output.read_bytes()))
            output.unlink()
        lines.check("the same bits three times", len(models) == 1, f"{len(models)} different results")


# ---- faults, and checkpoints ----


def checkpoint(lines, place):
    """How long training waits for a checkpoint of 1.5B with its moments."""
    place.need_memory(40, "1.5B")
    room = 3 * 16 * 1_560_000_000
    where = next((path for path in (tempfile.gettempdir(), "/dev/shm") if place.rehearsal or shutil.disk_usage(path).free > room), None)
    if not where:
        raise Skip(f"neither {tempfile.gettempdir()} nor /dev/shm has {room >> 30} GiB free")
    with Trainings(place, where) as trainings:
        sizes = place.xl
        sets = [f"model.{name}={sizes[name]}" for name in ("layers", "channels", "heads")] + ["model.vocabulary=50304"] * (not place.rehearsal)
        run = trainings.run(*sets, "training.steps=4", "training.global_batch=1", f"training.sequence_length={sizes['positions']}",
                            "training.checkpoint_every=2", f"training.checkpoint_dir={trainings.folder / 'checkpoints'}", "training.checkpoint_keep=1", seconds=60, ok=False)
        waits = re.findall(r"checkpoint .*?: ([\d.]+) (.?B) a rank in ([\d.]+) s, of which training waited ([\d.]+) s", run.output)
        for size, unit, whole, waited in waits[:1]:
            lines.figure("checkpoint", float(size), unit)
            lines.figure("until it was written", float(whole), "s")
            lines.figure("stall of training", float(waited), "s")
        lines.check("a checkpoint behind steps", bool(waits), run.output[-300:])


def kill_one(lines, place):
    """Two ranks share a GPU and rank 1 is killed: the job ends, names it, and leaves nothing."""
    with Trainings(place) as trainings:
        process, logs = trainings.start("training.steps=100000", ranks=2)
        log = logs / "log.jsonl"
        until = time.monotonic() + 25
        while not (log.exists() and '"step"' in log.read_text()) and time.monotonic() < until and process.poll() is None:
            time.sleep(0.05)
        killed = worker(1, str(trainings.folder))
        if not killed:
            process.kill()
            raise RuntimeError("no rank 1: " + (trainings.folder / "started").read_text()[-600:])
        kill(killed)
        begun = time.monotonic()
        status = process.wait(15)
        taken = time.monotonic() - begun
        output = (trainings.folder / "started").read_text()
        print(output)
        lines.figure("kill to the job's end", taken, "s")
        lines.check("the killed rank is named", bool(re.search(r"rank 1 \(pid \d+ on \S+\) was killed by signal 9", output)), output[-300:])
        lines.check("exit status", status == 137, str(status))
        lines.check("no rank is left", worker(0, str(trainings.folder)) is None)


def hang(lines, place):
    """A kernel that hangs is reported in time, with the operations under way on the device."""
    with Trainings(place) as trainings:
        wrapper = ["env", "FAKE_CUDA_HANG=layernorm_backward:4"] if place.rehearsal else ["env", f"LD_PRELOAD={place.program('tests/hang.so')}", "HANG_AT=400", "HANG_SECONDS=8"]
        run = trainings.run("training.timeout=1", seconds=25, ok=False, wrapper=wrapper)
        lines.check("the job ends", run.status not in (0, None), f"status {run.status}")
        lines.check("the report names the device", bool(re.search(r"the device of rank 0 has come no further for [\d.]+ s: stream \w+ has not finished in time: of \d+ operations, ", run.output)),
                    run.output[-500:])
        lines.figure("start to the job's end", run.seconds, "s")


def sanitizers(lines, place):
    """compute-sanitizer over every kernel and a training; the emulator's own sanitizers are for builds of their own."""
    found = shutil.which("compute-sanitizer")
    if not found:
        raise Skip("there is no compute-sanitizer" + (": ./dev sanitize runs the emulator under others" if place.rehearsal else ""))
    for tool in "memcheck", "racecheck", "synccheck", "initcheck":
        with lines.trying(tool):
            output = place.run(found, "--error-exitcode", 9, "--tool", tool, place.program("tests/gpu_kernels_table_real"), seconds=20, status=None)
            if re.search("not supported|Unable to|failed to attach", output, re.IGNORECASE):
                raise Skip(f"{tool} cannot attach: " + output.strip().splitlines()[-1][:200])
            lines.check(tool, "ERROR SUMMARY: 0 errors" in output or "0 hazards" in output, output[-300:])


def cudnn(lines, place):
    """Attention by cuDNN against our kernel, in bf16: losses over steps, and the time of a step. It has not run on a GPU before this."""
    sizes = (("heads of 64", 64, 12), ("heads of 128", 128, 6))
    with Trainings(place) as trainings:
        for name, head, heads in sizes:
            sets = ("training.dtype=bf16", "training.values=dtype", f"model.channels={64 if place.rehearsal else head * heads}", f"model.heads={1 if place.rehearsal else heads}",
                    f"model.layers={1 if place.rehearsal else 4}", f"training.sequence_length={16 if place.rehearsal else 1024}", f"training.steps={2 if place.rehearsal else 20}")
            with lines.trying(f"attention by cuDNN, {name}"):
                theirs = trainings.run(*sets, "training.attention=cudnn", seconds=25, ok=False)
                refused = re.search(r"error: .*(training\.attention: cudnn.*)", theirs.output)
                if refused:
                    raise Skip(refused[1][:200])
                lines.check(f"attention by cuDNN ends, {name}", theirs.status == 0, theirs.output[-300:])
                ours = trainings.run(*sets, "training.attention=own", seconds=25)
                difference = relative(theirs.losses, ours.losses)
                lines.figure(f"largest difference of losses from our kernel's, {name}", difference, "relative")
                lines.check(f"losses of attention by cuDNN, {name}", difference < 1e-2, f"{difference:.1e}")
                for attention, run in ("cuDNN", theirs), ("our kernel", ours):
                    milliseconds = statistics.median(line["step_ms"] for line in run.lines if line["kind"] == "step")
                    lines.figure(f"step, attention by {attention}, {name}", milliseconds, "ms")


def further(lines, place):
    """Attention by cuDNN, launcher, NCCL and the tests of training that ask nothing of a fake, as far as time allows."""
    cudnn(lines, place)
    with lines.trying("one worker a GPU, by NVML"):
        if place.rehearsal:
            raise Skip("there is no NVML")
        count = place.about["count"]
        output = place.run(place.program("bin/muster"), "run", "--standalone", "--nproc_per_node=gpu", "--termination-log=", "sh", "-c", "echo rank $RANK", seconds=20)
        lines.check("one worker a GPU, by NVML", len(re.findall(r"rank \d", output)) == count, output[-200:])
    with lines.trying("NCCL's conformance, a rank a GPU"):
        ranks = 2 if place.rehearsal else min(place.about["count"], 8)
        place.run(place.program("tests/gpu_nccl_conformance"), ranks, seconds=30)
        lines.check("NCCL's conformance, a rank a GPU", True)
    with lines.trying("NCCL of one rank"), Trainings(place) as trainings:
        few = f"training.steps={2 if place.rehearsal else 20}"
        difference = relative(trainings.run(few, comm="nccl").losses, trainings.run(few, device="cpu").losses)
        lines.check("NCCL of one rank: losses as on the CPU", difference < 1e-4, f"{difference:.1e}")
    with lines.trying("PyTorch's DDP over NCCL, a worker a GPU"):
        if place.rehearsal:
            raise Skip("there is no GPU for PyTorch")
        place.need_torch()
        place.run(place.program("bin/muster"), "run", "--standalone", "--nproc_per_node=gpu", "--termination-log=", SOURCE / "tests/gpu/day/ddp.py", seconds=60)
        lines.check("PyTorch's DDP over NCCL, a worker a GPU", True)
    for part in () if place.rehearsal else ("Graphs", "Moves", "Schedules", "Learns"):
        with lines.trying(f"train_cuda_test.py {part}"):
            place.run(sys.executable, SOURCE / "tests/gpu/train/train_cuda_test.py", part, seconds=60)
            lines.check(f"train_cuda_test.py {part}", True)


PHASES = (
    ("facts", 25, facts),
    ("step", 40, step),
    ("alignment", 20, alignment),
    ("reference", 50, reference),
    ("pytorch", 90, pytorch),
    ("profile", 35, profile),
    ("float64", 30, float64),
    ("memory", 30, memory),
    ("llama_block", 25, llama_block),
    ("checkpoint", 45, checkpoint),
    ("kill_one", 15, kill_one),
    ("hang", 20, hang),
    ("sanitizers", 35, sanitizers),
    ("same_bits", 15, same_bits),
)
FURTHER = ("further", 120, further)
