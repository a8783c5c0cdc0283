"""muster-train on pictures with model.architecture: resnet, and what PyTorch makes of its model.pth.

A batch is normalised by the mean and variance of each micro-batch, and micro-batches are the same in any world: with one
training.micro_batch, one to four ranks with every strategy have the losses of one rank, the last micro-batch of a step being smaller
and some ranks having none. A run that is killed and resumed ends with an undisturbed run's evaluation. model.pth loads with
weights_only=True into torchvision's module, whose loss in evaluation mode is that of the run's evaluation; the exported model is read
back."""
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import torch_python  # noqa: E402

torch = torch_python.require()

from pictures_torch_test import STEPS, Runs, held_out, write_set  # noqa: E402
from resnet_torch_test import ResNet  # noqa: E402

MODEL = ["model.architecture=resnet", "model.stages=3", "model.blocks=1", "model.filters=8", "training.micro_batch=7"]
WORLDS = ((2, "NO_SHARD", []), (3, "SHARD_OPTIM", []), (3, "SHARD_GRAD_OP", []), (4, "FULL_SHARD", []),
          (4, "HYBRID_SHARD", ["training.replicas=2"]))


def evaluation(printed):
    return re.findall(r"evaluation after step \d+: (loss [\d.]+, accuracy [\d.]+)%", printed)[-1]


def check_files(runs, data, out):
    """Statistics of the file, and the loss on all pictures in evaluation mode, against PyTorch's module."""
    model = ResNet(channels=3, classes=10, stages=3, blocks=1, filters=8)
    model.load_state_dict(torch.load(out / "model.pth", weights_only=True), strict=True)
    batches = model.bn1.num_batches_tracked
    runs.check("num_batches_tracked", batches.dtype == torch.int64 and batches.item() == 6 * STEPS, str(batches))
    model.eval()
    pictures, labels = held_out(data)
    with torch.no_grad():
        logits = model(pictures)
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    whole = runs.run("whole", data, sets=[*MODEL, "data.validation_share=0", "training.epochs=0", "training.steps=1",
                                          "training.learning_rate=1e-30", "training.evaluate_at_start=true",
                                          f"model.path={out}/model.safetensors", f"data.validation_path={data}"])[1]
    found = re.search(r"evaluation after step 0: loss ([\d.]+)", whole)
    runs.check("evaluation as in PyTorch", found and abs(float(found[1]) - loss) < 1e-4, f"{found and found[1]} {loss:.4f}")


def check_resumed(runs, data, path, wanted, control, evaluated):
    """Killed on one rank; the same checkpoint is resumed there and on two."""
    sets = [*MODEL, "training.checkpoint_dir=kept", "training.checkpoint_every=2", "logging.interval=1"]
    runs.run("killed", data, sets=sets, killed=True)
    shutil.copytree(path / "killed", path / "killed2")
    for name, ranks in (("killed", 1), ("killed2", 2)):
        found, shown = runs.run(name, data, ranks, sets)
        runs.check(f"it goes on behind a checkpoint on {ranks}", "step 1/" not in shown and sorted(found) == list(range(1, STEPS + 1)))
        runs.same(f"killed, resumed on {ranks}", found, wanted, control)
        if ranks == 1:
            runs.check("evaluated as the run that was not killed", evaluation(shown) == evaluated, f"{evaluation(shown)}, {evaluated}")


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        data = path / "data"
        write_set(data)
        runs = Runs(path)
        wanted, printed = runs.run("one", data, sets=MODEL)
        control, _ = runs.run("control", data, sets=[*MODEL, "training.threads=2"])
        for ranks, strategy, more in WORLDS:
            found, _ = runs.run(f"{strategy}{ranks}", data, ranks, [*MODEL, f"training.strategy={strategy}", *more])
            runs.same(f"{strategy} on {ranks} ranks", found, wanted, control)
        check_resumed(runs, data, path, wanted, control, evaluation(printed))
        runs.run("one", data, sets=[*MODEL, "training.output=model.safetensors", "training.output_format=safetensors"])
        check_files(runs, data, path / "one")
    return 1 if runs.failures else 0


if __name__ == "__main__":
    sys.exit(main())
