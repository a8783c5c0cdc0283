"""One rank of PyTorch's fully_shard (FSDP2) with gloo, for fsdp.py: answers each line of stdin with "STEP_NS".

python3 fsdp_torch.py POSITIONS MICRO_BATCHES LAYERS"""

import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "examples")]
from torch_fsdp import GPT  # noqa: E402

VOCABULARY, WIDTH, HEADS = 50257, 768, 12


def main():
    positions, micro_batches, layers = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = GPT(layers, WIDTH, HEADS, positions, VOCABULARY)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    update = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    print("ready", flush=True)
    for _ in sys.stdin:
        tokens = torch.randint(0, VOCABULARY, (micro_batches, positions + 1), generator=generator)
        start = time.perf_counter_ns()
        for micro in range(micro_batches):
            row = tokens[micro : micro + 1]
            F.cross_entropy(model(row[:, :-1]).flatten(0, 1), row[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        update.zero_grad()
        print(time.perf_counter_ns() - start, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
