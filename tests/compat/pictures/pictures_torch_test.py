"""muster-train on pictures, and what PyTorch makes of its files.

A small set in the form of CIFAR-10, binary and pickled by Python: both train alike, to the bit. One to four ranks with every strategy,
a run that is killed and resumed, and one rank with another number of micro-batches (the control) have the same losses. model.pth loads
into the torch.nn.Sequential of its script, whose loss on the pictures held out is that of the run's evaluation; dataset_info.pt loads
with weights_only=True. The same pictures as PNG files in folders by class have that loss too."""
import json
import os
import pathlib
import pickle
import re
import struct
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import torch_python  # noqa: E402

torch = torch_python.require()
import numpy  # noqa: E402

from data.training_runs import TrainingRuns, kill_behind_a_checkpoint, losses  # noqa: E402
from cnn_torch_test import create_model  # noqa: E402

BIN = pathlib.Path(torch_python.build()).resolve() / "bin"
PER_BATCH, STEPS = 60, 12
CONFIG = """
training: {{epochs: 2, batch_size: 40, learning_rate: 0.002, validation_split: 0.2, seed: 5}}
model: {{type: simple_cnn, input_channels: 3, num_classes: 10}}
data: {{dataset: cifar10, data_dir: "{data}", num_workers: 2, info_dir: "{out}"}}
logging: {{wandb_project: x, log_interval: 100}}
"""
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def write_set(folder):
    """Five batches in both forms; a class is a colour and a bright square, under noise."""
    generator = numpy.random.default_rng(3)
    colours = generator.integers(0, 200, (10, 3))
    for form in ("bin", "py"):
        (folder / f"cifar-10-batches-{form}").mkdir(parents=True)
    for batch in range(1, 6):
        labels = [int(label) for label in generator.integers(0, 10, PER_BATCH)]
        pictures = generator.integers(0, 55, (PER_BATCH, 3, 32, 32)) + colours[labels][:, :, None, None]
        data = pictures.astype(numpy.uint8).reshape(PER_BATCH, 3072)
        records = numpy.concatenate((numpy.array(labels, numpy.uint8)[:, None], data), axis=1)
        (folder / "cifar-10-batches-bin" / f"data_batch_{batch}.bin").write_bytes(records.tobytes())
        content = {"batch_label": f"training batch {batch} of 5", "labels": labels, "data": data, "filenames": ["a.png"] * PER_BATCH}
        with open(folder / "cifar-10-batches-py" / f"data_batch_{batch}", "wb") as file:
            pickle.dump(content, file, protocol=2 + batch % 4)


class Runs(TrainingRuns):
    def run(self, name, data, ranks=1, sets=(), killed=False):
        """The losses of all steps, and the output."""
        out = self.path / name
        out.mkdir(exist_ok=True)
        (out / "config.yaml").write_text(CONFIG.format(data=data, out=out))
        command = [BIN / "muster-train", "config.yaml", "--set", f"logging.json={out}/log.jsonl", "--set", "training.threads=1",
                   "--set", "training.global_batch=40"]
        for text in sets:
            command += ["--set", text]
        if ranks > 1:
            command = [BIN / "muster", "run", "--standalone", f"--nproc-per-node={ranks}", *command]
        return kill_behind_a_checkpoint(command, out) if killed else losses(command, out)


def held_out(folder):
    """The pictures that seed 5 holds out are not known here: all of them with their labels, normalised."""
    data = b"".join((folder / "cifar-10-batches-bin" / f"data_batch_{i}.bin").read_bytes() for i in range(1, 6))
    records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, 3073)
    pixels = records[:, 1:].reshape(-1, 3, 32, 32).float() / 255
    return (pixels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None], records[:, 0].long()


def check_files(runs, data, out, printed):
    model = create_model()
    model.load_state_dict(torch.load(out / "model.pth", weights_only=True), strict=True)
    info = torch.load(out / "dataset_info.pt", weights_only=True)
    runs.check("dataset_info.pt", info == json.loads((out / "dataset_info.json").read_text()) and info["train_size"] == 240
               and info["val_size"] == 60 and info["num_classes"] == 10 and info["classes"][9] == "truck", str(info)[:60])
    epochs = re.findall(r"^Epoch (\d+): Loss=\d+\.\d{4}, Accuracy=\d+\.\d\d%$", printed, re.M)
    runs.check("a line for each epoch", epochs == ["1", "2"], str(epochs))
    # evaluated on every picture, without a split: the same loss and accuracy in PyTorch
    pictures, labels = held_out(data)
    whole = runs.run("whole", data, sets=["data.validation_share=0", "training.epochs=0",
                                          "training.steps=1", "training.learning_rate=1e-30", "training.evaluate_at_start=true",
                                          f"model.path={out}/model.safetensors", f"data.validation_path={data}"])[1]
    with torch.no_grad():
        logits = model(pictures)
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    accuracy = 100 * (logits.argmax(1) == labels).float().mean().item()
    found = re.search(r"evaluation after step 0: loss ([\d.]+), accuracy ([\d.]+)%, 300 pictures", whole)
    runs.check("evaluation as in PyTorch", found and abs(float(found[1]) - loss) < 1e-4 and abs(float(found[2]) - accuracy) < 0.01,
               f"{found and found.groups()} {loss:.4f} {accuracy:.2f}")
    check_eval(runs, data, out, loss, accuracy)
    check_folders(runs, data, out, loss)


def write_png(path, pixels):
    """(3, 32, 32) bytes as a PNG of RGB without filters."""
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + row.tobytes() for row in pixels.transpose(1, 2, 0))
    head = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def check_folders(runs, data, out, loss):
    """Every picture as a PNG in the folder of its class, whose names sort as the classes do."""
    folders = runs.path / "folders"
    for batch in range(1, 6):
        records = numpy.frombuffer((data / "cifar-10-batches-bin" / f"data_batch_{batch}.bin").read_bytes(), numpy.uint8).reshape(-1, 3073)
        for i, record in enumerate(records):
            place = folders / f"class{record[0]}"
            place.mkdir(parents=True, exist_ok=True)
            write_png(place / f"{batch}-{i}.png", record[1:].reshape(3, 32, 32))
    shown = runs.run("png", folders, sets=["data.dataset=auto", "data.validation_share=0", "training.epochs=0", "training.steps=1",
                                           "training.learning_rate=1e-30", "training.evaluate_at_start=true",
                                           f"model.path={out}/model.safetensors", f"data.validation_path={folders}"])[1]
    found = re.search(r"evaluation after step 0: loss ([\d.]+), accuracy [\d.]+%, 300 pictures", shown)
    runs.check("folders of PNG files", found and abs(float(found[1]) - loss) < 1e-4, f"{found and found[1]} {loss:.4f}")
    info = json.loads((runs.path / "png" / "dataset_info.json").read_text())
    runs.check("their classes", info["classes"] == [f"class{i}" for i in range(10)], str(info)[:80])


def check_eval(runs, data, out, loss, accuracy):
    """muster-train eval of the exported model, without a step; generate says why it cannot."""
    command = [BIN / "muster-train", "eval", "config.yaml", "--model", out / "model.safetensors", "--output=json",
               "--set", "data.validation_share=0", "--set", f"data.validation_path={data}"]
    done = torch_python.run(command, cwd=out)
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    runs.check("muster-train eval as in PyTorch", found.get("pictures") == 300 and abs(found["loss"] - loss) < 1e-5
               and abs(found["accuracy"] - accuracy) < 0.01, done.stdout + done.stderr)
    done = torch_python.run([BIN / "muster-train", "generate", "config.yaml", "--model", out / "model.safetensors"], cwd=out)
    runs.check("generate is refused", done.returncode == 2 and "a model of pictures, which draws no text" in done.stderr, done.stderr)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        data = path / "data"
        write_set(data)
        runs = Runs(path)
        wanted, printed = runs.run("one", data)
        runs.check("steps of two epochs", len(wanted) == STEPS, str(len(wanted)))
        pickled, _ = runs.run("pickled", data / "cifar-10-batches-py")
        runs.check("pickled batches are the binary ones", pickled == wanted)
        control, _ = runs.run("control", data, sets=["training.micro_batch=8"])
        for ranks, strategy in ((2, "NO_SHARD"), (2, "SHARD_OPTIM"), (3, "SHARD_GRAD_OP"), (3, "FULL_SHARD"), (4, "FULL_SHARD"),
                                (4, "HYBRID_SHARD")):
            sets = [f"training.strategy={strategy}", "training.micro_batch=7"] + ["training.replicas=2"] * (strategy == "HYBRID_SHARD")
            found, _ = runs.run(f"{strategy}{ranks}", data, ranks, sets)
            runs.same(f"{strategy} on {ranks} ranks", found, wanted, control)
        sets = ["training.checkpoint_dir=kept", "training.checkpoint_every=2", "logging.interval=1"]
        runs.run("killed", data, sets=sets, killed=True)
        found, shown = runs.run("killed", data, 2, [*sets, "training.micro_batch=20"])
        runs.check("it goes on behind a checkpoint", "step 1/" not in shown and f"step {STEPS}/{STEPS}" in shown and
                   sorted(found) == list(range(1, STEPS + 1)))
        runs.same("killed, resumed on 2 ranks", found, wanted, control)
        runs.run("one", data, sets=["training.output=model.safetensors", "training.output_format=safetensors"])
        check_files(runs, data, path / "one", printed)
    return 1 if runs.failures else 0


if __name__ == "__main__":
    sys.exit(main())
