"""One rank of torchrun's row of goodput.py: fully_shard with gloo, saved by torch.distributed.checkpoint at every N-th step.

    gpt_torch.py STEPS LAYERS CHANNELS HEADS VOCABULARY BATCH POSITIONS TEXT LOG CHECKPOINTS EVERY"""

import datetime
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from gpt_worker import Settings, rate, write_step
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

TIME_LIMIT = datetime.timedelta(seconds=20)  # a lost node closes no connection; the default would be half an hour


def newest(folder):
    """The last checkpoint that was saved whole: its metadata is written last."""
    whole = [int(path.name) for path in folder.glob("[0-9]*") if (path / ".metadata").exists()] if folder.exists() else []
    return max(whole, default=0)


def main():
    s = Settings(sys.argv[1:])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIME_LIMIT)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model, mesh, data = s.model(), init_device_mesh("cpu", (ranks,)), s.data()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    update = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    done = torch.tensor(newest(s.checkpoints))
    dist.broadcast(done, 0)
    step = int(done)
    if step:
        weights, moments = get_state_dict(model, update)
        state = {"model": weights, "optimizer": moments}
        dcp.load(state, checkpoint_id=str(s.checkpoints / str(step)))
        set_state_dict(model, update, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    while step < s.steps:
        step += 1
        update.param_groups[0]["lr"] = rate(step)
        rows = s.rows(data, step, rank, ranks)
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        update.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            write_step(s.log, step, float(mean) / ranks)
        if step % s.every == 0:
            weights, moments = get_state_dict(model, update)
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=str(s.checkpoints / str(step)))
            if rank == 0:
                shutil.rmtree(s.checkpoints / str(step - 2 * s.every), ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
