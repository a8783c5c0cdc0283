#!/usr/bin/env python3
"""muster-train prepare from end to end: the documents kept of fortunes and of the licenses of Debian with duplicates, near duplicates and rubbish
planted among them; the same bytes for any number of workers and after kills; flat memory; training on the result.

prepare_test.py [--full]. The quick run reads a part of the fortunes, and compares the memory for 10 MB with that for 100 MB; --full all of
them, and the memory for 1 GB. Near documents and duplicates are computed here by the definition, not by signatures."""
import base64
import collections
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import signal
import string
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata
import unittest

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"])
TRAIN = BUILD / "bin" / "muster-train"
FULL = "--full" in sys.argv
FORTUNES, LICENSES = pathlib.Path("/usr/share/games/fortunes"), pathlib.Path("/usr/share/common-licenses")
LIMIT = 1200 if FULL else 300  # for any run, against a hang
SANITIZED = bool(os.environ.get("MUSTER_SANITIZED"))


# ---- the definition of a near duplicate ----

def words(text):
    return re.findall(r"[^\W_]+", text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text))


def runs(text):
    found = words(text)
    return {tuple(found[i:i + 5]) for i in range(len(found) - 4)} or ({tuple(found)} if found else set())


def jaccard(a, b):
    return len(a & b) / len(a | b) if a or b else 0


def nearest(texts):
    """For each text the largest similarity to any other, by counting the runs that they share."""
    sets, where = [runs(text) for text in texts], collections.defaultdict(list)
    for number, one in enumerate(sets):
        for run in one:
            where[run].append(number)
    best = [0.0] * len(texts)
    for number, one in enumerate(sets):
        shared = collections.Counter(other for run in one for other in where[run] if len(where[run]) < 2000)
        for other, common in shared.items():
            if other != number:
                best[number] = max(best[number], common / (len(one) + len(sets[other]) - common))
    return best


def clean(text):
    """What prepare keeps of a text that has no control characters."""
    return re.sub(r"\A(?:[ \t]*\n)+", "", unicodedata.normalize("NFC", text).rstrip(" \t\n"))


# ---- texts ----

def fortunes():
    files = [path for path in sorted(FORTUNES.iterdir()) if path.is_file() and not path.is_symlink() and path.suffix not in (".dat", ".u8")]
    texts = []
    for path in files if FULL else files[::4]:
        for text in re.split(r"^%\r?\n", path.read_bytes().decode(errors="replace"), flags=re.M):
            text = "".join(c for c in text if c in "\n\t" or c.isprintable())
            if clean(text):
                texts.append(text)
    return texts


def licenses():
    texts = []
    for path in sorted(LICENSES.iterdir()):
        if path.is_file() and not path.is_symlink():
            texts += [text for text in path.read_text(errors="replace").replace("\f", "").split("\n\n") if clean(text)]
    return texts


def near_copy(text, rng):
    """The text with words replaced until it is at most 0.9, and at least 0.8, like itself; None: it is too short."""
    original, changed = runs(text), text
    for _ in range(12):
        found = list(re.finditer(r"[^\W_]{4,}", changed))
        if not found:
            return None
        word = rng.choice(found)
        changed = changed[:word.start()] + "".join(rng.choices(string.ascii_lowercase, k=7)) + changed[word.end():]
        likeness = jaccard(original, runs(changed))
        if likeness < 0.8:
            return None
        if likeness <= 0.9:
            return changed
    return None


def rubbish(rng):
    yield from (base64.b64encode(rng.randbytes(300)).decode() + f"\n{n}" for n in range(20))
    yield from ("".join(rng.choices("#$%^&*~|<>=+", k=200)) + f" {n} words" for n in range(20))
    yield from (f"Click here number {n} now\n" * 30 for n in range(20))
    yield from ("the same four words " * 20 + str(n) for n in range(20))
    yield from (" ".join(str(rng.randrange(10**9)) for _ in range(50)) for n in range(20))
    yield from (chr(97 + n) for n in range(20))


def by_lines(texts, **more):
    return "".join(json.dumps({"text": text} | more) + "\n" for text in texts).encode()


class Prepare(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster prepare ")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.raw = self.folder / "raw"
        self.raw.mkdir()

    def command(self, *flags, output="out"):
        return [TRAIN, "prepare", "--input_dir", self.raw, "--output_dir", self.folder / output, "--separator=%", *flags]

    def prepare(self, *flags, output="out", fails=0):
        run = subprocess.run(self.command(*flags, output=output), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
        text = (run.stdout + run.stderr).decode(errors="replace")
        self.assertEqual(run.returncode, fails, text)
        return text

    def test_the_library_of_nfc_has_another_name_or_is_missing(self):
        real = next((path for path in pathlib.Path("/usr/lib").glob("*/libunistring.so.[25]")), None)
        if not real:
            self.skipTest("libunistring is not installed")
        libraries = self.folder / "libraries"
        libraries.mkdir()
        (self.raw / "a.txt").write_text("\n%\n".join(pathlib.Path("/usr/share/common-licenses/GPL-3").read_text().split("\n\n\n")) + "e\u0301")
        variables = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
        names = ("libunistring.so.2", "libunistring.so.5")
        for chosen in (None, *names):  # either is enough
            for name in names:
                (libraries / name).unlink(missing_ok=True)
                if name == chosen:
                    (libraries / name).symlink_to(real)
                else:
                    (libraries / name).write_text("no library")
            run = subprocess.run(self.command("--tokenizer=bytes", output=f"out-{chosen}"), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, env=variables)
            if chosen:
                self.assertEqual(run.returncode, 0, run.stderr)
            else:
                self.assertNotEqual(run.returncode, 0)
                self.assertIn("muster-train prepare needs libunistring2", run.stderr)

    def report(self, output="out"):
        return json.loads((self.folder / output / "report.json").read_text())

    def documents(self, output="out"):
        """The documents of both splits, of tokens that are bytes."""
        found = []
        for part in "train", "validation":
            for path in sorted((self.folder / output / part).glob("*.bin")):
                data, index = path.read_bytes(), path.with_suffix(".idx").read_bytes()
                magic, version, count = struct.unpack_from("<3i", data)
                self.assertEqual((magic, version, len(data)), (20240520, 1, 1024 + 2 * count))
                _, tokens, documents = struct.unpack_from("<3Q", index)
                self.assertEqual(tokens, count)
                text, at = data[1024::2], 0
                for end in struct.unpack_from(f"<{documents}Q", index, 24):
                    found.append(text[at:end].decode())
                    at = end
                self.assertEqual(at, count)
        return found

    def files(self, output="out"):
        return {str(path.relative_to(self.folder / output)): path.read_bytes()
                for path in sorted((self.folder / output).rglob("*")) if path.is_file()}

    def write_corpus(self):
        """Fortunes as text, half of them compressed; licenses as JSON lines, compressed too."""
        rng = random.Random(5)
        honest = fortunes() + licenses()
        likeness = nearest([clean(text) for text in honest])
        exact = [rng.choice(("{}", "{}\n\n", "\n{}  ")).format(text) for text in rng.sample(honest, 200)]
        exact += [unicodedata.normalize("NFD", text) for text in ("Caf\u00e9 d\u00e9j\u00e0 vu, gar\u00e7on, s'il vous pla\u00eet",) * 2]
        near = []
        while len(near) < 300:
            text = rng.choice(honest)
            copy = near_copy(clean(text), rng)
            if copy:
                near.append((text, copy))
        bad = list(rubbish(rng))
        texts = honest + ["Caf\u00e9 d\u00e9j\u00e0 vu, gar\u00e7on, s'il vous pla\u00eet"] + exact + [copy for _, copy in near] + bad
        rng.shuffle(texts)
        step = len(texts) // 5 + 1
        parts = [texts[i:i + step] for i in range(0, len(texts), step)]
        as_text = ["%\n".join(text.rstrip("\n") + "\n" for text in part).replace("\n", "\r\n" if i else "\n").encode() for i, part in enumerate(parts)]
        (self.raw / "a.txt").write_bytes(as_text[0])
        with gzip.open(self.raw / "b.txt.gz", "wb") as file:
            file.write(as_text[1])
        (self.raw / "inner").mkdir()
        (self.raw / "inner" / "c.jsonl").write_bytes(by_lines(parts[2], source="c"))
        subprocess.run(["zstd", "-q", "-o", self.raw / "d.jsonl.zst"], input=by_lines(parts[3]), check=True)
        (self.raw / "e.jsonl.gz").write_bytes(gzip.compress(by_lines(parts[4])[:1000]) + gzip.compress(by_lines(parts[4])[1000:]))
        (self.raw / "picture.png").write_bytes(b"\x89PNG\0\0")
        return honest, likeness, exact, near, bad

    def test_what_is_kept(self):
        honest, likeness, exact, near, bad = self.write_corpus()
        text = self.prepare("--tokenizer_type=bytes")
        kept = collections.Counter(self.documents())
        report = self.report()
        self.assertEqual(report["input"]["files"], 5)
        print(text.strip())

        twice = [one for one, count in kept.items() if count > 1]
        self.assertEqual(twice, [])  # every exact duplicate is found
        missed = sum(kept[clean(text)] > 0 and kept[clean(copy)] > 0 for text, copy in near)
        print(f"near: {len(near)} copies at 0.8 to 0.9, {missed} not found")
        self.assertLessEqual(missed, len(near) * 0.05)
        stays = [one[:60] for one in bad if kept[clean(one)]]
        self.assertEqual(stays, [])
        honest_texts = {clean(one) for one, likely in zip(honest, likeness) if likely < 0.8}
        lost = [one for one in honest_texts if not kept[one]]
        lost = [one for one in lost if not any(kept[clean(copy)] for original, copy in near if clean(original) == one)]  # its copy came first
        print(f"honest: {len(honest_texts)} texts that repeat no other, {len(lost)} dropped")
        self.assertLessEqual(len(lost), len(honest_texts) * 0.01)

        dropped = sum(rule["documents"] for rule in report["dropped"].values())
        self.assertEqual(report["input"]["documents"], dropped + report["duplicates"]["exact"]["documents"]
                         + report["duplicates"]["near"]["documents"] + report["kept"]["documents"])
        self.assertEqual(sum(kept.values()), report["kept"]["documents"])
        for rule in "min-chars", "min-letters", "max-symbols", "max-word-length", "max-repeated-lines", "max-repeated-ngrams":
            self.assertGreater(report["dropped"][rule]["documents"], 0, rule)
        self.assertGreater(report["validation"]["documents"], 0)

    def test_workers_and_kills(self):
        """One worker, eight, and a worker that is killed again and again: the same files, to the byte."""
        self.write_corpus()
        flags = ("--model_type=bpe", "--vocab_size=600", "--part_bytes=64K", "--shard_tokens=50000", "--validation_share=0.05", "--sample_bytes=300K")
        started = time.monotonic()
        self.prepare(*flags, "--workers=1", output="one")
        took = time.monotonic() - started
        self.prepare(*flags, "--workers=8", output="eight")
        wanted = self.files("one")
        self.assertGreater(sum(name.startswith("train/") for name in wanted), 2)
        self.assertEqual(wanted.keys(), self.files("eight").keys())
        for name, data in self.files("eight").items():
            self.assertEqual(data, wanted[name], name)

        kills, rng = 0, random.Random(3)
        for attempt in range(12):
            with subprocess.Popen(self.command(*flags, "--workers=2", output="killed"), stdout=subprocess.DEVNULL) as run:
                try:
                    run.wait(took * (0.05 + 0.1 * attempt) * rng.uniform(0.8, 1.2))
                except subprocess.TimeoutExpired:
                    run.send_signal(signal.SIGKILL)
                    kills += 1
                    run.wait()
                    (self.folder / "killed").mkdir(exist_ok=True)
                    (self.folder / "killed" / f"report.json.new.{run.pid}").touch()  # as where it is killed before the file has its name
                    continue
            self.assertEqual(run.returncode, 0)
            break
        self.assertGreaterEqual(kills, 2)
        print(f"killed {kills} times")
        self.assertIn(" already", self.prepare(*flags, output="killed") + self.prepare(*flags, output="killed"))
        self.assertEqual(self.files("killed"), wanted)

        (self.folder / "eight" / "train" / "shard-00001.bin").write_bytes(b"damaged")
        self.assertNotIn(" already", self.prepare(*flags, output="eight"))
        self.assertEqual(self.files("eight"), wanted)
        unigram = (*flags, "--model_type=unigram", "--sample_bytes=64K")
        self.assertIn("sentencepiece, 600 tokens", self.prepare(*unigram, "--workers=1", output="unigram"))
        self.prepare(*unigram, "--workers=8", output="again")
        self.assertNotEqual(self.files("unigram")["tokenizer.model"], wanted["tokenizer.model"])
        self.assertEqual(self.files("unigram"), self.files("again"))

    def test_work_that_is_kept(self):
        """With --keep_work a file that is added is read alone."""
        for name in "abc":
            (self.raw / f"{name}.txt").write_text(f"A document of file {name}, which is one of three files.\n%\nAnother one of {name} here.\n")
        flags = ("--tokenizer_type=bytes", "--part_bytes=1K", "--keep_work", "--near_threshold=2")
        self.prepare(*flags)
        work = self.folder / "out" / ".work"
        made = {path.name: path.stat().st_ino for path in work.glob("*.records")}
        (self.raw / "d.txt").write_text("x" * 2000 + " is in a file that comes later.\n%\nIts second document is short.\n")
        self.prepare(*flags)
        now = {path.name: path.stat().st_ino for path in work.glob("*.records")}
        self.assertEqual(len(now), len(made) + 1)
        self.assertTrue(made.items() <= now.items())
        self.prepare("--tokenizer_type=bytes", "--part_bytes=1K", "--near_threshold=2", "--validation_share=0.5")
        self.assertFalse(work.exists())
        self.assertEqual(self.report()["input"]["documents"], 8)

    def test_lists_and_languages(self):
        english = "The quality of mercy is not strained; it droppeth as the gentle rain from heaven upon the place beneath: it is twice blest."
        german = "Es irrt der Mensch, solang er strebt. Wer immer strebend sich bem\u00fcht, den k\u00f6nnen wir erl\u00f6sen, sagt der Chor der Engel."
        casino = "Visit our casino today, where the games of the house are always open and the money is waiting for you and for all of us."
        (self.raw / "a.txt").write_text("\n%\n".join((english, german, casino)))
        (self.folder / "blocked").write_text("# not wanted\nCasino\n")
        (self.folder / "required").write_text("the\nof\nand\nis\n")
        flags = ("--tokenizer_type=bytes", "--validation_share=0")
        self.prepare(*flags, "--blocked_words", self.folder / "blocked", output="blocked_words")
        self.assertEqual(self.documents("blocked_words"), [english, german])
        self.prepare(*flags, "--required_words", self.folder / "required", output="required_words")
        self.assertEqual(self.documents("required_words"), [english, casino])
        self.assertEqual(self.report("required_words")["dropped"]["min-required-words"]["documents"], 1)
        if not pathlib.Path("/usr/share/libexttextcat/fpdb.conf").exists():
            self.skipTest("libexttextcat-data is not installed")
        self.prepare(*flags, "--languages=de", output="german")
        self.assertEqual(self.documents("german"), [german])
        self.prepare(*flags, "--languages=en,de", output="both")
        self.assertEqual(len(self.documents("both")), 3)
        self.assertRegex(self.prepare("--languages=xx", fails=2, output="none"), "--languages: 'xx' is no language of")

    def test_mistakes(self):
        def refused(pattern, *flags, code=2, **more):
            self.assertRegex(self.prepare(*flags, fails=code, **more), pattern)
        refused("--input_dir .*raw holds no text")
        (self.raw / "a.txt").write_text("A text that is long enough to be kept.\n")
        refused("is inside of --input_dir", output="raw/out")
        refused(r"unknown flag.*--vocab.*did you mean.*vocab", "--vocab_sise=5")
        refused("--blocked_words: .*missing", "--blocked_words=missing")
        refused("none of the 1 documents .* passes the rules; --min-words", "--min-words=100")
        (self.raw / "b.txt.gz").write_bytes(gzip.compress(random.Random(1).randbytes(5000))[:4000])
        refused(r"b\.txt\.gz is damaged or cut off: gzip: unexpected end")
        (self.raw / "b.txt.gz").unlink()
        subprocess.run(["zstd", "-q", "-o", self.raw / "b.txt.zst"], input=random.Random(1).randbytes(5000), check=True)
        whole = (self.raw / "b.txt.zst").read_bytes()
        (self.raw / "b.txt.zst").write_bytes(whole[:3000])
        refused(r"b\.txt\.zst is cut off: zstd")
        (self.raw / "b.txt.zst").write_bytes(whole[:8] + b"rubbish" + whole[15:])
        refused(r"b\.txt\.zst is (damaged|cut off): zstd")
        (self.raw / "b.txt.zst").unlink()
        (self.raw / "c.jsonl").write_text('{"text": "Some text of this line."}\nno json\n{"texts": "another key"}\n')
        self.prepare("--tokenizer_type=bytes")
        self.assertEqual(self.report()["dropped"]["max-broken-json"]["documents"], 2)
        self.assertIn("--input_dir", subprocess.run([TRAIN, "prepare", "--help"], capture_output=True, text=True, check=True).stdout)

    def test_chats_keep_their_targets(self):
        """Shards of chats have the tokens and targets that training finds in the records: losses are the same."""
        chats = [{"messages": [{"role": "user", "content": f"Where is number {n}, and what is behind it?"},
                               {"role": "assistant", "content": f"Number {n} is here, u\u0308ber {n + 1}." + " It is good." * (n % 4)},
                               {"role": "user", "content": "And then?"}, {"role": "assistant", "content": f"{n} times nothing."}]} for n in range(9)]
        (self.raw / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
        self.assertRegex(self.prepare("--tokenizer_type=bytes", fails=2), r"chats\.jsonl:1: a chat, which needs a template: --chat_template")
        self.prepare("--tokenizer_type=bytes", "--chat_template=chatml", "--validation_share=0", "--shard_tokens=1024", "--near_threshold=1.1")
        self.assertEqual(self.report()["kept"]["documents"], 9)
        self.assertGreater(len(list((self.folder / "out" / "train").glob("*.mask"))), 1)
        found = []
        for path in "raw/chats.jsonl", "out":
            settings = {"model": {"architecture": "gpt2", "layers": 1, "channels": 16, "heads": 2, "vocabulary": 256},
                        "logging": {"sample_length": 0, "json": "log.jsonl"}, "data": {"path": path, "chat_template": "chatml", "cache_dir": "cache"},
                        "training": {"steps": 3, "global_batch": 9, "sequence_length": 300, "threads": 1, "learning_rate": 0.01}}
            (self.folder / "chats.yaml").write_text(json.dumps(settings))
            (self.folder / "log.jsonl").unlink(missing_ok=True)
            done = subprocess.run([TRAIN, "chats.yaml"], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("each chat is a sample of its own", done.stdout)
            lines = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
            found.append([line["loss"] for line in lines if line.get("kind") == "step"])
        self.assertEqual(len(found[0]), 3)
        for records, shards in zip(*found):
            self.assertAlmostEqual(records, shards, delta=2e-6)

    def test_tables_are_read(self):
        """An array, tables of both kinds and a packed table have the documents of their texts; a table without the column is named."""
        texts = [f"This is text number {n}, which is long enough, and ends here." for n in range(12)]
        (self.raw / "a.json").write_text(json.dumps([{"body": text} for text in texts[:3]] + [{"other": 1}]))
        (self.raw / "b.csv").write_text("id,body\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(texts[3:6])))
        (self.raw / "c.tsv").write_text("body\tid\n" + "".join(f"{text}\t{n}\n" for n, text in enumerate(texts[6:8])))
        (self.raw / "d.csv.gz").write_bytes(gzip.compress(("body\n" + "".join(f'"{text}"\n' for text in texts[8:10])).encode()))
        (self.raw / "e.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts[10:]))
        self.prepare("--tokenizer_type=bytes", "--text_key=body")
        self.assertEqual(sorted(self.documents()), sorted(texts))
        self.assertEqual(self.report()["dropped"]["max-broken-json"]["documents"], 1)
        (self.raw / "f.csv").write_text("id,content\n1,Some text of this row\n")
        self.assertRegex(self.prepare("--tokenizer_type=bytes", "--text_key=body", fails=2),
                         r"f\.csv: line 1: no column 'body' \(--text_key\); the first row has: id, content")
        (self.raw / "f.csv").unlink()
        (self.raw / "f.json").write_text('[{"body": "Some text of this record"}, {"body": ]')
        self.assertRegex(self.prepare("--tokenizer_type=bytes", "--text_key=body", fails=2), r"f\.json:1: ")

    def test_training_on_it(self):
        """data.path is the folder: tokenizer, shards, documents and held-out samples come from its index."""
        (self.raw / "a.txt").write_text("\n%\n".join(fortunes()[:1500]))
        self.prepare("--vocab_size=500", "--shard_tokens=20000", "--validation_share=0.1")
        report = self.report()
        self.assertGreater(len(report["train"]["shards"]), 1)
        config = self.folder / "config.yaml"
        config.write_text("training: {micro_batch: 2, global_batch: 4, sequence_length: 32, steps: 30, learning_rate: 1.0e-2, schedule: constant, "
                          "warmup_steps: 2, threads: 1, evaluate_every: 30}\nmodel: {layers: 1, channels: 32, heads: 2, vocabulary: 512}\n"
                          f"data: {{path: \"{self.folder}/out\"}}\nlogging: {{sample_length: 8}}\n")

        def train(*settings):
            run = subprocess.run([TRAIN, config, *(word for one in settings for word in ("--set", one))], stdin=subprocess.DEVNULL,
                                 capture_output=True, timeout=LIMIT, env=os.environ | {"OMP_NUM_THREADS": "1"})
            text = (run.stdout + run.stderr).decode(errors="replace")
            self.assertEqual(run.returncode, 0, text)
            losses = [float(loss) for loss in re.findall(r"step \d+/\d+  loss ([0-9.]+)", text)]
            self.assertLess(losses[-1], losses[0] - 0.5)
            return text

        text = train()
        self.assertIn(f" {report['train']['tokens'] + report['validation']['tokens']} tokens\n", text)
        self.assertIn(f"tokenizer: {self.folder}/out/tokenizer.model, sentencepiece, 500 tokens", text)
        self.assertRegex(text, "evaluation after step 30: loss ")
        self.assertIn("sample:\n", text)
        documents = train("data.packing=documents")
        self.assertRegex(documents, "documents are longer than training.sequence_length 32, and are cut")
        os.truncate(self.folder / "out" / "train" / "shard-00000.bin", 2000)
        run = subprocess.run([TRAIN, config], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(run.returncode, 2)
        self.assertRegex(run.stderr, "data.path: run muster-train prepare again: .*shard-00000.bin has 2000 bytes, and [0-9]+ tokens by index.json")

    def write_languages(self, base, size, rng):
        """Files up to that many bytes in all, in languages that no one speaks: the letters of base exchanged."""
        upper, lower = string.ascii_uppercase, string.ascii_lowercase
        written, number = sum(path.stat().st_size for path in self.raw.iterdir()), len(list(self.raw.iterdir()))
        while written < size:
            with (self.raw / f"{number:04}.txt").open("wb") as file:
                while file.tell() < size / 50:
                    letters = "".join(rng.sample(lower, 26))
                    file.write(base.translate(bytes.maketrans((lower + upper).encode(), (letters + letters.upper()).encode())) + b"\n%\n")
                written += file.tell()
            number += 1

    def peak(self, *flags):
        """Megabytes of memory that a run takes at most, and its report."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        run = subprocess.Popen(self.command("--workers=2", *flags), stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(run.returncode, 0)
        report = self.report()
        peak = usage.ru_maxrss / 1024
        print(f"{' '.join(flags)}: {report['input']['bytes'] / 1e6:.0f} MB, {report['input']['documents']} documents: {peak:.0f} MB of memory, "
              f"{usage.ru_utime + usage.ru_stime:.1f} s of processor", flush=True)
        return peak, report

    @unittest.skipIf(SANITIZED, "a sanitizer's memory is not the program's")
    def test_memory_is_flat(self):
        """Ten times the input takes the same memory, and some bytes for each document: 2 were measured."""
        base, rng = "\n%\n".join(fortunes()).encode(), random.Random(9)
        model, peaks = self.folder / "tokenizer.model", {}
        for size in (10e6, 100e6, 1e9) if FULL else (10e6, 100e6):
            self.write_languages(base, size, rng)
            peaks[size] = self.peak("--tokenizer_type=bytes")
            if FULL and not model.exists():  # the same texts for both's: the trainer's memory is that of the words of its sample
                self.peak("--vocab_size=2000", "--sample_bytes=4M")
                shutil.copy(self.folder / "out" / "tokenizer.model", model)
            if FULL and size < 1e9:  # sentencepiece reads 2 MB a second
                peaks[-size] = self.peak(f"--tokenizer={model}")
        for size, (peak, report) in peaks.items():
            if size * 10 in peaks:
                more, larger = peaks[size * 10]
                documents = larger["input"]["documents"] - report["input"]["documents"]
                self.assertLess(more, peak + 16 + documents * 3 / 1e6)


if __name__ == "__main__":
    sys.argv = [word for word in sys.argv if word != "--full"]
    unittest.main()
