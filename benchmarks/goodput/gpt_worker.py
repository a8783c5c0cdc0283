"""What both peers' workers share: the model, the data by step, and the log of steps."""

import json
import os
import pathlib
import sys
import time

import torch

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "examples")]
from torch_fsdp import GPT  # noqa: E402


class Settings:
    def __init__(self, words):
        numbers = map(int, words[:7])
        self.steps, self.layers, self.channels, self.heads, self.vocabulary, self.batch, self.positions = numbers
        text, log, checkpoints, every = words[7:]
        self.text, self.log, self.checkpoints, self.every = pathlib.Path(text), log, pathlib.Path(checkpoints), int(every)

    def model(self):
        torch.manual_seed(42)
        return GPT(self.layers, self.channels, self.heads, self.positions, self.vocabulary)

    def data(self):
        files = sorted(self.text.iterdir()) if self.text.is_dir() else [self.text]
        return torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files if file.is_file())), dtype=torch.uint8)

    def rows(self, data, step, rank, ranks):
        """This rank's part of the batch of a step, which is the same in every world."""
        draw = torch.Generator().manual_seed(step)
        starts = torch.randint(0, len(data) - self.positions - 1, (self.batch,), generator=draw).tolist()
        return torch.stack([data[at : at + self.positions + 1].long() for at in starts[rank::ranks]])


def rate(step):
    return 1e-3 * min(1.0, step / 20)


def write_step(path, step, loss):
    line = json.dumps({"kind": "step", "time": time.time(), "step": step, "loss": loss}) + "\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, line.encode())
    os.close(fd)
