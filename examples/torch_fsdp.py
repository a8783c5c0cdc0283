"""A PyTorch GPT, sharded by libmuster: the model is PyTorch's own code, each rank keeps 1/size of it.

    PYTHONPATH=python build/bin/muster run --standalone --nproc_per_node=2 examples/torch_fsdp.py [--file FILE] [--steps N]

Also under torchrun. Bytes of the file are the tokens."""

import argparse
import os

import torch
import torch.nn.functional as F

import muster.torch


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(torch.nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary=256):
        super().__init__()
        self.token = torch.nn.Embedding(vocabulary, width)
        self.position = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight  # tied: gathered and reduced once
        torch.nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", default=__file__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save", help="where the parameters go as safetensors")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

    model = GPT(layers=4, width=128, heads=4, length=64)
    sharded = muster.torch.shard(model, model.blocks, optimizer="adamw", parameter_class=lambda name, p: int(p.dim() < 2))

    text = torch.frombuffer(bytearray(open(options.file, "rb").read()), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(1 + sharded.rank)
    for step in range(options.steps):
        starts = torch.randint(0, len(text) - 65, (8,), generator=generator)
        rows = torch.stack([text[i : i + 65] for i in starts]).long()
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        norm, _ = sharded.step(lr=1e-3, weight_decay=[0.1, 0.0], clip_norm=1.0)
        if sharded.rank == 0 and (step % 50 == 0 or step == options.steps - 1):
            print(f"step {step}  loss {loss.item():.4f}  norm {norm:.2f}", flush=True)
    if options.save:
        sharded.save(options.save)
    sharded.close()


if __name__ == "__main__":
    main()
