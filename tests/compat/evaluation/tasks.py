"""`muster-train eval --task` against the formulas of lm-evaluation-harness, with the model in transformers: the log-likelihood of every
request, acc, acc_norm, perplexity; and the bits per byte of `muster-train eval`. generate_test.py calls it with its models."""

import json
import math
import random
import re
import sys

import torch

WORDS = "the quick brown fox jumps over the lazy dog a small boat crossed wide river at dawn nobody knew which road led home".split()


def harness_text(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub("\\[.*?\\]", "", text).replace("  ", " ")


def rows_of(task, rng):
    def words(most):
        return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, most)))

    rows = []
    for number in range(12):
        if task == "hellaswag":
            extra = rng.choice(["", "[header] ", "  ", " [title] Then", " caf\u00e9 [step]"])
            rows.append({"ind": number, "activity_label": words(3).title(), "ctx_a": words(6) + extra + ".", "ctx_b": rng.choice(["", words(4).upper(), "\u00e9t\u00e9 " + words(3)]),
                         "endings": [rng.choice(["", " "]) + words(7) + rng.choice([".", "  .", " [title] x", "\u00e9\u4e2d"]) for _ in range(4)], "label": rng.choice([str, int])(rng.randrange(4))})
        elif task == "arc":
            count = rng.choice((3, 4, 5))
            labels = rng.choice(("ABCDE", "12345"))[:count]
            texts, answer, question = [words(5) for _ in labels], rng.choice(labels), words(8) + "?"
            rows.append({"id": "x", "question": question, "choices": {"text": texts, "label": list(labels)}, "answerKey": answer} if number % 3 else
                        {"id": "x", "question": {"stem": question, "choices": [{"text": t, "label": mark} for t, mark in zip(texts, labels)]}, "answerKey": answer})
        else:
            rows.append({"text": words(9) + rng.choice(["", " the lazy dog", " wide  river"])} if number else {"text": "home"})
    return rows


def requests_of(task, row):
    """[(context, continuation, characters)], and the right one."""
    if task == "hellaswag":
        query = harness_text(row["activity_label"] + ": " + row["ctx_a"] + " " + row["ctx_b"].capitalize())
        choices = [harness_text(ending) for ending in row["endings"]]
        return [(query, " " + choice, len(choice)) for choice in choices], int(row["label"])
    if task == "arc":
        inner = row["question"]["choices"] if isinstance(row["question"], dict) else [{"text": t, "label": mark} for t, mark in zip(row["choices"]["text"], row["choices"]["label"])]
        stem = row["question"]["stem"] if isinstance(row["question"], dict) else row["question"]
        return [(f"Question: {stem}\nAnswer:", " " + c["text"], len(c["text"])) for c in inner], [c["label"] for c in inner].index(row["answerKey"])
    words = row["text"].split(" ")
    return [(" ".join(words[:-1]), " " + words[-1], len(words[-1]))], 0


def likelihood(model, tokenizer, context, continuation, most):
    blanks = len(context) - len(context.rstrip())
    if blanks:
        context, continuation = context[:-blanks], context[-blanks:] + continuation
    whole = tokenizer.encode(context + continuation).ids
    first = tokenizer.encode(context).ids
    wanted = whole[len(first):]
    given = ((first or [0]) + wanted)[-(most + 1):]
    with torch.no_grad():
        logs = model(torch.tensor([given[:-1]])).logits[0].double().log_softmax(-1)[-len(wanted):]
    return logs.gather(-1, torch.tensor(wanted)[:, None]).sum().item(), logs.argmax(-1).tolist() == wanted


def wanted_of(task, rows, model, tokenizer, most=10**9):
    every, right, by_character, greedy = [], [], [], []
    for row in rows:
        requests, gold = requests_of(task, row)
        found = [likelihood(model, tokenizer, context, continuation, most) for context, continuation, _ in requests]
        values = [value for value, _ in found]
        every += values
        greedy.append(found[0][1])
        right.append(values.index(max(values)) == gold)
        normed = [value / size if size else -math.inf for value, (_, _, size) in zip(values, requests)]
        by_character.append(normed.index(max(normed)) == gold)
    mean = sum(greedy if task == "lambada" else right) / len(rows)
    result = {"acc": mean, "acc_stderr": math.sqrt(mean * (1 - mean) / (len(rows) - 1))}
    if task == "lambada":
        return every, result | {"perplexity": math.exp(-sum(every) / len(rows))}
    norm = sum(by_character) / len(rows)
    return every, result | {"acc_norm": norm, "acc_norm_stderr": math.sqrt(norm * (1 - norm) / (len(rows) - 1))}


def compare_tasks(name, folder, tokenizer, model, run, base):
    rng = random.Random(name)
    for task in ("hellaswag", "arc", "lambada"):
        rows, file = rows_of(task, rng), base / f"{task}.jsonl"
        file.write_text("".join(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n" for number, row in enumerate(rows)))
        for options, most in (((), 10**9), (("--set", "training.sequence_length=12"), 12)) if task == "arc" else (((), 10**9),):
            ours = json.loads(run("eval", "--model", folder, "--task", task, file, "--output=json", *options))
            likelihoods, wanted = wanted_of(task, rows, model, tokenizer, most)
            worst = max(abs(a - b) for a, b in zip(ours["loglikelihoods"], likelihoods, strict=True))
            if worst > 2e-3:
                sys.exit(f"{name}, {task}: a log-likelihood differs by {worst}")
            for key, value in wanted.items():
                if abs(ours[key] - value) > 1e-4 * max(1, abs(value)):
                    sys.exit(f"{name}, {task}: {key} is {ours[key]}, by the formulas of the harness {value}")
            if ours["samples"] != len(rows):
                sys.exit(f"{name}, {task}: {ours}")
        print(f"{name}, {task}: {len(likelihoods)} log-likelihoods within {worst:.1e}, {wanted}")


def compare_bytes(name, folder, run, base):
    """The bits per byte of a text without a token that ends it."""
    text = "the quick brown fox jumps over the lazy dog. nobody knew which road led home. caf\u00e9 \u4e2d\u6587 " * 12
    (base / "bytes.txt").write_text(text)
    ours = json.loads(run("eval", "--model", folder, "--set", f"data.path={base}/bytes.txt", "--set", "data.document_end=none", "--set", "training.sequence_length=16",
                          "--set", "training.micro_batch=4", "--output=json"))
    bits = ours["loss"] * ours["tokens"] / ours["bytes"] / math.log(2)
    size = len(text.encode())
    if abs(ours["bits_per_byte"] - bits) > 1e-9 or abs(ours["byte_perplexity"] - 2 ** bits) > 1e-9 or not size - 90 < ours["bytes"] < size:
        sys.exit(f"{name}: {ours}, of {size} bytes")
    return ours["bytes"]
