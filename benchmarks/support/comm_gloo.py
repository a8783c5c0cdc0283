"""What comm_bench.c measures, of PyTorch's gloo: the same rounds and lines.

python3 comm_gloo.py RANKS REPEATS BYTES..."""

import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

WARM_UP, WARM_UP_S = 2, 0.2


def measure(what, full, shard):
    dist.barrier()
    start = time.monotonic()
    if what == "all_gather":
        dist.all_gather_into_tensor(full, shard)
    else:
        dist.reduce_scatter_tensor(shard, full)
    return start, time.monotonic()


def warm_up(rank, full, shard):
    """As comm_bench.c does: the scheduler gives ranks processors of their own."""
    until, over = time.monotonic() + WARM_UP_S, torch.zeros(1)
    while not over:
        measure("all_gather", full, shard)
        over.fill_(rank == 0 and time.monotonic() >= until)
        dist.all_reduce(over, dist.ReduceOp.MAX)


def run(rank, ranks, repeats, sizes, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    warm_up(rank, torch.zeros(ranks * sizes[0] // 4), torch.zeros(sizes[0] // 4))
    for size in sizes:
        full, shard = torch.zeros(ranks * size // 4), torch.zeros(size // 4)
        for what in ("all_gather", "reduce_scatter"):
            mine = [measure(what, full, shard) for _ in range(repeats + WARM_UP)][WARM_UP:]
            times = [None] * ranks
            dist.all_gather_object(times, mine)
            if rank == 0:
                took = [max(end for _, end in turn) - min(start for start, _ in turn) for turn in zip(*times)]
                print(what, size, f"{statistics.median(took) * 1e3:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, repeats, *sizes = map(int, sys.argv[1:])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(run, args=(ranks, repeats, sizes, port), nprocs=ranks)
