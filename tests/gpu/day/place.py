"""Where the programs of a trial are: packed, built here for a GPU, or over the fakes. And how they are started."""

import glob
import os
import pathlib
import re
import shutil
import site
import subprocess
import sys

from runner import Skip

SOURCE = pathlib.Path(__file__).resolve().parents[3]
# Programs of nvcc's build, and those over the emulator that they are in a rehearsal.
OVER_FAKES = {"kernels_cuda_test": "gpu_kernels", "kernels_cuda_more_test": "gpu_kernels_more", "kernels_cuda_attention_test": "gpu_kernels_attention",
              "kernels_cuda_attention_narrow_test": "gpu_kernels_attention_narrow",
              "gpu_products_real": "gpu_products", "gpu_kernels_table_real": "gpu_kernels_table"}
NEEDS_GPU = {"kernels_cuda_status_test"}  # looks at the real runtime's names
PROSE = " ".join(f"the {adjective} {noun} {verb} over the {other} and then it rests." for adjective in ("quick", "slow", "old")
                 for noun in ("fox", "dog", "hen") for verb in ("jumps", "walks") for other in ("hill", "wall", "river")) + "\n"


def wheels():
    """The folders of an installed PyTorch with cuBLASLt, NCCL and cuDNN."""
    return sorted({path.rpartition("/")[0] for folder in sys.path + site.getsitepackages() for name in ("libcublasLt.so.13", "libnccl.so.2", "libcudnn.so.9", "libnvrtc.so.13")
                   for path in glob.glob(f"{folder}/nvidia/*/lib/{name}")})


class Place:
    def __init__(self, kind, folder):
        """kind: packed (folder: the pack), built (folder: the source), rehearsal (folder: the build of ./dev build)."""
        self.kind, self.folder, self.rehearsal = kind, pathlib.Path(folder).resolve(), kind == "rehearsal"
        self.torch = os.environ.get("MUSTER_TORCH_PYTHON") or ("python3" if not self.rehearsal else str(SOURCE / ".venv/bin/python"))
        self.about = self.device()
        # The fastest products of fp32 values that the device has.
        self.precision = "tf32" if self.rehearsal or self.capability() >= 80 else "fp32"
        # A model for a GPU is more than the emulator does in a day.
        if self.rehearsal:
            self.gpt2 = {"layers": 2, "channels": 64, "heads": 2, "vocab": 501, "batch": 1, "positions": 32}
            self.xl = {**self.gpt2, "layers": 3}
        else:
            self.gpt2 = {"layers": 12, "channels": 768, "heads": 12, "vocab": 50257, "batch": 8, "positions": 1024}
            self.xl = {**self.gpt2, "layers": 48, "channels": 1600, "heads": 25, "batch": 1}

    def capability(self):
        return int(self.about["capability"].replace(".", "") or 0)

    def need_memory(self, gigabytes, what):
        if not self.rehearsal and self.about["memory_mib"] < gigabytes * 1024:
            raise Skip(f"{what} needs {gigabytes} GiB, and the device has {self.about['memory_mib'] / 1024:.0f}")

    def fits(self):
        """Why a pack is not for this device; None: it is."""
        if self.kind != "packed" or not (self.folder / "ARCHITECTURE").exists():
            return None
        packed = int((self.folder / "ARCHITECTURE").read_text())
        return None if packed // 10 == self.capability() // 10 and packed <= self.capability() else \
            f"{self.folder} was packed for sm_{packed}, but the {self.about['name']} is sm_{self.capability()}: pack.py --architecture {self.capability()}"

    def program(self, name):
        """name: bin/..., tests/... or benchmarks/..."""
        base = name.rpartition("/")[2]
        if self.kind == "packed":
            return self.folder / name
        if self.rehearsal:
            if base in NEEDS_GPU:
                raise Skip(f"{base} is about the real runtime")
            return self.folder / name.replace(base, OVER_FAKES.get(base, base))
        return self.folder / ("build-cuda" if base in OVER_FAKES or base in NEEDS_GPU or base == "hang.so" else "build") / name

    def module(self):
        return {"packed": self.folder / "lib/libmuster_cuda.so", "built": self.folder / "build-cuda/lib/libmuster_cuda.so",
                "rehearsal": self.folder / "tests/gpu/lib/libmuster_cuda.so"}[self.kind]

    def libraries(self):
        if self.rehearsal:
            return [str(self.folder / "tests/gpu/lib")]
        given = os.environ.get("MUSTER_GPU_LIBRARIES")
        if given:
            return given.split(":")
        if self.kind == "packed":
            return wheels()
        cudart = re.search(r"libcudart\.so\.13 => (.*)/[^/]* \(", subprocess.run(["ldd", str(self.module())], capture_output=True, text=True).stdout)
        return ([cudart[1]] if cudart else []) + [str(self.folder / ".cuda/lib")]

    def build(self):
        """What tests take as MUSTER_BUILD."""
        return self.folder / "build" if self.kind == "built" else self.folder

    def environment(self, **more):
        """A program's variables: module and libraries, before the folders where programs would find the fakes."""
        variables = {**os.environ, "MUSTER_CUDA_MODULE": str(self.module()), "MUSTER_BUILD": str(self.build()), "MUSTER_SOURCE": str(SOURCE)}
        paths = [*self.libraries(), variables.get("LD_LIBRARY_PATH", "")]
        variables["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
        if self.rehearsal:
            variables["OMP_NUM_THREADS"] = "1"
        else:
            variables["MUSTER_REAL_LIBRARIES"] = variables["MUSTER_ON_GPU"] = "1"
        for name in "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT":
            variables.pop(name, None)
        return {**variables, **{name: str(value) for name, value in more.items()}}

    def run(self, *command, seconds=60, status=0, cwd=None, **environment):
        """The output of a command, which is printed too. Another exit status is an error with its last lines; 77 is a Skip."""
        words = [str(word) for word in command]
        print("$", *words, flush=True)
        try:
            done = subprocess.run(words, env=self.environment(**environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors="replace", timeout=seconds, cwd=cwd)
            output, ended = done.stdout, done.returncode
        except subprocess.TimeoutExpired as late:
            output, ended = (late.stdout or b"").decode(errors="replace"), f"more than {seconds} s"
        except FileNotFoundError:
            output, ended = "", f"no such program: {words[0]}"
        print(output, flush=True)
        if ended == 77:
            raise Skip(next((line for line in output.splitlines() if "skipped" in line), "skipped"))
        if status is not None and ended != status:
            tail = [line for line in output.splitlines() if not re.match(r"\[ *(RUN|OK|-*|=*) *\]", line)][-12:]
            raise RuntimeError(f"{pathlib.Path(words[0]).name} ended with {ended}: " + " | ".join(tail))
        return output

    def need_torch(self, cuda=True):
        program = "import sys, torch; sys.exit(not torch.cuda.is_available())" if cuda and not self.rehearsal else "import torch"
        if not shutil.which(self.torch) or subprocess.run([self.torch, "-c", program], capture_output=True).returncode:
            raise Skip(f"{self.torch} has no PyTorch" + (" with CUDA" if cuda and not self.rehearsal else ""))

    def device(self):
        """What result files name as the device."""
        if self.rehearsal:
            return {"name": "none: fakes and the emulator", "driver": "", "memory_mib": 0, "capability": ""}
        fields = "name,driver_version,memory.total,compute_cap"
        done = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"], capture_output=True, text=True)
        rows = [row.split(", ") for row in done.stdout.splitlines() if row.count(", ") == 3]
        if not rows:
            sys.exit(f"nvidia-smi names no GPU: {done.stderr or done.stdout}")
        name, driver, memory, capability = rows[0]
        return {"name": name, "driver": driver, "memory_mib": int(memory) if memory.isdigit() else 0, "capability": capability, "count": len(rows)}
