#!/usr/bin/env python3
"""Packs what tests/gpu/on_a_gpu.sh runs, with every library that it links but NVIDIA's own, for a machine with a GPU where nothing can
be built or fetched: `./dev build && ./dev build cuda && python3 tests/gpu/pack.py FOLDER`, and there `on_a_gpu.sh --packed FOLDER`.

    FOLDER/bin, lib, benchmarks, tests/   programs without debug information, which look for libraries in FOLDER/lib

cudart comes along; NCCL and cuBLASLt have to be there (any PyTorch of CUDA 13 brings them)."""

import pathlib
import re
import shutil
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "packages"))
from shipped import Machine  # noqa: E402

HOST, CUDA = SOURCE / "build", SOURCE / "build-cuda"
PROGRAMS = {
    "bin/muster": HOST, "bin/muster-train": HOST, "benchmarks/train_step": HOST,
    "tests/gpu_cudart_conformance": HOST, "tests/gpu_nccl_conformance": HOST, "tests/gpu_device": HOST, "tests/gpu_cublaslt_conformance": HOST,
    "tests/kernels_cuda_test": CUDA, "tests/kernels_cuda_more_test": CUDA, "tests/kernels_cuda_attention_test": CUDA,
    "tests/kernels_cuda_status_test": CUDA, "tests/gpu_products_real": CUDA, "tests/gpu_kernels_table_real": CUDA,
}


class WithToolkit(Machine):
    """The toolkit's cudart too, which is on no path of ours."""

    def folders(self):
        yield from super().folders()
        found = re.search(r"^CUDA_CUDART:FILEPATH=(.+)$", (CUDA / "CMakeCache.txt").read_text(), re.MULTILINE)
        if found:
            yield pathlib.Path(found[1]).parent


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: pack.py FOLDER")
    target, machine = pathlib.Path(sys.argv[1]), WithToolkit()
    missing = [str(build / name) for name, build in PROGRAMS.items() if not (build / name).exists()]
    if missing:
        sys.exit(f"pack.py: {', '.join(missing)}: not there; ./dev build && ./dev build cuda makes them")
    for folder in "bin", "lib", "benchmarks", "tests":
        shutil.rmtree(target / folder, ignore_errors=True)
        (target / folder).mkdir(parents=True)
    module, libraries = CUDA / "lib/libmuster_cuda.so", {}
    for name, build in PROGRAMS.items():
        libraries |= machine.libraries_of(build / name)
        machine.copy(build / name, target / name, "$ORIGIN/../lib")
    libraries = {name: path for name, path in libraries.items() if HOST not in path.parents and CUDA not in path.parents}  # fakes
    libraries |= machine.libraries_of(module)
    libraries[module.name] = module
    for name, path in libraries.items():
        machine.copy(path.resolve(), target / "lib" / name, "$ORIGIN")
    files = [path for path in target.rglob("*") if path.is_file()]
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.0f} MB in {target}")


main()
