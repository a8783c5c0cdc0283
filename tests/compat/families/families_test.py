"""Families of models in transformers' folders: logits, gradients and training in float64 against transformers, and files.

For each family: logits of every variant of config.json, and one step's gradients, within 1e-6 (L2 of a tensor); losses of 20 steps of
AdamW within 1e-5; a folder that goes through us is the same to the byte, and from_pretrained finds every key in it; greedy text of
muster-train generate, which keeps keys and values, is transformers'. The fast tier trains on 2 ranks with FULL_SHARD; --full also on 1
and 3 ranks and with the other strategies, with adapters, and in few bits."""

import inspect
import json
import pathlib
import subprocess
import sys
import tempfile

from families import FAMILIES, FLOAT32, VOCABULARY, config_of, double, make, save, torch, transformers
import torch_python
from model_against_torch import ADAMW, BUILD, Comparison, Variant, adam, batches, ours, reference

SAMPLES, T, STEPS = 6, 24, 20
BOUNDS = (1e-6, 1e-6, 1e-5)
TRAINED = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=STEPS)


class AdaptersAlone(Variant):
    def trains(self, name):
        return ".lora_" in name


ADAPTED = AdaptersAlone("AdamW", 0, adam(torch.optim.AdamW), steps=STEPS)
RENAMED = {"embed_out.weight": "lm_head.weight"}  # in the file, and in transformers' model
PACKED = ["gemma2"]  # documents in a row, in the fast tier: windows and caps
SMALL = ["phi3"]  # whole runs and adapters in the fast tier
OWN = "olmo2"     # read by a page that the user names
PAGES = pathlib.Path(__file__).resolve().parents[3] / "runtime" / "pages" / "families"
ONCE = [(2, "FULL_SHARD")]
EVERYWHERE = [(1, "NO_SHARD"), (2, "FULL_SHARD"), (3, "FULL_SHARD"), (2, "SHARD_GRAD_OP"), (2, "HYBRID_SHARD"), (2, "SHARD_OPTIM")]


def run(*words, check=True, **options):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", **options)
    assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


def varies(config):
    """Whether the rotary frequencies depend on the length of the sequence, which files_dump begins anew for each position."""
    return (getattr(config, "rope_parameters", None) or {}).get("rope_type") in ("dynamic", "longrope")


class Families(Comparison):
    def __init__(self, folder, full):
        super().__init__()
        self.folder, self.full, self.number = folder, full, 0
        generator = torch.Generator().manual_seed(3)
        self.tokens, self.targets = batches(generator, VOCABULARY, SAMPLES, T)
        self.ids = self.tokens[0, 0]
        (folder / "tokens").write_bytes(torch_python.bytes_of(self.ids.to(torch.int32)))

    def new(self, name):
        self.number += 1
        return self.folder / f"{self.number}-{name}"

    def verify(self, what, good, found=""):
        print(f"{'ok' if good else 'FAILED':6} {what} {found}", flush=True)
        if not good:
            self.failures.append(what)

    def logits(self, source):
        out = self.new("logits")
        run(BUILD / "tests" / "files_dump", source, "-", "hf", "f32", 0, "f64", 1, "NO_SHARD", self.folder / "tokens", out)
        return torch.frombuffer(bytearray(out.read_bytes()), dtype=torch.float64).view(T, VOCABULARY)

    def check_logits(self, what, model, source):
        with double(), torch.no_grad():
            if varies(model.config):
                wanted = torch.stack([model(self.ids[None, :t + 1], use_cache=False).logits[0, -1] for t in range(T)])
            else:
                wanted = model(self.ids[None], use_cache=False).logits[0]
        found = self.logits(source)
        self.check(f"{what}: logits", ((found - wanted).norm() / wanted.norm()).item(), 1e-6)

    def check_training(self, what, model, source):
        def loss_of(p, tokens, targets):
            with double():
                logits = torch.func.functional_call(model, p, (tokens,), {"use_cache": False}, tie_weights=True).logits
                return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

        parameters = {name: value.detach().clone() for name, value in model.named_parameters()}
        wanted = reference(loss_of, parameters, self.tokens, self.targets, TRAINED)
        order = self.names(source)
        for ranks, strategy in EVERYWHERE if self.full else ONCE:
            found = ours(["files", source], {name: parameters[RENAMED.get(name, name)] for name in order}, self.tokens, self.targets, TRAINED, "f64",
                         ranks, strategy)
            found[2].update({RENAMED[name]: found[2].pop(name) for name in RENAMED if name in found[2]})
            self.check_run(f"{what}, {ranks} x {strategy}: ", found, wanted, BOUNDS)

    def check_packed(self, what, model, source):
        """Documents in a row have the losses and gradients of rows of their own, and of transformers by position_ids."""
        generator = torch.Generator().manual_seed(11)
        places = torch.zeros((STEPS, SAMPLES, T), dtype=torch.int64)
        for row in places.view(-1, T):
            at = 0
            while at < T:  # documents, and single positions as after the last one
                length = min(T - at, int(torch.randint(1, 14, (1,), generator=generator)))
                row[at:at + length] = torch.arange(length)
                at += length

        def loss_of(p, tokens, targets):
            step = next(i for i in range(STEPS) if tokens.data_ptr() == self.tokens[i].data_ptr())
            with double():
                call = lambda ids: torch.func.functional_call(model, p, (ids[None],), {"use_cache": False}, tie_weights=True).logits[0]
                logits = []
                for row, place in zip(tokens, places[step]):
                    begins = (place == 0).nonzero().flatten().tolist() + [T]
                    logits += [call(row[begin:end]) for begin, end in zip(begins, begins[1:])]
                return torch.nn.functional.cross_entropy(torch.cat(logits), targets.flatten())

        packed = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=STEPS if self.full else 2)
        parameters = {name: value.detach().clone() for name, value in model.named_parameters()}
        wanted = reference(loss_of, parameters, self.tokens, self.targets, packed)
        if "position_ids" in inspect.signature(model.forward).parameters and model.config.model_type != "opt":
            with double(), torch.no_grad():
                logits = torch.cat([model(row[None], position_ids=place[None], use_cache=False).logits for row, place in zip(self.tokens[0], places[0])])
                theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.targets[0].flatten()).item()
            self.check(f"{what}, packed: transformers' loss by position_ids", abs(theirs / wanted[0][0] - 1), 1e-9)
        order = self.names(source)
        for ranks, strategy in [(1, "NO_SHARD"), (2, "FULL_SHARD"), (3, "FULL_SHARD")] if self.full else ONCE:
            found = ours(["files", source], {name: parameters[RENAMED.get(name, name)] for name in order}, self.tokens, self.targets, packed, "f64",
                         ranks, strategy, places=places)
            found[2].update({RENAMED[name]: found[2].pop(name) for name in RENAMED if name in found[2]})
            self.check_run(f"{what}, packed, {ranks} x {strategy}: ", found, wanted, BOUNDS)

    def check_adapters(self, what, model, source):
        """PEFT's formula written out: W + alpha / rank B A in the place of W; nothing else is trained."""
        rank, alpha = 3, 6.0
        base = {name: value.detach().clone() for name, value in model.named_parameters()}
        generator, parameters, waiting = torch.Generator().manual_seed(7), {}, {}
        draw = lambda *shape: 0.05 * torch.randn(shape, generator=generator, dtype=FLOAT32).double()
        for name in self.names(source):
            if not name.endswith(".bias"):  # an adapter comes after its product's bias
                parameters |= waiting
                waiting = {}
            parameters[name] = base[RENAMED.get(name, name)]
            if ".layers." in name and parameters[name].dim() == 2:
                rows, columns = parameters[name].shape
                module = name.removesuffix(".weight")
                waiting = {module + ".lora_A.weight": draw(rank, columns), module + ".lora_B.weight": draw(rows, rank)}
        parameters |= waiting

        def loss_of(p, tokens, targets):
            whole = {RENAMED.get(name, name): value for name, value in p.items() if ".lora_" not in name}
            for name, value in p.items():
                if name.endswith(".lora_A.weight"):
                    module = name.removesuffix(".lora_A.weight")
                    whole[module + ".weight"] = whole[module + ".weight"] + alpha / rank * (p[module + ".lora_B.weight"] @ value)
            with double():
                logits = torch.func.functional_call(model, whole, (tokens,), {"use_cache": False}, tie_weights=True).logits
                return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

        wanted = reference(loss_of, {name: value.clone() for name, value in parameters.items()}, self.tokens, self.targets, ADAPTED)
        for ranks, strategy in [(1, "NO_SHARD"), (2, "FULL_SHARD"), (3, "FULL_SHARD")] if self.full else ONCE:
            found = ours(["files", source, "lora", rank, alpha, "all-linear"], parameters, self.tokens, self.targets, ADAPTED, "f64",
                         ranks, strategy)
            self.check_run(f"{what}, adapters, {ranks} x {strategy}: ", found, wanted, BOUNDS)

    def check_program(self, what, family, page=None):
        """muster-train on a folder: steps of length 0 change no byte; eval, generate and quantize take it."""
        source, place = self.new(family), self.new("run")
        model = make(config_of(family, vocab_size=256))
        save(model, source)
        place.mkdir()
        (place / "text.txt").write_text("abcdefgh ijklmnop qrstuvwx yz" * 40)
        tuned = place / "tuned"
        lines = {"path": source, **({"page": page} if page else {})}
        (place / "train.yaml").write_text(
            "model: {" + ", ".join(f"{key}: {value}" for key, value in lines.items()) + "}\n"
            f"data: {{path: {place}/text.txt, tokenizer: bytes}}\n"
            f"training: {{steps: 2, global_batch: 2, sequence_length: 16, learning_rate: 0, weight_decay: 0, output: {tuned}, "
            "output_format: hf}\n")
        program, more = BUILD / "bin" / "muster-train", ["--set", f"model.page={page}"] if page else []
        run(program, place / "train.yaml")
        for name in ("config.json", "model.safetensors"):
            self.verify(f"{what}: {name} after steps of length 0", (tuned / name).read_bytes() == (source / name).read_bytes())
        losses = []
        run(program, "quantize", place / "train.yaml", "--model", tuned, "--method", "int8", "--to", place / "few", *more)
        for folder in (tuned, place / "few"):
            said = run(program, "eval", place / "train.yaml", "--model", folder, "--output=json", *more).stdout
            losses.append(json.loads(said)["loss"])
        self.check(f"{what}: loss in int8 against the loss of {losses[0]:.4f}", abs(losses[1] - losses[0]) / losses[0], 0.02)
        text = run(program, "generate", place / "train.yaml", "--model", tuned, "--prompt", "abc", "--max-tokens", 4, "--temperature", 0, *more)
        self.verify(f"{what}: generate", text.returncode == 0)

    def names(self, source):
        """The parameters in our order."""
        return [line.split()[0] for line in run(BUILD / "tests" / "files_dump", "--names", source).stdout.splitlines()]

    def check_files(self, what, model, source):
        out = self.new("out")
        run(BUILD / "tests" / "files_dump", source, out, "hf", "f32", 0, "f32", 2, "FULL_SHARD")
        for name in ("config.json", "model.safetensors"):
            self.verify(f"{what}: {name} is the same", (out / name).read_bytes() == (source / name).read_bytes())
        again, info = type(model).from_pretrained(out, output_loading_info=True)
        self.verify(f"{what}: from_pretrained", not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")),
                    info)

    def check_text(self, what, model, source):
        prompt = [int(token) for token in self.ids[:5]]
        with double(), torch.no_grad():
            wanted = list(prompt)
            for _ in range(20):
                wanted.append(int(model(torch.tensor([wanted]), use_cache=False).logits[0, -1].argmax()))
        found = run(BUILD / "tests" / "files_dump", "--greedy", source, 20, *prompt).stdout.split()
        self.verify(f"{what}: greedy text with a cache", [int(token) for token in found] == wanted[5:], f"{found} {wanted[5:]}")

    def family(self, family):
        for variant in range(len(FAMILIES[family])):
            model, source = make(config_of(family, variant)), self.new(family)
            what = f"{family} {FAMILIES[family][variant]}"[:90]
            save(model, source)
            self.check_logits(what, model, source)
            if variant == 0 and family != "gpt2":  # its names and shapes are ours, and gpt_torch_test.py trains it
                self.check_training(what, model, source)
                if self.full or family in PACKED:
                    self.check_packed(what, model, source)
                if self.full or family in SMALL:
                    self.check_adapters(what, model, source)
            if variant == 0:
                self.check_files(what, model, source)
            if variant == 0 or self.full:
                self.check_text(what, model, source)
        if self.full or family in SMALL:
            self.check_program(family, family)
        if family == OWN:
            self.check_program(f"{family} by model.page", family, PAGES / f"{family}.yaml")


def main():
    chosen = [word for word in sys.argv[1:] if not word.startswith("-")] or list(FAMILIES)
    with tempfile.TemporaryDirectory() as folder:
        test = Families(pathlib.Path(folder), "--full" in sys.argv)
        for family in chosen:
            test.family(family)
        if chosen == list(FAMILIES) and not test.full:
            from encoders_test import Encoders  # needs this module
            encoders = Encoders(pathlib.Path(folder), False)
            encoders.family("modernbert")
            test.failures += encoders.failures
    sys.exit(f"{len(test.failures)} failed: {test.failures}" if test.failures else 0)


if __name__ == "__main__":
    main()
