"""A script for `accelerate`, started by a launcher that sets RANK and the rest.

usage: accelerate_train.py FOLDER [--configured]. With --configured the device is that of a configuration file."""

import json
import pathlib
import sys
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed


def main():
    folder = pathlib.Path(sys.argv[1])
    accelerator = Accelerator(cpu="--configured" not in sys.argv, gradient_accumulation_steps=2)
    set_seed(0)
    target = torch.linspace(-1, 1, 16)
    x = torch.randn(512, 16)
    data = torch.utils.data.TensorDataset(x, x @ target)
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(6):
        for features, wanted in loader:
            with accelerator.accumulate(model):
                loss = ((model(features).squeeze(1) - wanted) ** 2).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather_for_metrics(loss.detach().reshape(1)).mean().item())
    result = {
        "rank": accelerator.process_index,
        "world": accelerator.num_processes,
        "kind": str(accelerator.distributed_type),
        "precision": accelerator.mixed_precision,
        "batches": len(loader),
        "first": losses[0],
        "last": losses[-1],
    }
    (folder / f"rank-{result['rank']}.json").write_text(json.dumps(result))
    # PyTorch 2.13 hangs now and then where DDP is destroyed right after a gather: it waits, with the GIL, for a thread of
    # gloo that wants the GIL for the gather's tensors.
    time.sleep(0.5)
    accelerator.end_training()


if __name__ == "__main__":
    main()
