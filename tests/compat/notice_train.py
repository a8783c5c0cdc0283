"""A PyTorch DDP script that saves when a stop is announced, and goes on from there: usage notice_train.py FOLDER.

The class is that of launcher/docs/notice.md. Each rank writes FOLDER/begun.ROUND.RANK and saved.ROUND.RANK: the step and a sum of
the parameters, bit by bit."""

import json, os
import pathlib
import sys
import time

import torch, torch.distributed as dist
import without_compiler
from torch.nn.parallel import DistributedDataParallel


class Notice:
    """Whether a planned stop was announced to any rank; the same answer on all, if all ask once a step."""

    def __init__(self):
        self.fd = int(os.environ.get("MUSTER_NOTICE_FD", -1))
        self.told = None
        if self.fd >= 0:
            os.write(self.fd, b"ready\n")

    def __call__(self, device="cpu"):
        if self.fd >= 0 and self.told is None:
            try:
                self.told = json.loads(os.read(self.fd, 4096).splitlines()[-1])
            except (BlockingIOError, IndexError):
                pass
        flag = torch.tensor([float(self.told is not None)], device=device)
        dist.all_reduce(flag)
        return flag.item() > 0


def main():
    folder = pathlib.Path(sys.argv[1])
    checkpoint = folder / "checkpoint.pt"
    without_compiler.leave_out()
    dist.init_process_group("gloo")
    rank, round_ = dist.get_rank(), os.environ["MUSTER_ROUND"]
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first_step = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_step = state["step"]

    def say(what, step):
        total = sum(p.detach().double().sum() for p in model.parameters()).item()
        path = folder / f"{what}.{round_}.{rank}"
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps([step, total.hex(), dist.get_world_size()]))
        new.rename(path)

    def train(step):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step * 1000 + rank))
        loss = (model(x).squeeze(1) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01 * (rank + 1))  # ranks are at different places when they hear of it

    def save(step):
        if rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "checkpoint.new")
            (folder / "checkpoint.new").rename(checkpoint)
        say("saved", step)

    say("begun", first_step)
    notice = Notice()
    for step in range(first_step, 1000000):
        train(step)
        if step == first_step + 3:
            say("trained", step)
        if notice():
            save(step + 1)
            dist.barrier()
            del model  # before its group: dataloader_workers.py
            dist.destroy_process_group()
            raise SystemExit(0)


if __name__ == "__main__":
    main()
