#!/usr/bin/env python3
"""What muster-train reads, from end to end: JSON lines with prompts, weighted sources, token shards, a tokenizer that goes with the model,
epochs; equal on any number of ranks, tokenized once."""
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
LIMIT = 120  # for any run, against a hang
END = 130

CONFIG = """\
training: {{micro_batch: 2, global_batch: 4, sequence_length: 16, learning_rate: 1.0e-2, schedule: constant, warmup_steps: 2, threads: 1}}
model: {{layers: 1, channels: 32, heads: 2, vocabulary: 131}}
data: {{cache_dir: "{folder}/cache", tokenizer: "{folder}/tokenizer.json"}}
logging: {{sample_length: 12}}
"""


def letter(byte):
    """GPT-2's letter for a byte below 128."""
    return chr(byte) if 33 <= byte < 127 else chr(256 + (byte if byte < 33 else 33))


def tokenizer():
    vocabulary = {letter(byte): byte for byte in range(128)} | {"th": 128, "the": 129}
    return {"added_tokens": [{"id": END, "content": "<end>", "special": True, "normalized": False}], "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": ["t h", "th e"]}}


def ids(text):
    return [128 if t == "th" else 129 if t == "the" else ord(t) for t in re.findall(r"the|th|[\0-\x7f]", text)]


class Data(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster data ")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        words = random.Random(1)
        self.lines = [" ".join(words.choice("the quick brown fox jumps over a lazy dog".split()) for _ in range(words.randrange(2, 12)))
                      for _ in range(80)]
        (self.folder / "lines.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in self.lines))
        (self.folder / "asked.jsonl").write_text("".join(json.dumps({"prompt": line[:5], "completion": line[5:]}) + "\n" for line in self.lines))
        (self.folder / "prose").write_text("\n".join(self.lines))
        (self.folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
        (self.folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
        (self.folder / "config.yaml").write_text(CONFIG.format(folder=self.folder))

    def run_train(self, *settings, ranks=0, fails=False, variables=()):
        command = [TRAIN, self.folder / "config.yaml", *(word for setting in settings for word in ("--set", setting))]
        if ranks:
            command = [MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", "--max-restarts=0", "--termination-log=", *command]
        foreign = r"PET_|MUSTER_(?!BUILD)|TORCHELASTIC_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$"
        environment = {k: v for k, v in os.environ.items() if not re.match(foreign, k)} | {"OMP_NUM_THREADS": "1"} | dict(variables)
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, env=environment)
        text = (run.stdout + run.stderr).decode(errors="replace")
        self.assertEqual(run.returncode != 0, fails, text)
        return text

    def losses(self, text):
        return [float(loss) for loss in re.findall(r"step \d+/\d+  loss ([0-9.]+)", text)]

    def test_documents_of_lines(self):
        """Three epochs of 80 documents; all tokens are there once, and the sample is text."""
        path = f"data.path={self.folder}/lines.jsonl"
        text = self.run_train(path, "training.epochs=3", "data.packing=documents", "training.sequence_length=80")
        tokens = sum(len(ids(line)) + 1 for line in self.lines)
        self.assertIn(f"1 files, {tokens} tokens", text)
        self.assertIn(f"tokenizer: {self.folder}/tokenizer.json, byte-level BPE, 131 tokens", text)
        self.assertIn("epochs: 3 of 80 samples are 60 steps", text)
        losses = self.losses(text)
        self.assertEqual(len(losses), 60)
        self.assertLess(sum(losses[-5:]) / 5, losses[0] / 1.5)
        self.assertIn("sample:\n", text)
        cut = self.run_train(path, "training.steps=1", "data.packing=documents", "training.sequence_length=8")
        longer = sum(len(ids(line)) + 1 > 9 for line in self.lines)
        self.assertIn(f"{longer} documents are longer than training.sequence_length 8, and are cut", cut)

    def test_ranks_are_equal_and_tokenize_once(self):
        """Weighted sources with prompts, on one, two and three ranks: the same losses, one cache a source."""
        settings = (f"data.sources=0.7 {self.folder}/asked.jsonl", f"data.sources=0.3 {self.folder}/prose", "training.steps=12",
                    "logging.sample_length=0")
        text = self.run_train(*settings, ranks=2)
        self.assertIn(f"source: 0.7 {self.folder}/asked.jsonl", text)
        self.assertIn("data: 2 sources, 2 files, ", text)
        wanted = self.losses(text)
        self.assertEqual(len(wanted), 12)
        made = {path.name: path.stat().st_ino for path in (self.folder / "cache").glob("*.tokens")}
        self.assertEqual(sorted(name.split("-")[0] for name in made), ["asked.jsonl", "prose"])
        for ranks in (0, 3):
            found = self.losses(self.run_train(*settings, ranks=ranks))
            for one, other in zip(wanted, found, strict=True):
                self.assertAlmostEqual(one, other, delta=2e-4)  # as they are printed
        self.assertEqual(made, {path.name: path.stat().st_ino for path in (self.folder / "cache").glob("*.tokens")})
        self.assertNotEqual(wanted, self.losses(self.run_train(*settings, "training.seed=5")))

    def test_token_shards(self):
        """A shard that has the ids of a text trains as the text does."""
        tokens = ids("\n".join(self.lines)) + [END]
        (self.folder / "shard.bin").write_bytes(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) +
                                                struct.pack(f"<{len(tokens)}H", *tokens))
        wanted = self.losses(self.run_train(f"data.path={self.folder}/prose", "training.steps=8", "model.vocabulary=256"))
        text = self.run_train(f"data.path={self.folder}/shard.bin", "training.steps=8", "model.vocabulary=256",
                              "data.tokenizer=bytes")
        self.assertEqual(self.losses(text), wanted)
        self.assertIn("no sample: the data are token shards", text)

    def test_the_tokenizer_goes_with_the_model(self):
        model = self.folder / "model"
        self.run_train(f"data.path={self.folder}/prose", "training.steps=2", f"training.output={model}", "training.output_format=hf")
        self.assertEqual((model / "tokenizer.json").read_bytes(), (self.folder / "tokenizer.json").read_bytes())
        self.assertTrue((model / "tokenizer_config.json").exists())
        (self.folder / "config.yaml").write_text(f"""\
training: {{micro_batch: 2, global_batch: 4, sequence_length: 16, steps: 2, threads: 1}}
model: {{path: "{model}"}}
data: {{path: "{self.folder}/prose", cache_dir: "{self.folder}/cache"}}
""")
        self.assertIn(f"tokenizer: {model}/tokenizer.json, byte-level BPE", self.run_train())

    def test_the_library_of_expressions_is_missing(self):
        """An expression of its own needs PCRE2, a known one and a normal form need no library."""
        if not next(pathlib.Path("/usr/lib").glob("*/libpcre2-8.so.0"), None):
            self.skipTest("libpcre2-8 is not installed")
        libraries = self.folder / "libraries"
        libraries.mkdir()
        variables = {"LD_LIBRARY_PATH": str(libraries)}.items()
        (libraries / "libpcre2-8.so.0").write_text("no library")
        (libraries / "libunistring.so.2").write_text("no library")
        split = {"type": "Split", "pattern": {"Regex": r" ?[a-z]+|\s+|."}, "behavior": "Isolated", "invert": False}
        pre = {"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
        own, known = self.folder / "own.json", self.folder / "known.json"
        own.write_text(json.dumps(tokenizer() | {"pre_tokenizer": pre}))
        known.write_text(json.dumps(tokenizer() | {"normalizer": {"type": "NFC"}}))
        words = f"data.path={self.folder}/prose"
        self.assertRegex(self.run_train(f"data.tokenizer={own}", words, fails=True, variables=variables),
                         "own.json: .* a regular expression that muster-train has no code for needs libpcre2-8-0")
        self.assertEqual(self.losses(self.run_train(f"data.tokenizer={known}", words, variables=variables)),
                         self.losses(self.run_train(f"data.tokenizer={own}", words)))

    def test_mistakes(self):
        prose = f"data.path={self.folder}/prose"
        for settings, said in (
                ((prose, "model.vocabulary=130"), "model.vocabulary 130 is below the 131 tokens of data.tokenizer"),
                ((prose, "training.epochs=1", "training.steps=5"), "training.epochs 1 and training.steps 5 are both set; name one"),
                ((prose, f"data.sources={self.folder}/prose"), "data.sources are both set; name one"),
                ((prose, "data.document_end=<stop>"), "data.document_end '<stop>' is no token of data.tokenizer"),
                ((prose, f"data.cache_dir={self.folder}/prose"), "prose"),
                ((prose, "data.validation_share=0.1", f"data.validation_path={self.folder}/prose"), "are both set; name one"),
                ((f"data.path={self.folder}/lines.jsonl", "data.text_key=body"), "lines.jsonl:1: no text under the key 'body'"),
                ((prose, "data.tokenizer=/nowhere.json"), "/nowhere.json")):
            with self.subTest(said):
                self.assertIn(said, self.run_train(*settings, fails=True))


if __name__ == "__main__":
    unittest.main()
