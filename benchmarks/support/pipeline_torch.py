"""One rank of PyTorch's Schedule1F1B with gloo, for pipeline.py: answers each line of stdin with "STEP_NS".

python3 pipeline_torch.py POSITIONS MICRO_BATCHES LAYERS FIRST,FIRST,...    first blocks of the later stages; LAYERS: the head"""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "examples")]
from torch_fsdp import GPT  # noqa: E402

VOCABULARY, WIDTH, HEADS = 50257, 768, 12


class Part(torch.nn.Module):
    """Blocks of a GPT, with its embedding in front or its head at the end. The head has its own table: each stage steps the one it has."""

    def __init__(self, gpt, blocks, first, last):
        super().__init__()
        self.blocks = torch.nn.ModuleList(gpt.blocks[i] for i in blocks)
        self.table, self.places = (gpt.token, gpt.position) if first else (None, None)
        self.norm, self.head = (gpt.norm, gpt.head) if last else (None, None)

    def forward(self, x):
        if self.table is not None:
            x = self.table(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.head is not None else x


def main():
    positions, micro_batches, layers = map(int, sys.argv[1:4])
    ends = [0, *map(int, sys.argv[4].split(",")), layers]
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    part = Part(GPT(layers, WIDTH, HEADS, positions, VOCABULARY), range(ends[rank], ends[rank + 1]), rank == 0, rank == size - 1)
    stage = PipelineStage(part, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=micro_batches, loss_fn=lambda logits, target: F.cross_entropy(logits.flatten(0, 1), target.flatten()))
    update = torch.optim.AdamW(part.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(1)
    print("ready", flush=True)
    for _ in sys.stdin:
        tokens = torch.randint(0, VOCABULARY, (micro_batches, positions + 1), generator=generator)
        start = time.perf_counter_ns()
        first = [tokens[:, :-1]] if rank == 0 else []
        last = {"target": tokens[:, 1:], "losses": []} if rank == size - 1 else {}
        schedule.step(*first, **last)
        norm = sum(p.grad.square().sum() for p in part.parameters())
        dist.all_reduce(norm)
        for p in part.parameters():
            p.grad.mul_((1 / (norm.sqrt() + 1e-6)).clamp(max=1))
        update.step()
        update.zero_grad()
        print(time.perf_counter_ns() - start, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
