"""A small DistilBERT from a folder, fine-tuned on 10,568 snippets of movie reviews: muster-train and transformers begin with the same
parameters and take the same texts in the same order, of a WordPiece tokenizer that was trained on them. The accuracy on a fifth that is held
out differs by at most 0.5%, and muster-train takes no more of a processor's time. The snippets: snippets_torch_test.py."""

import csv
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from snippets_torch_test import BATCH, MASK, MUSTER, POSITIONS, SEED, permute, processor_time, snippets, torch, torch_python

torch_python.require_transformers()
import tokenizers  # noqa: E402
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
EPOCHS, RATE, VOCABULARY = 2, 0.001, 8000
CONFIG = f"""
model: {{path: start}}
data: {{path: reviews.csv, validation_share: 0.2, cache_dir: cache}}
training: {{epochs: {EPOCHS}, global_batch: {BATCH}, micro_batch: {BATCH}, sequence_length: {POSITIONS}, seed: {SEED}, threads: 1, optimizer: Adam,
  learning_rate: {RATE}, schedule: constant, warmup_steps: 0, weight_decay: 0, beta2: 0.999, clip_norm: 0, output: tuned}}
logging: {{interval: 1000}}
"""


def make_folder(folder, rows):
    folder.mkdir()
    made = tokenizers.BertWordPieceTokenizer(lowercase=True)
    made.train_from_iterator([text for text, _ in rows], vocab_size=VOCABULARY, show_progress=False)
    made.save_model(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "tokenizer_class": "BertTokenizer"}))
    torch.manual_seed(SEED)
    config = transformers.DistilBertConfig(vocab_size=made.get_vocab_size(), dim=64, hidden_dim=128, n_layers=2, n_heads=4, dropout=0.0,
                                           attention_dropout=0.0, seq_classif_dropout=0.0, max_position_embeddings=POSITIONS)
    model = transformers.DistilBertForSequenceClassification(config)
    model.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return model, tokenizer([text for text, _ in rows], truncation=True, max_length=POSITIONS)["input_ids"]


def batch_of(tokens, labels, rows):
    longest = max(len(tokens[i]) for i in rows)
    given = torch.tensor([tokens[i] + [0] * (longest - len(tokens[i])) for i in rows])
    mask = torch.tensor([[1] * len(tokens[i]) + [0] * (longest - len(tokens[i])) for i in rows])
    return given, mask, torch.tensor([labels[i] for i in rows])


def train_torch(model, tokens, labels, order):
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    model.train()
    for first in range(0, len(order), BATCH):
        given, mask, wanted = batch_of(tokens, labels, order[first:first + BATCH])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(given, attention_mask=mask).logits, wanted).backward()
        optimizer.step()


def accuracy_of(model, tokens, labels, rows):
    right = 0
    model.eval()
    for first in range(0, len(rows), 200):
        given, mask, wanted = batch_of(tokens, labels, rows[first:first + 200])
        with torch.no_grad():
            right += int((model(given, attention_mask=mask).logits.argmax(1) == wanted).sum())
    return 100 * right / len(rows)


def main():
    rows = snippets()
    torch.set_num_threads(1)
    kept = int(0.8 * len(rows))
    places = [permute(~SEED & MASK, MASK - 1, i, len(rows)) for i in range(len(rows))]  # the split's own order
    train, held = places[:kept], places[kept:]
    labels = [label for _, label in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        model, tokens = make_folder(path / "start", rows)
        with open(path / "reviews.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
        (path / "config.yaml").write_text(CONFIG)
        subprocess.run([MUSTER, "preprocess", "config.yaml"], cwd=path, check=True, stdout=subprocess.DEVNULL)
        before, start = processor_time(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run([MUSTER, "config.yaml", "--output=json"], cwd=path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        ours, wall = processor_time(resource.RUSAGE_CHILDREN, before), time.monotonic() - start
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        done = subprocess.run([MUSTER, "eval", "config.yaml", "--model", "tuned", "--output=json"], cwd=path, check=True, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        found = json.loads(done.stdout)
        assert found["samples"] == len(held), found
        again = transformers.AutoModelForSequenceClassification.from_pretrained(path / "tuned")
        theirs_of_ours = accuracy_of(again, tokens, labels, held)
    steps = -(-EPOCHS * len(train) // BATCH)
    order = [train[permute(SEED, g // len(train), g % len(train), len(train))] for g in range(steps * BATCH)]
    before, start = processor_time(resource.RUSAGE_SELF), time.monotonic()
    train_torch(model, tokens, labels, order)
    theirs, their_wall = processor_time(resource.RUSAGE_SELF, before), time.monotonic() - start
    wanted = accuracy_of(model, tokens, labels, held)
    print(f"{len(rows)} snippets, {len(held)} held out, {steps} steps of {BATCH}: accuracy {found['accuracy']:.2f}%, {theirs_of_ours:.2f}% by "
          f"transformers, which trains to {wanted:.2f}%; processor time {ours:.1f} s and {theirs:.1f} s, wall {wall:.1f} s and {their_wall:.1f} s")
    failures = []
    if abs(found["accuracy"] - wanted) > 0.5:
        failures.append("the accuracies differ by more than 0.5%")
    if abs(found["accuracy"] - theirs_of_ours) > 0.05:
        failures.append("transformers finds another accuracy of what was written")
    if ours > theirs:
        failures.append("muster-train takes more of a processor")
    sys.exit("; ".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
