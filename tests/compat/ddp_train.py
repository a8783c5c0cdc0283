"""A plain PyTorch DDP script, as a user of torchrun would write it: nothing in it knows of muster.

usage: ddp_train.py FOLDER [--kill-rank R] [--without-compiler]. Each rank writes FOLDER/rank-R.json. With --kill-rank that rank kills itself in
the middle of the first attempt; --without-compiler saves half of its start (without_compiler.py)."""

import argparse
import gc
import json
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--kill-rank", type=int, default=-1)
    parser.add_argument("--without-compiler", action="store_true")
    arguments = parser.parse_args()
    if arguments.without_compiler:
        import without_compiler

        without_compiler.leave_out()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    target = torch.linspace(-1, 1, 16)
    generator = torch.Generator().manual_seed(100 + rank)  # each rank sees other data
    losses = []
    for step in range(60):
        x = torch.randn(64, 16, generator=generator)
        loss = ((model(x).squeeze(1) - x @ target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach().div_(world))
        losses.append(loss.item())
        if step == 5 and rank == arguments.kill_rank and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    everyone = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(everyone, flat)
    result = {
        "rank": rank,
        "world": world,
        "first": losses[0],
        "last": losses[-1],
        "equal": all(torch.equal(everyone[0], other) for other in everyone),
        "launched": dist.is_torchelastic_launched(),
        "restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
    }
    with open(os.path.join(arguments.folder, f"rank-{rank}.json"), "w") as out:
        json.dump(result, out)
    # torch 2.13 aborts now and then at interpreter exit, under torchrun too, where a thread of gloo still runs then
    del model, optimizer, loss
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
