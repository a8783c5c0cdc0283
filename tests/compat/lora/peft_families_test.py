"""Adapters of every family next to PEFT itself, in few bits, and their greedy text. Small random models of transformers (families.py).

For each family: adapters on all products that muster-train trains, loaded by PEFT over transformers' model, give the logits of the merged
folder; adapters that PEFT writes come through a run without a change, merge to PEFT's logits, and their greedy text is PEFT's. Adapters on
a base in nf4 train, and GPTQ keeps the loss.

peft_families_test.py [FAMILY...]"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "families"), str(pathlib.Path(__file__).resolve().parents[1])]
from families import FAMILIES, config_of, double, make, save, torch, transformers  # noqa: E402
import torch_python  # noqa: E402

sys.path.append(str(pathlib.Path(sys.prefix, "sources", "peft")))
if importlib.util.find_spec("peft") is None:
    torch_python.skip("no package peft: not compared with it")
import peft  # noqa: E402
import safetensors.torch  # noqa: E402

BUILD = pathlib.Path(torch_python.build()).resolve()
TRAIN = BUILD / "bin" / "muster-train"
IDS = torch.arange(24)[None] * 7 % 256
CONFIG = """\
training: {{steps: {steps}, micro_batch: 2, global_batch: 4, sequence_length: 16, learning_rate: {rate}, schedule: constant, warmup_steps: 0,
           threads: 1, output: "{out}", output_format: {format}}}
model: {{path: "{base}"}}
{lora}
data: {{path: "{folder}/text", tokenizer: bytes}}
logging: {{sample_length: 0, interval: 1, json: "{out}.jsonl"}}
"""


class Family:
    def __init__(self, folder, name):
        self.folder, self.name, self.base = folder, name, folder / f"{name}-base"
        self.config = config_of(name, vocab_size=256)
        save(make(self.config), self.base)

    def run(self, out, lora, steps=6, rate=5e-3, format="peft", command=()):
        out = self.folder / f"{self.name}-{out}"
        config = out.with_suffix(".yaml")
        config.write_text(CONFIG.format(out=out, lora=f"lora: {{{lora}}}" if lora else "", steps=steps, rate=rate, format=format, base=self.base, folder=self.folder))
        words = [TRAIN, *command[:1], config, *command[1:]]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, cwd=self.folder, env=os.environ | {"OMP_NUM_THREADS": "1"})
        assert not done.returncode, f"{words}: {done.stdout}{done.stderr}"
        return out, done.stdout

    def load(self, path=None):
        return transformers.AutoModelForCausalLM.from_pretrained(path or self.base, attn_implementation="eager", dtype=torch.float32)

    def logits(self, model):
        with double(), torch.no_grad():
            return model.double().eval()(IDS, use_cache=False).logits

    def same(self, what, found, wanted, bound=1e-5):
        difference = ((found - wanted).norm() / wanted.norm()).item()
        print(f"{self.name}: {what}: {difference:.2e} (at most {bound:.0e})", flush=True)
        assert difference <= bound, (self.name, what)

    def losses(self, out):
        lines = [json.loads(line) for line in pathlib.Path(f"{out}.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if line["kind"] == "step"]

    def check_ours(self):
        lora = "rank: 4, alpha: 12, target: [all-linear]"
        ours, _ = self.run("ours", lora)
        merged, _ = self.run("ours-merged", lora + ", merge: true", format="hf")
        theirs, plain = self.logits(peft.PeftModel.from_pretrained(self.load(), ours)), self.logits(self.load())
        assert (theirs - plain).norm() > 1e-3 * plain.norm(), "the adapters change nothing"
        self.same("our adapters in PEFT", self.logits(self.load(merged)), theirs)

    def check_theirs(self):
        model = peft.get_peft_model(self.load(), peft.LoraConfig(r=3, lora_alpha=5, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False))
        theirs = self.folder / f"{self.name}-theirs"
        model.save_pretrained(theirs)
        back, _ = self.run("back", f'path: "{theirs}"', steps=1, rate=0)
        first, second = (safetensors.torch.load_file(path / "adapter_model.safetensors") for path in (theirs, back))
        assert set(first) == set(second), set(first) ^ set(second)
        assert all(torch.equal(first[name], second[name]) for name in first)
        merged, _ = self.run("theirs-merged", f'path: "{theirs}", merge: true', steps=1, rate=0, format="hf")
        self.same("PEFT's adapters in ours", self.logits(self.load(merged)), self.logits(model))
        text, prompt = [3, 1, 4, 1, 5], "3 1 4 1 5".split()
        with double(), torch.no_grad():
            for _ in range(12):
                text.append(int(model(torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
        found = subprocess.run([BUILD / "tests" / "files_dump", "--greedy", merged, "12", *prompt], capture_output=True, text=True, check=True).stdout.split()
        assert [int(token) for token in found] == text[5:], (found, text[5:])

    def check_few_bits(self):
        out, _ = self.run("nf4", "rank: 4, alpha: 12, target: [all-linear], base: nf4", steps=20)
        losses = self.losses(out)
        assert losses[-1] < losses[0] - 0.02, losses
        few = self.folder / f"{self.name}-gptq"
        _, said = self.run("few", "", format="hf", command=("quantize", "--model", self.base, "--method", "gptq", "--group", 8, "--to", few, "--calibration", 16))
        table = {line.split()[0]: float(line.split()[1]) for line in said.splitlines() if line.split()[:1] in (["before"], ["after"])}
        print(f"{self.name}: nf4 {losses[0]:.4f} to {losses[-1]:.4f}; GPTQ {table['before']:.4f} to {table['after']:.4f}", flush=True)
        assert abs(table["after"] / table["before"] - 1) < 0.01, table


def main():
    with tempfile.TemporaryDirectory(prefix="muster peft ") as folder:
        folder = pathlib.Path(folder)
        (folder / "text").write_text("the quick fox jumps over the hill and then it rests. " * 100)
        failed = []
        for name in sys.argv[1:] or FAMILIES:
            family = Family(folder, name)
            for check in family.check_ours, family.check_theirs, family.check_few_bits:
                try:
                    check()
                except Exception as error:  # the other families are looked at, too
                    print(f"FAILED {name}, {check.__name__}: {str(error)[-1200:]}", flush=True)
                    failed.append((name, check.__name__))
    sys.exit(f"failed: {failed}" if failed else 0)


main()
