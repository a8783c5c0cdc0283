"""Our runtime against PyTorch in float64: the classifier of texts and the encoder, whose texts have lengths of their own, the same
weights and batches, on 1, 2 and 4 ranks with every strategy; their parameters have the names of torch.nn's modules.

After a text's length are tokens that nothing may read. Bounds and how to find torch: model_against_torch.py; the reference kernels,
in double, are held to 1e-9."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from model_against_torch import STEPS, Comparison, Variant, adam, ours, reference, torch  # noqa: E402

from torch import nn  # noqa: E402

STRATEGIES = ("NO_SHARD", "SHARD_OPTIM", "SHARD_GRAD_OP", "FULL_SHARD")
EXACT = (1e-11, 1e-9, 1e-9)
SAMPLES, POSITIONS, VOCABULARY, CLASSES = 8, 11, 40, 3
SHORT = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=5)


def mean_of(x, lengths):
    """Over the positions that are there; 0 where none is."""
    there = torch.arange(x.shape[1])[None, :] < lengths[:, None]
    return (x * there[:, :, None]).sum(1) / lengths.clamp(min=1)[:, None]


class TextClassifier(nn.Module):
    def __init__(self, vocabulary, channels, hidden, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, channels)
        self.fc1, self.fc2 = nn.Linear(channels, hidden), nn.Linear(hidden, classes)

    def forward(self, tokens, lengths):
        return self.fc2(torch.relu(self.fc1(mean_of(self.embedding(tokens), lengths))))


class TextEncoder(nn.Module):
    def __init__(self, vocabulary, layers, channels, heads, hidden, classes, positions):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, channels), nn.Embedding(positions, channels)
        layer = nn.TransformerEncoderLayer(channels, heads, hidden, dropout=0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(channels), enable_nested_tensor=False)
        self.fc = nn.Linear(channels, classes)

    def forward(self, tokens, lengths):
        positions = torch.arange(tokens.shape[1])
        behind = positions[None, :] >= lengths[:, None]
        x = self.encoder(self.embedding(tokens) + self.positions(positions)[None], src_key_padding_mask=behind)
        return self.fc(mean_of(x, lengths))


torch.manual_seed(7)  # weights with which no value that relu is given changes its sign by a rounding: a step's gradient would jump
MODELS = {
    "text_classifier": (TextClassifier(VOCABULARY, 24, 20, CLASSES), [VOCABULARY, 24, 20, CLASSES, POSITIONS], 0),
    "text_encoder": (TextEncoder(VOCABULARY, 2, 24, 4, 40, CLASSES, POSITIONS),
                     [VOCABULARY, 2, 24, 4, 40, CLASSES, POSITIONS], 1),  # attention over nothing is NaN in PyTorch
}


def order_of(name, parameters):
    """As the page writes them down: an encoder's norms before their readers."""
    part = lambda key: next((i for i, what in enumerate(("norm1", "self_attn", "norm2", "linear")) if what in key), 0)
    block = lambda key: int(key.split(".")[2]) if key.startswith("encoder.layers") else 99 if key.startswith(("encoder", "fc")) else -1
    keys = list(parameters)
    if name == "text_encoder":
        keys.sort(key=lambda key: (block(key), part(key) if 0 <= block(key) < 99 else 0))
    return {key: parameters[key].detach() for key in keys}


def texts_of(generator, least):
    """Texts that can be learnt: a label's own tokens are among the others. Tokens after a length are drawn, too."""
    labels = torch.randint(CLASSES, (STEPS, SAMPLES, 1), generator=generator)
    tokens = torch.randint(VOCABULARY, (STEPS, SAMPLES, POSITIONS), generator=generator)
    own = torch.rand(tokens.shape, generator=generator) < 0.5
    tokens = torch.where(own, tokens % (VOCABULARY // CLASSES) * CLASSES + labels, tokens).clamp(max=VOCABULARY - 1)
    lengths = torch.randint(least, POSITIONS + 1, (STEPS, SAMPLES), generator=generator)
    lengths[:, 1] = POSITIONS - 4  # steps whose longest text is not the longest possible
    lengths[::3] = lengths[::3].clamp(max=POSITIONS - 3)
    lengths[0, 0] = least
    return tokens, lengths, labels


def check_model(c, name):
    model, numbers, least = MODELS[name]
    parameters = order_of(name, dict(model.named_parameters()))
    tokens, lengths, labels = texts_of(torch.Generator().manual_seed(7), least)
    shape, batches = [name, *numbers], list(zip(tokens, lengths))

    def loss_of(p, batch, labels):
        logits = torch.func.functional_call(model, p, batch)
        return nn.functional.cross_entropy(logits, labels.view(-1))

    def found(variant=None, **options):
        return ours(shape, parameters, tokens, labels, *([variant] if variant else []), lengths=lengths, **options)

    c.check_run(f"{name}, 100 steps, ", found(), reference(loss_of, parameters, batches, labels))
    wanted = reference(loss_of, parameters, batches, labels, SHORT)
    c.check_run(f"{name}, in double, ", found(SHORT, dtype="f64"), wanted, EXACT)
    for ranks, micro_batches in ((1, 2), (2, 1), (2, 2), (4, 1)):
        for strategy in STRATEGIES if ranks > 1 else STRATEGIES[:1]:
            what = f"{name}, {strategy}, {ranks} ranks, {micro_batches} micro-batches, "
            c.check_run(what, found(SHORT, ranks=ranks, strategy=strategy, micro_batches=micro_batches), wanted)


def main():
    torch.set_num_threads(1)
    c = Comparison()
    for name in MODELS:
        check_model(c, name)
    return 1 if c.failures else 0


if __name__ == "__main__":
    sys.exit(main())
