#!/usr/bin/env python3
"""DDP whose ranks stay when others are lost: `muster.Regroup` keeps their processes, and the new ranks get model, optimizer and step from a
rank that has them. With two ranks the parameters have the bits of a run without a loss (with more, DDP's first sum has another order).

    muster run --standalone --nproc-per-node=4 --max-restarts=3 examples/torch_regroup.py --steps=200 --out=model.pt

With PYTHONPATH=python (installed: lib/muster/python). Kill a worker while it runs: the others keep their pids."""

import argparse
import io
import os

import torch
import torch.distributed as dist

import muster

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--out", default="")
arguments = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)


def connect(step):
    """A process group, and the state of the rank that has come furthest: step -1 is a rank that was just started."""
    dist.init_process_group("gloo")
    steps = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(steps, torch.tensor([step]))
    source = max(range(len(steps)), key=lambda rank: steps[rank].item())
    if steps[source].item() < 0:
        return torch.nn.parallel.DistributedDataParallel(net), 0  # no rank has a state: the beginning
    state = [None]
    if dist.get_rank() == source:
        file = io.BytesIO()
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
        state = [file.getvalue()]
    dist.broadcast_object_list(state, src=source)
    state = torch.load(io.BytesIO(state[0]), weights_only=True)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return torch.nn.parallel.DistributedDataParallel(net), steps[source].item()


def train(model, step):
    random = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    x = torch.randn(16, 32, generator=random)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()  # the collective: after it the step is this rank's own work
    optimizer.step()
    return loss.item()


model, step = connect(-1)
regroup = muster.Regroup(resizes=True)  # a job that has lost a node, and has no spare, goes on with fewer ranks
print(f"rank {dist.get_rank()} is process {os.getpid()}", flush=True)
while step < arguments.steps:
    try:
        loss = train(model, step)
        step += 1
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss:.5f}", flush=True)
        if step == arguments.steps:
            dist.barrier()  # every rank has come to the end, or is given its state
    except RuntimeError as error:
        while True:
            regroup.join(error, dist.destroy_process_group)
            try:
                model, step = connect(step)
                break
            except RuntimeError as again:  # another loss
                error = again
        if dist.get_rank() == 0:
            print(f"regrouped at step {step}", flush=True)
if arguments.out and dist.get_rank() == 0:
    torch.save(net.state_dict(), arguments.out)
dist.destroy_process_group()
