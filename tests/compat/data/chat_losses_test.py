"""Losses of chats against TRL's assistant_only_loss, written down in PyTorch: a small Llama and a byte-level BPE made here, a template with
generation blocks and the same without; transformers makes tokens and masks (return_assistant_tokens_mask), and the loss is the mean cross
entropy of the tokens in the mask. `muster-train eval` has it on one and two ranks and with other micro-batches; a training has the same losses of
steps in both, and goes on after a kill to the bit. With data.packing packed several chats share a row, and losses are the same. Truncated chats, tools, empty turns and chats without a turn of the assistant are among them.

chat_losses_test.py"""
import json
import os
import pathlib
import random
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402: after the path

torch = torch_python.require()
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

from training_runs import losses  # noqa: E402

T = 96
BIN = pathlib.Path(torch_python.build()) / "bin"
os.environ["OMP_NUM_THREADS"] = "1"
HEADER = "{{ '<|im_start|>' + message['role'] + '\\n' }}"
MARKED = ("{% for message in messages %}" + HEADER + "{% if message['role'] == 'assistant' %}{% generation %}{{ (message['content'] or '') + '<|im_end|>\\n' }}"
          "{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
PLAIN = ("{% for message in messages %}" + HEADER + "{{ (message['content'] or '') + '<|im_end|>\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def make_chats():
    draw, chats = random.Random(5), []
    words = "the model answers a question that somebody has asked before, 人之初 und größer \U0001F600 never".split()
    say = lambda most: " ".join(draw.choice(words) for _ in range(draw.randrange(most)))
    for number in range(24):
        turns = [{"role": "system", "content": say(5)}] if number % 3 == 0 else []
        for _ in range(1 + number % 3):
            turns += [{"role": "user", "content": say(9)}, {"role": "assistant", "content": "" if number % 7 == 4 else say(14)}]
        if number % 8 == 7:
            turns = [{"role": "user", "content": say(4) + " alone"}]
        if number == 9:
            turns[1]["content"] += " long" * 150  # its answer is cut off
        chats.append(turns)
    return chats


def as_records(chats):
    """In all forms that data sets have."""
    roles = {"user": "human", "assistant": "gpt", "system": "system"}
    for number, turns in enumerate(chats):
        if number % 4 == 1:
            yield {"conversations": [{"from": roles[turn["role"]], "value": turn["content"]} for turn in turns]}
        elif [turn["role"] for turn in turns] == ["user", "assistant"] and number % 4 == 2:
            yield {"instruction": turns[0]["content"], "input": "", "output": turns[1]["content"]}
        elif [turn["role"] for turn in turns] == ["user", "assistant"]:
            yield {"prompt": turns[:1], "completion": turns[1:]}
        else:
            yield {"messages": turns}


def make_model(folder, chats):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator((turn["content"] for turns in chats for turn in turns), trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", chat_template=MARKED)
    fast.save_pretrained(folder)
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(fast), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                                         max_position_embeddings=T, initializer_range=0.2))
    model.save_pretrained(folder)
    return fast, model.double()


def loss_of_trl(tokenizer, model, chats):
    """The sum over the targets, their number, and the number of chats that have one."""
    total = count = used = 0
    for turns in chats:
        encoded = tokenizer.apply_chat_template(turns, return_dict=True, return_assistant_tokens_mask=True)
        ids, mask = encoded["input_ids"][:T + 1], encoded["assistant_masks"][:T + 1]
        labels = [token if wanted else -100 for token, wanted in zip(ids, mask)][1:]
        if not any(label != -100 for label in labels):
            continue
        with torch.no_grad():
            logits = model(torch.tensor([ids[:-1]])).logits[0]
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(labels), ignore_index=-100, reduction="sum").item()
        count += sum(label != -100 for label in labels)
        used += 1
    return total / count, count, used


def check_packed(folder, settings, launches, wanted, count, used):
    """Chats in rows, each by itself: an epoch a step has the losses of chats in rows of their own, for each micro-batch and number of ranks."""
    first = None
    for packing, micro, ranks in ("documents", 5, 1), ("packed", 1, 1), ("packed", 3, 1), ("packed", 2, 2):
        out = folder / f"{packing}-{micro}-{ranks}"
        out.mkdir()
        settings["data"]["packing"], settings["training"]["micro_batch"] = packing, micro
        settings["training"]["global_batch"], settings["training"]["steps"] = used, 5
        (out / "run.yaml").write_text(json.dumps(settings))
        if packing == "packed":  # as many rows as there are
            said = torch_python.run([BIN / "muster-train", "preprocess", "run.yaml"], cwd=out).stdout
            documents, rows, left = re.search(r"packed: (\d+) documents in (\d+) rows of \d+ positions, of which (.*)% are left", said).groups()
            assert int(documents) == used and int(rows) < used and float(left) < 25, said
            settings["training"]["global_batch"] = int(rows)
            (out / "run.yaml").write_text(json.dumps(settings))
            done = torch_python.run([*launches[ranks], BIN / "muster-train", "eval", "run.yaml", "--output=json"], cwd=out)
            assert not done.returncode, done.stdout + done.stderr
            found = json.loads(done.stdout.splitlines()[-1])
            assert found["tokens"] == count and abs(found["loss"] / wanted - 1) < 1e-6, (found, wanted)
        run, said = losses([*launches[ranks], BIN / "muster-train", "run.yaml"], out)
        first = first or run
        print(f"{packing}, {settings['training']['global_batch']} rows, micro_batch {micro}, {ranks} ranks: {run[1]:.9f} ... {run[5]:.9f}")
        assert max(abs(run[step] / first[step] - 1) for step in first) < 2e-6 and len(run) == 5, (run, first)
        assert f"% padding" in said, said


def main():
    chats = make_chats()
    with tempfile.TemporaryDirectory(prefix="muster chats ") as folder:
        folder = pathlib.Path(folder)
        tokenizer, model = make_model(folder / "model", chats)
        wanted, count, used = loss_of_trl(tokenizer, model, chats)
        (folder / "chats.jsonl").write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in as_records(chats)))
        (folder / "plain.jinja").write_text(PLAIN)
        for micro, ranks, template in (1, 1, "auto"), (4, 1, folder / "plain.jinja"), (3, 2, "auto"):
            settings = {"model": {"path": str(folder / "model")}, "data": {"path": str(folder / "chats.jsonl"), "chat_template": str(template),
                        "cache_dir": str(folder / "cache")}, "logging": {"sample_length": 0, "json": "log.jsonl"},
                        "training": {"sequence_length": T, "micro_batch": micro, "global_batch": 12, "steps": 6, "threads": 1, "learning_rate": 0.001, "seed": 7}}
            out = folder / f"{micro}-{ranks}"
            out.mkdir()
            (out / "run.yaml").write_text(json.dumps(settings))
            launch = [BIN / "muster", "run", "--standalone", f"--nproc_per_node={ranks}", "--termination-log="] if ranks > 1 else []
            done = torch_python.run([*launch, BIN / "muster-train", "eval", "run.yaml", "--output=json"], cwd=out)
            assert not done.returncode, done.stdout + done.stderr
            found = json.loads(done.stdout.splitlines()[-1])
            print(f"micro_batch {micro}, {ranks} ranks, {pathlib.Path(template).name}: loss {found['loss']:.9f} of {found['tokens']} tokens; TRL {wanted:.9f} of {count}")
            assert found["tokens"] == count and abs(found["loss"] / wanted - 1) < 1e-6, found
            run, said = losses([*launch, BIN / "muster-train", "run.yaml"], out)
            first = run if micro == 1 else first
            assert max(abs(run[step] / first[step] - 1) for step in first) < 2e-6 and len(run) == 6, (run, first)
            assert "each chat is a sample of its own" in said and f"chats: {len(chats)}" in said, said
        launches = {1: [], 2: [BIN / "muster", "run", "--standalone", "--nproc_per_node=2", "--termination-log="]}
        assert used == len(chats) - 4, used
        check_packed(folder, settings, launches, wanted, count, used)
        empty = sum(turn["role"] == "assistant" and not turn["content"] for turns in chats for turn in turns)
        for words in (f"{empty} turns of the assistant have no text", "3 of 24 chats have no turn", "4 of 24 samples are left out"):
            assert words in done.stderr + torch_python.run([BIN / "muster-train", "run.yaml"], cwd=out).stderr, (words, done.stderr)


main()
