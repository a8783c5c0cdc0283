"""Our runtime against PyTorch in float64: residual networks with batch normalisation. Losses, gradients, running statistics and the
loss in evaluation mode after training equal PyTorch's on one rank.

On several ranks each rank normalises with its own micro-batch, as PyTorch's DistributedDataParallel does. Running statistics are the
mean of PyTorch's statistics of each rank's micro-batches; the reference here computes them rank by rank. Also tested: a last step
whose batch is not full, and ranks without samples.

Bounds and how to find torch: model_against_torch.py. The reference kernels, in double, are held to 1e-9."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from model_against_torch import CLIP, Comparison, Variant, adam, ours, torch  # noqa: E402

from torch import nn  # noqa: E402

EXACT = (1e-11, 1e-9, 1e-9)
SAMPLES, CHANNELS, SIDE, CLASSES = 12, 3, 8, 5
STAGES, BLOCKS, FILTERS = 2, 2, 4
LONG = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=100)
SHORT = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=5)


class BasicBlock(nn.Module):
    """As torchvision has it."""

    def __init__(self, inside, filters, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.downsample = None
        if stride > 1 or inside != filters:
            self.downsample = nn.Sequential(nn.Conv2d(inside, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, x):
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, channels=CHANNELS, classes=CLASSES, stages=STAGES, blocks=BLOCKS, filters=FILTERS):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        inside, self.stages = filters, stages
        for stage in range(stages):
            wide = filters << stage
            row = [BasicBlock(inside if i == 0 else wide, wide, 2 if stage and i == 0 else 1) for i in range(blocks)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*row))
            inside = wide
        self.fc = nn.Linear(inside, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


def parts(step, ranks, micro_batches, absent):
    """For each rank its micro-batches' samples of the step, without absent ones."""
    rows = SAMPLES // ranks // micro_batches
    first = lambda rank, micro: (micro * ranks + rank) * rows
    return [[range(first(r, m), min(first(r, m) + rows, SAMPLES - absent)) for m in range(micro_batches)] for r in range(ranks)]


def statistics(model):
    return {name: value.clone().double() for name, value in model.named_buffers()}


def averaged(model, found):
    """The mean over the ranks; the number of batches is that of the first."""
    for name, value in model.named_buffers():
        mean = sum(each[name] for each in found) / len(found)
        value.copy_(found[0][name] if name.endswith("num_batches_tracked") else mean)


def train_step(model, pictures, labels, dealt, total):
    """The loss of a step, with gradients added up; the model's statistics are the ranks' together afterwards."""
    before, after, sum_of = statistics(model), [], 0.0
    for rank in dealt:
        averaged(model, [before])
        for there in rank:
            if len(there):
                logits = model(pictures[list(there)])
                loss = nn.functional.cross_entropy(logits, labels[list(there)], reduction="sum") / total
                loss.backward()
                sum_of += loss.item()
        after.append(statistics(model))
    averaged(model, after)
    return sum_of


def reference(state, pictures, labels, variant, ranks=1, micro_batches=1, absent=0):
    """As model_against_torch.ours: losses, norms, gradients of the first step, everything after the last; and the loss of the first
    micro-batch in evaluation mode."""
    model = ResNet().double()
    model.load_state_dict(state)
    optimizer = variant.make(variant.groups(dict(model.named_parameters())))
    losses, norms, gradients = [], [], None
    pictures = pictures.double().view(*pictures.shape[:2], CHANNELS, SIDE, SIDE)
    for step in range(variant.steps):
        optimizer.zero_grad()
        dealt = parts(step, ranks, micro_batches, absent)
        losses.append(train_step(model, pictures[step], labels[step, :, 0], dealt, SAMPLES - absent))
        if step == 0:
            gradients = {name: value.grad.clone() for name, value in model.named_parameters()}
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
    model.eval()
    rows = SAMPLES // ranks // micro_batches
    with torch.no_grad():
        evaluated = nn.functional.cross_entropy(model(pictures[0][:rows]), labels[0, :rows, 0]).item()
    trained = {name: value.detach().double() for name, value in model.state_dict().items()}
    return (losses, norms, gradients, trained), evaluated


def pictures_of(generator):
    patterns = torch.randn((CLASSES, CHANNELS * SIDE * SIDE), generator=generator)
    labels = torch.randint(CLASSES, (LONG.steps, SAMPLES, 1), generator=generator)
    noise = torch.randn((LONG.steps, SAMPLES, CHANNELS * SIDE * SIDE), generator=generator)
    return 3 + patterns[labels[..., 0]] + noise, labels


def compare(c, what, state, pictures, labels, variant, bounds=(1e-6, 1e-5, 1e-5), absent=0, **settings):
    shape = ["resnet", CHANNELS, SIDE, SIDE, CLASSES, STAGES, BLOCKS, FILTERS, absent]
    evaluated = []
    flat = {name: value if value.dim() else value.view(1) for name, value in state.items()}
    found = ours(shape, flat, pictures, labels, variant, evaluated=evaluated, **settings)
    plan = {name: settings.get(name, 1) for name in ("ranks", "micro_batches")}
    wanted, want_evaluated = reference(state, pictures, labels, variant, absent=absent, **plan)
    if bounds[0] < 1e-3:
        c.check_run(what, found, wanted, bounds)
    worst = 0.0
    for name, value in wanted[3].items():
        if name.endswith("num_batches_tracked"):
            c.check(f"{what}{name}", (found[3][name] - value).abs().item(), 0) if name.startswith("bn1") else None
        elif ".running_" in name:
            worst = max(worst, ((found[3][name] - value).norm() / value.norm()).item())
    c.check(f"{what}running statistics, worst tensor", worst, bounds[1])
    c.check(f"{what}loss in evaluation mode", abs(evaluated[0] - want_evaluated) / want_evaluated, bounds[2])


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(11)
    torch.manual_seed(11)
    model = ResNet().double()
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    pictures, labels = pictures_of(generator)
    c = Comparison()
    compare(c, "100 steps, in double, ", state, pictures, labels, LONG, EXACT, dtype="f64")
    compare(c, "5 steps, ", state, pictures, labels, SHORT)
    for ranks, micro_batches, strategy, absent in (
            (1, 3, "NO_SHARD", 0), (2, 1, "NO_SHARD", 0), (2, 2, "FULL_SHARD", 0), (3, 1, "SHARD_GRAD_OP", 0), (4, 1, "FULL_SHARD", 0),
            (4, 1, "HYBRID_SHARD", 0), (3, 2, "SHARD_OPTIM", 0), (4, 3, "HYBRID_SHARD", 0), (3, 2, "FULL_SHARD", 3), (4, 1, "NO_SHARD", 4),
            (2, 3, "SHARD_OPTIM", 5), (1, 2, "NO_SHARD", 7)):
        what = f"{strategy}, {ranks} ranks, {micro_batches} micro-batches, {absent} absent, "
        compare(c, what, state, pictures, labels, SHORT, EXACT, dtype="f64", absent=absent, ranks=ranks, strategy=strategy,
                micro_batches=micro_batches)
    # With parameters that stay as they are and fit into 11 bits: what moves is the statistics alone, which no loss scale touches.
    still = Variant("SGD", 2, lambda groups: torch.optim.SGD(groups, lr=0.0), steps=5, rate=0.0)
    rounded = {name: value.half().double() if value.is_floating_point() else value for name, value in state.items()}
    compare(c, "fp16 moved, ", rounded, pictures, labels, still, (1e-3, 2e-3, 1e-3), ranks=2, strategy="FULL_SHARD",
            moves=("f16", "f16", 128))
    return 1 if c.failures else 0


if __name__ == "__main__":
    sys.exit(main())
