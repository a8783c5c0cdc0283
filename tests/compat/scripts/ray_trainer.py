"""A Ray Train TorchTrainer on processors.

usage: ray_trainer.py FOLDER WORKERS. With 0 workers Ray Train is in its local mode: under torchrun each process runs the training
function as the rank that it has there; with others Ray starts its own processes."""

import json
import os
import pathlib
import sys
import tempfile

import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train(config):
    context = ray.train.get_context()
    torch.manual_seed(0)
    x = torch.randn(512, 16)
    data = torch.utils.data.TensorDataset(x, x @ torch.linspace(-1, 1, 16), torch.arange(512))
    loader = ray.train.torch.prepare_data_loader(torch.utils.data.DataLoader(data, batch_size=16, shuffle=True))
    model = ray.train.torch.prepare_model(torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    losses, seen, apart = [], set(), 0.0
    for epoch in range(6):
        if context.get_world_size() > 1:
            loader.sampler.set_epoch(epoch)
        for features, wanted, index in loader:
            if epoch == 0:
                seen.update(index.tolist())
            loss = ((model(features).squeeze(1) - wanted) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            gradient = next(model.parameters()).grad
            mean = gradient.clone()
            torch.distributed.all_reduce(mean)
            apart = max(apart, (gradient - mean / context.get_world_size()).abs().max().item())
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
            ray.train.report({"loss": losses[-1], "epoch": epoch}, checkpoint=Checkpoint.from_directory(folder))
    result = {
        "rank": context.get_world_rank(),
        "world": context.get_world_size(),
        "pid": os.getpid(),
        "kind": type(model).__name__,
        "first": losses[0],
        "last": losses[-1],
        "apart": apart,
        "seen": sorted(seen),
        "weights": next(model.parameters()).tolist(),
    }
    (pathlib.Path(config["folder"]) / f"rank-{result['rank']}.json").write_text(json.dumps(result))


def main():
    folder, workers = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])
    trainer = TorchTrainer(
        train,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name="run", storage_path=str(folder / "ray")),
    )
    result = trainer.fit()
    print("epoch", result.metrics["epoch"], "loss", result.metrics["loss"])


if __name__ == "__main__":
    main()
