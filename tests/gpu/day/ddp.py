"""A worker of PyTorch's DDP over NCCL: sums and five steps."""

import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
one = torch.ones(1 << 20, device="cuda") * (dist.get_rank() + 1)
dist.all_reduce(one)
assert one[0].item() == dist.get_world_size() * (dist.get_world_size() + 1) / 2, one[0]
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for _ in range(5):
    loss = model(torch.ones(8, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
dist.destroy_process_group()
