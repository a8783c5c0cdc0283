"""A GPT-2 that libmuster has trained and saved, loaded by transformers: the same losses, position by position.

The interpreter is MUSTER_TORCH_PYTHON, else .venv/bin/python of the source tree; without torch or transformers the test is skipped
(exit 77), without transformers never in CI."""

import ctypes
import pathlib
import sys
import tempfile

import torch_python

torch = torch_python.require()
torch_python.require_transformers()
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

sys.path.insert(0, str(pathlib.Path(torch_python.source()) / "tests/unit/api"))
import ctypes_test as api  # noqa: E402: libmuster by ctypes

LAYERS, CHANNELS, HEADS, STEPS, POSITIONS_SEEN = 3, 32, 4, 25, (0, 3, 9, 15)
BOUND = 1e-5  # relative, of float32 sums of another order


def flat(rows):
    return (ctypes.c_int32 * (api.SEQUENCES * api.POSITIONS))(*(t for row in rows for t in row))


def sequences(first):
    tokens, targets = zip(*(api.batch(first + row) for row in range(api.SEQUENCES)))
    return list(tokens), list(targets)


def trained(folder):
    """Saves a trained model to the folder; [(tokens, targets, our loss)] with one target position each."""
    muster, error, rows = api.load(), api.Error(), ctypes.c_int64(api.SEQUENCES)
    model = api.gpt2(muster, LAYERS, CHANNELS, HEADS, error)
    trainer = api.open_trainer(muster, None, model, api.SEQUENCES, error)
    for number in range(STEPS):
        tokens, targets = sequences(number * api.SEQUENCES)
        api.must(muster.muster_trainer_train(trainer, api.arrays(flat(tokens), flat(targets)), rows, None, error) == 0, error)
    seen = []
    for position in POSITIONS_SEEN:
        tokens, targets = sequences(position)
        targets = [[t if at == position else -1 for at, t in enumerate(row)] for row in targets]
        sums = (ctypes.c_double * 2)()
        code = muster.muster_trainer_forward(trainer, api.arrays(flat(tokens), flat(targets)), rows, -1, None, sums, error)
        api.must(code == 0 and sums[1] == api.SEQUENCES, error)
        seen.append((tokens, targets, sums[0] / sums[1]))
    path = str(folder / "model.safetensors").encode()
    api.must(muster.muster_trainer_export(trainer, path, b"safetensors", error) == 0, error)
    muster.muster_trainer_close(ctypes.byref(trainer))
    muster.muster_model_free(model)
    return seen


def theirs(model, tokens, targets):
    logits = model(input_ids=torch.tensor(tokens)).logits
    wanted = torch.tensor(targets)
    return torch.nn.functional.cross_entropy(logits.reshape(-1, api.VOCABULARY), wanted.reshape(-1), ignore_index=-1).item()


def deviation(model, seen):
    with torch.no_grad():
        return max(abs(theirs(model, tokens, targets) - loss) / loss for tokens, targets, loss in seen)


def main():
    with tempfile.TemporaryDirectory(prefix="muster transformers ") as folder:
        folder = pathlib.Path(folder)
        seen = trained(folder)
        GPT2Config(
            vocab_size=api.VOCABULARY, n_positions=api.POSITIONS, n_embd=CHANNELS, n_layer=LAYERS, n_head=HEADS,
            bos_token_id=0, eos_token_id=0,
        ).save_pretrained(folder)
        model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
        assert not any(info.values()), f"what transformers says of the file: {info}"
        model.eval()
        found = deviation(model, seen)
        # A comparison that could not fail would say nothing: the square matrix passes every check of shapes.
        with torch.no_grad():
            square = model.transformer.h[1].attn.c_proj.weight
            square.copy_(square.t().clone())
        wrong = deviation(model, seen)
    print(f"losses {[round(loss, 4) for _, _, loss in seen]}: {found:.1e} relative from transformers' (at most {BOUND:.0e}); "
          f"with one matrix transposed {wrong:.1e}")
    assert found <= BOUND < wrong / 100


main()
