"""Files of torch.save as model.path: what muster-train wrote itself, and what scripts of PyTorch write, in every form that a state dict has
there, are evaluated as the model that they are of; other archives are refused with the way out, and nothing of a file is run."""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch_python

torch = torch_python.require()
TRAIN = pathlib.Path(torch_python.build()) / "bin" / "muster-train"
RUN = """model: {architecture: gpt2, layers: 1, channels: 32, heads: 2, vocabulary: 256}
training: {steps: 3, global_batch: 4, sequence_length: 16, output: model.pth, output_format: pth, warmup_steps: 0, threads: 1}
data: {path: text, validation_share: 0.2}
logging: {sample_length: 0}
"""


class Runs:
    """What pickle would run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class PthTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="muster pth ")
        cls.folder = pathlib.Path(cls.temporary.name)
        (cls.folder / "text").write_text("the quick brown fox jumps over the lazy dog and rests.\n" * 60)
        (cls.folder / "run.yaml").write_text(RUN)
        run = cls.program("run.yaml")
        assert run.returncode == 0, run.stderr
        cls.state = torch.load(cls.folder / "model.pth", weights_only=True)
        cls.loss = json.loads(cls.program("eval", "run.yaml", "--output=json").stdout)["loss"]  # what training has left

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def program(cls, *words):
        return subprocess.run([TRAIN, *words], cwd=cls.folder, capture_output=True, text=True, errors="replace", timeout=120)

    def loss_of(self, name):
        run = self.program("eval", "run.yaml", "--model", name, "--output=json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["loss"]

    def refused(self, text, value, name="refused.pth", **how):
        if value is not None:
            torch.save(value, self.folder / name, **how)
        run = self.program("eval", "run.yaml", "--model", name)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn(text, run.stderr)

    def test_what_was_written_is_read(self):
        self.assertEqual(self.loss_of("model.pth"), self.loss)
        self.assertEqual(self.program("generate", "run.yaml", "--model", "model.pth", "--prompt=the", "--max-tokens=3").returncode, 0)
        run = self.program("run.yaml", "--set", "model.path=model.pth", "--set", "training.output=second.pth")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotEqual(self.loss_of("second.pth"), self.loss)
        run = self.program("run.yaml", "--set", "training.checkpoint_dir=c", "--set", "training.resume=model.pth")
        self.assertEqual(run.returncode, 2)
        self.assertIn("training.resume model.pth has parameters alone", run.stderr)

    def test_every_form_of_a_state_dict(self):
        state, flat, at, shared = self.state, torch.cat([v.flatten() for v in self.state.values()]), 0, {}
        for name, value in state.items():
            shared[name] = flat[at:at + value.numel()].view(value.shape)
            at += value.numel()
        optimizer = {"state": {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.99), "params": [0]}]}
        forms = {
            "dict": dict(state),
            "nested": {"epoch": 3, "state_dict": state, "lr": 0.1, "list": [1, (2, 3)], "none": None, "large": 1 << 70},
            "checkpoint": {"model": state, "optimizer": optimizer, "step": 7},
            "ddp": {f"module.{name}": value for name, value in state.items()},
            "compiled": {f"_orig_mod.{name}": value for name, value in state.items()},
            "both": {f"module._orig_mod.{name}": value for name, value in state.items()},
            "inner": {name.replace("h.0.", "h.0._orig_mod._checkpoint_wrapped_module."): value for name, value in state.items()},
            "parameters": collections.OrderedDict((name, torch.nn.Parameter(value)) for name, value in state.items()),
            "columns first": {name: value.t().contiguous().t() if value.ndim == 2 else value for name, value in state.items()},
            "every other": {name: torch.stack([value, -value], -1)[..., 0] for name, value in state.items()},
            "one storage": shared,
            "doubles": {name: value.double() for name, value in state.items()},
        }
        for form, value in forms.items():
            torch.save(value, self.folder / f"{form}.pt")
            self.assertEqual(self.loss_of(f"{form}.pt"), self.loss, form)
        for protocol in (3, 4, 5):
            torch.save({"model_state_dict": state}, self.folder / "p.pth", pickle_protocol=protocol)
            self.assertEqual(self.loss_of("p.pth"), self.loss, protocol)
        for dtype in (torch.bfloat16, torch.float16):
            torch.save({name: value.to(dtype) for name, value in state.items()}, self.folder / "half.pth")
            torch.save({name: value.to(dtype).float() for name, value in state.items()}, self.folder / "rounded.pth")
            self.assertEqual(self.loss_of("half.pth"), self.loss_of("rounded.pth"), dtype)

    def test_what_is_no_state_dict_is_refused(self):
        state, planted = self.state, self.folder / "planted"
        self.refused("before PyTorch 1.6", state, _use_new_zipfile_serialization=False)
        self.refused("it names posix.mkdir, which is no part of a state dict; nothing of it was run", {"state_dict": state, "x": Runs(planted)})
        self.assertFalse(planted.exists())
        self.refused("it names torch.nn.modules.linear.Linear", torch.nn.Linear(3, 4))
        self.refused("it names argparse.Namespace", {"state_dict": state, "args": argparse.Namespace(a=1)})
        self.refused("has one tensor, and no state dict", torch.zeros(3))
        self.refused("no state dict: neither the saved object nor its key state_dict, model_state_dict, model, module or net is a dict of "
                     "tensors; its keys: optimizer, step", {"optimizer": {}, "step": 3})
        self.refused("1 tensors are missing", dict(list(state.items())[1:]))
        self.refused("have a wrong shape", {name: value[..., :1] for name, value in state.items()})
        self.refused("have a type that parameters cannot have", {name: value.to(torch.int32) for name, value in state.items()})
        torch.jit.script(torch.nn.Linear(2, 2)).save(self.folder / "script.pth")
        self.refused("is a program of TorchScript", None, "script.pth")
        whole = (self.folder / "model.pth").read_bytes()
        for name, content, text in (("cut.pth", whole[:-300], "the archive is cut off or damaged"), ("gguf.pth", b"GGUF" + bytes(40), "is a GGUF file"),
                                    ("text.pth", b"hello " * 9, "neither a safetensors file nor a file of torch.save")):
            (self.folder / name).write_bytes(content)
            self.refused(text, None, name)


if __name__ == "__main__":
    unittest.main()
