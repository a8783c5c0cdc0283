"""Parts of tokenizer.json against `tokenizers`, and other files against tiktoken, mistral_common and transformers: ids and decoding.

tokens_parts_test.py [--full]. Each part stands in a small tokenizer of its own: expressions that muster-train has no code for, behaviours
of Split, pre_tokenizers, normalizers, decoders, added tokens, the sections of the families in use. 10,000 texts with --full: words and code of
this tree, every script, emoji, marks, U+FFFD and bytes that are no UTF-8. Then mutated files: each gives the ids of `tokenizers`, or both refuse it, or
ours refuses it by name."""

import copy
import json
import pathlib
import random
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tokens_torch_test import FULL, LLAMA3, MARK, compare, every_script, failures, gpt2_pair, llama_pieces, ours, package_file, torch_python  # noqa: E402

from tokenizers import Tokenizer  # noqa: E402

# ---- texts ----

PIECES = ["don't", "I'LL", "we've", "it'\u017f", "e\u0301", "\u0928\u093f", "\U0001F468\u200D\U0001F469\u200D\U0001F467", "\u00e9t\u00e9", "\u4e2d\u6587\u6d4b\u8bd5", "\u3053\u3093\u306b\u3061\u306f", "\ud55c\uad6d\uc5b4",
          "\u0627\u0644\u0639", "3", "1234567", "\u0663\u0664", "\u00bd", "\u2167", "--", "...", "'", "''s", "HTTPServer2", "camelCase", "snake_case", "x += 1;", "// a", "\tif (a[0] != b->c) {\n", "}\n\n", "<|endoftext|>", "<x>", "#hash", "\ufb01ne", "\u210c\u00b2", "\u212b\u1e9b\u0323", "\u0130I\u03a3", "\u01c4", "\u200b", "\ufeff",
          "\u0e2a\u0e27\u0e31", "a\u0315\u0300\u05ae", "\u1100\u1161\u11a8", "\ufdfa", "\u2581", "\u2581\u2581a", "$5.00", "50%", "a.b.c", "!?", "\u00ab\u00e0\u00bb", "\U0001f600\U0001f3fd", "\x00", "\x7f\x85", "\u0378\U000e0001", "<s>", "</s>", "[UNK]", "<|user|>", "##ing", "unaffable", "the", "The", "quick", "STRASSE stra\u00dfe", "of fish", "\ufffd"]
BLANKS = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "   ", "", "", ""]


def the_texts(count):
    rng = random.Random(7)
    lines = [line for path in sorted(pathlib.Path(torch_python.source(), "proto").rglob("*.[ch]"))[:40] for line in path.read_text().splitlines(keepends=True)]
    texts = ["", " ", "\n", "a", "\u0301", " a", "a ", "\u2581", " \u2581 ", "\r\n\r\n", "\ud55c", "x" * 120, "\u4e2d" * 70] + (every_script() if FULL else every_script()[::10])
    while len(texts) < count:
        kind = rng.randrange(4)
        if kind == 0:
            at = rng.randrange(len(lines) - 6)
            texts.append("".join(lines[at:at + rng.randrange(1, 6)]))
        else:
            texts.append("".join(rng.choice(PIECES) + rng.choice(BLANKS) for _ in range(rng.randrange(1, 24))))
    return texts[:count] if FULL else texts


# ---- small tokenizers ----

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
ALPHABET = {**BYTE_LEVEL, "use_regex": False}


def sequence(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def added(text, **flags):
    return {"content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False, **flags}


def root(model, pre=None, normalizer=None, decoder=None, tokens=()):
    size, known, rows = len(model["vocab"]), model["vocab"], []
    for token in tokens:
        number = known.get(token["content"])
        rows.append({"id": size if number is None else number, **token})
        size += number is None
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": rows, "normalizer": normalizer, "pre_tokenizer": pre,
            "post_processor": None, "decoder": decoder, "model": model}


def byte_model(**changes):
    """GPT-2's first 1,500 merges."""
    words, merges = gpt2_pair()
    kept = merges[:1500]
    texts = sorted((w for w in words if len(w) == 1), key=words.get) + ["".join(pair) for pair in kept]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False, "ignore_merges": False, "vocab": {w: i for i, w in enumerate(dict.fromkeys(texts))}, "merges": [list(pair) for pair in kept]}
    return {**model, **changes}


def char_model(**changes):
    """The 3,000 first pieces of the 32k sentencepiece model."""
    words, merges = llama_pieces()
    vocab = {w: i for w, i in words.items() if i < 3000}
    for w in ("\u2581", "a", "b", "s", "t", "e", "<", ">", "\u4e2d"):
        vocab.setdefault(w, len(vocab))
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
            "byte_fallback": True, "ignore_merges": False, "vocab": vocab,
            "merges": [list(p) for p in merges if p[0] in vocab and p[1] in vocab and p[0] + p[1] in vocab], **changes}


def word_model(**changes):
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-#$%()[]{}<>|/:;=+*&^~`@_\"\\"
    texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters), "the", "##ing", "un", "##aff", "##able", "quick", "do", "##n", "'t", "\u4e2d", "\u6587",
             "e\u0301", "\u00e9", "\u03c3", "##\u03c3", "int", "##er", "return", "##ed", "THE", "The", "if", "\u3053", "##\u3093"]
    return {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {w: i for i, w in enumerate(dict.fromkeys(texts))}, **changes}


def answer(function, value):
    """What the reference gives; None where it panics."""
    try:
        return function(value)
    except BaseException as error:
        if "PanicException" not in type(error).__name__:
            raise
        return None


def check(name, made, texts, folder, decodes=True):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(made))
    theirs = Tokenizer.from_str(json.dumps(made))
    try:
        found, about = ours(path, texts, folder)
    except AssertionError as error:
        print(f"{name}: {error}")
        failures.append(name)
        return
    if about[0] != max(theirs.get_vocab(with_added_tokens=True).values()) + 1:
        failures.append(f"{name}: vocabulary {about[0]}")
    wanted = [answer(lambda t: theirs.encode(t, add_special_tokens=False).ids, text) for text in texts]
    kept = [i for i, ids in enumerate(wanted) if ids is not None]
    at = iter(kept)
    compare(name, [texts[i] for i in kept], [found[i] for i in kept], lambda text: wanted[next(at)],
            (lambda ids: theirs.decode(ids, skip_special_tokens=False)) if decodes else None)


O200K = ("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|"
         "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
QWEN35 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
DEEPSEEK = ["\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"]
EXPRESSIONS = [r"\s+", r"\w+|[^\w\s]+", O200K, QWEN35, DEEPSEEK[2], r"[a-z]+(?=ing)|\d{2,3}?|.", r"(?<=[a-z])(?=[A-Z])", r"\p{Han}|\p{Hiragana}+|\p{Hangul}", r"^\s*|\s*$", r"\b",
               r"[^a-zA-Z\p{Ll}]++", r"(?i)[a-f]+|the", r"[\p{L}&&[^\p{Lu}a-d]]+", r"x*", r"(?>a+|b)c?|\u4e2d|\x{2581}", r"\p{^L}+|\P{N}", r"a{,2}|(?:is|in){1,2}+|n",
               r"(?m:.)", r"[]\[^-]|\h{2}", r"(?:[A-Z][a-z]*)+|(?<!\S)\S", r"\A.|.\z", r"\B\w", r"[^\n]+\n?", r"\p{Sc}\d+|\p{So}\p{Cf}?|\p{M}|\p{Zs}+|\p{Letter}{2}"]
BEHAVIOURS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def pre_tokenizers():
    for pattern in EXPRESSIONS:
        yield f"Split {pattern[:40]}", sequence("pretokenizers", split(pattern), ALPHABET)
    for behavior in BEHAVIOURS:
        for invert in (False, True):
            for pattern, kind in ((r"\s|x*", "Regex"), (r"\p{Lu}", "Regex"), (" ", "String"), ("--", "String")):
                yield f"Split {behavior} {invert} {pattern}", sequence("pretokenizers", split(pattern, behavior, invert, kind), ALPHABET)
        yield f"Punctuation {behavior}", sequence("pretokenizers", {"type": "Punctuation", "behavior": behavior}, ALPHABET)
    for part in ({"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"}, {"type": "Punctuation"}, {"type": "Digits", "individual_digits": False},
                 {"type": "CharDelimiterSplit", "delimiter": "e"}):
        yield part["type"], sequence("pretokenizers", part, ALPHABET)
        yield f"{part['type']}, GPT-2's with a blank", sequence("pretokenizers", part, {**BYTE_LEVEL, "add_prefix_space": True})
    yield "letters of letters", sequence("pretokenizers", BYTE_LEVEL, {"type": "Digits", "individual_digits": True}, ALPHABET)


def normalizers():
    for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"):
        yield kind, {"type": kind}
    yield "Strip", {"type": "Strip", "strip_left": True, "strip_right": True}
    yield "Strip left", {"type": "Strip", "strip_left": True, "strip_right": False}
    yield "Replace", sequence("normalizers", {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Replace", "pattern": {"String": "a"}, "content": "<x>"})
    yield "Prepend", {"type": "Prepend", "prepend": "\u2581x"}
    yield "NFD, StripAccents, Lowercase", sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"})
    for clean, chinese, accents, lower in ((True, True, None, True), (True, False, False, True), (False, True, True, False), (True, True, None, False)):
        yield "BertNormalizer", {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": accents, "lowercase": lower}


def decoders():
    fallback = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    yield "none", None
    yield "Llama's", sequence("decoders", *fallback, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    yield "ByteFallback alone", {"type": "ByteFallback"}
    for scheme in ("always", "never"):
        yield f"Metaspace {scheme}", {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": True}
    yield "Strip", sequence("decoders", {"type": "Strip", "content": MARK, "start": 2, "stop": 0}, {"type": "Replace", "pattern": {"Regex": "[st]"}, "content": "<>"}, {"type": "WordPiece", "prefix": "e", "cleanup": True})
    yield "BPEDecoder", {"type": "BPEDecoder", "suffix": "e"}
    yield "ByteLevel", BYTE_LEVEL


def families():
    llama = sequence("normalizers", {"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK})
    fallback = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    special = {"special": True}
    three = [added(t, **special) for t in ("<unk>", "<s>", "</s>")]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    yield "Llama 2, legacy", root(char_model(), None, llama, sequence("decoders", *fallback, strip), [{**t, "normalized": True} for t in three])
    yield "Phi-3", root(char_model(), None, llama, sequence("decoders", *fallback, strip), [*three, *(added(t, rstrip=True, **special) for t in ("<|endoftext|>", "<|user|>", "<|end|>"))])
    yield "Mistral", root(char_model(), {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}, None, sequence("decoders", *fallback, strip), three)
    yield "Gemma", root(char_model(fuse_unk=True), split(" ", "MergedWithPrevious", kind="String"), {"type": "Replace", "pattern": {"String": " "}, "content": MARK}, sequence("decoders", *fallback),
                        [*three, *(added(t) for t in ("\n\n", "\n\n\n", "\t\t", MARK * 2, "<table>")), added("<start_of_turn>", **special)])
    ends = [added("<|endoftext|>", **special), added("<|im_start|>", **special), added("<think>")]

    def byte(pre, normalizer=None, tokens=ends, **changes):
        return root(byte_model(**changes), pre, normalizer, BYTE_LEVEL, tokens)

    qwen = LLAMA3.replace("{1,3}", "")
    yield "Qwen 2 and 3", byte(sequence("pretokenizers", split(qwen), ALPHABET), {"type": "NFC"})
    yield "Qwen 3.5", byte(sequence("pretokenizers", split(QWEN35), ALPHABET), {"type": "NFC"})
    yield "Llama 3", byte(sequence("pretokenizers", split(LLAMA3), ALPHABET), ignore_merges=True)
    yield "o200k", byte(sequence("pretokenizers", split(O200K, "Removed", True), ALPHABET))
    yield "DeepSeek", byte(sequence("pretokenizers", *(split(p) for p in DEEPSEEK), ALPHABET), sequence("normalizers"))
    yield "SmolLM", byte(sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, BYTE_LEVEL))
    yield "OLMo 2, Phi-4", byte(sequence("pretokenizers", split(LLAMA3, "Removed", True), ALPHABET), tokens=[added("<|endoftext|>", lstrip=True, rstrip=True, special=True), added("|||IP_ADDRESS|||", normalized=True)])
    yield "GPT-NeoX", byte(BYTE_LEVEL, {"type": "NFC"}, [added("<|endoftext|>", **special), added("  ", normalized=True), added("    ", normalized=True)])
    yield "StarCoder 2", byte(sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, BYTE_LEVEL), tokens=[added("<fim_prefix>", **special)])
    letters = byte_model(end_of_word_suffix="</w>", unk_token="<|endoftext|>")
    letters["vocab"].update({c + "</w>": len(letters["vocab"]) + i for i, c in enumerate([w for w in letters["vocab"] if len(w) == 1])})
    letters["vocab"]["<|endoftext|>"] = len(letters["vocab"])
    clip = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    yield "CLIP", root(letters, sequence("pretokenizers", split(clip, "Removed", True), {**ALPHABET, "add_prefix_space": False}),
                       sequence("normalizers", {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Lowercase"}), {"type": "BPEDecoder", "suffix": "</w>"}, [added("<|endoftext|>", **special)])
    names = [added(t, **special) for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    for lower in (True, False):
        yield f"BERT {lower}", root(word_model(), {"type": "BertPreTokenizer"}, {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": lower},
                                    {"type": "WordPiece", "prefix": "##", "cleanup": True}, names)
    yield "words alone", root({"type": "WordLevel", "unk_token": "[UNK]", "vocab": word_model()["vocab"]}, {"type": "Whitespace"}, {"type": "Lowercase"}, {"type": "WordPiece", "prefix": "##", "cleanup": False}, names)
    yield "single words", byte(BYTE_LEVEL, tokens=[added("the", single_word=True), added("a", single_word=True, lstrip=True), added("x", single_word=True, rstrip=True, normalized=True), added("\u4e2d", single_word=True), added(" ")])
    gone = byte_model(byte_fallback=True, fuse_unk=True, unk_token="!")
    for letter in ("\u0120", "e", "\u00e4"):
        del gone["vocab"][letter]
    gone["vocab"] = {w: i for i, w in enumerate([*gone["vocab"], "<0xC4>", "<0xA0>", "<0x65>"])}
    gone["merges"] = [p for p in gone["merges"] if p[0] in gone["vocab"] and p[1] in gone["vocab"]]
    yield "bytes that are no tokens", root(gone, BYTE_LEVEL, None, BYTE_LEVEL)
    pieces = {"type": "BPE", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "fuse_unk": True, "vocab": dict(word_model()["vocab"])}
    for word in ("th", "the", "##er", "##ers", "qu"):
        pieces["vocab"].setdefault(word, len(pieces["vocab"]))
    pieces["merges"] = [["t", "##h"], ["th", "##e"], ["##e", "##r"], ["##er", "##s"], ["q", "##u"]]
    yield "BPE with ## in front", root(pieces, {"type": "BertPreTokenizer"}, {"type": "Lowercase"}, {"type": "WordPiece", "prefix": "##", "cleanup": True}, names)


# ---- other files ----

def tiktoken_ranks():
    """Bytes and ranks: every byte, then the merges of the byte model."""
    letters = {w: i for w, i in gpt2_pair()[0].items() if len(w) == 1}
    byte = {}
    order = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order += [b for b in range(256) if b not in order]
    for letter, number in letters.items():
        byte[letter] = order[number]
    return {bytes(byte[c] for c in w): i for w, i in byte_model()["vocab"].items()}


def check_tiktoken(texts, folder):
    """Files of few ranks get the special tokens from the next free id on; real ones have the ids of tiktoken."""
    import base64
    import tiktoken_ext.openai_public as public
    import tiktoken
    ranks = tiktoken_ranks()
    cases = [("r50k_base", public.r50k_pat_str, ["<|endoftext|>"]),
             ("cl100k_base", r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
              ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|endofprompt|>"]),
             ("o200k_base", O200K, ["<|endoftext|>", "<|endofprompt|>"]),
             ("o200k_harmony", O200K, ["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>", "<|endofprompt|>"]),
             ("llama3", LLAMA3, ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
             ("qwen", LLAMA3.replace("{1,3}", ""), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])]
    texts = [*texts, "<|endoftext|>a<|eot_id|> <|im_end|><|fim_prefix|>\n", "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"]
    for name, pattern, special in cases:
        path = folder / (f"{name}.tiktoken" if name != "llama3" else "tokenizer.llama3.model")
        path.write_bytes(b"".join(base64.b64encode(token) + f" {rank}\n".encode() for token, rank in ranks.items()))
        theirs = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={t: len(ranks) + i for i, t in enumerate(special)})
        found, about = ours(path, texts, folder)
        if about[0] != theirs.n_vocab or about[2] < len(ranks):
            failures.append(f"{name}: {about}")
        compare(f"tiktoken {name}", texts, found, lambda text: theirs.encode(text, allowed_special="all"), theirs.decode)


def check_tekken(texts, folder):
    """Texts without special tokens, which mistral_common takes as text."""
    import mistral_common.tokens.tokenizers.tekken as tekken
    texts = [text for text in texts if not re.search(r"</?s>|<unk>|<pad>|\[/?[A-Z_]+\]", text)]
    for name in ("tekken_240718.json", "tekken_240911.json"):
        path = package_file("mistral_common", name)
        theirs = tekken.Tekkenizer.from_file(path)
        found, about = ours(path, texts, folder)
        if about != (theirs.n_words, theirs.bos_id, theirs.eos_id, 0):
            failures.append(f"{name}: {about}")
        compare(name, texts, found, lambda text: theirs.encode(text, bos=False, eos=False), theirs.decode)


def check_vocabulary_file(texts, folder):
    """vocab.txt against `tokenizers` with BERT's parts; with --full against the class of transformers."""
    words = [*word_model()["vocab"], "[unused0]"]
    for settings in ({}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            here = pathlib.Path(place)
            (here / "vocab.txt").write_text("".join(word + "\n" for word in words))
            (here / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **settings}))
            normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
                          "strip_accents": settings.get("strip_accents"), "lowercase": settings.get("do_lower_case", True)}
            made = root(word_model(vocab={word: i for i, word in enumerate(words)}), {"type": "BertPreTokenizer"}, normalizer, {"type": "WordPiece", "prefix": "##", "cleanup": True},
                        [added(text, special=True) for text in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")])
            theirs = Tokenizer.from_str(json.dumps(made))
            found, about = ours(here, texts, folder)
            if about[3] != 1:
                failures.append(f"vocab.txt: {about}")
            compare(f"vocab.txt {settings}", texts, found, lambda text: theirs.encode(text, add_special_tokens=False).ids, lambda ids: theirs.decode(ids, skip_special_tokens=False))
            if FULL:
                import transformers
                slow = transformers.BertTokenizer.from_pretrained(here)
                compare(f"vocab.txt {settings} in transformers", texts, found, lambda text: slow(text, add_special_tokens=False).input_ids)


# ---- mutated files ----

VALUES = [None, True, False, 0, 1, -1, 2.5, "", "a", " ", MARK, "Removed", "Isolated", "MergedWithNext", "Contiguous", "NFC", "NFKD", "Digits", "ByteLevel", "Lowercase", "BPE", "always", "first",
          "never", "##", "</w>", "[UNK]", [], {}, {"type": "Lowercase"}, {"type": "Digits", "individual_digits": True}, {"type": "NFKC"}, {"Regex": "[a-e]+"}, {"String": "e"}, {"type": "Fuse"},
          {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "Metaspace", "replacement": MARK}, {"type": "WhitespaceSplit"}]


KINDS = [BEHAVIOURS, ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Precompiled"], ["always", "first", "never"], ["BPE", "WordPiece", "WordLevel", "Unigram"],
         ["BertPreTokenizer", "WhitespaceSplit", "Whitespace", "Punctuation", "UnicodeScripts"], ["Fuse", "ByteFallback", "CTC"], [" ", "  ", "e", MARK, "th", "\n"], ["<unk>", "[UNK]", "a", "the", "zz"],
         [LLAMA3, LLAMA3.replace("{1,3}", ""), O200K, QWEN35, *DEEPSEEK, *EXPRESSIONS]]


def places(node, path=()):
    """Every place of a file but the single entries of its vocabulary and merges."""
    if path:
        yield path
    if path[-1:] in (("vocab",), ("merges",)):
        keys = list(node)[:3] if isinstance(node, dict) else list(range(min(3, len(node))))
        yield from (path + (key,) for key in keys)
    elif isinstance(node, dict):
        for key in node:
            yield from places(node[key], path + (key,))
    elif isinstance(node, list):
        for i, item in enumerate(node):
            yield from places(item, path + (i,))


def mutated(made, rng):
    made = copy.deepcopy(made)
    for _ in range(rng.choice((1, 1, 1, 2))):
        path = rng.choice(list(places(made)))
        node = made
        for key in path[:-1]:
            node = node[key]
        kin = next((kin for kin in KINDS if isinstance(node[path[-1]], str) and node[path[-1]] in kin), None)
        if rng.random() < 0.15:
            del node[path[-1]]
        elif isinstance(node[path[-1]], bool) and rng.random() < 0.8:
            node[path[-1]] = not node[path[-1]]
        elif kin and rng.random() < 0.8:
            node[path[-1]] = rng.choice(kin)
        elif isinstance(node[path[-1]], list) and node[path[-1]] and rng.random() < 0.7:
            rng.shuffle(node[path[-1]]) if rng.random() < 0.5 else node[path[-1]].pop(rng.randrange(len(node[path[-1]])))
        else:
            node[path[-1]] = copy.deepcopy(rng.choice(VALUES))
        if not isinstance(made.get("model"), dict):
            return made
    return made


def check_mutated(count, texts, folder):
    rng = random.Random(11)
    every = [made for _, made in families()]
    told = {"equal": 0, "refused by both": 0, "refused by name": 0, "read here alone": 0}
    for number in range(count):
        made = mutated(every[number % len(every)], rng)
        (folder / "tokenizer.json").write_text(json.dumps(made))
        try:
            theirs = Tokenizer.from_str(json.dumps(made))
        except BaseException:  # also a panic
            theirs = None
        found = None
        try:
            found, _ = ours(folder / "tokenizer.json", texts, folder)
        except AssertionError as error:
            if "tokenizer.json" not in str(error).split(": ", 2)[-1] and "is no token" not in str(error):
                failures.append(f"mutation {number}: {error}")
        if theirs is None or found is None:
            told["refused by both" if found is None and theirs is None else "refused by name" if found is None else "read here alone"] += 1
            continue
        wrong = False
        for text, (ids, decoded) in zip(texts, found):
            try:
                wanted = theirs.encode(text, add_special_tokens=False).ids
                said = theirs.decode(wanted, skip_special_tokens=False)
            except BaseException:
                continue
            if ids != wanted or decoded.decode(errors="replace") != said:
                wrong = True
                print(f"  mutation {number}: {text[:40]!r}: {ids[:9]} {decoded[:40]!r}, wanted {wanted[:9]} {said[:40]!r}")
                break
        told["equal"] += not wrong
        if wrong:
            failures.append(f"mutation {number}")
    print(f"{count} mutated files: {told}", flush=True)
    if told["equal"] < count // 4:
        failures.append(f"too few mutations are read: {told}")


def main():
    few = the_texts(100)
    texts = the_texts(10000) if FULL else few
    with tempfile.TemporaryDirectory(prefix="muster parts ") as place:
        folder = pathlib.Path(place)
        for name, pre in list(pre_tokenizers())[::1 if FULL else 2]:
            check(name, root(byte_model(), pre, None, BYTE_LEVEL), texts, folder, False)
        for name, normalizer in normalizers():
            check(name, root(byte_model(), ALPHABET, normalizer, BYTE_LEVEL, [added("\u00e9t\u00e9", normalized=True), added("Strip", normalized=True, rstrip=True)]), texts, folder, False)
        for name, decoder in decoders():
            check(f"decoder {name}", root(char_model(), {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}, None, decoder, [added("<x>")]), texts, folder)
        for name, made in families():
            check(name, made, texts, folder)
        check_tiktoken(texts, folder)
        if FULL:  # the peer alone takes seconds to read its file
            check_tekken(texts, folder)
        check_vocabulary_file(texts, folder)
        check_mutated(400 if FULL else 40, [text for text in few if len(text) < 300][:12 if not FULL else 60], folder)
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
