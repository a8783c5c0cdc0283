#!/usr/bin/env python3
"""muster-train generate from end to end: text from a checkpoint, from the newest of a folder and from exported files, on any number of
ranks, with the options that choose tokens; past the end of the context; and its mistakes."""
import json
import os
import pathlib
import pty
import re
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
MUSTER, TRAIN = BUILD / "bin" / "muster", BUILD / "bin" / "muster-train"
LIMIT = 120  # for any run, against a hang
SENTENCE = "the quick brown fox jumps over the lazy dog. "

CONFIG = """\
training: {{steps: 90, micro_batch: 4, global_batch: 8, sequence_length: 64, learning_rate: 1.0e-2, schedule: constant, warmup_steps: 3,
           threads: 1, output: "{folder}/exported", output_format: hf, checkpoint_dir: "{folder}/checkpoints", checkpoint_every: 45}}
model: {{architecture: {architecture}, layers: 2, channels: 32, heads: 2}}
data: {{path: "{folder}/text"}}
logging: {{sample_length: 0}}
"""


def run(*words, ranks=0, code=0, stdin=None):
    command = [TRAIN, *words]
    if ranks:
        command = [MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", "--max-restarts=0", "--termination-log=", *command]
    own = re.compile(r"PET_|MUSTER_(?!BUILD)|TORCHELASTIC_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$")
    env = {k: v for k, v in os.environ.items() if not own.match(k)} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env, input=stdin, timeout=LIMIT)
    assert done.returncode == code, f"{words}: {done.returncode}, not {code}\n{done.stdout}{done.stderr}"
    return done


class SmallModels(unittest.TestCase):
    """A GPT-2 and a Llama, trained a little."""
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="muster small models ")
        cls.addClassCleanup(scratch.cleanup)
        cls.folders = {name: pathlib.Path(scratch.name) / name for name in ("gpt2", "llama")}
        for name, folder in cls.folders.items():
            folder.mkdir()
            (folder / "text").write_text(SENTENCE * 200)
            (folder / "config.yaml").write_text(cls.config.format(folder=folder, architecture=name))
            run(folder / "config.yaml")


class Generate(SmallModels):
    config = CONFIG

    def generate(self, folder, *words, **options):
        """The object that is printed: nothing else is, on standard output."""
        return json.loads(run("generate", folder / "config.yaml", "--output=json", *words, **options).stdout)

    def test_text_of_checkpoints_and_files(self):
        for name, folder in self.folders.items():
            newest = self.generate(folder, "--prompt", "the quick", "--temperature=0", "--max-tokens=40")
            self.assertEqual(newest["prompt_tokens"], list(b"the quick"))
            self.assertEqual((newest["step"], len(newest["tokens"]), newest["ended"]), (90, 40, False))
            self.assertEqual(newest["text"].encode(), bytes(newest["tokens"]))
            self.assertIn("the lazy dog", newest["text"], name)  # it has learned the sentence
            earlier = self.generate(folder, "--prompt", "the quick", "--temperature=0", "--max-tokens=40", "--checkpoint", folder / "checkpoints" / "step-45")
            self.assertEqual(earlier["step"], 45)
            plain = run("generate", "--model", folder / "exported", "--prompt=the quick", "--temperature=0", "--max-tokens=40")  # no configuration
            self.assertEqual(plain.stdout, newest["text"] + "\n")

    def test_a_terminal_gets_no_control_characters(self):
        main, other = pty.openpty()
        with open(other, "wb") as terminal:
            subprocess.run([TRAIN, "generate", self.folders["gpt2"] / "config.yaml", "--prompt=the", "--temperature=50"], stdout=terminal,
                           stderr=subprocess.DEVNULL, check=True, timeout=LIMIT)
            shown = os.read(main, 65536).decode().replace("\r\n", "\n")
        os.close(main)
        self.assertRegex(shown, r"\\x[0-9a-f]{2}")
        self.assertIsNone(re.search("[\0-\x08\x0b-\x1f\x7f-\x9f]", shown), ascii(shown))

    def test_ranks_and_standard_input(self):
        folder = self.folders["gpt2"]
        alone = self.generate(folder, "--prompt", "the quick brown fox", "--temperature=0.3", "--seed=5", "--max-tokens=30")
        read = self.generate(folder, "--temperature=0.3", "--seed=5", "--max-tokens=30", stdin="the quick brown fox")
        self.assertEqual(read["tokens"], alone["tokens"])
        for ranks in (2, 3):
            words = ("generate", folder / "config.yaml", "--prompt", "the quick brown fox", "--temperature=0.3", "--seed=5", "--max-tokens=30")
            self.assertIn(alone["text"], run(*words, ranks=ranks).stdout)

    def test_options_choose(self):
        folder = self.folders["llama"]

        def drawn(*words):
            return self.generate(folder, "--prompt=the ", "--max-tokens=24", *words)["tokens"]

        greedy = drawn("--temperature=0")
        self.assertEqual(drawn("--top-k=1", "--seed=3"), greedy)
        self.assertEqual(drawn("--top-p=0.0001", "--seed=4"), greedy)
        hot = [drawn("--temperature=5", f"--seed={seed}") for seed in (1, 2, 1)]
        self.assertNotEqual(hot[0], greedy)
        self.assertNotEqual(hot[0], hot[1])
        self.assertEqual(hot[0], hot[2])

    def test_past_the_end_of_the_context(self):
        """64 positions: after them the last ones are the context."""
        for folder in self.folders.values():
            long = self.generate(folder, "--prompt", SENTENCE, "--temperature=0", "--max-tokens=90")["tokens"]
            self.assertEqual(len(long), 90)
            short = self.generate(folder, "--prompt", SENTENCE, "--temperature=0", "--max-tokens=19")["tokens"]
            self.assertEqual(long[:19], short)
            window = (SENTENCE.encode() + bytes(long))[-65:-1]
            again = self.generate(folder, "--prompt", window.decode(), "--temperature=0", "--max-tokens=1")["tokens"]
            self.assertEqual(again, long[-1:])

    def test_mistakes_are_named(self):
        folder = self.folders["gpt2"]
        config = folder / "config.yaml"
        for words, text in (((config, "--prompt", ""), "the prompt has no token, and the tokenizer (bytes) has none that begins a text"),
                            ((config, "--prompt=a", "--max-tokens=0"), "--max-tokens: '0' is not a number from 1 to 16777216"),
                            ((config, "--prompt=a", "--temperature=-1"), "--temperature: '-1' is not a number from 0 to 1e6"),
                            ((config, "--prompt=a", "--top-p=1.5"), "--top-p: '1.5' is not a number above 0 and up to 1"),
                            ((config, "--prompt=a", "--top-k=x"), "--top-k: 'x' is not a number"),
                            ((config, "--prompt=a", "--max-token=3"), "unknown option '--max-token'; did you mean '--max-tokens'?"),
                            ((config, "--prompt=a", "--checkpoint", folder / "none"), f"there is no checkpoint in {folder}/none"),
                            (("--prompt=a",), "no configuration file was named"),
                            (("--prompt=a", "--model", folder / "none"), f"{folder}/none")):
            self.assertIn(text, run("generate", *words, code=2).stderr)
        self.assertIn("--prompt is an option of muster-train generate, not of muster-train", run(config, "--prompt=a", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
