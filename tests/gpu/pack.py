#!/usr/bin/env python3
"""Packs what tests/gpu/on_a_gpu.sh runs for a machine with a GPU where nothing can be built or fetched: `./dev build &&
python3 tests/gpu/pack.py FOLDER [--architecture 90]`, and there `on_a_gpu.sh --packed FOLDER`.

    FOLDER/bin, lib, benchmarks, tests/   programs without debug information, which look for libraries in FOLDER/lib

Kernels are compiled for one architecture, and are one library for all programs. A small stand-in has the place of OpenBLAS. cudart comes
along; NCCL and cuBLASLt have to be there (any PyTorch of CUDA 13 brings them)."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "packages"))
from shipped import Machine  # noqa: E402

LIMIT = 40 << 20  # bytes
HOST = "bin/muster", "bin/muster-train", "benchmarks/train_step", "tests/gpu_cudart_conformance", "tests/gpu_nccl_conformance", "tests/gpu_device", "tests/gpu_device_more", \
    "tests/gpu_cublaslt_conformance", "tests/gpu_rates", "tests/model_dump"
CUDA = "tests/kernels_cuda_test", "tests/kernels_cuda_more_test", "tests/kernels_cuda_attention_test", "tests/kernels_cuda_attention_narrow_test", "tests/kernels_cuda_status_test", \
    "tests/gpu_products_real", "tests/gpu_kernels_table_real", "tests/hang.so"
SMALL_BLAS = "tests/gpu/day/small/libopenblas.so.0"


class WithToolkit(Machine):
    """The toolkit's cudart too, which is on no path of ours."""

    def __init__(self, build):
        super().__init__()
        self.build = build

    def folders(self):
        yield self.build / "lib"
        found = re.search(r"^CUDA_CUDART:FILEPATH=(.+)$", (self.build / "CMakeCache.txt").read_text(), re.MULTILINE)
        if found:
            yield pathlib.Path(found[1]).parent
        yield from super().folders()


def build_for(architecture, build):
    settings = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DMUSTER_CUDA=ON", "-DMUSTER_CUDA_SHARED=ON", f"-DCMAKE_CUDA_ARCHITECTURES={architecture}-real"]
    targets = ["muster_cuda", "gpu_hang", *(pathlib.Path(name).stem for name in CUDA if not name.endswith(".so"))]
    for command in ["cmake", "-G", "Ninja", "-S", SOURCE, "-B", build, *settings], ["ninja", "-C", build, *targets]:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"pack.py: {command[0]} failed\n{done.stdout[-3000:]}")


def copy(source, target, search):
    shutil.copyfile(source, target)
    target.chmod(0o755)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)
    subprocess.run(["patchelf", "--force-rpath", "--set-rpath", search, target], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--architecture", default="90", help="compute capability without its point: 75, 80, 90; %(default)s")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("MUSTER_BUILD", SOURCE / "build")), help="of ./dev build; %(default)s")
    parser.add_argument("--nvcc-build", type=pathlib.Path, default=SOURCE / "build-pack", help="is made; %(default)s")
    options = parser.parse_args()
    missing = [name for name in (*HOST, SMALL_BLAS) if not (options.build / name).exists()]
    if missing:
        sys.exit(f"pack.py: {', '.join(missing)}: not in {options.build}; ./dev build makes them")
    build_for(options.architecture, options.nvcc_build)
    for name in "bin", "lib", "benchmarks", "tests":
        shutil.rmtree(options.folder / name, ignore_errors=True)
        (options.folder / name).mkdir(parents=True)
    machine, libraries = WithToolkit(options.nvcc_build), {}
    files = {name: options.build / name for name in HOST} | {name: options.nvcc_build / name for name in CUDA}
    for name, path in files.items():
        libraries |= machine.libraries_of(path)
        copy(path, options.folder / name, "$ORIGIN/../lib")
    module = options.nvcc_build / "lib/libmuster_cuda.so"
    libraries |= machine.libraries_of(module)
    own = {name: path for name, path in libraries.items() if options.build not in path.parents or "tests" not in path.parts}  # no fake
    own |= {"libmuster_cuda.so": module, "libopenblas.so.0": options.build / SMALL_BLAS}
    for name in "libgfortran.so.5", "libquadmath.so.0":  # OpenBLAS's own
        own.pop(name, None)
    own |= {name: path for name, path in machine.libraries_of(module).items()}  # the toolkit's cudart, by the fakes' name
    for name, path in own.items():
        copy(path.resolve(), options.folder / "lib" / name, "$ORIGIN")
    (options.folder / "ARCHITECTURE").write_text(f"{options.architecture}\n")
    packed = [path for path in options.folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in packed)
    print(f"{len(packed)} files, {size / 1048576:.1f} MiB in {options.folder}")
    if size > LIMIT:
        sys.exit(f"pack.py: {size} bytes are more than {LIMIT}: what a machine is given at a time")


main()
