"""`muster-train generate` against transformers: greedy text of a GPT-2 and of two Llamas that muster-train has trained and exported, with a
tokenizer of `tokenizers` next to them: the same prompt tokens, the same drawn tokens, the same text. Then `eval --task` (tasks.py).

The interpreter is MUSTER_TORCH_PYTHON, else .venv/bin/python of the source tree; without torch or transformers the test is skipped
(exit 77), without transformers never in CI."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402

torch = torch_python.require()
torch_python.require_transformers()
import tasks  # noqa: E402
import tokenizers  # noqa: E402
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM  # noqa: E402

TRAIN = pathlib.Path(os.environ["MUSTER_BUILD"]) / "bin" / "muster-train"
VOCABULARY, POSITIONS, DRAWN, LIMIT = 320, 320, 60, 120
SENTENCES = ["the quick brown fox jumps over the lazy dog. ", "a small boat crossed the wide river at dawn. ", "nobody knew which road led home. "]
PROMPTS = ["the quick", "a small boat crossed", "x", "nobody knew which road led home. " * 8]  # the last is longer than a block of positions

torch.set_num_threads(1)

GPT2 = dict(n_positions=POSITIONS, n_embd=48, n_layer=3, n_head=4)
LLAMA = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=POSITIONS)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
SPECIAL = dict(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0)
MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2, **SPECIAL)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(num_key_value_heads=4, tie_word_embeddings=False, **LLAMA, **SPECIAL)),
    "llama-grouped": lambda: LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, tie_word_embeddings=True, rope_parameters=LLAMA3, **LLAMA, **SPECIAL)),
}


def run(*words, text=None):
    env = {k: v for k, v in os.environ.items() if not re.match(r"PET_|MUSTER_(?!BUILD)|RANK$|LOCAL_RANK$|WORLD_SIZE$|MASTER_", k)}
    done = subprocess.run([str(word) for word in (TRAIN, *words)], capture_output=True, text=True, env=env | {"OMP_NUM_THREADS": "1"}, input=text, timeout=LIMIT)
    if done.returncode:
        sys.exit(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def start(folder, name):
    """A model of transformers with a tokenizer, for muster-train to go on from."""
    torch.manual_seed(5)
    MODELS[name]().save_pretrained(folder)
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(SENTENCES * 3, vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def trained(base, name):
    folder, exported = base / f"{name} begun", base / f"{name} exported"
    folder.mkdir()
    tokenizer = start(folder, name)
    (base / "text").write_text("".join(SENTENCES[(n * n + n // 3) % 3] for n in range(200)))
    (base / "config.yaml").write_text(f"""\
training: {{steps: 12, global_batch: 8, micro_batch: 4, sequence_length: 48, learning_rate: 3.0e-3, warmup_steps: 2, threads: 1,
           output: "{exported}", output_format: hf}}
model: {{path: "{folder}"}}
data: {{path: "{base}/text", cache_dir: "{base}/cache"}}
logging: {{sample_length: 0}}
""")
    run(base / "config.yaml")
    return exported, tokenizer


def greedy(model, tokens):
    with torch.no_grad():
        out = model.generate(torch.tensor([tokens]), attention_mask=torch.ones(1, len(tokens), dtype=torch.long), do_sample=False,
                             max_new_tokens=DRAWN, pad_token_id=0)
    return out[0, len(tokens):].tolist()


def compare(name, folder, tokenizer):
    model, drawn, ended = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), 0, 0
    for prompt in PROMPTS:
        ours = json.loads(run("generate", "--model", folder, "--temperature=0", f"--max-tokens={DRAWN}", "--output=json", text=prompt))
        tokens = tokenizer.encode(prompt).ids
        if ours["prompt_tokens"] != tokens:
            sys.exit(f"{name}: the prompt {prompt!r} is {ours['prompt_tokens']}, by tokenizers {tokens}")
        theirs = greedy(model, tokens)
        if ours["tokens"] != theirs:
            same = next(n for n, pair in enumerate(zip(ours["tokens"] + [-1], theirs + [-1])) if pair[0] != pair[1])
            sys.exit(f"{name}: behind {prompt!r} token {same} differs: {ours['tokens'][same:same + 5]}, by transformers {theirs[same:same + 5]}")
        text = tokenizer.decode(theirs, skip_special_tokens=True)
        if ours["text"] != text or ours["ended"] != (theirs[-1] == 0):
            sys.exit(f"{name}: the text is {ours['text']!r}, ended {ours['ended']}; by transformers {text!r}")
        drawn += len(theirs)
        ended += ours["ended"]
    print(f"{name}: {drawn} tokens behind {len(PROMPTS)} prompts are those of transformers")
    return model


def main():
    with tempfile.TemporaryDirectory(prefix="muster generate ") as base:
        for name in MODELS:
            folder, tokenizer = trained(pathlib.Path(base), name)
            model = compare(name, folder, tokenizer)
            if name != "llama":
                tasks.compare_tasks(name, folder, tokenizer, model, run, pathlib.Path(base))
                tasks.compare_bytes(name, folder, run, pathlib.Path(base))


if __name__ == "__main__":
    main()
