"""A small DDP training script as users have it: GPUs where there are some, gloo where not. It goes on from its last checkpoint
after a restart and saves one more when it is told to stop.

Environment: MODEL_DIR (checkpoints and TensorBoard events; a temporary folder where unset), STEPS (default 200)."""

import os
import pathlib
import signal
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    SummaryWriter = None

stop = False


def ask_to_stop(number, frame):
    global stop
    stop = True


def save(path, model, optimizer, step):
    beside = path.with_suffix(".part")
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, beside)
    os.replace(beside, path)  # a crash at any instant leaves the last whole one


def main():
    signal.signal(signal.SIGTERM, ask_to_stop)
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, local_rank, world = dist.get_rank(), int(os.environ["LOCAL_RANK"]), dist.get_world_size()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    folder = pathlib.Path(os.environ.get("MODEL_DIR") or tempfile.gettempdir())
    steps, checkpoint = int(os.environ.get("STEPS", "200")), folder / "checkpoint.pt"

    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device), device_ids=[local_rank] if on_gpu else None)
    optimizer, first = torch.optim.AdamW(model.parameters(), lr=1e-3), 0
    if os.environ.get("MODEL_DIR") and checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    events = SummaryWriter(folder / "events") if SummaryWriter and rank == 0 and os.environ.get("MODEL_DIR") else None
    print(f"rank {rank} of {world} on {device}: steps {first} to {steps}", flush=True)

    loss = torch.zeros(())
    for step in range(first, steps):
        x = torch.randn(64, 256, generator=torch.Generator().manual_seed(step * world + rank)).to(device)
        loss = torch.nn.functional.mse_loss(model(x), x.roll(1, dims=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        told = torch.tensor([float(stop)], device=device)
        dist.all_reduce(told, op=dist.ReduceOp.MAX)  # all leave after the same step
        last = step + 1 == steps or bool(told.item())
        if rank == 0 and (last or (step + 1) % 50 == 0):
            print(f"step {step + 1}/{steps} loss {loss.item():.4f}", flush=True)
            if events:
                events.add_scalar("loss", loss.item(), step + 1)
            if os.environ.get("MODEL_DIR"):
                save(checkpoint, model, optimizer, step + 1)
        if told.item():
            break
    if rank == 0:
        print(f"finished at loss {loss.item():.4f}", flush=True)
    if events:
        events.close()
    del model  # before its group: PyTorch 2.13 may wait for ever where a model is the last to hold a group of gloo
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
