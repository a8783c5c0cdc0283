"""A Lightning Trainer with DDP on processors, two devices.

usage: lightning_trainer.py FOLDER"""

import json
import os
import pathlib
import sys

import lightning
import torch


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)
        self.losses, self.seen, self.apart = [], [], 0.0

    def training_step(self, batch, _):
        features, wanted, index = batch
        self.seen += index.tolist()
        loss = ((self.layer(features).squeeze(1) - wanted) ** 2).mean()
        self.losses.append(loss.item())
        return loss

    def on_after_backward(self):
        """How far this rank's gradient is from that of the others, after DDP's all-reduce."""
        gradients = self.all_gather(self.layer.weight.grad.clone())
        self.apart = max(self.apart, (gradients - gradients[0]).abs().max().item())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-2)


def main():
    folder = pathlib.Path(sys.argv[1])
    lightning.seed_everything(0, verbose=False)
    x = torch.randn(512, 16)
    data = torch.utils.data.TensorDataset(x, x @ torch.linspace(-1, 1, 16), torch.arange(512))
    model = Regression()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=6,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=16, shuffle=True))
    trainer.strategy.barrier()  # rank 0 has saved its checkpoint and removed the one before
    result = {
        "rank": trainer.global_rank,
        "world": trainer.world_size,
        "pid": os.getpid(),
        "environment": type(trainer.strategy.cluster_environment).__name__,
        "first": model.losses[0],
        "last": model.losses[-1],
        "steps": trainer.global_step,
        "apart": model.apart,
        "seen": sorted(set(model.seen[:256])),  # the first epoch's
        "weights": model.layer.weight.tolist(),
        "checkpoints": sorted(path.name for path in (folder / "checkpoints").glob("*.ckpt")),
    }
    (folder / f"rank-{result['rank']}.json").write_text(json.dumps(result))
    trainer.strategy.barrier()


if __name__ == "__main__":
    main()
