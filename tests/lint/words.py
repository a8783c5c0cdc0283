#!/usr/bin/env python3
"""Texts and names read as the field writes: a list of words that were this project's own, and names of static functions used too often.

words.py --source DIR     looks at log, error and help texts (string literals of product C with several words), the comments of
headers, the head comments of sources, and Markdown, in the folders of CLEAN, in those of COMMENTED at comments and docstrings of
Python and CMake too; then at all static functions of product C, then at the density of a private grammar (density.py). Prints
one line per breach and exits 1 where there is one.
words.py --density [FOLDER] [--list] prints that density by folder, or each hit; --density --lower takes its ratchet down.
"""
import argparse
import ast
import io
import pathlib
import re
import sys
import tokenize

import density

CODE = ("proto", "rendezvous", "kernels", "runtime", "trainer", "launcher")
# Folders whose texts are held against WORDS; a folder covers those below it.
CLEAN = ("runtime", "trainer", "kernels", "proto", "rendezvous", "launcher", "k8s", "tests/README.md", "tests/compat", "tests/data", "tests/fuzz", "tests/lint",
         "tests/simulation", "tests/e2e", "benchmarks", "cmake")
COMMENTED = ("tests/e2e", "benchmarks", "cmake")

# word or phrase -> what to write
WORDS = {
    r"errands?": "background job",
    r"kin": "descendants",
    r"strangers?": "unauthenticated peer, unknown peer",
    r"heirs?|successions?": "takeover, the agent that takes over",
    r"witness(?:es)?|inquest|inquir(?:y|ies)": "kernel evidence, hang dump, post-mortem",
    r"outlets?": "write queue",
    r"carriers?(?<!a carrier)": "transport (without a carrier: a network link)",
    r"farewells?|goodbyes?": "LEAVE, handover notice",
    r"told": "was sent, received, was informed; for a stop: was sent SIGTERM",
    r"tells?": "reports, shows, distinguishes",
    r"hears?|heard": "receives, received",
    r"says|said": "reports, prints, logs, states",
    r"without a word|not worth a word|last words": "silently, without a report",
    r"whose word|server's word|(?:has|have) (?:its|their) word": "decision, message",
    r"stands? still|stood still": "is stalled, is suspended",
    r"stands? (?:in|there|behind|before|beside|twice)": "is in, is at",
    r"the dead|its dead": "exited children, dead processes",
    r"nobody|everybody|somebody|whoever|whomever": "name the subject: no process, every rank, a peer",
    r"(?:one|those|him|them) who": "name the subject",
    r"who (?:is|are|was|has|have|had|may|can|must|does|did|came|comes|goes|serves|joins|leaves|wants?|waits?|runs?|holds?|sends?|asks?)": "name the subject",
    r"lets? (?:\w+ )?in|wants? in": "admits, requests to join",
    r"(?:is|are) asked (?:of|for|to)": "is requested, is queried",
    r"for (?:torchrun's|its|their) sake": "for compatibility with",
    r"(?:a|of its) life(?! ?(?:cycle|time))": "a run, a process, its lifetime",
    r"bears": "tolerates, limits",
    r"befell|befall": "faults of",
    r"by its own (?:will|doing)": "deliberately",
}
# (path, phrase): where a word of the list is right
ALLOWED = {
    ("launcher/docs/complaints.md", ""),  # quotes others\' words
    ("launcher/docs/notice.md", "self.told"),  # a name in the example, which a test runs
}
# Static functions of product C with the same name in more files than this: give them their object's prefix.
STATIC_FILES = 3
STATIC_ALLOWED = {}

WORD = re.compile(r"(?<![*`_.>])\b(?:" + "|".join(f"(?P<w{i}>{p})" for i, p in enumerate(WORDS)) + r")\b", re.I)
TOKEN = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|^[ \t]*#[ \t]*include[^\n]*', re.S | re.M)


def texts(path):
    """(line number, text) of everything in a file that people read."""
    source = path.read_text()
    if path.suffix == ".md":
        yield from enumerate(re.sub(r"`[^`\n]*`", "``", source).splitlines(), 1)
        return
    if path.suffix == ".py":
        yield from texts_of_python(source)
        return
    if path.suffix == ".cmake" or path.name == "CMakeLists.txt":
        yield from ((number, line.partition("#")[2]) for number, line in enumerate(source.splitlines(), 1))
        return
    head = True
    for match in TOKEN.finditer(source):
        token, line = match.group(), source.count("\n", 0, match.start()) + 1
        if token.startswith("/*"):
            if path.suffix == ".h" or head:
                yield from enumerate(token.splitlines(), line)
            head = False
        elif token.startswith('"') and " " in token.strip('" ') and re.search("[A-Za-z]{2}", token):
            yield line, token


def texts_of_python(source):
    """Comments and docstrings; other strings are quotations of programs, or of torchrun's."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            yield from enumerate(node.body[0].value.value.splitlines(), node.body[0].lineno)


def is_read(path, relative):
    """Whether a file has texts for people to read."""
    if any(relative.startswith(folder + "/") for folder in COMMENTED):
        return path.suffix in (".c", ".h", ".md", ".py", ".cmake") or path.name == "CMakeLists.txt"
    return path.suffix == ".md" or (path.suffix in (".c", ".h", ".cu") and relative.partition("/")[0] in CODE)


def check_words(root):
    breaches, count = [], 0
    for name in CLEAN:
        base = root / name
        files = [base] if base.is_file() else sorted(base.rglob("*"))
        for path in files:
            relative = path.relative_to(root).as_posix()
            if not path.is_file() or not is_read(path, relative):
                continue
            count += 1
            for line, text in texts(path):
                for match in WORD.finditer(text):
                    if any(relative == file and phrase in text for file, phrase in ALLOWED):
                        continue
                    better = list(WORDS.values())[int(match.lastgroup[1:])]
                    breaches.append(f"{relative}:{line}: '{match.group()}': write {better}")
    print(f"{count} files are held against {len(WORDS)} phrases")
    return breaches


def check_statics(root):
    files, count = {}, 0
    definition = re.compile(r"^static (?!inline)[^;=(){}]*?\b(\w+)\([^;]*?\)\n\{", re.M)
    for folder in CODE:
        for path in sorted((root / folder).rglob("*.c")):
            relative = path.relative_to(root).as_posix()
            for name in set(definition.findall(path.read_text())):
                files.setdefault(name, []).append(relative)
                count += 1
    breaches = [f"static {name}() is in {len(where)} files ({', '.join(where)}): give it its object's prefix"
                for name, where in sorted(files.items()) if len(where) > STATIC_ALLOWED.get(name, STATIC_FILES)]
    print(f"{count} static functions; a name may be in {STATIC_FILES} files")
    return breaches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).parents[2])
    parser.add_argument("--density", metavar="FOLDER", nargs="?", const="", help="print the density table, of a folder or of all")
    parser.add_argument("--list", action="store_true", help="with --density: each hit with file and line")
    parser.add_argument("--lower", action="store_true", help="with --density: take the ratchet down to what the tree has")
    options = parser.parse_args()
    root = options.source.resolve()
    if options.density is not None:
        density.lower(root) if options.lower else density.report(root, options.density, options.list)
        return 0
    breaches = check_words(root) + check_statics(root) + density.check(root)
    for breach in breaches:
        print(breach)
    print(f"lint words: {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
