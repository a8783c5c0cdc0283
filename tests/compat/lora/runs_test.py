"""muster-train with adapters (section lora), from end to end: on 1, 2 and 3 ranks, NO_SHARD and FULL_SHARD; resumed, also on another
number of ranks and on another base; adapters to PEFT and back; merged into the base. The base is a model of transformers.

PEFT's own package reads our files and writes files for us where it is found (.venv/sources/peft, which ./dev test fills); the
formula W + alpha / rank B A is compared always. How the interpreter is found: torch_python.py."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402

torch = torch_python.require()
for name in ("transformers", "safetensors"):
    if importlib.util.find_spec(name) is None:
        torch_python.skip(f"{sys.executable} has no {name}")
os.environ["HF_HUB_OFFLINE"] = "1"
import safetensors.torch  # noqa: E402
import transformers  # noqa: E402

sys.path.append(str(pathlib.Path(sys.prefix, "sources", "peft")))
HAS_PEFT = importlib.util.find_spec("peft") is not None
if HAS_PEFT:
    import peft

transformers.logging.set_verbosity_error()
BUILD = pathlib.Path(torch_python.build()).resolve()
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
LIMIT = 120  # for any run, against a hang
PLACES = [(ranks, strategy) for ranks in (1, 2, 3) for strategy in ("NO_SHARD", "FULL_SHARD")]
MODELS = {
    "llama": (lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=80, vocab_size=256,
        max_position_embeddings=64, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0)), ["q_proj", "v_proj"]),
    "gpt2": (lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=256, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=0)), ["c_attn", "mlp.c_proj"]),
}
RANK, ALPHA = 4, 12.0
CONFIG = """\
training: {{steps: {steps}, micro_batch: 2, global_batch: 12, sequence_length: 32, learning_rate: 5.0e-3, schedule: constant,
           warmup_steps: 0, threads: 1, strategy: {strategy}, output: "{out}", output_format: {format}}}
model: {{path: "{base}"}}
lora: {{rank: {rank}, alpha: {alpha}, target: [{targets}]}}
data: {{path: "{folder}/text", tokenizer: bytes}}
logging: {{sample_length: 0, interval: 1, json: "{out}.jsonl"}}
"""
PROSE = "the quick fox jumps over the hill and then it rests. " * 200


def tensors_of(folder, name="adapter_model.safetensors"):
    return safetensors.torch.load_file(folder / name)


def foreign(variable):
    return re.match(r"PET_|MUSTER_(?!BUILD)|TORCHELASTIC_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$", variable)


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="muster lora ")  # a space in every path
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        (cls.folder / "text").write_text(PROSE)
        torch.manual_seed(5)
        for kind, (make, _) in MODELS.items():
            make().save_pretrained(cls.folder / kind)

    def run_train(self, out, *words, kind="llama", ranks=1, strategy="FULL_SHARD", steps=12, format="peft", code=0, plan=False,
                  lora="", base=None):
        """out: a name in the folder. Returns the path of its output, and its printed text."""
        out = self.folder / out
        text = CONFIG.format(folder=self.folder, steps=steps, strategy=strategy, out=out, format=format, rank=RANK, alpha=ALPHA,
                             base=base or self.folder / kind, targets=", ".join(MODELS[kind][1]))
        if lora:
            text = re.sub(r"lora: .*", f"lora: {{{lora}}}", text)
        config = self.folder / f"{out.name}.yaml"
        config.write_text(text)
        command = [TRAIN, *(["--plan"] if plan else []), config, *(word for setting in words for word in ("--set", setting))]
        if ranks > 1:
            command = [MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", "--termination-log=", *command]
        environment = {k: v for k, v in os.environ.items() if not foreign(k)} | {"OMP_NUM_THREADS": "1"}
        run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT, cwd=self.folder, env=environment)
        said = run.stdout + run.stderr
        self.assertEqual(run.returncode != 0, code != 0, said)
        return out, said

    def losses(self, out):
        lines = [json.loads(line) for line in pathlib.Path(f"{out}.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if line["kind"] == "step"]

    def assertNear(self, found, wanted, bound, what):
        self.assertEqual(list(found), list(wanted), what)
        for name in wanted:
            a, b = found[name].double(), wanted[name].double()
            self.assertLessEqual((a - b).norm().item(), bound * b.norm().item(), f"{what}: {name}")

    # ---- the same run everywhere

    def test_every_world_and_strategy_trains_the_same_adapters(self):
        for kind, dropout in (("llama", 0.0), ("llama", 0.25), ("gpt2", 0.0)):
            wanted, bytes_before = None, (self.folder / kind / "model.safetensors").read_bytes()
            for ranks, strategy in PLACES if not dropout else [(1, "NO_SHARD"), (3, "FULL_SHARD")]:
                what = f"{kind}, dropout {dropout}, {ranks} ranks, {strategy}"
                out, _ = self.run_train(f"{kind}-{dropout}-{ranks}-{strategy}", f"lora.dropout={dropout}", kind=kind, ranks=ranks,
                                        strategy=strategy)
                found = self.losses(out), tensors_of(out)
                wanted = wanted or found
                self.assertLess(found[0][-1], found[0][0] - 0.02, what)
                for a, b in zip(found[0], wanted[0], strict=True):
                    self.assertLessEqual(abs(a - b), 1e-6 * b, what)
                self.assertNear(found[1], wanted[1], 1e-4, what)
            self.assertEqual((self.folder / kind / "model.safetensors").read_bytes(), bytes_before, "the base has changed")
            layers = 2 * len(MODELS[kind][1])
            self.assertEqual(len(wanted[1]), 2 * layers)
            for name, value in wanted[1].items():
                self.assertRegex(name, r"^base_model\.model\.(model\.layers|transformer\.h)\.\d\..*\.lora_[AB]\.weight$")
                self.assertEqual(value.shape[0 if "lora_A" in name else 1], RANK)

    def test_bf16_trains_too(self):
        out, _ = self.run_train("bf16", "training.dtype=bf16", ranks=2)
        self.assertLess(self.losses(out)[-1], self.losses(out)[0] - 0.02)

    # ---- checkpoints

    def test_checkpoints_have_the_adapters_alone_and_a_resume_gives_the_same_bytes(self):
        whole, _ = self.run_train("whole", ranks=2, steps=12)
        place = f"training.checkpoint_dir={self.folder}/kept"
        self.run_train("half", place, ranks=2, steps=6)
        names = set()
        for file in (self.folder / "kept" / "step-6").glob("rank-*.safetensors"):
            names |= set(safetensors.torch.load_file(file))
        kinds = {name.split("/")[0] for name in names}
        self.assertEqual(kinds, {"value", "moment1", "moment2"})
        self.assertTrue(all(".lora_" in name for name in names), names)
        rest, said = self.run_train("rest", place, ranks=2, steps=12)
        self.assertIn("resumed from step 6", said)
        self.assertEqual((rest / "adapter_model.safetensors").read_bytes(), (whole / "adapter_model.safetensors").read_bytes())
        place = f"training.checkpoint_dir={self.folder}/other"
        self.run_train("half", place, ranks=1, steps=6)
        other, said = self.run_train("elsewhere", place, ranks=3, steps=12, strategy="NO_SHARD")
        self.assertIn("resumed from step 6", said)
        self.assertNear(tensors_of(other), tensors_of(whole), 1e-4, "1 rank, then 3")

    def test_another_base_alpha_or_rank_is_refused_by_name(self):
        place = f"training.checkpoint_dir={self.folder}/refused"
        self.run_train("first", place, steps=2)
        other = self.folder / "other base"
        other.mkdir()
        base = tensors_of(self.folder / "llama", "model.safetensors")
        base["model.layers.1.mlp.up_proj.weight"][3, 4] += 2**-10  # one element
        safetensors.torch.save_file(base, other / "model.safetensors", {"format": "pt"})
        (other / "config.json").write_bytes((self.folder / "llama" / "config.json").read_bytes())
        _, said = self.run_train("again", place, steps=4, base=other, code=1, ranks=2)
        self.assertIn("are of another base, whose hash is ", said)
        self.assertIn(str(other), said)
        _, said = self.run_train("again", place, steps=4, code=1, lora="rank: 4, alpha: 13, target: [q_proj, v_proj]")
        self.assertIn("lora.alpha is 13, and the checkpoint's adapters were trained with 12", said)
        _, said = self.run_train("again", place, steps=4, code=1, lora="rank: 5, alpha: 12, target: [q_proj, v_proj]")
        self.assertIn("q_proj.lora_A.weight (5, 48)", said)
        self.run_train("again", place, steps=4, ranks=3)  # the right one, on another number of ranks

    # ---- files

    def test_merged_is_the_base_with_the_product_and_nothing_else(self):
        for kind, (_, targets) in MODELS.items():
            alone, _ = self.run_train(f"{kind}-alone", kind=kind)
            merged, _ = self.run_train(f"{kind}-merged", "lora.merge=true", kind=kind, format="hf", ranks=2)
            base, adapters = tensors_of(self.folder / kind, "model.safetensors"), tensors_of(alone)
            wanted, found = dict(base), tensors_of(merged, "model.safetensors")
            for name in adapters:
                if name.endswith(".lora_A.weight"):
                    module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
                    product = ALPHA / RANK * (adapters[name.replace("lora_A", "lora_B")].double() @ adapters[name].double())
                    key = f"{module}.weight"
                    wanted[key] = wanted[key].double() + (product.T if kind == "gpt2" else product)
            self.assertEqual(set(found), set(wanted))
            changed = [name for name in base if not torch.equal(found[name], base[name])]
            self.assertEqual(len(changed), 2 * len(targets), changed)
            self.assertTrue(all(any(f".{t}.weight" in name for t in targets) for name in changed), changed)
            for name in changed:
                self.assertLess((found[name].double() - wanted[name]).norm().item(), 1e-6 * wanted[name].norm().item(), name)
            self.assertEqual(json.loads((merged / "config.json").read_text())["model_type"], kind)

    @unittest.skipUnless(HAS_PEFT or os.environ.get("CI"), "no package peft: not compared with it")
    def test_adapters_go_to_peft_and_back(self):
        for kind, (make, targets) in MODELS.items():
            ours, _ = self.run_train(f"{kind}-ours", kind=kind)
            merged, _ = self.run_train(f"{kind}-ours-merged", "lora.merge=true", kind=kind, format="hf")
            load = lambda path: transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
            ids = torch.arange(24)[None] * 7 % 256
            theirs = peft.PeftModel.from_pretrained(load(self.folder / kind), ours)
            with torch.no_grad():
                wanted, found = theirs.double()(ids).logits, load(merged).double()(ids).logits
                plain = load(self.folder / kind).double()(ids).logits
            self.assertGreater((wanted - plain).norm().item(), 1e-3 * plain.norm().item())
            self.assertLess((wanted - found).norm().item(), 1e-5 * wanted.norm().item(), kind)
            # what PEFT writes, B drawn too; no step changes it, and it comes back to the byte
            model = peft.get_peft_model(load(self.folder / kind), peft.LoraConfig(
                r=3, lora_alpha=5, lora_dropout=0.125, target_modules=targets, task_type="CAUSAL_LM", init_lora_weights=False))
            model.save_pretrained(self.folder / f"{kind}-theirs")
            back, _ = self.run_train(f"{kind}-back", "training.learning_rate=0", kind=kind, steps=1, ranks=2,
                                     lora=f'path: "{self.folder}/{kind}-theirs"')
            first, second = tensors_of(self.folder / f"{kind}-theirs"), tensors_of(back)
            self.assertEqual(set(first), set(second))
            self.assertTrue(all(torch.equal(first[name], second[name]) for name in first))
            config = json.loads((back / "adapter_config.json").read_text())
            self.assertEqual((config["r"], config["lora_alpha"], config["lora_dropout"], set(config["target_modules"])),
                             (3, 5, 0.125, set(targets)))
            again = peft.PeftModel.from_pretrained(load(self.folder / kind), back)
            with torch.no_grad():
                self.assertTrue(torch.equal(model.eval()(ids).logits, again.eval()(ids).logits))

    @unittest.skipUnless(HAS_PEFT or os.environ.get("CI"), "no package peft: not compared with it")
    def test_rank_stabilised_adapters_are_scaled_as_peft_scales_them(self):
        load = lambda path: transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
        targets = MODELS["llama"][1]
        peft.get_peft_model(load(self.folder / "llama"), peft.LoraConfig(
            r=4, lora_alpha=6, target_modules=targets, task_type="CAUSAL_LM", use_rslora=True, init_lora_weights=False)).save_pretrained(
            self.folder / "rslora")
        merged, _ = self.run_train("rslora-merged", "lora.merge=true", "training.learning_rate=0", format="hf", steps=1,
                                   lora=f'path: "{self.folder}/rslora"')
        ids = torch.arange(24)[None] * 7 % 256
        theirs = peft.PeftModel.from_pretrained(load(self.folder / "llama"), self.folder / "rslora")
        with torch.no_grad():
            wanted, found = theirs.double()(ids).logits, load(merged).double()(ids).logits
        self.assertLess((wanted - found).norm().item(), 1e-5 * wanted.norm().item())

    def test_what_adapters_of_peft_cannot_be_is_refused_by_its_key(self):
        ours, _ = self.run_train("plain", steps=1)
        config = json.loads((ours / "adapter_config.json").read_text())
        for key, value in (("use_dora", True), ("use_rslora", 2), ("bias", "all"), ("modules_to_save", ["lm_head"]),
                           ("rank_pattern", {"q_proj": 2}), ("peft_type", "IA3"), ("target_modules", ".*q_proj"), ("r", "four"),
                           ("init_lora_weights", "pissa")):
            (ours / "adapter_config.json").write_text(json.dumps(config | {key: value}))
            _, said = self.run_train("refused", steps=1, code=1, lora=f'path: "{ours}"')
            self.assertIn(f"adapter_config.json: {key}", said)

    # ---- settings

    def test_the_plan_shows_what_is_trained(self):
        _, said = self.run_train("plan", plan=True, format="peft")
        trained = 2 * (RANK * (48 + 48) + RANK * (48 + 24))
        self.assertIn(f"adapters: {trained} parameters are trained, ", said)
        self.assertRegex(said, rf"moment1 +{4 * trained} ")
        _, said = self.run_train("plan all", plan=True, lora="rank: 2, target: all-linear")
        self.assertIn(f"adapters: {2 * 2 * (96 + 72 + 72 + 96 + 3 * 128)} parameters are trained", said)

    def test_settings_that_contradict_each_other_are_errors(self):
        for lora, format, text in (
                ("rank: 4, target: [q_proj, w_proj]", "peft", "lora: target 'w_proj' names no product"),
                ("rank: 4, target: [model.layers.7.self_attn.q_proj]", "peft", "names no product"),
                ("rank: 4", "hf", "lora.merge: true asks for"),
                ("rank: 4, merge: true", "peft", "peft writes the adapters alone"),
                ("alpha: 4", "hf", "lora.alpha has no effect with lora.rank: 0"),
                ("dropout: 0.5", "hf", "lora.dropout has no effect without adapters"),
                ("merge: true", "hf", "lora.merge has no effect without adapters"),
                ("rank: 0", "peft", "set lora.rank"),
                ('rank: 4, path: "adapters"', "peft", "are both set"),
                ("rank: 5000", "peft", "lora.rank"),
                ("ranks: 5", "peft", "did you mean 'lora.rank'")):
            _, said = self.run_train("wrong", format=format, lora=lora, code=1)
            self.assertIn(text, said, lora)


if __name__ == "__main__":
    unittest.main()
