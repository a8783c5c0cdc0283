"""What comm_tcp_ranks.c measures, of PyTorch's gloo: the same lines, with ranks as processes.

python3 comm_tcp_gloo.py RANKS REPEATS BYTES..."""

import multiprocessing
import os
import socket
import sys
import time

import torch
import torch.distributed as dist


def reduce_often(values, repeats):
    for _ in range(repeats):
        dist.all_reduce(values)
        values.fill_(1)


def run(rank, ranks, repeats, sizes, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for size in sizes:
        values = torch.ones(max(1, size // 8), dtype=torch.float64)
        reduce_often(values, 2)
        dist.barrier()
        processor, start = time.process_time(), time.monotonic()
        reduce_often(values, repeats)
        mine = torch.tensor([time.process_time() - processor, time.monotonic() - start], dtype=torch.float64) * 1e6 / repeats
        elapsed = mine[1].item()
        dist.all_reduce(mine)
        if rank == 0:
            print(size, f"{mine[0].item() / ranks:.2f} {elapsed:.2f}", flush=True)
    dist.barrier()
    os._exit(0)  # tearing down 64 full meshes takes longer than the measurement


if __name__ == "__main__":
    ranks, repeats, *sizes = map(int, sys.argv[1:])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fork = multiprocessing.get_context("fork")  # so torch is loaded once
    processes = [fork.Process(target=run, args=(rank, ranks, repeats, sizes, port)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))
