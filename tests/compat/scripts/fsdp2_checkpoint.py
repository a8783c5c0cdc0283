"""FSDP2 with distributed checkpoints: trains, saves every ten steps, and goes on from the last save where there is one.

usage: fsdp2_checkpoint.py FOLDER [--kill-rank R]. With --kill-rank that rank kills itself at step 15 of the first attempt."""

import argparse
import json
import os
import pathlib
import signal

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

STEPS, SAVE_EVERY, KILL_AT = 30, 10, 15


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def build(mesh):
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(32), Block(32), torch.nn.Linear(32, 1))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Progress:
    """A checkpoint's contents, as torch.distributed.checkpoint wants it."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        self.step = state["step"]


def last_save(folder):
    saves = [path for path in folder.glob("step-*") if (path / ".metadata").exists()]
    return max(saves, key=lambda path: int(path.name.split("-")[1]), default=None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kill-rank", type=int, default=-1)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build(init_device_mesh("cpu", (world,)))
    progress = Progress(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    found = last_save(arguments.folder)
    if found:
        dcp.load({"progress": progress}, checkpoint_id=found)
    resumed_at = progress.step

    target, losses = torch.linspace(-1, 1, 32), []
    while progress.step < STEPS:
        generator = torch.Generator().manual_seed(1000 * progress.step + rank)
        x = torch.randn(32, 32, generator=generator)
        loss = ((model(x).squeeze(1) - x @ target) ** 2).mean()
        progress.optimizer.zero_grad()
        loss.backward()
        progress.optimizer.step()
        progress.step += 1
        losses.append(loss.item())
        if progress.step % SAVE_EVERY == 0:
            dcp.save({"progress": progress}, checkpoint_id=arguments.folder / f"step-{progress.step}")
        if progress.step == KILL_AT and rank == arguments.kill_rank and not found:
            os.kill(os.getpid(), signal.SIGKILL)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    held = sum(p.to_local().numel() for p in model.parameters()) / sum(p.numel() for p in model.parameters())
    checksum = sum(p.full_tensor().double().sum().item() for p in model.parameters())
    result = {
        "rank": rank,
        "world": world,
        "resumed_at": resumed_at,
        "last": losses[-1],
        "held": held,  # the share of all parameters that this rank keeps
        "checksum": checksum,
    }
    (arguments.folder / f"rank-{rank}.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
