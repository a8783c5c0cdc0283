"""muster-train on labelled texts, and its files in PyTorch.

The same texts as a table of commas, of tabs, as lines of JSON and in aclImdb's folders train alike, to the bit. One to four ranks with
every strategy, a run that is killed and resumed, and one rank with another number of micro-batches (the control) have the same losses, of
the classifier and of the encoder; with dropout and texts by length, too. model.pth loads into the torch.nn modules of
text_models_torch_test.py, whose loss, accuracy, precision, recall and F1 on the held out texts equal the run's evaluation and
`muster-train eval`. Tokens are made once, and anew when the texts have changed."""
import csv
import json
import os
import pathlib
import random
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import torch_python  # noqa: E402

torch = torch_python.require()

from data.sample_order import permute  # noqa: E402
from data.training_runs import TrainingRuns, kill_behind_a_checkpoint, losses  # noqa: E402
from text_models_torch_test import TextClassifier, TextEncoder  # noqa: E402

BIN = pathlib.Path(torch_python.build()).resolve() / "bin"
TRAIN, HELD, STEPS, LONG, POSITIONS = 200, 60, 10, 50, 48
LABELS = ("neg", "pos")
RATES = {"text_classifier": 0.1, "text_encoder": 0.02}
MODELS = {"text_classifier": "channels: 16, hidden: 12", "text_encoder": "channels: 16, hidden: 24, layers: 2, heads: 2"}
CONFIG = """
training: {{num_epochs: 2, batch_size: 40, global_batch: 40, lr: {rate}, sequence_length: %d, seed: 5, threads: 1}}
model: {{type: {model}, {sizes}, vocabulary: 256}}
data: {{data_path: "{data}", num_workers: 2, tokenizer: bytes, cache_dir: "{cache}", validation_path: "{held}"}}
logging: {{log_interval: 100}}
""" % POSITIONS


def reviews(count, seed):
    """Texts of very different lengths, some longer than the model reads, with quotes, commas, line ends and letters of two bytes."""
    draw = random.Random(seed)
    words = {"neg": ["zigzag", "za\u00fczz", "a, \"zzz\""], "pos": ["quick", "gr\u00e9at qq", "\"quiet\""]}
    rows = []
    for i in range(count):
        label = LABELS[draw.randrange(2)]
        others = ["the", "film", "was", "it's", "over", "long"]
        text = " ".join(draw.choice(words[label]) if draw.random() < 0.4 else draw.choice(others) for _ in range(draw.randint(1, 12)))
        rows.append((text + ("\nThe end" if i % 7 == 0 else ""), label))
    return rows


def write_tables(folder, name, rows):
    with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        writer.writerows((i, text, label) for i, (text, label) in enumerate(rows))
    (folder / f"{name}.jsonl").write_text("".join(json.dumps({"label": label, "text": text}) + "\n" for text, label in rows))
    # a table of tabs has a text on one line, and no quotes of its own
    lines = [f"{label}\t" + text.replace("\n", " ") for text, label in rows]
    (folder / f"{name}.tsv").write_bytes(("label\ttext\r\n" + "\r\n".join(lines) + "\r\n").encode())


def write_acl(folder, parts):
    """Writes train/neg/0_3.txt ..., and the other files of aclImdb next to them."""
    for part, rows in parts.items():
        for i, (text, label) in enumerate(rows):
            path = folder / part / label / f"{i}_{'9' if label == 'pos' else '2'}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (folder / part / "unsup").mkdir()
        (folder / part / "unsup" / "0_0.txt").write_text("without a label")
        (folder / part / "labeledBow.feat").write_text("9 0:9 1:1\n")
        (folder / part / "urls_pos.txt").write_text("http://www.example.com/\n")
    (folder / "imdb.vocab").write_text("the\nand\n")
    (folder / "README").write_text("Large Movie Review Dataset v1.0\n")


class Runs(TrainingRuns):
    def write(self, name, data, held, model="text_classifier"):
        out = self.path / name
        out.mkdir(exist_ok=True)
        text = CONFIG.format(data=data, held=held, model=model, sizes=MODELS[model], rate=RATES[model], cache=self.path / "cache")
        (out / "config.yaml").write_text(text.replace(', validation_path: ""', ""))
        return out

    def run(self, name, data, held="", ranks=1, sets=(), killed=False, model="text_classifier", fails=False, more=()):
        """Returns the losses of all steps and the output; for a run that fails, its error."""
        out = self.write(name, data, held, model)
        command = [BIN / "muster-train", "config.yaml", *more, "--set", f"logging.json={out}/log.jsonl"]
        for text in sets:
            command += ["--set", text]
        if ranks > 1:
            command = [BIN / "muster", "run", "--standalone", f"--nproc-per-node={ranks}", *command]
        if killed:
            return kill_behind_a_checkpoint(command, out)
        if fails:
            done = torch_python.run(command, cwd=out)
            return done.returncode, done.stderr
        return losses(command, out)


def encoded(rows):
    """As the bytes tokenizer and the padding have them: tokens, lengths, labels."""
    texts = [text.encode()[:POSITIONS] for text, _ in rows]
    tokens = torch.tensor([list(text) + [0] * (POSITIONS - len(text)) for text in texts])
    return tokens, torch.tensor([len(text) for text in texts]), torch.tensor([LABELS.index(label) for _, label in rows])


def figures(model, rows):
    """Loss, accuracy in percent, precision, recall and F1 of "pos"."""
    tokens, lengths, labels = encoded(rows)
    with torch.no_grad():
        logits = model(tokens, lengths)
    found = logits.argmax(1)
    both = ((found == 1) & (labels == 1)).sum().item()
    taken, there = (found == 1).sum().item(), (labels == 1).sum().item()
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    return loss, 100 * (found == labels).float().mean().item(), both / taken, both / there, 2 * both / (taken + there)


def check_files(runs, model_name, out, printed, held):
    sizes = {"text_classifier": TextClassifier(256, 16, 12, 2), "text_encoder": TextEncoder(256, 2, 16, 2, 24, 2, POSITIONS)}
    model = sizes[model_name].eval()
    model.load_state_dict(torch.load(out / "model.pth", weights_only=True), strict=True)
    wanted = figures(model, held)
    text = r"evaluation after step \d+: loss ([\d.]+), accuracy ([\d.]+)%, precision ([\d.]+), recall ([\d.]+), F1 ([\d.]+), 60 texts"
    found = [float(number) for number in re.findall(text, printed)[-1]]
    close = all(abs(a - b) <= bound for a, b, bound in zip(found, wanted, (1e-4, 0.01, 1e-4, 1e-4, 1e-4)))
    runs.check(f"{model_name}: evaluation as in PyTorch", close, f"{found} {wanted}")
    logged = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    last = [line for line in logged if line["kind"] == "evaluation"][-1]
    runs.check(f"{model_name}: the log has all figures", all(abs(last[key] - value) < 0.01 for key, value in
               zip(("loss", "accuracy", "precision", "recall", "f1"), wanted)) and all("accuracy" in line for line in logged
                                                                                       if line["kind"] == "step"))
    done = torch_python.run([BIN / "muster-train", "eval", "config.yaml", "--checkpoint", "kept", "--output=json"], cwd=out)
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    keys = ("loss", "accuracy", "precision", "recall", "f1")
    runs.check(f"{model_name}: muster-train eval as in PyTorch", found.get("texts") == len(held) and
               all(abs(found[key] - value) < 1e-4 for key, value in zip(keys, wanted)), done.stdout + done.stderr)
    done = torch_python.run([BIN / "muster", "run", "--standalone", "--nproc-per-node=3", BIN / "muster-train", "eval", "config.yaml",
                             "--checkpoint", "kept", "--output=json", "--set", "training.micro_batch=4"], cwd=out)
    again = json.loads(done.stdout) if done.returncode == 0 else {}
    runs.check(f"{model_name}: muster-train eval on three ranks", all(abs(again.get(key, 9) - found[key]) < 1e-6 for key in keys),
               done.stdout + done.stderr)


def check_killed(runs, data, model, what="", more=()):
    """A run of ten epochs, killed after a few steps, goes on where its checkpoint was, on two ranks."""
    long = ["training.epochs=10", "training.learning_rate=0.0005", "logging.interval=1", *more]
    trained = lambda name, *sets, **options: runs.run(f"{model} {what}{name}", data / "reviews.csv", data / "held.csv", model=model,
                                                      sets=[*long, *sets], **options)
    wanted, control = trained("long")[0], trained("long control", "training.micro_batch=8")[0]
    trained("killed", "training.checkpoint_dir=kept", "training.checkpoint_every=2", killed=True)
    found, shown = trained("killed", "training.checkpoint_dir=kept", "training.checkpoint_every=25", "training.micro_batch=20", ranks=2)
    runs.check(f"{model}: {what}it goes on behind a checkpoint", "step 1/" not in shown and f"step {LONG}/{LONG}" in shown and
               len(wanted) == LONG)
    runs.same(f"{model}: {what}killed, resumed on 2 ranks", found, wanted, control)


def check_model(runs, data, held_rows, model, worlds):
    """T1, and a run that is killed."""
    held = data / "held.csv"
    wanted, printed = runs.run(model, data / "reviews.csv", held, model=model, sets=["training.checkpoint_dir=kept"])
    runs.check(f"{model}: steps of two epochs", sorted(wanted) == list(range(1, STEPS + 1)))
    epochs = re.findall(r"^Epoch (\d+): Loss=\d+\.\d{4}, Accuracy=\d+\.\d\d%$", printed, re.M)
    runs.check(f"{model}: a line for each epoch", epochs == ["1", "2"], str(epochs))
    check_files(runs, model, runs.path / model, printed, held_rows)
    control, _ = runs.run(f"{model} control", data / "reviews.csv", held, model=model, sets=["training.micro_batch=8"])
    for ranks, strategy in worlds:
        found, _ = runs.run(f"{model} {strategy}{ranks}", data / "reviews.csv", held, ranks, model=model,
                            sets=[f"training.strategy={strategy}", "training.micro_batch=7"])
        runs.same(f"{model}: {strategy} on {ranks} ranks", found, wanted, control)
    check_killed(runs, data, model)
    return wanted


def check_buckets(runs, data, rows, model, worlds):
    """Texts sorted by length, and dropout, whose masks follow from the sample. Losses are equal in any world and after a
    kill; the run counts its padding."""
    sets = ["data.length_buckets=3", "model.dropout=0.2", "training.output="]
    trained = lambda name, *more, ranks=1: runs.run(f"{model} buckets {name}", data / "reviews.csv", data / "held.csv", ranks, model=model,
                                                    sets=[*sets, *more])
    wanted, shown = trained("one")
    control, _ = trained("control", "training.micro_batch=8")
    runs.check(f"{model}: without an output there is no file", not (runs.path / f"{model} buckets one" / "model.pth").exists())
    for ranks, strategy in worlds:
        runs.same(f"{model}: by length, {strategy} on {ranks} ranks",
                  trained(f"{strategy}{ranks}", f"training.strategy={strategy}", "training.micro_batch=7", ranks=ranks)[0], wanted, control)
    lengths = [min(len(text.encode()), POSITIONS) for text, _ in rows]
    drawn = [lengths[permute(5, 0, g, len(rows))] for g in range(len(rows))]
    plain = sum(40 * max(drawn[first:first + 40]) for first in range(0, len(drawn), 40))
    found = re.search(r"^padding: 200 texts have (\d+) tokens, and their micro-batches compute (\d+) positions, \d+% more; without "
                      r"data.length_buckets (\d+),", shown, re.M)
    runs.check(f"{model}: what lies behind texts is counted", found and int(found[1]) == sum(lengths) and int(found[3]) == plain and
               int(found[1]) < int(found[2]) < plain, shown)
    check_killed(runs, data, model, "buckets ", sets[:2])
    if model == "text_classifier":
        done = runs.run(f"{model} buckets killed", data / "reviews.csv", data / "held.csv", fails=True, model=model,
                        sets=["training.checkpoint_dir=kept", "data.length_buckets=2", "training.epochs=11"])
        runs.check(f"{model}: another order is not gone on with", done[0] == 2 and
                   "length_buckets is 2 steps of 40, and was 3 steps of 40" in done[1], str(done))


def check_knobs(runs, data, wanted, model):
    """The constants of a script, as a second settings file: less memory and narrower numbers, the same training."""
    def trained(name, constants, **options):
        (data / f"{name}.json").write_text(json.dumps(constants))
        return runs.run(f"{model} {name}", data / "reviews.csv", data / "held.csv", model=model, more=[data / f"{name}.json"], **options)

    found, _ = trained("checkpointing", {"USE_GRADIENT_CHECKPOINTING": True, "num_workers": 4, "pin_memory": True})
    runs.check(f"{model}: activations are formed again, to the bit", found == wanted)
    sets = ["training.global_batch=40"]
    found, shown = trained("accumulation", {"BATCH_SIZE": 5, "GRADIENT_ACCUMULATION_STEPS": 8, "num_epochs": 2}, sets=sets)
    runs.same(f"{model}: eight micro-batches of five", found, wanted, wanted)
    runs.check(f"{model}: they are eight", "batch: 40 texts a step, 8 micro-batches of 5 a rank" in shown)
    found, shown = trained("amp", {"USE_AMP": True})
    off = max(abs(found[step] - wanted[step]) for step in wanted)
    runs.check(f"{model}: float16 in memory and transit", found != wanted and off < 0.02 and "kept and gathered in fp16" in shown,
               f"{off:.1e}")


def check_forms(runs, data, rows, held_rows, wanted):
    """Every form of the same texts; a table of tabs has its own, without line ends."""
    lines, _ = runs.run("jsonl", data / "reviews.jsonl", data / "held.jsonl")
    runs.check("lines of JSON are the table", lines == wanted)
    flat = [[(text.replace("\n", " "), label) for text, label in part] for part in (rows, held_rows)]
    write_tables(data, "flat", flat[0])
    one, other = (runs.run(f"flat {kind}", data / f"flat.{kind}")[0] for kind in ("csv", "tsv"))
    runs.check("a table of tabs is that of commas", one == other)
    # folders have an order of their own: by label, then by name
    files = sorted((label, f"{i}_{'9' if label == 'pos' else '2'}.txt", text) for i, (text, label) in enumerate(rows))
    write_tables(data, "ordered", [(text, label) for label, _, text in files])
    write_acl(data / "aclImdb", {"train": rows, "test": held_rows})
    table, _ = runs.run("ordered", data / "ordered.csv", data / "held.csv")
    folders, shown = runs.run("folders", data / "aclImdb")
    runs.check("aclImdb's folders are the table", folders == table and
               f"{len(rows)} texts to train on, {len(held_rows)} held out, 2 classes (neg, pos)" in shown and
               "evaluation after step" in shown, shown[:300])


def check_cache(runs, data):
    _, shown = runs.run("flat csv", data / "flat.csv")
    runs.check("tokens are made once", ", tokens of the cache" in shown)
    path = data / "flat.csv"
    status, text = path.stat(), path.read_bytes()
    path.write_bytes(text[:-5].replace(b",neg", b",bad", 1) + text[-5:])  # the same size, and the same time
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    code, said = runs.run("flat csv", data / "flat.csv", fails=True)
    runs.check("tokens are made anew for other bytes", code == 2 and "there are 3 labels (bad, neg, pos), and model.num_classes is 2"
               in said, said)
    path.write_bytes(text)
    _, shown = runs.run("flat csv", data / "flat.csv")
    runs.check("tokens are made anew for another time", ", tokens of the cache" not in shown)


def check_errors(runs, data):
    def refused(what, text, wanted, name="wrong.csv", sets=()):
        (data / name).write_text(text)
        code, said = runs.run("wrong", data / name, fails=True, sets=sets)
        runs.check(what, code == 2 and wanted in said, said)

    refused("a column that is not there", "review,sentiment\nfine,1\n", "wrong.csv: line 1: no column 'text' (data.text_key); the first "
            "row has review, sentiment")
    refused("a row that is short", "text,label\nfine,1\nbad\n", "wrong.csv: line 3: 1 columns, and the first row has 2")
    refused("a quote that does not end", 'text,label\n"fine,1\n', "wrong.csv: line 2: a field begins with a quote and does not end with one")
    refused("one label", "text,label\nfine,1\nwell,1\n", "all texts have the label 1; a classifier needs two")
    refused("lines without a label", '{"text": "fine"}\n', "wrong.jsonl: line 1: no label under the key 'label' (data.label_key)", "wrong.jsonl")
    refused("a file of another kind", "fine", "is no file of labelled texts: it is empty, or no table (.csv, .tsv) and no JSON", "wrong.text")
    sets = ["data.text_key=review", "data.label_key=sentiment", "training.epochs=0", "training.steps=1"]
    (data / "named.csv").write_text("review,sentiment\nfine,1\nbad,0\n")
    losses, shown = runs.run("named", data / "named.csv", sets=[*sets, "training.global_batch=2", "training.micro_batch=2"])
    runs.check("columns of other names", len(losses) == 1 and "2 classes (0, 1)" in shown, shown[:200])
    code, said = runs.run("adapters", data / "held.csv", fails=True, sets=["lora.rank=2"])
    runs.check("no adapters", code == 2 and "lora.rank has no effect with model.architecture: text_classifier" in said, said)
    done = torch_python.run([BIN / "muster-train", "generate", "config.yaml", "--checkpoint", "kept"], cwd=runs.path / "text_classifier")
    runs.check("generate is refused", done.returncode == 2 and "a model of labelled texts, which draws no text" in done.stderr, done.stderr)


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        data = path / "data"
        data.mkdir()
        rows, held_rows = reviews(TRAIN, 1), reviews(HELD, 2)
        write_tables(data, "reviews", rows)
        write_tables(data, "held", held_rows)
        runs = Runs(path)
        every = ((2, "NO_SHARD"), (2, "SHARD_OPTIM"), (3, "SHARD_GRAD_OP"), (3, "FULL_SHARD"), (4, "FULL_SHARD"))
        wanted = check_model(runs, data, held_rows, "text_classifier", every)
        check_model(runs, data, held_rows, "text_encoder", ((2, "SHARD_OPTIM"), (3, "FULL_SHARD")))
        check_buckets(runs, data, rows, "text_classifier", ((2, "SHARD_OPTIM"), (3, "FULL_SHARD"), (4, "FULL_SHARD")))
        check_buckets(runs, data, rows, "text_encoder", ((3, "FULL_SHARD"),))
        check_knobs(runs, data, wanted, "text_classifier")
        check_forms(runs, data, rows, held_rows, wanted)
        check_cache(runs, data)
        check_errors(runs, data)
    return 1 if runs.failures else 0


if __name__ == "__main__":
    sys.exit(main())
