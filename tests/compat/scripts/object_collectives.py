"""Object collectives, groups and barriers: everything that goes through the launcher's store.

usage: object_collectives.py FOLDER"""

import datetime
import json
import pathlib
import sys

import torch
import torch.distributed as dist


def main():
    folder = pathlib.Path(sys.argv[1])
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    everyone = [None] * world
    dist.all_gather_object(everyone, {"rank": rank, "text": "x" * 100_000 * (rank + 1)})
    told = [{"from": rank, "words": ["a", "b"]} if rank == 0 else None]
    dist.broadcast_object_list(told, src=0)
    mine = None
    for member in range(world):  # every rank makes every group
        group = dist.new_group([member])
        if member == rank:
            mine = group
    alone = torch.full((4,), float(rank))
    dist.all_reduce(alone, group=mine)
    store = dist.distributed_c10d._get_default_store()
    store.set(f"answer/{rank}", str(rank * rank))
    store.wait([f"answer/{other}" for other in range(world)])
    answers = [int(store.get(f"answer/{other}")) for other in range(world)]
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    result = {
        "rank": rank,
        "world": world,
        "sizes": [len(other["text"]) for other in everyone],
        "told": told[0],
        "alone": alone.tolist(),
        "answers": answers,
    }
    (folder / f"rank-{rank}.json").write_text(json.dumps(result))
    dist.barrier()  # as in dataloader_workers.py
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
