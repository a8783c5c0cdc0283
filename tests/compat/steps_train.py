"""A plain PyTorch DDP script that saves every few steps, goes on from there in the next world, and leaves a record of every step.

usage: steps_train.py FOLDER, under a launcher. STEP_FOLDER is where each rank records what step_worker records (see there); STEP_MS is
the least length of a step. It trains until rank 0 sees STEP_FOLDER/finish; FOLDER/result.json then tells the loss and the parameters. A
rank R for which there is STEP_FOLDER/linger.R stays until that is gone.

The result does not depend on the world: the samples of a step follow from its number, and the ranks share them out. So
train_alone() of as many steps gives the same result, but for the rounding of sums in another order (all of it is float64)."""

import datetime
import gc
import json
import os
import pathlib
import secrets
import socket
import sys
import time

import torch
import torch.distributed as dist
import without_compiler
from torch.nn.parallel import DistributedDataParallel

without_compiler.leave_out()
BATCH, WIDTH, SAVE_EVERY = 12, 16, 5  # a batch for 1, 2, 3 or 4 ranks
torch.set_default_dtype(torch.float64)


def new_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


def new_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def loss_of(model, step, rank, world):
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))[rank::world]
    return ((model(x).squeeze(1) - x @ torch.linspace(-1, 1, WIDTH)) ** 2).mean()


def take_step(model, optimizer, step, rank, world):
    loss = loss_of(model, step, rank, world)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def checksum(model):
    return sum(p.detach().abs().sum().item() for p in model.parameters())


def train_alone(steps):
    model = new_model()
    optimizer = new_optimizer(model)
    for step in range(steps):
        loss = take_step(model, optimizer, step, 0, 1)
    return {"steps": steps, "loss": loss.item(), "checksum": checksum(model)}


class Record:
    def __init__(self, folder):
        self.path = folder / f"record.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
        self.file = open(self.path, "w", buffering=1)

    def tell(self, word, *rest):
        print(word, time.monotonic_ns(), *rest, file=self.file)


def begin(record, rank, world):
    tag = [secrets.token_hex(8)]
    dist.broadcast_object_list(tag)
    names = {"world": tag[0], "rank": rank, "size": world, "round": os.environ.get("MUSTER_ROUND", 0)}
    names.update(restarts=os.environ["TORCHELASTIC_RESTART_COUNT"], host=socket.gethostname())
    record.tell("begin", *(f"{name}={value}" for name, value in names.items()))


def save(folder, state):
    new = folder / f"state.{secrets.token_hex(4)}.new"
    torch.save(state, new)
    new.rename(folder / "state")


def load(folder):
    """What rank 0 finds there, for everybody: a world that is being stopped may still save."""
    found = [None]
    if dist.get_rank() == 0 and (folder / "state").exists():
        found = [torch.load(folder / "state")]
    dist.broadcast_object_list(found)
    return found[0]


def train(folder, steps_folder):
    rank, world = dist.get_rank(), dist.get_world_size()
    record = Record(steps_folder)
    begin(record, rank, world)
    bare = new_model()
    optimizer = new_optimizer(bare)
    state, step = load(folder), 0
    if state:
        bare.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    resumed_at = step
    model = DistributedDataParallel(bare)
    length = int(os.environ.get("STEP_MS", "20")) / 1000
    while True:
        told = torch.zeros(2)  # the loss of all, and whether this is the last step
        told[0] = take_step(model, optimizer, step, rank, world) / world
        told[1] = rank == 0 and (steps_folder / "finish").exists()
        dist.all_reduce(told)
        record.tell("step", step)
        step += 1
        if told[1]:
            break
        if step % SAVE_EVERY == 0 and rank == 0:
            save(folder, {"step": step, "model": bare.state_dict(), "optimizer": optimizer.state_dict()})
        time.sleep(length)  # as if there were more to compute
    record.tell("end", step)
    if rank == 0:
        result = {"steps": step, "resumed_at": resumed_at, "loss": told[0].item(), "checksum": checksum(bare)}
        (folder / "result.json").write_text(json.dumps(result))


def main():
    steps_folder = pathlib.Path(os.environ["STEP_FOLDER"])
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
    train(pathlib.Path(sys.argv[1]), steps_folder)
    linger = steps_folder / f"linger.{dist.get_rank()}"
    gc.collect()  # torch 2.13 aborts now and then where a thread of gloo still runs at the interpreter's exit
    dist.destroy_process_group()
    while linger.exists():
        time.sleep(0.02)


if __name__ == "__main__":
    main()
