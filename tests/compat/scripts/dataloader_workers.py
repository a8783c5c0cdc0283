"""DDP with a DataLoader that starts worker processes of its own.

usage: dataloader_workers.py FOLDER [--hang]. With --hang every rank sleeps after its first batch, loaders open."""

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info


class Squares(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        assert get_worker_info() is not None  # this runs in a worker process
        x = torch.full((8,), index / 256)
        return x, (x * x).sum(), index, os.getpid()


def main():
    folder = pathlib.Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = Squares()
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=2, persistent_workers=True)
    seen, processes = set(), set()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, wanted, indices, pids in loader:
            loss = ((model(x).squeeze(1) - wanted) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            processes.update(pids.tolist())
            if epoch == 0:
                seen.update(indices.tolist())
            if "--hang" in sys.argv:
                (folder / f"loading-{rank}.json").write_text(json.dumps([os.getpid(), *processes]))
                time.sleep(600)
    everyone = [None] * world
    dist.all_gather_object(everyone, sorted(seen))
    result = {
        "rank": rank,
        "world": world,
        "loaders": len(processes - {os.getpid()}),
        "samples": sum(len(part) for part in everyone),
        "distinct": len({index for part in everyone for index in part}),
    }
    (folder / f"rank-{rank}.json").write_text(json.dumps(result))
    # PyTorch 2.13: a DDP model that is the last to hold its group joins gloo's threads with the interpreter locked, and they may want it
    del model, loss
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
