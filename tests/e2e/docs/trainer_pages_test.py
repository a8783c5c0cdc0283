"""The commands of trainer/docs run as they are written: blocks marked `sh`, in turn, in a folder with the page's YAML files and small data.

    MUSTER_BUILD=build python3 tests/e2e/docs/trainer_pages_test.py

A YAML block whose first line is a comment with a file's name is that file. SmolLM2-135M is a small Llama of random weights here."""

import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness import BUILD, LIMIT, environment  # noqa: E402

SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE") or HERE.parents[2])
DOCS = SOURCE / "trainer" / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)
REFERENCES = ("SETTINGS.md", "KEYS.md", "works.md", "README.md")
TEXT = "The quick brown fox jumps over the lazy dog and rests in the shade of a tree.\n"
LLAMA = """
model: {architecture: llama, layers: 2, channels: 64, heads: 2, kv_heads: 1, hidden: 64, vocabulary: 256, positions: 128}
data: {path: texts, tokenizer: bytes}
training: {steps: 1, global_batch: 2, sequence_length: 64, output: SmolLM2-135M, output_format: hf}
"""

# page -> the output of all its commands, and the files that they leave
EXPECTED = {
    "models.md": ([r"saved tuned", r'"perplexity":', r"parameters"], ["tuned/config.json", "tuned/model.safetensors"]),
    "evaluation.md": ([r"evaluation after step 40: loss", r'"step": ?\d+', r"hellaswag: acc 0\.\d+ \+- ", r'"acc_norm"'], ["runs/a/checkpoints", "best.safetensors"]),
    "stages.md": ([r"stage 2 of 3 \(long\) begins", r"stage 3 of 3 \(head\) begins"], ["model.safetensors"]),
    "pictures.md": ([r"(?m)^Epoch 2: Loss=", r"model hash: \w{8} as get_model_hash"], ["model.pth"]),
    "reviews.md": ([r'"train_size": 160', r'"accuracy":', r'"f1":', r"4 parameters are not there and begin at random: pre_classifier"],
                   ["model.pth", "tuned/model.safetensors", "tuned/vocab.txt"]),
    "corpus.md": ([r"step 10/10 ", r"step 5/5 "], ["processed/index.json", "processed/report.json"]),
    "chats.md": ([r"chats: 60, by data.chat_template chatml", r"step 10/10 ", r"data.packing packed: 60 documents in \d+ rows"], []),
    "checkpoints.md": ([r"step 20/20 ", r"resumed from step 20", r"step 30/30 "], ["runs/a/checkpoints/step-30"]),
    "adapters.md": ([r"saved adapters", r"nf4", r"resumed from step 10"], ["adapters/adapter_config.json", "merged/config.json", "qadapters"]),
    "few_bits.md": ([r"gptq in groups of 64: \d+ of \d+ tensors", r"(?m)^before", r"(?m)^after"], ["tuned-int4/quantized.safetensors"]),
    "logs.md": ([r'"kind": "end"', r"rank-1\.perfetto-trace"], ["runs/a/log.jsonl", "runs/a/tensorboard"]),
    "configurations.md": ([r"step 3/3 ", r"# Settings of", r"# Keys of other programs", r"steps: 100"], []),
    "devices.md": ([r"step 3/3 "], []),
    "compression.md": ([r"from 10 replicas on, top-k with compression_ratio 0\.1 moves more", r"wire \d+ B, error 0\.\d+"], []),
    "mesh.md": ([r"FULL_SHARD over 4 ranks, 2 stages", r"resumed from step 6 \(runs/m, written by 4 ranks", r"over 3 ranks, 3 stages", r"step 9/9 ", r"1  h\.2 to head: .* a rank, busy"], ["runs/m/step-9"]),
}  # fmt: skip


def write_data(folder):
    for name, lines in (("texts", 100), ("books", 60), ("corpus", 60)):
        (folder / name).mkdir()
        (folder / name / "a.txt").write_text(TEXT * lines)
    (folder / "answers.jsonl").write_text("".join(json.dumps({"prompt": f"What is {n}?", "completion": f" It is {n}."}) + "\n" for n in range(60)))
    (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}."}]}) + "\n" for n in range(60)))
    (folder / "hellaswag_val.jsonl").write_text("".join(json.dumps(
        {"activity_label": "Cooking", "ctx_a": f"A pot of {n}.", "ctx_b": "it", "endings": ["boils.", "flies.", "reads.", "sings."], "label": "0"}) + "\n" for n in range(4)))  # fmt: skip
    (folder / "ARC-Challenge-Test.jsonl").write_text("".join(json.dumps(
        {"question": f"What is {n}?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"}) + "\n" for n in range(4)))  # fmt: skip
    (folder / "raw").mkdir()
    rng, words = random.Random(1), [a + b for a in "bal cor den fir gal hos kin lum".split() for b in "a et on ix ous ily".split()]
    documents = [" ".join(rng.choice(words) + ("." if k % 9 == 8 else "") for k in range(60)) for _ in range(40)]
    (folder / "raw" / "a.txt").write_text("\n%\n".join(documents) + "\n")
    rows = [f'"the film was {"good and warm" if n % 2 else "bad and cold"}, seen on day {n}",{"positive" if n % 2 else "negative"}' for n in range(200)]
    (folder / "reviews.csv").write_text("review,sentiment\n" + "\n".join(rows) + "\n")
    (folder / "data").mkdir()
    picture = bytes(range(256)) * 12
    for number in range(1, 6):
        (folder / "data" / f"data_batch_{number}.bin").write_bytes(b"".join(struct.pack("B", n % 10) + picture for n in range(10)))
    (folder / "configs").mkdir()
    (folder / "configs" / "run.yaml").write_text("data: {path: corpus}\n")
    (folder / "ds_config.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 3}}')
    for name in ("training_config.json", "model_config.json"):
        shutil.copy(SOURCE / "tests" / "data" / "configs" / name, folder)


def write_encoder(folder):
    """A DistilBERT of random weights without a classifier."""
    width, words = 8, "[PAD] [UNK] [CLS] [SEP] the film was good bad and warm cold , seen on day".split() + [f"{n}" for n in range(200)]
    block, shapes = "transformer.layer.0.", {"embeddings.word_embeddings.weight": [len(words), width], "embeddings.position_embeddings.weight": [64, width]}
    for name in ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "ffn.lin1", "ffn.lin2"):
        shapes |= {f"{block}{name}.weight": [width, width], f"{block}{name}.bias": [width]}
    for name in ("embeddings.LayerNorm", f"{block}sa_layer_norm", f"{block}output_layer_norm"):
        shapes |= {f"{name}.weight": [width], f"{name}.bias": [width]}
    rng, header, values = random.Random(1), {}, []
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [4 * len(values), 4 * (len(values) + count)]}
        values += [rng.gauss(0, 0.3) for _ in range(count)]
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(values)}f", *values))
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "config.json").write_text(json.dumps({"model_type": "distilbert", "dim": width, "hidden_dim": width, "n_layers": 1, "n_heads": 2,
                                                    "vocab_size": len(words), "max_position_embeddings": 64}))


class TrainerPages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.TemporaryDirectory(prefix="muster pages ")
        cls.begin = pathlib.Path(cls.made.name) / "begin"
        (cls.begin / "bin").mkdir(parents=True)
        write_data(cls.begin)
        for name in ("muster", "muster-train"):
            (cls.begin / "bin" / name).symlink_to(BUILD / "bin" / name)
        (cls.begin / "llama.yaml").write_text(LLAMA)
        write_encoder(cls.begin / "distilbert-base-uncased")
        cls.run_line("muster-train llama.yaml", cls.begin)

    @classmethod
    def tearDownClass(cls):
        cls.made.cleanup()

    @staticmethod
    def run_line(line, folder):
        variables = environment(PATH=f"{folder}/bin:{os.environ['PATH']}", E2E_FOLDER=str(folder), OMP_NUM_THREADS="1")
        for name in [name for name in variables if name.startswith(("WANDB_", "MLFLOW_"))]:
            del variables[name]
        done = subprocess.run(
            ["sh", "-c", line], env=variables, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=LIMIT,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{line}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    def play(self, name):
        text, folder = (DOCS / name).read_text(), pathlib.Path(self.made.name) / name
        shutil.copytree(self.begin, folder, symlinks=True)
        lines = []
        for language, body in BLOCK.findall(text):
            file = re.match(r"# ([\w.]+\.yaml)\n", body)
            if language == "yaml" and file:
                (folder / file[1]).write_text(body)
            elif language == "yaml":
                self.assertNotIn("\n# ", body)
            if language == "sh":
                lines += body.splitlines()
        if name == "devices.md":
            (folder / "run.yaml").write_text(LLAMA)
        self.assertTrue(lines, f"{name} has no command in a block marked sh")
        out = "".join(self.run_line(line, folder) for line in lines)
        patterns, files = EXPECTED[name]
        for pattern in patterns:
            self.assertRegex(out, re.compile(pattern))
        for file in files:
            self.assertTrue((folder / file).exists(), file)

    def test_every_page_has_its_row(self):
        pages = sorted(path.name for path in DOCS.glob("*.md") if path.name not in REFERENCES)
        self.assertEqual(pages, sorted(EXPECTED))
        index = (DOCS / "README.md").read_text()
        for name in [*pages, *REFERENCES[:3]]:
            self.assertIn(f"`{name}`", index)


def add_page(name):
    setattr(TrainerPages, f"test_{name.partition('.')[0]}", lambda self: self.play(name))


for page in EXPECTED:
    add_page(page)

if __name__ == "__main__":
    unittest.main(verbosity=2)
