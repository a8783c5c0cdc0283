"""One replica of TorchFT's row of goodput.py. The first node's also runs the lighthouse.

    gpt_torchft.py NUMBER WORKING STEPS LAYERS CHANNELS HEADS VOCABULARY BATCH POSITIONS TEXT LOG CHECKPOINTS EVERY

As in the other rows `working` replicas train, and the others are spares."""

import datetime
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from gpt_worker import Settings, rate, write_step
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.manager import WorldSizeMode

TIME_LIMIT = datetime.timedelta(seconds=20)


def main():
    number, working = int(sys.argv[1]), int(sys.argv[2])
    s = Settings(sys.argv[3:])
    torch.set_num_threads(1)
    lighthouse = None
    if os.environ["LIGHTHOUSE_PORT"] != "0":
        lighthouse = LighthouseServer(
            bind=f"0.0.0.0:{os.environ['LIGHTHOUSE_PORT']}", min_replicas=working, join_timeout_ms=1000, heartbeat_timeout_ms=2500
        )
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=True, wait_for_workers=False)
    model, data = s.model(), s.data()
    update = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def load(state):
        model.load_state_dict(state["model"])
        update.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIME_LIMIT), min_replica_size=working, load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": update.state_dict()},
        replica_id=f"node{number}", timeout=TIME_LIMIT, quorum_timeout=datetime.timedelta(seconds=600),
        world_size_mode=WorldSizeMode.FIXED_WITH_SPARES, store_addr=os.environ["MASTER_ADDR"], store_port=int(os.environ["MASTER_PORT"]),
        rank=0, world_size=1,
    )  # fmt: skip
    wrapped, managed = DistributedDataParallel(manager, model), Optimizer(manager, update)
    while manager.current_step() < s.steps:
        step = manager.current_step() + 1
        update.param_groups[0]["lr"] = rate(step)
        managed.zero_grad()  # begins the quorum
        rank = manager.participating_rank()
        rows = s.rows(data, step, rank if rank is not None else 0, max(manager.num_participants(), 1))
        loss = F.cross_entropy(wrapped(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        managed.step()
        if manager.current_step() == step and rank == 0:
            write_step(s.log, step, float(loss))
    manager.shutdown(wait=False)
    del store
    if lighthouse:
        lighthouse.shutdown()


if __name__ == "__main__":
    main()
