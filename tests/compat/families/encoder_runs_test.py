"""muster-train on folders of encoders and labelled texts, against transformers.

DistilBERT and BERT with WordPiece (vocab.txt), RoBERTa with byte-level BPE, ModernBERT with a tokenizer.json: a folder without a classifier
is trained on texts with named labels. What muster-train writes is opened by AutoModelForSequenceClassification and AutoTokenizer, and their
loss and accuracy on the texts held out equal muster-train eval's; some texts are cut. Steps of length 0 change no byte. 2 and 3
ranks have the losses of one. Adapters are PEFT's: their folder is opened by PEFT, with the same loss. Dropout: the same run twice has the
same losses, another number of ranks and recomputation too. Wrong inputs are refused by name."""

import csv
import importlib.util
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from encoders import config_of, make, save, torch, transformers
from model_against_torch import BUILD, Comparison
import tokenizers

sys.path.append(str(pathlib.Path(sys.prefix, "sources", "peft")))
HAS_PEFT = importlib.util.find_spec("peft") is not None

LENGTH = 12
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
WORDS = {"neg": "awful boring cold dull empty flat".split(), "pos": "bright clever fine good great warm".split()}
OTHERS = "a film the plot with its actors and music, Scenes of Café life: it was 'seen' twice!".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
KINDS = {"distilbert": transformers.DistilBertModel, "bert": transformers.BertForMaskedLM, "roberta": transformers.RobertaModel,
         "modernbert": transformers.ModernBertModel}


def texts(count, seed):
    generator = random.Random(seed)
    rows = []
    for _ in range(count):
        label = generator.choice(list(WORDS))
        words = generator.choices(OTHERS, k=generator.randrange(0, 16)) + generator.choices(WORDS[label], k=2)
        generator.shuffle(words)
        rows.append((" ".join(words), label))
    return rows


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])


def write_tokenizer(family, folder, rows):
    """Returns the number of tokens."""
    words = [text for text, _ in rows]
    if family in ("bert", "distilbert"):
        made = tokenizers.BertWordPieceTokenizer(lowercase=True)
        made.train_from_iterator(words, vocab_size=120, min_frequency=1, special_tokens=SPECIAL, show_progress=False)
        vocabulary = sorted(made.get_vocab(), key=made.get_vocab().get)
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "tokenizer_class": "BertTokenizer"}))
        return len(vocabulary)
    if family == "roberta":
        made = tokenizers.ByteLevelBPETokenizer()
        made.train_from_iterator(words, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False)
        made._tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
        made.save(str(folder / "tokenizer.json"))
        names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
    else:
        made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.train_from_iterator(words, tokenizers.trainers.BpeTrainer(vocab_size=200, special_tokens=SPECIAL, show_progress=False))
        made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        made.save(str(folder / "tokenizer.json"))
        names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    return made.get_vocab_size()


class Runs(Comparison):
    def __init__(self, folder):
        super().__init__()
        self.folder, self.number = folder, 0
        self.rows, self.held = texts(96, 1), texts(40, 2)
        write_csv(folder / "texts.csv", self.rows)
        write_csv(folder / "held.csv", self.held)

    def verify(self, what, good, found=""):
        print(f"{'ok' if good else 'FAILED':6} {what} {found}", flush=True)
        if not good:
            self.failures.append(what)

    def new(self, name):
        self.number += 1
        return self.folder / f"{self.number}-{name}"

    def train(self, source, *sets, ranks=1, fails=False, data="texts.csv"):
        """The losses of all steps, the output of the run, and its folder."""
        place = self.new("run")
        place.mkdir()
        (place / "run.yaml").write_text(
            f"model: {{path: {source}}}\n"
            f"data: {{path: {self.folder}/{data}, validation_path: {self.folder}/held.csv, cache_dir: {place}/cache}}\n"
            f"training: {{steps: 50, global_batch: 12, micro_batch: 2, sequence_length: {LENGTH}, learning_rate: 0.003, schedule: constant, "
            f"warmup_steps: 0, output: {place}/tuned, threads: 1}}\n"
            f"logging: {{dir: {place}/log, interval: 1}}\n")
        words = [TRAIN, place / "run.yaml", *[word for text in sets for word in ("--set", text)]]
        if ranks > 1:
            words = [MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", "--no-python", *words]
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", cwd=place)
        said = done.stdout + done.stderr
        if fails:
            return done.returncode, said, place
        assert done.returncode == 0, said
        lines = [json.loads(line) for line in (place / "log" / "log.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if line.get("kind") == "step"], said, place

    def evaluate(self, place, *words):
        done = subprocess.run([str(word) for word in (TRAIN, "eval", place / "run.yaml", "--output=json", *words)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, cwd=place)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def theirs(self, model, tokenizer):
        """Loss and accuracy in percent of the texts held out."""
        losses, right = [], 0
        model = model.double().eval()
        for text, label in self.held:
            given = tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt")
            given.pop("token_type_ids", None)
            with torch.no_grad():
                logits = model(**given).logits[0]
            wanted = model.config.label2id[label]
            losses.append(-torch.log_softmax(logits, 0)[wanted].item())
            right += int(logits.argmax()) == wanted
        return sum(losses) / len(losses), 100 * right / len(losses)

    def check_same(self, what, wanted, found, bound=1e-5):
        """In the first steps: rounding grows with every step."""
        assert len(found) == len(wanted)
        self.check(what, max(abs(a - b) / abs(b) for a, b in zip(found[:15], wanted)), bound)

    def begin(self, family, **more):
        source = self.new(family)
        source.mkdir()
        tokens = write_tokenizer(family, source, self.rows)
        pad = {"roberta": dict(pad_token_id=1), "modernbert": dict(pad_token_id=0)}.get(family, {})
        config = config_of(family, **{"vocab_size": tokens, "num_labels": 2, **pad, **more})
        save(make(config, kind=KINDS[family]), source)
        return source

    def family(self, family):
        source = self.begin(family)
        losses, said, place = self.train(source)
        self.verify(f"{family}: the log names what is drawn", "are not there and begin at random: " in said, re.findall(r".*at random.*", said))
        tuned = place / "tuned"
        model, info = transformers.AutoModelForSequenceClassification.from_pretrained(tuned, output_loading_info=True)
        self.verify(f"{family}: from_pretrained", not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info)
        self.verify(f"{family}: id2label", model.config.id2label == {0: "neg", 1: "pos"}, model.config.id2label)
        loss, accuracy = self.theirs(model, transformers.AutoTokenizer.from_pretrained(tuned))
        found = self.evaluate(place, "--model", tuned)
        self.check(f"{family}: loss of {loss:.4f} of the texts held out", abs(found["loss"] - loss) / loss, 1e-5)
        self.verify(f"{family}: accuracy of {accuracy:.1f}%", abs(found["accuracy"] - accuracy) < 1e-6 and accuracy > 60, found["accuracy"])
        for ranks, strategy in ((2, "FULL_SHARD"), (3, "FULL_SHARD"), (2, "HYBRID_SHARD")):
            sets = [f"training.strategy={strategy}"] + ["training.replicas=2"] * (strategy == "HYBRID_SHARD")
            other, _, _ = self.train(source, *sets, ranks=ranks)
            self.check_same(f"{family}: losses on {ranks} ranks, {strategy}", losses, other)
        self.check_still(family, tuned)

    def check_still(self, family, tuned):
        """Steps of length 0 on a folder with a classifier and these labels."""
        _, _, place = self.train(tuned, "training.learning_rate=0", "training.weight_decay=0", "training.steps=2")
        for path in sorted(tuned.iterdir()):
            self.verify(f"{family}: {path.name} after steps of length 0", (place / "tuned" / path.name).read_bytes() == path.read_bytes())

    def check_dropout(self):
        """transformers' default probabilities."""
        source = self.begin("distilbert", dropout=0.1, seq_classif_dropout=0.2)
        losses, _, _ = self.train(source)
        again, _, _ = self.train(source)
        self.verify("dropout: the same run twice", losses == again)
        plain, _, _ = self.train(self.begin("distilbert"))
        self.verify("dropout: it changes the losses", max(abs(a - b) for a, b in zip(losses, plain)) > 1e-3)
        for sets, ranks in ((["training.recompute=all"], 1), (["training.strategy=FULL_SHARD"], 3)):
            other, _, _ = self.train(source, *sets, ranks=ranks)
            self.check_same(f"dropout: {sets} on {ranks} ranks", losses, other)

    def check_adapters(self, family):
        import peft  # noqa: PLC0415

        source = self.begin(family)
        first, _, place = self.train(source, "training.learning_rate=0", "training.weight_decay=0", "training.steps=1")
        headed = place / "tuned"  # the classifier that adapters begin with
        losses, _, place = self.train(headed, "lora.rank=4", "lora.alpha=8", "training.output_format=peft", "training.learning_rate=0.02")
        self.verify(f"{family}: adapters learn", losses[-1] < losses[0], losses)
        adapters = place / "tuned"
        made = json.loads((adapters / "adapter_config.json").read_text())
        self.verify(f"{family}: adapter_config.json", made["task_type"] == "SEQ_CLS" and "classifier" in made["modules_to_save"], made)
        base = transformers.AutoModelForSequenceClassification.from_pretrained(headed)
        model = peft.PeftModel.from_pretrained(base, adapters)
        loss, accuracy = self.theirs(model, transformers.AutoTokenizer.from_pretrained(headed))
        found = self.evaluate(place, "--set", f"lora.path={adapters}", "--set", "training.output=")
        self.check(f"{family}: loss of {loss:.4f} of the texts held out, by PEFT", abs(found["loss"] - loss) / loss, 1e-5)
        self.verify(f"{family}: accuracy by PEFT", abs(found["accuracy"] - accuracy) < 1e-6, (found["accuracy"], accuracy))
        _, _, place = self.train(headed, "lora.rank=4", "lora.alpha=8", "lora.merge=true", "training.learning_rate=0.02")
        merged = transformers.AutoModelForSequenceClassification.from_pretrained(place / "tuned")
        self.check(f"{family}: loss of what is merged", abs(self.theirs(merged, transformers.AutoTokenizer.from_pretrained(headed))[0] - loss) / loss, 1e-5)
        other, _, _ = self.train(headed, "lora.rank=4", "lora.alpha=8", "training.output_format=peft", "training.learning_rate=0.02",
                                 "training.strategy=FULL_SHARD", ranks=2)
        self.check_same(f"{family}: losses of adapters on 2 ranks", losses, other)

    def check_refused(self):
        source = self.begin("distilbert")

        def refused(what, text, *sets, of=source, **options):
            code, said, _ = self.train(of, *sets, fails=True, **options)
            self.verify(f"refused: {what}", code == 2 and text in said, said[-300:])

        llama = self.new("llama")
        save(transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=256, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                                                    num_attention_heads=2, max_position_embeddings=32)), llama)
        refused("a decoder for labels", "is a llama, which classifies no texts", "model.architecture=encoder", of=llama)
        refused("more positions than the model has", "has 40 positions: set it to 40 or less", "training.sequence_length=41")
        refused("one label", "model.num_classes is 1; there are 2 at least", "model.num_classes=1")
        (self.folder / "plain.txt").write_text("no labels here\n")
        refused("texts without labels", "is no file of labelled texts", data="plain.txt")
        write_csv(self.folder / "three.csv", [("x", "a"), ("y", "b"), ("z", "c")] * 4)
        refused("three labels for two classes", "there are 3 labels (a, b, c), and model.num_classes is 2", "model.num_classes=2", data="three.csv")
        _, _, place = self.train(source)
        tuned = place / "tuned"
        alone = "data.validation_path="
        refused("labels that the model does not have", "the texts have the labels a, b, c, and", alone, of=tuned, data="three.csv")
        refused("a classifier of another size", "have a wrong shape: classifier.", alone, "model.num_classes=3", of=tuned, data="three.csv")
        code = subprocess.run([str(TRAIN), "eval", str(place / "run.yaml"), "--model", str(source)], capture_output=True, text=True, cwd=place)
        self.verify("refused: eval without a classifier", code.returncode == 2 and "has no classifier" in code.stderr, code.stderr[-300:])
        code = subprocess.run([str(TRAIN), "generate", str(place / "run.yaml"), "--model", str(tuned), "--prompt", "a"], capture_output=True,
                              text=True, cwd=place)
        self.verify("refused: generate", code.returncode == 2 and "draws no text" in code.stderr, code.stderr[-300:])
        bare = self.begin("distilbert", vocab_size=2000)
        for name in ("vocab.txt", "tokenizer_config.json"):
            (bare / name).unlink()
        refused("a folder without a vocabulary", "tokenizer", of=bare)
        regression = self.begin("distilbert")
        config = json.loads((regression / "config.json").read_text())
        (regression / "config.json").write_text(json.dumps({**config, "problem_type": "regression"}))
        refused("a regression", "problem_type is \"regression\"", of=regression)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        test = Runs(pathlib.Path(folder))
        for family in KINDS:
            test.family(family)
        test.check_dropout()
        for family in ("distilbert", "roberta") if HAS_PEFT else ():
            test.check_adapters(family)
        test.check_refused()
    sys.exit(f"{len(test.failures)} failed: {test.failures}" if test.failures else 0)


if __name__ == "__main__":
    main()
