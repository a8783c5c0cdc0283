#!/usr/bin/env python3
"""Writes unicode_table.inc and normal_table.inc: what code points are, as `tokenizers` has it.

unicode_table.py FOLDER, with the package tokenizers (0.23.3 was used). Categories, scripts and words come from its regular
expressions (Oniguruma); tiktoken's expressions have the same categories. The other flags come from functions of Rust that its parts
call, which know different versions of Unicode. Each normal form is a call. A class of combination follows from the order of two marks.
"""
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers
from tokenizers.pre_tokenizers import Digits, Punctuation, Split, Whitespace

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
SCRIPTS = ("Common Inherited Latin Greek Cyrillic Armenian Hebrew Arabic Devanagari Bengali Gurmukhi Gujarati Tamil Telugu Kannada Malayalam "
           "Sinhala Thai Lao Tibetan Myanmar Georgian Hangul Ethiopic Khmer Mongolian Hiragana Katakana Bopomofo Han Yi").split()
HANGUL = range(0xAC00, 0xD7A4)  # composed by arithmetic


def removed(split):
    """The code points that a pre-tokenizer removes."""
    left = set()
    for at in range(0, len(POINTS), 4096):
        points = POINTS[at:at + 4096]
        for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, points))):
            left.update(points[begin:end])
    return set(POINTS) - left


def matched(pattern):
    return removed(Split(Regex(pattern), "removed"))


def changed(normalizer):
    found = ((c, normalizer.normalize_str(chr(c))) for c in POINTS)
    return {c: text for c, text in found if text != chr(c)}


def bert(**on):
    return changed(normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False, **on}))


def classes():
    value = [0] * 0x110000
    for number, name in enumerate(CATEGORIES):
        for c in matched(rf"\p{{{name}}}") if number else ():
            value[c] |= number << 16
    for number, name in enumerate(SCRIPTS):
        for c in matched(rf"\p{{{name}}}"):
            value[c] |= (number + 1) << 24
    digits, whitespace = Digits(individual_digits=True), Whitespace()
    flags = [matched(r"\p{L}"), matched(r"\p{N}"), matched(r"\s"), {c for c in POINTS if len(digits.pre_tokenize_str("aa" + chr(c) + "aa")) == 3},
             matched(r"\w"), {c for c in POINTS if [(0, 2)] == [place for _, place in whitespace.pre_tokenize_str("a" + chr(c))]},
             removed(Punctuation("removed")), {c for c, text in bert(clean_text=True).items() if text == ""},
             bert(strip_accents=True).keys() & {c for c, text in bert(strip_accents=True).items() if text == ""},
             {c for c, text in changed(normalizers.StripAccents()).items() if text == ""}]
    for bit, points in enumerate(flags):
        for c in points:
            value[c] |= 1 << bit
    return [(c, value[c]) for c in range(0x110000) if c == 0 or value[c] != value[c - 1]]


def lower_rows(lower):
    """first, last, step, delta: runs of code points whose small letters are as far away."""
    rows = []
    for c, text in lower.items():
        delta = ord(text[0]) - c
        if rows and rows[-1][3] == delta and (c - rows[-1][1] == rows[-1][2] or (rows[-1][0] == rows[-1][1] and c - rows[-1][1] <= 2)):
            rows[-1][2] = c - rows[-1][1]
            rows[-1][1] = c
        else:
            rows.append([c, c, 1, delta])
    return rows


def combining():
    """{code point: class}, without the code points that are not moved."""
    nfd = normalizers.NFD()

    def goes_back(left, right):  # whether NFD exchanges them: left has the higher class
        return nfd.normalize_str("a" + left + right) == "a" + right + left

    first, last, known, found = "\u0334", "\u0345", {}, {}  # their classes are 1 and 240
    moved = [chr(c) for c in POINTS if c == ord(first) or goes_back(chr(c), first) or goes_back(last, chr(c))]
    for c in moved:
        known.setdefault(unicodedata.combining(c), c)
    known.pop(0, None)
    for c in moved:
        same = [number for number, other in known.items() if c == other or not (goes_back(c, other) or goes_back(other, c))]
        assert len(same) == 1, (hex(ord(c)), same)
        found[ord(c)] = same[0]
    return found


def ranges(values):
    rows = []
    for c in sorted(values):
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == values[c]:
            rows[-1][1] = c
        else:
            rows.append([c, c, values[c]])
    return rows


def canonical_rows():
    """Pairs (0 as the second: a single one) by code point, and the numbers of the rows that NFC composes, by pair."""
    whole, nfc = changed(normalizers.NFD()), normalizers.NFC()
    rows, composing = [], []
    by_text = {text: c for c, text in whole.items()}
    for c, text in sorted(whole.items()):
        if c in HANGUL:
            continue
        joined = nfc.normalize_str(text[:-1]) if len(text) > 1 else text
        first = ord(joined) if len(joined) == 1 else by_text[joined]
        rows.append((c, first, ord(text[-1]) if len(text) > 1 else 0))
        if len(text) > 1 and nfc.normalize_str(text) == chr(c):
            composing.append((rows[-1][1:], len(rows) - 1))
    return rows, [number for _, number in sorted(composing)]


def compatible_rows():
    """The code points whose compatible decomposition is another than the canonical one: a code point, or a place in the pool."""
    whole, rows, pool = changed(normalizers.NFD()), [], []
    for c, text in sorted(changed(normalizers.NFKD()).items()):
        if text == whole.get(c):
            continue
        points = list(map(ord, text))
        at = next((i for i in range(len(pool)) if pool[i:i + len(points)] == points), len(pool))
        if len(points) > 1 and at == len(pool):
            pool += points
        rows.append((c, points[0] if len(points) == 1 else 1 << 31 | at << 8 | len(points)))
    return rows, pool


def put(file, name, kind, items):
    file.write(f"static const {kind} {name}[] = {{\n")
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 140:
            file.write(line + "\n")
            line = "   "
        line += " " + item + ","
    file.write(line + "\n};\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    lower = changed(normalizers.Lowercase())
    assert [c for c, text in lower.items() if len(text) > 1] == [0x130]
    head = f"made by unicode_table.py from tokenizers {tokenizers.__version__}"
    with (folder / "unicode_table.inc").open("w") as file:
        file.write(f"/* unicode_table.inc - {head}. Each row is true up to the next row. */\n")
        rows = classes()
        put(file, "class_rows", "struct class_row", [f"{{0x{c:X}, 0x{value:X}}}" for c, value in rows])
        put(file, "ascii_classes", "unsigned", [f"0x{[value for first, value in rows if first <= c][-1]:X}" for c in range(128)])
        put(file, "lower_rows", "struct lower_row", [f"{{0x{first:X}, 0x{last:X}, {step}, {delta}}}" for first, last, step, delta in lower_rows(lower)])
        put(file, "category_names", "char *const", [f'"{name}"' for name in CATEGORIES])
        put(file, "script_names", "char *const", [f'"{name}"' for name in ["", *SCRIPTS]])
    rows, composing = canonical_rows()
    more, pool = compatible_rows()
    with (folder / "normal_table.inc").open("w") as file:
        file.write(f"/* normal_table.inc - {head}. */\n")
        put(file, "canonical_rows", "struct canonical_row", [f"{{0x{c:X}, 0x{a:X}, 0x{b:X}}}" for c, a, b in rows])
        put(file, "composing_rows", "uint16_t", map(str, composing))
        put(file, "compatible_rows", "struct compatible_row", [f"{{0x{c:X}, 0x{value:X}}}" for c, value in more])
        put(file, "compatible_pool", "uint32_t", [f"0x{c:X}" for c in pool])
        put(file, "combining_rows", "struct combining_row", [f"{{0x{a:X}, 0x{b:X}, {n}}}" for a, b, n in ranges(combining())])


if __name__ == "__main__":
    main()
