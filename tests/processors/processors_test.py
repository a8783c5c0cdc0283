#!/usr/bin/env python3
"""muster on other processors than this one, under Debian's qemu-user.

processors_test.py model MODEL [--full]   the kernel tests, and three steps of the demo under `muster run`, on an x86-64 processor
                                          that qemu-x86_64 models
processors_test.py too_new [--full]       a build for a newer processor says so in one line; --full: the programs themselves
processors_test.py aarch64 [--full]       the launcher and some unit tests on aarch64; --full: those of all kernels and of bytes, and
                                          the demo as for a model

QEMU knows no AVX-512, and a model knows no more than its processor, so that what runs before the choice of an instruction set dies
of SIGILL. The losses are held against this machine's: max(1e-6, 3 x control) relative, where the control is one rank here with
another order of sums. The demo is smaller (4 sequences of 16, 2 of 4 layers, 32 of 128 channels)
but with --full on x86-64.
"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile

BUILD, SOURCE = (pathlib.Path(os.environ[name]) for name in ("MUSTER_BUILD", "MUSTER_SOURCE"))
HERE = SOURCE / "tests/processors"
CORPUS = pathlib.Path("/usr/share/games/fortunes")
STEPS = 3
# model -> the kernels' table, BLAS's core
MODELS = {"Nehalem": ("cpu-base", "Nehalem"), "Haswell": ("cpu-avx2", "Haswell"), "EPYC-Milan": ("cpu-avx2", "Zen")}
SMALL = {"training.global_batch": 4, "training.sequence_length": 16, "model.layers": 2, "model.channels": 32, "model.heads": 2}
KERNEL_TESTS = ("kernels_table_test", "kernels_gradient_test")
KERNEL_TESTS_LONG = ("kernels_cpu_test", "kernels_determinism_test")
CROSS_TARGETS = ("muster",)
# What of the unit tests the short tier builds and runs: text and bytes, the wire, the store, kernels. The runtime doubles what is
# compiled, and is of --full.
CROSS_TESTS = ("base_error_test", "base_text_test", "kernels_table_test", "rendezvous_wire_test", "rendezvous_roster_test", "store_test",
               "tcpstore_test", "tree_test")
# What --full builds and runs next to them: every kernel, what computes with kernels, and what depends on bytes, on the sign of a
# char and on the width of a type. Launcher and rendezvous are the same code on every processor.
CROSS_TESTS_LONG = r"(?:kernels|base|hash|files|formats|stored|coded|gptq|prune|compress|device|executor|calibrate|bpe|merges|split|tokenizer|corpus|" \
                   r"rows|order|content|identity|comm_reduce|comm_bits|comm_shm|shard_(?:core|layout|narrow)|plan_(?:golden|hidden)|loss_scale|" \
                   r"param_patterns|launcher_(?:config|line|report|command)|train_(?:rng|lr|batch|sample|fingerprint|models|values|average|generate))\w*_test"
# What of these qemu-user (7.2) cannot do, or not in a minute, by test.
CROSS_CANNOT = {
    "kernels_libraries_test": "what it counts as the process's memory is the emulator's",
    "sources_test": "the same",
}


def skip(why):
    """A test that cannot be made here. In CI it has to be made."""
    if os.environ.get("CI") == "true":
        sys.exit(f"{why}, and in CI this test must run")
    print(f"skipped: {why}")
    sys.exit(77)


def environment(**more):
    """OpenBLAS is to find the core by itself, and one thread is emulated fastest."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS_", "GOTO_"))}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def run(command, status=0, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace", env=environment(**more))
    if status is not None and done.returncode != status:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}, not {status}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def timed(command, status=0):
    """run, and a line with the time of a processor: what takes long here has to be seen."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = run(command, status)
    print(f"{command[-1].name}: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before:.1f} s of a processor", flush=True)
    return done


def settings(full):
    return [f"{key}={value}" for key, value in ({} if full else SMALL).items()]


def losses(order, full):
    """This machine's, one rank."""
    command = [BUILD / "tests/first_losses", STEPS, order, SOURCE / "k8s/configs/gpt-demo.yaml", *settings(full)]
    return json.loads(run(command).stdout)["losses"]


def deviation(some, others):
    return max(abs(a - b) / abs(b) for a, b in zip(some, others, strict=True))


class Reference:
    """This machine's losses, and how far another machine's may be."""

    def __init__(self, full):
        here = [losses(order, full) for order in ("plain", "reversed", "rotated")]
        self.losses = here[0]
        self.control = max(deviation(other, here[0]) for other in here[1:])
        self.bound = max(1e-6, 3 * self.control)
        # a comparison that could not fail would say nothing
        if deviation(here[0][1:], here[0][:-1]) <= self.bound:
            sys.exit(f"the demo does not learn: {here[0]}")

    def hold(self, what, found):
        off = deviation(found, self.losses)
        print(f"{what}: {off:.1e} relative from this machine's losses (at most {self.bound:.1e}; control {self.control:.1e})")
        if not off <= self.bound:
            sys.exit(f"{what}: the losses are {found}, and {self.losses} here")


def numerics(path):
    """The numerics fingerprint of a saved model: field -> value."""
    data = path.read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return dict(line.split("=", 1) for line in header["__metadata__"]["numerics"].splitlines())


def run_many(build, before):
    many = run([*before, build / "bin/muster", "run", "--standalone", "--nproc_per_node=70", "--no-python", "sh", "-c", "echo $RANK"])
    if sorted(many.stdout.split()) != sorted(map(str, range(70))):
        sys.exit(f"70 workers printed {many.stdout}")


def train(build, before, full, table, core, reference, more=(), **environs):
    """The demo on two ranks under `muster run`, with more settings; every digit of its losses is in its log."""
    launcher = [*before, build / "bin/muster", "run", "--standalone", "--nproc_per_node=2", "--no-python"]
    with tempfile.TemporaryDirectory(prefix="muster processors ") as folder:
        model = pathlib.Path(folder) / "model.safetensors"
        sets = [f"training.steps={STEPS}", f"training.output={model}", f"logging.dir={folder}", "logging.sample_length=0", *settings(full), *more]
        command = [*launcher, *before, build / "bin/muster-train", SOURCE / "k8s/configs/gpt-demo.yaml"]
        done = run([*command, *(word for setting in sets for word in ("--set", setting))], **environs)
        printed = [float(loss) for loss in re.findall(rf"^step \d/{STEPS}  loss ([\d.]+) ", done.stdout, re.M)]
        if len(printed) != STEPS:
            sys.exit(f"{len(printed)} steps were printed\n{done.stdout}")
        fingerprint = numerics(model)
        entries = [json.loads(line) for line in (pathlib.Path(folder) / "log.jsonl").read_text().splitlines()]
    worlds = [entry["world_size"] for entry in entries if "world_size" in entry]
    if worlds != [2]:
        sys.exit(f"worlds of {worlds} ranks trained, not one of 2")
    found = [entry["loss"] for entry in entries if entry["kind"] == "step"]
    if [f"{loss:.4f}" for loss in found] != [f"{loss:.4f}" for loss in printed]:
        sys.exit(f"muster-train prints {printed}, and the losses are {found}")
    kernels, blas = fingerprint["kernels"], fingerprint["blas"]
    if kernels != f"{table} f32" or not re.search(rf"\b{core}\b", blas, re.I):
        sys.exit(f"the fingerprint names {kernels} and {blas}, not {table} and {core}")
    print(f"{kernels}; {blas}")
    reference.hold("two ranks", found)


def train_by_onednn(build, before, full, table, core, reference):
    """Products by libdnnl where it is there; and where it is not, OpenBLAS's by themselves, and a refusal for who asks for it."""
    asked = ("training.products=onednn",)
    train(build, before, full, f"{table}-onednn", "oneDNN", reference, asked)
    with tempfile.TemporaryDirectory(prefix="muster processors ") as folder:
        for name in "libdnnl.so.2", "libdnnl.so.3":
            (pathlib.Path(folder) / name).touch()  # found first, and no library
        train(build, before, full, table, core, reference, LD_LIBRARY_PATH=folder)
        refused = run([*before, build / "bin/muster-train", SOURCE / "k8s/configs/gpt-demo.yaml", "--set", *asked], 2, LD_LIBRARY_PATH=folder).stderr
    if "products by oneDNN need libdnnl" not in refused:
        sys.exit(f"products by a library that is missing: {refused}")


def need(program):
    if not shutil.which(program):
        skip(f"{program} is missing")
    if not CORPUS.is_dir():
        skip(f"{CORPUS} is missing (package fortunes)")


def check_model(model, full):
    table, core = MODELS[model]
    need("qemu-x86_64")
    before = ["qemu-x86_64", "-cpu", model]
    # a leak would be seen: an instruction that the model lacks is illegal
    for level in ("v3", "v4"):
        known = level == "v3" and table == "cpu-avx2"
        run([*before, BUILD / f"tests/leak_{level}"], 0 if known else -signal.SIGILL)
    long = KERNEL_TESTS_LONG if full else KERNEL_TESTS_LONG[:1] if table == "cpu-base" else ()
    for test in (*KERNEL_TESTS, *long):
        timed([*before, BUILD / "tests" / test])
    run_many(BUILD, before)
    reference = Reference(full)
    train(BUILD, before, full, table, core, reference)
    if full:
        train_by_onednn(BUILD, before, full, table, core, reference)
    if model == "Haswell" and full:
        check_unknown()


def check_unknown():
    """OpenBLAS 0.3.21 does not know a Xeon of the fifth generation, and takes the kernels of 2004. muster-train and programs of
    libmuster take the instruction set's; OPENBLAS_CORETYPE and another user of the library come first, and a line reports it."""
    other = pathlib.Path(f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}/openblas-openmp/libblas.so.3")
    processor = ["qemu-x86_64", "-cpu", "Haswell,model=207"]
    with tempfile.TemporaryDirectory(prefix="muster processors ") as folder:
        model = pathlib.Path(folder) / "model.safetensors"
        sets = ["training.steps=1", f"training.output={model}", f"logging.dir={folder}", "logging.sample_length=0", *settings(False)]
        train = [BUILD / "bin/muster-train", SOURCE / "k8s/configs/gpt-demo.yaml", *(word for setting in sets for word in ("--set", setting))]
        for command, given, core, warning in (
                (train, {}, "Haswell", None),
                (train, {"OPENBLAS_CORETYPE": "Nehalem"}, "Nehalem", "OPENBLAS_CORETYPE=Nehalem is set"),
                (train, {"LD_PRELOAD": str(other)}, "Prescott", "libblas.so.3 uses the same library"),
                ([BUILD / "tests/own_model", model, "0"], {}, "Haswell", None)):
            model.unlink(missing_ok=True)
            done = run([*processor, *(word for name, value in given.items() for word in ("-E", f"{name}={value}")), *command])
            blas = numerics(model)["blas"]
            if not re.search(rf"\b{core}\b", blas) or (warning or "") not in done.stderr or bool(warning) != ("OpenBLAS computes" in done.stderr):
                sys.exit(f"on a processor that OpenBLAS does not know, with {given}, it is {blas}, not {core}:\n{done.stderr}")
            print(f"unknown to OpenBLAS, {command[0].name} with {given}: {blas}")
        refused = run([*processor, *train, "--set", "training.matmul_precision=bf16"], 2).stderr
        if not re.search("products of bf16 need a processor with AVX512-BF16 or AMX|libdnnl|this build has none", refused):
            sys.exit(f"products of bf16 on a processor without them: {refused}")


def lines_of_rejection(command, missing, **more):
    done = run(command, 126, **more)
    said = [line for line in done.stderr.splitlines() if not line.startswith("qemu-x86_64: warning: TCG doesn't support")]
    if done.stdout or len(said) != 1 or f"processors with {missing}, which this one lacks" not in said[0]:
        sys.exit(f"not one clear line:\n{done.stdout}{done.stderr}")
    print(said[0])


def check_too_new(full):
    need("qemu-x86_64")
    for model, level, missing in ("Nehalem", "v3", "AVX"), ("Haswell", "v4", "AVX512F"):
        lines_of_rejection(["qemu-x86_64", "-cpu", model, BUILD / f"tests/too_new_{level}"], missing)
    run(["qemu-x86_64", "-cpu", "Haswell", BUILD / "tests/too_new_v3"])
    for program in "bin/muster", "bin/muster-train":  # they have the look at the processor
        if ".preinit_array" not in run(["readelf", "-SW", BUILD / program]).stdout:
            sys.exit(f"{program} does not look at the processor at its start")
    # what every x86-64 processor has is enough for a build without flags
    for model in "qemu64", "core2duo":
        for program in "muster", "muster-train":
            run(["qemu-x86_64", "-cpu", model, BUILD / "bin" / program, "--version"])
        run(["qemu-x86_64", "-cpu", model, BUILD / "tests/kernels_table_test"])
    if full:
        folder = BUILD / "haswell"
        run(["cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_C_FLAGS=-march=haswell"])
        run(["ninja", "-C", folder, "muster", "muster-train"])
        for program in "muster", "muster-train":
            run(["qemu-x86_64", "-cpu", "Haswell", folder / "bin" / program, "--version"])
            lines_of_rejection(["qemu-x86_64", "-cpu", "Nehalem", folder / "bin" / program, "--version"], "AVX")


def check_aarch64(full):
    need("qemu-aarch64")
    need("aarch64-linux-gnu-gcc")
    sysroot = SOURCE / "build-aarch64" / "sysroot"
    # A third of the time to compile is -O2 and debug information: the short tier has a build of its own without them, but for the
    # kernels, which have their own flags. --full has the shipped build.
    build = SOURCE / "build-aarch64" if full else BUILD / "aarch64"
    kind = ["-DCMAKE_BUILD_TYPE=Release"] if full else ["-DCMAKE_BUILD_TYPE=Quick", "-DCMAKE_C_FLAGS_QUICK=-O0", "-DMUSTER_WERROR=OFF"]
    done = run([SOURCE / "cmake/aarch64_sysroot.sh", sysroot], None)
    if done.returncode:
        skip(f"there are no aarch64 libraries: {done.stderr.strip()}")
    if not (build / "build.ninja").exists():
        run(["cmake", "--preset", "aarch64", "-S", SOURCE, "-B", build, f"-DMUSTER_SYSROOT={sysroot}", *kind])
    tests = CROSS_TESTS
    if full:
        known = run(["ninja", "-C", build, "-t", "targets", "all"]).stdout
        tests = sorted({*CROSS_TESTS, *re.findall(rf"^tests/({CROSS_TESTS_LONG}): ", known, re.M)} - set(CROSS_CANNOT))
    run(["ninja", "-C", build, *CROSS_TARGETS, *(["muster-train"] if full else []), *tests])
    emulate = [HERE / "emulate.sh", sysroot]
    alone = "EMULATE_ALONE" in run([*emulate, "/usr/bin/env"], None).stdout or not run([*emulate, build / "bin/muster", "--version"]).stdout
    failed = []
    for test in tests:
        done = timed([*emulate, build / "tests" / test], None)
        if done.returncode not in (0, 77):
            failed.append(test)
            print(f"{test}: exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    print(f"{len(tests)} unit tests ran{'; not ' + ', '.join(f'{t} ({why})' for t, why in CROSS_CANNOT.items()) if full else ''}")
    if failed:
        sys.exit(f"failed: {' '.join(failed)}{' (the kernel has no binfmt_misc of its own for a user namespace)' if alone else ''}")
    before = ["qemu-aarch64", "-L", sysroot]
    run_many(build, before)
    if full:
        reference = Reference(False)
        train(build, before, False, "cpu-base", "armv8", reference)
        train_by_onednn(build, before, False, "cpu-base", "armv8", reference)


def main():
    words = [word for word in sys.argv[1:] if word != "--full"]
    full = "--full" in sys.argv
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the emulator dumps the core of a planted leak, into this folder
    if words[:1] == ["model"] and len(words) == 2 and words[1] in MODELS:
        check_model(words[1], full)
    elif words == ["too_new"]:
        check_too_new(full)
    elif words == ["aarch64"]:
        check_aarch64(full)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
