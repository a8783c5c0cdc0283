"""The small classifier on 70,000 real pictures, Fashion-MNIST, written as CIFAR-10's binary batches of 32 x 32 x 3: muster-train and
PyTorch begin with the same parameters and take the same pictures in the same order. The accuracy on the 10,000 pictures of the test
differs by at most 1%, and muster-train takes no more time of the processors, where neither spins while it waits (torch_python.py).

9,600 pictures, and the mean loss of the last 50 steps differs by at most 2%; with --full ten epochs. The pictures are Debian's
dataset-fashion-mnist, or in MUSTER_FASHION_MNIST; without them the test is skipped."""
import gzip
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import torch_python  # noqa: E402

torch = torch_python.require()
import numpy  # noqa: E402
import safetensors.torch  # noqa: E402

from data.sample_order import permute  # noqa: E402
from cnn_torch_test import create_model  # noqa: E402

MUSTER = pathlib.Path(torch_python.build()).resolve() / "bin" / "muster-train"
PICTURES = pathlib.Path(os.environ.get("MUSTER_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
BATCH, SEED, THREADS = 64, 42, 2
FULL = "--full" in sys.argv
STEPS = 10 * 60000 // BATCH if FULL else 150
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
CONFIG = f"""
training: {{steps: {STEPS}, batch_size: {BATCH}, learning_rate: 0.001, seed: {SEED}, threads: {THREADS}}}
model: {{type: simple_cnn, path: start.safetensors}}
data: {{dataset: cifar10, data_dir: data, validation_path: data/test_batch.bin, crop_padding: 0, flip: false}}
logging: {{log_interval: 1000}}
"""


def read(name, head):
    path = PICTURES / name
    data = path.read_bytes() if path.exists() else gzip.decompress((PICTURES / f"{name}.gz").read_bytes())
    return numpy.frombuffer(data, numpy.uint8)[head:]


def write_batches(folder):
    """28 x 28 gray pictures in the middle of three planes of 32 x 32. Returns both parts: planes and labels."""
    parts = []
    for part, files in (("train", [f"data_batch_{i}.bin" for i in range(1, 6)]), ("t10k", ["test_batch.bin"])):
        gray = numpy.pad(read(f"{part}-images-idx3-ubyte", 16).reshape(-1, 28, 28), ((0, 0), (2, 2), (2, 2)))
        labels = read(f"{part}-labels-idx1-ubyte", 8)
        planes = numpy.repeat(gray[:, None], 3, axis=1)
        records = numpy.concatenate((labels[:, None], planes.reshape(len(labels), -1)), axis=1)
        for file, records_of in zip(files, numpy.array_split(records, len(files))):
            (folder / file).write_bytes(records_of.tobytes())
        parts.append((torch.from_numpy(planes), torch.from_numpy(labels.copy()).long()))
    return parts


def normalised(planes):
    return (planes.float() / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def train_torch(model, planes, labels, order):
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    criterion = torch.nn.CrossEntropyLoss()
    losses = []
    for step in range(STEPS):
        rows = order[step * BATCH:(step + 1) * BATCH]
        optimizer.zero_grad()
        loss = criterion(model(normalised(planes[rows])), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def accuracy_of(model, planes, labels):
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(normalised(part)).argmax(1) for part in planes.split(500)])
    return 100 * (found == labels).float().mean().item()


def times(who, before=None):
    usage = resource.getrusage(who)
    now = (usage.ru_utime + usage.ru_stime, time.monotonic())
    return now if before is None else (now[0] - before[0], now[1] - before[1])


def main():
    if not any(PICTURES.glob("train-images-idx3-ubyte*")):
        torch_python.skip(f"no Fashion-MNIST in {PICTURES}: install dataset-fashion-mnist")
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "data").mkdir()
        (planes, labels), test = write_batches(path / "data")
        model = create_model()
        safetensors.torch.save_file(model.state_dict(), path / "start.safetensors")
        (path / "config.yaml").write_text(CONFIG)
        before = times(resource.RUSAGE_CHILDREN)
        done = subprocess.run([MUSTER, "config.yaml"], cwd=path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        ours = times(resource.RUSAGE_CHILDREN, before)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        found = re.search(rf"evaluation after step {STEPS}: loss [\d.]+, accuracy ([\d.]+)%, 10000 pictures", done.stdout)
        order = [permute(SEED, g // len(labels), g % len(labels), len(labels)) for g in range(STEPS * BATCH)]
        before = times(resource.RUSAGE_SELF)
        losses = train_torch(model, planes, labels, order)
        wanted = accuracy_of(model, *test)
        theirs = times(resource.RUSAGE_SELF, before)
        mean = float(re.search(r"mean loss of the last 50 steps: ([\d.]+)", done.stdout)[1])
    accuracy, wanted_mean = float(found[1]), sum(losses[-50:]) / 50
    print(f"{STEPS * BATCH} pictures: accuracy {accuracy:.2f}% and {wanted:.2f}% in PyTorch {torch.__version__}; loss of the last 50 steps "
          f"{mean:.4f} and {wanted_mean:.4f}")
    print(f"processor time {ours[0]:.1f} s and {theirs[0]:.1f} s in PyTorch ({ours[0] / theirs[0]:.2f}), wall {ours[1]:.1f} s and "
          f"{theirs[1]:.1f} s, on {THREADS} threads, evaluation included")
    if abs(accuracy - wanted) > 1:
        print("FAILED: the accuracies differ by more than 1%")
        return 1
    if not FULL and abs(mean - wanted_mean) > 0.02 * wanted_mean:  # after ten epochs roundings alone make as much
        print("FAILED: the losses differ by more than 2%")
        return 1
    if ours[0] > theirs[0]:
        print("FAILED: muster-train takes more processor time than PyTorch")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
