#!/usr/bin/env python3
"""Writes unicode_table.inc: the classes of code points that pre-tokenizers use, as `tokenizers` has them.

unicode_table.py > unicode_table.inc, with the package tokenizers (0.23.3 was used). Letters, numbers and blanks are the classes of
its regular expressions (Oniguruma). "numeric" is char::is_numeric of Rust, which its Digits calls, and which knows a later Unicode.
"""
import tokenizers
from tokenizers import Regex
from tokenizers.pre_tokenizers import Digits, Split

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def matched(pattern):
    """The code points of a class: removing matches from a run leaves the code points outside of the class."""
    split, left = Split(Regex(pattern), "removed"), set()
    for at in range(0, len(POINTS), 4096):
        points = POINTS[at:at + 4096]
        for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, points))):
            left.update(points[begin:end])
    return set(POINTS) - left


def numeric():
    digits = Digits(individual_digits=True)
    return {c for c in POINTS if len(digits.pre_tokenize_str("aa" + chr(c) + "aa")) == 3}


def main():
    classes = [("UNICODE_LETTER", matched(r"\p{L}")), ("UNICODE_NUMBER", matched(r"\p{N}")), ("UNICODE_BLANK", matched(r"\s")),
               ("UNICODE_NUMERIC", numeric())]
    rows, last = [], None
    for c in range(0x110000):
        names = tuple(name for name, points in classes if c in points)
        if names and last == (c - 1, names):
            rows[-1][1] = c
        elif names:
            rows.append([c, c, names])
        last = (c, names)
    print(f"/* unicode_table.inc - made by unicode_table.py from tokenizers {tokenizers.__version__}: first, last, classes. */")
    for first, last, names in rows:
        print(f"    {{0x{first:X}, 0x{last:X}, {' | '.join(names)}}},")


main()
