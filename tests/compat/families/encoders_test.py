"""Encoders that classify texts: logits, gradients and training in float64 against transformers, and files.

For each family: logits of every variant of config.json, and one step's gradients, within 1e-6 (L2 of a tensor); losses of 20 steps of AdamW
within 1e-5, of texts with lengths of their own; a folder that goes through us is the same to the byte, and from_pretrained finds every key
in it. Folders without a classifier get a drawn classifier, and keep all other parameters. On 1 to 3 ranks with every
strategy; families_test.py has one family on 2 ranks in the fast tier."""

import pathlib
import sys
import tempfile

from encoders import CLASSES, ENCODERS, FLOAT32, config_of, logits_of, make, save, texts_of, torch, transformers, types_of
from families import safetensors
from families_test import BOUNDS, EVERYWHERE, ONCE, STEPS, TRAINED, run
from model_against_torch import BUILD, Comparison, Variant, adam, ours, reference

KINDS = {"bert": [transformers.BertModel, transformers.BertForMaskedLM], "roberta": [transformers.RobertaModel, transformers.RobertaForMaskedLM],
         "distilbert": [transformers.DistilBertModel, transformers.DistilBertForMaskedLM],
         "modernbert": [transformers.ModernBertModel, transformers.ModernBertForMaskedLM]}
STILL = Variant("AdamW", 0, adam(torch.optim.AdamW), steps=1)


class Encoders(Comparison):
    def __init__(self, folder, full):
        super().__init__()
        self.folder, self.full, self.number = folder, full, 0
        self.tokens, self.lengths, self.labels = texts_of(STEPS)

    def new(self, name):
        self.number += 1
        return self.folder / f"{self.number}-{name}"

    def verify(self, what, good, found=""):
        print(f"{'ok' if good else 'FAILED':6} {what} {found}", flush=True)
        if not good:
            self.failures.append(what)

    def names(self, source):
        return [line.split()[0] for line in run(BUILD / "tests" / "files_dump", "--names", source).stdout.splitlines()]

    def found(self, model, source, parameters, variant=TRAINED, ranks=1, strategy="NO_SHARD", **options):
        return ours(["files", source], parameters, self.tokens, self.labels, variant, "f64", ranks, strategy, lengths=self.lengths,
                    types=types_of(model.config, self.tokens), **options)

    def check_logits(self, what, model, source):
        logits, parameters = [], dict(model.named_parameters())
        self.found(model, source, {name: parameters[name].detach() for name in self.names(source)}, STILL, logits=logits)
        with torch.no_grad():
            wanted = logits_of(model, parameters, self.tokens[0], self.lengths[0])
        found = logits[0].view(-1, CLASSES)
        self.check(f"{what}: logits", ((found - wanted).norm() / wanted.norm()).item(), 1e-6)

    def check_training(self, what, model, source):
        def loss_of(p, batch, labels):
            return torch.nn.functional.cross_entropy(logits_of(model, p, *batch), labels.view(-1))

        parameters = {name: value.detach().clone() for name, value in model.named_parameters()}
        wanted = reference(loss_of, parameters, list(zip(self.tokens, self.lengths)), self.labels, TRAINED)
        order = {name: parameters[name] for name in self.names(source)}
        assert sorted(order) == sorted(parameters), set(order) ^ set(parameters)
        for ranks, strategy in EVERYWHERE if self.full else ONCE:
            self.check_run(f"{what}, {ranks} x {strategy}: ", self.found(model, source, order, ranks=ranks, strategy=strategy), wanted, BOUNDS)

    def check_files(self, what, model, source):
        out = self.new("out")
        run(BUILD / "tests" / "files_dump", source, out, "hf", "f32", 0, "f32", 2, "FULL_SHARD")
        for name in ("config.json", "model.safetensors"):
            self.verify(f"{what}: {name} is the same", (out / name).read_bytes() == (source / name).read_bytes())

    def check_headless(self, what, family, kind):
        """A model without a classifier keeps every parameter that the file has, and gets a class that transformers opens."""
        source, out = self.new(family), self.new("out")
        model = make(config_of(family), kind=kind)
        save(model, source)
        run(BUILD / "tests" / "files_dump", source, out, "hf", "f32", 0, "f32", 1, "NO_SHARD")
        again, info = transformers.AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
        self.verify(f"{what}: from_pretrained", not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info)
        base = getattr(model, model.base_model_prefix, model)
        mine = dict(getattr(again, again.base_model_prefix).named_parameters())
        same = [torch.equal(mine[name], value.to(FLOAT32)) for name, value in base.named_parameters() if name in mine]
        self.verify(f"{what}: {len(same)} of {len(mine)} parameters are the file's", len(same) >= len(mine) - 2 and all(same))
        self.verify(f"{what}: the class in config.json", again.config.architectures == [type(again).__name__], again.config.architectures)

    def check_older(self):
        """The names that norms had in older files."""
        source, older = self.new("bert"), self.new("older")
        model = make(config_of("bert"))
        for folder in (source, older):
            save(model, folder)
        tensors = transformers.utils.SAFE_WEIGHTS_NAME
        state = safetensors.torch.load_file(older / tensors)
        renamed = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
                   for name, value in state.items()}
        renamed["bert.embeddings.position_ids"] = torch.arange(40)[None]
        safetensors.torch.save_file(renamed, older / tensors, {"format": "pt"})
        out = self.new("out")
        run(BUILD / "tests" / "files_dump", older, out, "hf", "f32", 0, "f32", 1, "NO_SHARD")
        self.verify("bert: norms by their older names", (out / tensors).read_bytes() == (source / tensors).read_bytes())

    def family(self, family):
        for variant in range(len(ENCODERS[family])):
            model, source = make(config_of(family, variant)), self.new(family)
            what = f"{family} {ENCODERS[family][variant]}"[:90]
            save(model, source)
            self.check_logits(what, model, source)
            if variant == 0:
                self.check_training(what, model, source)
                self.check_files(what, model, source)
        for kind in KINDS[family]:
            self.check_headless(f"{family}, a {kind.__name__}", family, kind)
        if family == "bert":
            self.check_older()


def main():
    chosen = [word for word in sys.argv[1:] if not word.startswith("-")] or list(ENCODERS)
    with tempfile.TemporaryDirectory() as folder:
        test = Encoders(pathlib.Path(folder), full=True)
        for family in chosen:
            test.family(family)
    sys.exit(f"{len(test.failures)} failed: {test.failures}" if test.failures else 0)


if __name__ == "__main__":
    main()
