"""Evaluation and averaged weights against PyTorch: what muster-train on two ranks prints of the samples that are held out is the loss that
PyTorch computes in float64 from the weights that it exports, averaged or not; and the average itself, after every step, is that of
torch.optim.swa_utils.AveragedModel.

How the interpreter is found: torch_python.py."""
import ctypes
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402

torch = torch_python.require()
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn  # noqa: E402

import gpt_torch_test as gpt  # noqa: E402: GPT-2 written down in PyTorch

sys.path.insert(0, str(pathlib.Path(torch_python.source()) / "tests/unit/api"))
import ctypes_test as api  # noqa: E402: libmuster by ctypes

BOUND = 1e-6  # relative
T, SAMPLES, STEPS, DECAY = 32, 37, 30, 0.9
gpt.LAYERS, gpt.CHANNELS, gpt.HEADS, gpt.VOCAB, gpt.POSITIONS = 2, 32, 2, 256, T

CONFIG = """\
training: {{steps: {steps}, micro_batch: 2, global_batch: 12, sequence_length: {T}, learning_rate: 1.0e-2, schedule: constant, warmup_steps: 0,
           threads: 1, output: "{folder}/model", evaluate_every: 10, evaluate_samples: {samples}{more}}}
model: {{layers: 2, channels: 32, heads: 2}}
data: {{path: "{folder}/text", validation_share: 0.5}}
logging: {{sample_length: 0, json: "{folder}/log"}}
"""


def read_model(path):
    """The file's tensors in float64, each as our parameters have it."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    parameters = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        first, end = (8 + length + offset for offset in entry["data_offsets"])
        value = torch.frombuffer(bytearray(data[first:end]), dtype=torch.float32).reshape(entry["shape"]).double()
        turned = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))  # Hugging Face's Conv1D
        parameters[name] = value.t().contiguous() if turned else value
    return parameters


def held_out(text):
    """The first SAMPLES of the second half of all windows of T tokens."""
    windows = (len(text) - 1) // T
    first = windows - windows // 2
    tokens = torch.tensor(list(text[first * T:(first + SAMPLES) * T + 1]))
    return tokens[:-1].view(SAMPLES, T), tokens[1:].view(SAMPLES, T)


def check_evaluation(more):
    with tempfile.TemporaryDirectory(prefix="muster evaluation ") as folder:
        folder = pathlib.Path(folder)
        words = random.Random(4)
        text = " ".join(words.choice("evaluated on samples that no step has seen".split()) for _ in range(2000)).encode()
        (folder / "text").write_bytes(text)
        (folder / "config.yaml").write_text(CONFIG.format(folder=folder, steps=STEPS, T=T, samples=SAMPLES, more=more))
        binaries = pathlib.Path(torch_python.build()) / "bin"
        run = subprocess.run(
            [binaries / "muster", "run", "--standalone", "--nproc_per_node=2", "--termination-log=", binaries / "muster-train", folder / "config.yaml"],
            capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        assert run.returncode == 0, run.stdout + run.stderr
        entries = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
        found = [entry for entry in entries if entry["kind"] == "evaluation"]
        assert [entry["step"] for entry in found] == [10, 20, 30] and found[-1]["tokens"] == SAMPLES * T, found
        with torch.no_grad():
            wanted = gpt.loss_of(read_model(folder / "model"), *held_out(text)).item()
    loss, off = found[-1]["loss"], abs(found[-1]["loss"] / wanted - 1)
    perplexity_off = abs(found[-1]["perplexity"] / torch.tensor(wanted).double().exp().item() - 1)
    print(f"evaluation{more or ', plain'}: {loss:.6f}, {off:.1e} relative from PyTorch's on the exported weights; perplexity {perplexity_off:.1e}")
    assert off <= BOUND and perplexity_off <= 10 * BOUND
    return wanted


def check_average():
    """A model of parameters alone takes ours after every step."""
    muster, error = api.load(), api.Error()
    model = api.gpt2(muster, 2, 16, 2, error)
    trainer = muster.muster_trainer_open(None, model, api.texts(
        training__micro_batch=api.SEQUENCES, training__global_batch=api.SEQUENCES, training__sequence_length=api.POSITIONS, training__threads=1,
        training__learning_rate=1e-2, training__schedule="constant", training__warmup_steps=0, training__ema_decay=DECAY), error)
    api.must(trainer, error)
    trainer = ctypes.c_void_p(trainer)
    count = muster.muster_trainer_parameters(trainer)
    muster.muster_trainer_parameter_elements.restype = ctypes.c_int64

    def parameters():
        values = []
        for number in range(count):
            buffer = (ctypes.c_float * muster.muster_trainer_parameter_elements(trainer, number))()
            api.must(muster.muster_trainer_get(trainer, number, buffer, error) == 0, error)
            values.append(torch.tensor(list(buffer)))
        return values

    theirs = torch.nn.ParameterList(torch.nn.Parameter(value) for value in parameters())
    averaged = AveragedModel(theirs, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    worst, apart = 0.0, 0.0
    for step in range(STEPS):
        pairs = [api.batch(step * api.SEQUENCES + row) for row in range(api.SEQUENCES)]
        flat = [(ctypes.c_int32 * (api.SEQUENCES * api.POSITIONS))(*(t for pair in pairs for t in pair[side])) for side in (0, 1)]
        api.must(muster.muster_trainer_train(trainer, api.arrays(*flat), ctypes.c_int64(api.SEQUENCES), None, error) == 0, error)
        with torch.no_grad():
            for mine, value in zip(theirs, parameters()):
                mine.copy_(value)
        averaged.update_parameters(theirs)
        api.must(muster.muster_trainer_average(trainer, 1, error) == 0, error)
        for ours, wanted, now in zip(parameters(), averaged.module, theirs):
            norm = wanted.double().norm().item() or 1.0
            worst = max(worst, (ours.double() - wanted.double()).norm().item() / norm)
            apart = max(apart, (now.double() - wanted.double()).norm().item() / norm)
        api.must(muster.muster_trainer_average(trainer, 0, error) == 0, error)
    muster.muster_trainer_close(ctypes.byref(trainer))
    muster.muster_model_free(model)
    print(f"average of {STEPS} steps: {worst:.1e} relative from AveragedModel's, which is up to {apart:.1e} from the parameters")
    assert worst <= BOUND < apart


def main():
    plain = check_evaluation("")
    averaged = check_evaluation(f", ema_decay: {DECAY}, ema_evaluate: true, ema_export: true")
    assert plain != averaged
    check_average()


if __name__ == "__main__":
    main()
