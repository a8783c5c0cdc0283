"""A Hugging Face Trainer on a tiny GPT-2 with random weights and made-up data; needs no network.

usage: transformers_trainer.py FOLDER"""

import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Counting(torch.utils.data.Dataset):
    """Sequences that count upwards from a start: easy to learn."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        tokens = (torch.arange(16) + index * 7) % 32
        return {"input_ids": tokens, "labels": tokens}


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder / "out"),
            max_steps=20,
            per_device_train_batch_size=8,
            learning_rate=1e-2,
            logging_steps=5,
            save_steps=20,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Counting(512),
        eval_dataset=Counting(64),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    result = {
        "rank": trainer.args.process_index,
        "world": trainer.args.world_size,
        "mode": str(trainer.args.parallel_mode),
        "first": losses[0],
        "last": losses[-1],
        "evaluated": trainer.evaluate()["eval_loss"],
        "steps": trainer.state.global_step,
    }
    (folder / f"rank-{result['rank']}.json").write_text(json.dumps(result))
    # Not destroy_process_group(): in PyTorch 2.13 it now and then waits for a gloo thread for ever.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
