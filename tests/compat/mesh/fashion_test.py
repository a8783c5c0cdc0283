"""Top-k on Fashion-MNIST: the small classifier on two replicas that send a tenth of their gradients has the accuracy of dense gradients within
0.5%. Without feedback, and of every tensor, it is at least 2% worse than dense. The pictures are Debian's dataset-fashion-mnist, or in MUSTER_FASHION_MNIST; without
them the test is skipped. It needs no PyTorch."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"]).resolve() / "bin"
PICTURES = os.environ.get("MUSTER_FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
CONFIG = {
    "training": {"steps": 1500, "micro_batch": 32, "global_batch": 64, "optimizer": "SGD", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0,
                 "clip_norm": 0, "warmup_steps": 50, "schedule": "cosine", "min_learning_rate": 0, "strategy": "NO_SHARD", "threads": 1},
    "model": {"architecture": "simple_cnn", "input_channels": 1, "input_size": 28, "num_classes": 10},
    "data": {"dataset": "fashion_mnist", "path": PICTURES, "validation_path": PICTURES, "mean": "0.5", "std": "0.25", "crop_padding": 0, "flip": False},
    "logging": {"interval": 500},
}
TOPK = {"compression": "topk", "compression_ratio": 0.1}
# Without feedback small tensors are compressed too: their elements are lost as those of large ones are.
VARIANTS = {"dense": {}, "a tenth": TOPK, "a tenth, without feedback": TOPK | {"compression_feedback": False, "compression_least": 0}}


def accuracy(folder, training):
    path = folder / "run.yaml"
    path.write_text(json.dumps(CONFIG | {"training": CONFIG["training"] | training}))
    done = subprocess.run([BUILD / "muster", "run", "--nproc-per-node=2", "--", BUILD / "muster-train", path], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", cwd=folder)
    found = re.search(rf"evaluation after step {CONFIG['training']['steps']}: loss [\d.]+, accuracy ([\d.]+)%, 10000 pictures", done.stdout)
    if done.returncode or not found:
        sys.exit(done.stdout)
    return float(found[1])


def main():
    if not any(pathlib.Path(PICTURES).glob("train-images-idx3-ubyte*")):
        print(f"skipped: no Fashion-MNIST in {PICTURES}: install dataset-fashion-mnist")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        found = {name: accuracy(pathlib.Path(folder), training) for name, training in VARIANTS.items()}
    print(found)
    if not abs(found["a tenth"] - found["dense"]) <= 0.5:
        sys.exit("FAILED: the accuracies differ by more than 0.5%")
    if not found["a tenth, without feedback"] <= found["dense"] - 2:
        sys.exit("FAILED: without feedback the accuracy is not 2% below that of dense gradients")
    return 0


if __name__ == "__main__":
    sys.exit(main())
