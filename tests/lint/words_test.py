"""The lint of words, on planted texts: what it has to find, what it has to pass, and limits that nobody raises in passing.

    python3 tests/lint/words_test.py
"""
import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import density
import words

VERBS = ("is are was were has have had does do did can cannot may must would could will a an the it they we this these its each all follows comes came "
         "lies goes went stands stood remains differs")
# column -> sentences with exactly one hit in it, and in no other column
FOUND = {
    "behind": ["The thread waits behind the lock.", "A table beside the struct.", "Meanwhile the loop runs.", "The server likewise closes."],
    "what": ["It frees what is left.", "Prints what the worker wrote.", "Whatever it has is dropped.", *(f"Prints what {word} ..." for word in VERBS.split())],
    "of": ["Of the last round.", "of one node"],
    "one": ["The one that failed.", "It keeps those of the round.", "The ones which wait are freed.", "It stops those who wait."],
}
PASSED = [
    "The lock is taken after the table, next to the struct, while the loop runs.",
    "It frees the remaining ranks.",
    "What is the state of a rank?",
    "The number of ranks is one, and that of the nodes is two.",
    "`what is left` and `behind` are code.",
    "Size of the buffer in bytes.",
]
LONG = " ".join(["word"] * (density.LONG_WORDS + 1)) + "."
# phrase of words.WORDS -> a text with it
PHRASES = {
    "errand": "runs an errand", "kin": "kills its kin", "strangers": "strangers may connect", "heir": "the heir takes over",
    "witness": "a witness of the kernel", "outlet": "the outlet is full", "carrier": "the carrier sends", "farewell": "sends a farewell",
    "told": "the agent is told", "tells": "it tells the cause", "hears": "the server hears of it", "says": "the log says so",
    "without a word": "ends without a word", "has its word": "it has its word", "stands still": "the job stands still",
    "stands in": "it stands in the table", "the dead": "counts the dead", "nobody": "nobody reads it", "one who": "the one who joins",
    "who is": "a rank who is late", "lets in": "lets in a peer", "is asked for": "a rank is asked for", "for its sake": "for its sake it waits",
    "a life": "a life of a worker", "bears": "it bears two failures", "befell": "faults befell it", "by its own will": "leaves by its own will",
}
# The ratchet: a row goes away or down, and never comes back. A change here is one to explain.
CEILINGS = {
    ("launcher/docs", "docs", "one"): 11,
    ("proto/base", "texts", "one"): 63,
    ("runtime/config", "texts", "one"): 12,
    ("runtime/train", "texts", "what"): 32,
    ("trainer/docs", "docs", "one"): 23,
    ("trainer/run", "texts", "one"): 24,
}


def hits(text, kind="comments"):
    found = []
    density.count_block(density.Count(), kind, 1, text, lambda line, column, quote: found.append(column))
    return found


class Tree(unittest.TestCase):
    """A small source tree in which one file after the other is planted."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("README.md", "# A tree\n")
        silence = contextlib.redirect_stdout(io.StringIO())
        silence.__enter__()
        self.addCleanup(silence.__exit__, None, None, None)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Density(Tree):
    def test_each_column_is_found_and_no_other(self):
        self.assertEqual(set(FOUND), set(density.COLUMNS))
        for column, sentences in FOUND.items():
            for sentence in sentences:
                with self.subTest(sentence=sentence):
                    self.assertEqual(hits(sentence), [column])

    def test_good_sentences_pass(self):
        for kind in "comments", "texts", "docs":
            for sentence in PASSED:
                with self.subTest(kind=kind, sentence=sentence):
                    self.assertEqual(hits(sentence, kind), [])

    def test_long_sentences_are_counted_in_documents_alone(self):
        self.assertEqual(hits(LONG, "docs"), ["long"])
        self.assertEqual(hits(LONG, "comments"), [])
        self.assertEqual(hits(LONG.removeprefix("word "), "docs"), [])
        self.assertEqual(hits("Two short sentences. " + LONG, "docs"), ["long"])

    def planted(self, name, text):
        self.write(name, text)
        breaches = density.check(self.root)
        (self.root / name).unlink()
        return [breach.partition(":")[0] for breach in breaches]

    def test_each_kind_of_text_is_read(self):
        bad, good = FOUND["behind"][0], PASSED[0]
        places = {
            "comments": [("runtime/x/a.h", "/* {} */\n"), ("kernels/x/a.cu", "// {}\n"), ("tests/x/a.c", "/* {} */\n"), ("tests/x/a.py", "# {}\n"),
                         ("benchmarks/x/a.py", 'def f():\n    """{}"""\n')],
            "texts": [("trainer/x/a.c", 'f("{}");\n')],
            "docs": [("launcher/x/a.md", "- {}\n"), ("k8s/x/a.md", "| {} |\n"), ("examples/x/a.md", "{}\n\n")],
        }
        for kind, files in places.items():
            for name, frame in files:
                with self.subTest(name=name):
                    self.assertEqual(self.planted(name, frame.format(bad) * 3), [f"{name.rpartition('/')[0]}, {kind}, column behind"])
                    self.assertEqual(self.planted(name, frame.format(good) * 3), [])
        self.assertEqual(self.planted("tests/x/a.c", f'f("{bad}");\n' * 3), [])  # a test's text may quote
        self.assertEqual(self.planted("launcher/x/a.md", f"```\n{bad}\n{bad}\n{bad}\n```\n"), [])

    def test_the_limits_are_where_they_were(self):
        self.assertEqual((density.LIMIT, density.LONG_WORDS, density.LONG_LIMIT, density.LEAST), (5, 30, 2, 2))
        self.assertEqual(density.QUOTED, {"launcher/docs/complaints.md", "tests/lint/density.py", "tests/lint/words.py", "tests/lint/words_test.py"})
        self.assertLessEqual({"proto", "rendezvous", "kernels", "runtime", "trainer", "launcher", "python", "k8s", "tests", "benchmarks"}, set(density.TREES))
        for row, limit in density.limits().items():
            self.assertLessEqual(limit, CEILINGS.get(row, 0), row)

    def test_the_rate_decides(self):
        bad, filler = f"/* {FOUND['one'][0]} */\n", "/* A buffer of ten bytes. */\n"
        self.assertEqual(self.planted("proto/x/a.h", bad * 3 + filler * 1300), [])  # 3 in 6,512 words
        self.assertEqual(self.planted("proto/x/a.h", bad * 3 + filler * 1100), ["proto/x, comments, column one"])
        self.assertEqual(self.planted("proto/x/a.h", bad * 2), [])  # two hits are always free

    def test_the_ratchet_only_goes_down(self):
        file = self.root / "limits.txt"
        with mock.patch.object(density, "RATCHET", file):
            file.write_text("proto/x comments one 20\n")
            bad = f"/* {FOUND['one'][0]} */\n" + "/* A buffer of ten bytes. */\n"
            self.write("proto/x/a.h", bad * 4)  # 1,111 per 10,000 words
            density.lower(self.root)
            self.assertEqual(density.limits(), {("proto/x", "comments", "one"): 20})
            self.assertEqual(len(density.check(self.root)), 1)
            self.write("proto/x/a.h", "/* A buffer of ten bytes. */\n")
            density.lower(self.root)
            self.assertEqual(density.limits(), {})


class Words(Tree):
    def test_each_phrase_is_found(self):
        matched = set()
        for text in PHRASES.values():
            self.write("launcher/x/a.md", text + "\n")
            breaches = words.check_words(self.root)
            self.assertGreaterEqual(len(breaches), 1, text)
            matched |= {match.lastgroup for match in words.WORD.finditer(text)}
        self.assertEqual(matched, {f"w{i}" for i in range(len(words.WORDS))}, "a phrase without a text that has it")

    def test_good_sentences_pass(self):
        self.write("launcher/x/a.md", "\n".join(PASSED) + "\n")
        self.assertEqual(words.check_words(self.root), [])

    def test_a_static_name_in_many_files(self):
        for i in range(words.STATIC_FILES):
            self.write(f"runtime/x/{i}.c", "static void close_all(void)\n{\n}\n")
        self.assertEqual(words.check_statics(self.root), [])
        self.write("runtime/x/more.c", "static void close_all(void)\n{\n}\n")
        self.assertEqual(len(words.check_statics(self.root)), 1)

    def test_the_limits_are_where_they_were(self):
        self.assertEqual((words.STATIC_FILES, words.STATIC_ALLOWED), (3, {}))
        self.assertEqual(words.ALLOWED, {("launcher/docs/complaints.md", ""), ("launcher/docs/notice.md", "self.told")})
        self.assertLessEqual({"runtime", "trainer", "kernels", "proto", "rendezvous", "launcher", "k8s", "tests/e2e", "benchmarks", "cmake"}, set(words.CLEAN))


if __name__ == "__main__":
    unittest.main()
