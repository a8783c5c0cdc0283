"""PyTorch modules sharded by libmuster (python/muster/torch.py) in worlds of 1, 2 and 4 ranks: cases.py is one rank.
With --full runs next to other implementations are longer, and 4 ranks and 1 train all policies of 16 bits, not one.

The interpreter is MUSTER_TORCH_PYTHON, else .venv/bin/python of the source tree; without torch or transformers the test is skipped
(exit 77), without transformers never in CI."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402

torch_python.require(load=False)
torch_python.require_transformers()


# What ranks would import one by one, four seconds of a processor: once for all three worlds.
WARM = ",".join(("torch", "torch.distributed.fsdp", "torch.distributed.device_mesh", "torch.utils.checkpoint", "transformers.models.gpt2.modeling_gpt2",
                 "transformers.models.llama.modeling_llama"))


def main():
    here, muster = pathlib.Path(__file__).parent, os.path.join(torch_python.build(), "bin", "muster")
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHON_EXEC=sys.executable, MUSTER_SOURCE=torch_python.source(),
                       MALLOC_MMAP_THRESHOLD_="1000000")  # else glibc keeps what autograd has freed
    full = sys.argv[1:] == ["--full"]
    with tempfile.TemporaryDirectory() as shared, contextlib.ExitStack() as ends:
        environment["XDG_RUNTIME_DIR"] = shared  # where the template is known
        ends.callback(subprocess.run, [muster, "warm", "--stop"], env=environment, check=True)
        for ranks in [4, 1] if full else [4, 1, 2]:  # each loads what those before it have saved
            folder = os.path.join(shared, f"{ranks}-ranks")
            os.mkdir(folder)
            command = [muster, "run", "--standalone", f"--nproc-per-node={ranks}", f"--warm={WARM}", "--warm-keep=600",
                       str(here / "cases.py"), folder, *(["--full"] if full else [])]
            done = torch_python.run(command, env=environment)
            print(done.stdout[-3000:], flush=True)
            if done.returncode:
                sys.exit(f"{ranks} ranks: exit code {done.returncode}\n{done.stderr[-6000:]}")


if __name__ == "__main__":
    main()
