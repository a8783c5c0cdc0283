"""One round of checkpoint.py in PyTorch: the same state saved by torch.distributed.checkpoint, at once and by async_save, and loaded.

Prints one line: seconds of save, of async_save until it returns (its second one: the stager has its memory then) and of load."""
import os
import shutil
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

SHAPES = [(50257, 768), (1024, 768), (768,), (768,)] + 12 * [
    (768, 2304), (2304,), (768, 768), (768,), (768, 3072), (3072,), (3072, 768), (768,), (768,), (768,), (768,), (768,)]


def main():
    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "0")
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    state = {f"{kind}.{i}": torch.rand(shape) for kind in ("value", "moment1", "moment2") for i, shape in enumerate(SHAPES)}
    folder = tempfile.mkdtemp(prefix="checkpoint_torch.", dir=sys.argv[1])
    try:
        start = time.perf_counter()
        dcp.save(state, checkpoint_id=f"{folder}/a")
        saved = time.perf_counter() - start
        for turn in "bc":
            start = time.perf_counter()
            future = dcp.async_save(state, checkpoint_id=f"{folder}/{turn}")
            stalled = time.perf_counter() - start
            future.result()
        for name in os.listdir(f"{folder}/a"):
            fd = os.open(f"{folder}/a/{name}", os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        start = time.perf_counter()
        dcp.load(state, checkpoint_id=f"{folder}/a")
        loaded = time.perf_counter() - start
        print(f"save {saved:.6f} async {stalled:.6f} load {loaded:.6f}")
    finally:
        shutil.rmtree(folder)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
