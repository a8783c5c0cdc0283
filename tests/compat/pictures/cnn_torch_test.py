"""Our runtime against PyTorch in float64: the small classifier of pictures, the same weights and pictures, on 1, 2 and 4 ranks with
every strategy; its parameters have the names and order of torch.nn.Sequential's.

Bounds and how to find torch: model_against_torch.py. The reference kernels, in double, are held to 1e-9."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from model_against_torch import SGD_LR, STEPS, Comparison, Variant, adam, ours, reference, sgd, torch  # noqa: E402

from torch import nn  # noqa: E402

STRATEGIES = ("NO_SHARD", "SHARD_OPTIM", "SHARD_GRAD_OP", "FULL_SHARD")
EXACT = (1e-11, 1e-9, 1e-9)
SAMPLES, CHANNELS, SIDE, CLASSES = 8, 3, 12, 10
SHAPE = ["simple_cnn", CHANNELS, SIDE, SIDE, CLASSES]
SHORT = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=5)
MOMENTUM = Variant("SGD with momentum", 2, sgd(momentum=0.9), momentum=0.9, rate=SGD_LR)


def create_model(channels=CHANNELS, classes=CLASSES):
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(), nn.Linear(128, classes))


def loss_of(p, pictures, labels):
    model = create_model()
    logits = torch.func.functional_call(model, p, (pictures.double().view(-1, CHANNELS, SIDE, SIDE),))
    return nn.functional.cross_entropy(logits, labels.view(-1))


def pictures_of(generator):
    """Pictures that can be learnt: each class has a pattern, under noise."""
    patterns = torch.randn((CLASSES, CHANNELS * SIDE * SIDE), generator=generator)
    labels = torch.randint(CLASSES, (STEPS, SAMPLES, 1), generator=generator)
    noise = torch.randn((STEPS, SAMPLES, CHANNELS * SIDE * SIDE), generator=generator)
    return patterns[labels[..., 0]] + 0.5 * noise, labels


def main():
    generator = torch.Generator().manual_seed(7)
    torch.manual_seed(7)
    parameters = {name: value.detach() for name, value in create_model().named_parameters()}
    pictures, labels = pictures_of(generator)
    c = Comparison()
    c.check("parameters of the model", abs(sum(v.numel() for v in parameters.values()) - 94538), 0)
    wanted = reference(loss_of, parameters, pictures, labels)
    c.check_run("100 steps, ", ours(SHAPE, parameters, pictures, labels), wanted)
    wanted_sgd = reference(loss_of, parameters, pictures, labels, MOMENTUM)
    c.check_run("SGD with momentum, ", ours(SHAPE, parameters, pictures, labels, MOMENTUM), wanted_sgd)
    wanted = reference(loss_of, parameters, pictures, labels, SHORT)
    c.check_run("in double, ", ours(SHAPE, parameters, pictures, labels, SHORT, dtype="f64"), wanted, EXACT)
    for ranks, micro_batches in ((1, 2), (2, 1), (2, 2), (4, 1)):
        for strategy in STRATEGIES + ("HYBRID_SHARD",) * (ranks == 4) if ranks > 1 else STRATEGIES[:1]:
            what = f"{strategy}, {ranks} ranks, {micro_batches} micro-batches, "
            found = ours(SHAPE, parameters, pictures, labels, SHORT, ranks=ranks, strategy=strategy, micro_batches=micro_batches)
            c.check_run(what, found, wanted)
    return 1 if c.failures else 0


if __name__ == "__main__":
    sys.exit(main())
