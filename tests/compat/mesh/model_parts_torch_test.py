"""The models in two parts of examples/model_parts.py beside PyTorch's: the net that is placed on two devices by hand, and the two stages that
torchgpipe runs. Losses of 20 steps differ by at most 1e-5 of PyTorch's, on 2 and 4 ranks, with other strategies, and as the PyTorchJob of
k8s/cpu/pipeline.yaml (2 pods x 2 ranks) under `muster local`."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import torch_python  # noqa: E402

torch = torch_python.require()

SOURCE, BUILD = pathlib.Path(torch_python.source()), pathlib.Path(torch_python.build()).resolve()
MUSTER, PROGRAM = BUILD / "bin" / "muster", SOURCE / "examples" / "model_parts.py"
STEPS, SAMPLES, SIDE, BOUND = 20, 16, 16, 1e-5


def number(sample, i):
    return (sample * 7919 + i * 104729 + sample * i % 1013) % 1009 / 504.5 - 1


class Net(torch.nn.Module):
    """Each half on a device of its own; here both are the CPU."""

    def __init__(self, device1="cpu", device2="cpu"):
        super().__init__()
        self.layer1, self.relu1 = torch.nn.Linear(1000, 4000).to(device1), torch.nn.ReLU().to(device1)
        self.layer2, self.relu2 = torch.nn.Linear(4000, 4000).to(device2), torch.nn.ReLU().to(device2)
        self.layer3 = torch.nn.Linear(4000, 1000).to(device2)

    def forward(self, x):
        x = self.relu1(self.layer1(x.to(self.layer1.weight.device)))
        x = self.relu2(self.layer2(x.to(self.layer2.weight.device)))
        return self.layer3(x)

    places = {"layer1": "part1.layer1", "layer2": "part2.layer2", "layer3": "part2.layer3"}

    def batch(self, rows):
        return (torch.tensor([[number(row, i) for i in range(1000)] for row in rows]),
                torch.tensor([[number(row, i + 5000) / 4 for i in range(1000)] for row in rows]))

    loss = torch.nn.MSELoss()


class Stages(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.stage1 = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU())
        self.stage2 = nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(128, 10))

    def forward(self, x):
        return self.stage2(self.stage1(x))

    places = {"stage1.0": "stage1.conv1", "stage1.3": "stage1.conv2", "stage2.3": "stage2.fc"}

    def batch(self, rows):
        pictures = [[number(row, i) + (i // SIDE**2 == row % 3) for i in range(3 * SIDE**2)] for row in rows]
        return torch.tensor(pictures).view(-1, 3, SIDE, SIDE), torch.tensor([row % 10 for row in rows])

    loss = torch.nn.CrossEntropyLoss()


def tensors(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    return {name: torch.frombuffer(bytearray(data[8 + length:][slice(*row["data_offsets"])]), dtype=torch.float32).reshape(row["shape"])
            for name, row in header.items() if name != "__metadata__"}


def wanted(make, start):
    """PyTorch's losses from the same parameters."""
    model = make()
    model.load_state_dict({f"{own}.{part}": start[f"{theirs}.{part}"] for own, theirs in make.places.items() for part in ("weight", "bias")})
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.05), []
    for step in range(STEPS):
        given, targets = model.batch(range(step * SAMPLES, (step + 1) * SAMPLES))
        optimizer.zero_grad()
        loss = model.loss(model(given), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def run(command, **variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "MUSTER_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE"))}
    kept |= {"MUSTER_LIBRARY": str(BUILD / "lib" / "libmuster.so.0"), "OMP_NUM_THREADS": "1", "PYTHON_EXEC": sys.executable} | variables
    done = subprocess.run([str(word) for word in command], env=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=900)
    losses = [float(loss) for loss in re.findall(r"step \d+ loss ([\d.]+)", done.stdout)]
    if done.returncode or len(losses) != STEPS:
        sys.exit(done.stdout)
    return losses


def main():
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        for name, make in (("net", Net), ("stages", Stages)):
            found = {}
            for ranks, words in ((2, []), (4, ["training.strategy=FULL_SHARD", "training.micro_batch=1"])):
                found[f"{ranks} ranks"] = run([MUSTER, "run", f"--nproc-per-node={ranks}", "--", sys.executable, PROGRAM, name, path / "end",
                                               path / f"{name}.start", *words])
            found["job"] = run([MUSTER, "local", "-f", SOURCE / "k8s" / "cpu" / "pipeline.yaml", "--env", f"EXAMPLES={SOURCE}/examples", "--env",
                                f"MODEL={name}", "--env", f"MUSTER_LIBRARY={BUILD}/lib/libmuster.so.0"])
            losses = wanted(make, tensors(path / f"{name}.start"))
            for where, ours in found.items():
                off = max(abs(a - b) / b for a, b in zip(ours, losses))
                worst = max(worst, off)
                if not off <= BOUND:
                    sys.exit(f"{name}, {where}: a loss is off by {off:.1e}: {ours} and {losses}")
            if not losses[-1] < losses[0]:
                sys.exit(f"{name} learns nothing: {losses}")
    print(f"losses of {STEPS} steps are off by {worst:.1e} at most (PyTorch {torch.__version__})")


if __name__ == "__main__":
    main()
