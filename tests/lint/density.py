"""How dense a private grammar is in comments, texts and documents: hits per 10,000 words in four columns, by part of the tree.

words.py --density [FOLDER] prints the table, --list each hit with its file and line, --lower takes the ratchet down to what
the tree has now. Columns:
  behind   "behind", "beside", "meanwhile", "likewise": write after, next to, while, also
  what     a clause with "what" as subject or object ("what is left"): name the thing ("the remaining ranks")
  of       a comment, list item or cell that begins with "of": begin with the noun ("Type of parameters")
  one      "one that", "those of", "those who", ...: repeat the noun
  long     of documents only: sentences of more than 30 words, in every hundred
Three kinds of text: comments (C, CUDA and Python), texts (string literals of product C with several words, so logs and --help),
docs (Markdown without code). A question may have a "what".
"""
import collections
import pathlib
import re

TREES = ("proto", "rendezvous", "kernels", "runtime", "trainer", "launcher", "python", "k8s", "examples", "packages", "cmake", "tests", "benchmarks")
PRODUCT = ("proto", "rendezvous", "kernels", "runtime", "trainer", "launcher")
LIMIT = 5.0  # hits per 10,000 words, in each column
LONG_WORDS, LONG_LIMIT = 30, 2.0  # words of a sentence; sentences above, per hundred
LEAST = 2  # hits that a part may have, however small it is
RATCHET = pathlib.Path(__file__).with_name("density_limits.txt")
QUOTED = {"launcher/docs/complaints.md", "tests/lint/density.py", "tests/lint/words.py", "tests/lint/words_test.py"}  # quote users, or the phrases themselves

COLUMNS = {
    "behind": re.compile(r"\b(?:behind|beside|meanwhile|likewise)\b", re.I),
    "what": re.compile(r"\bwhat(?:ever)? (?:is|are|was|were|has|have|had|does|do|did|can|cannot|may|must|would|could|will|an?|the|it|they|we|this|these|its|"
                       r"each|all|follows|comes|came|lies|goes|went|stands|stood|remains|differs)\b(?! (?:[^\s?]+ ){0,15}[^\s?]+\?)", re.I),
    "of": re.compile(r"\A(?:of|Of)\b"),
    "one": re.compile(r"\b(?:ones?|those|them|him) (?:that|of|who|which|whose)\b", re.I),
}
C_TOKEN = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|^[ \t]*#[ \t]*include[^\n]*', re.S | re.M)
PYTHON_TOKEN = re.compile(r'(?P<doc>^[ \t]*r?"""[\s\S]*?""")|"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(?P<hash>(?:^[ \t]*#[^\n]*\n)+|#[^\n]*)', re.M)
WORD = re.compile(r"[A-Za-z`][\w'`./-]*")
SENTENCE_END = re.compile(r"(?<![ (]e\.g)(?<!i\.e)(?<!etc)(?<!vs)[.!?][)\"'*]*(?=\s+[A-Z`\"'(*\[0-9]|\s*$)|:\s*$")


def plain(text, mark):
    """The text of a comment without its frame, in as many lines."""
    return re.sub(mark, "", text, flags=re.M)


def blocks_of_c(source, product):
    """(kind, line number, text)"""
    for match in C_TOKEN.finditer(source):
        token, line = match.group(), source.count("\n", 0, match.start()) + 1
        if token.startswith("/*"):
            yield "comments", line, plain(token[2:-2], r"^[ \t]*\*+(?![/\w])")
        elif token.startswith("//"):
            yield "comments", line, token[2:]
        elif token.startswith('"') and product and " " in token.strip('" ') and re.search("[A-Za-z]{2}", token):
            yield "texts", line, re.sub(r'"(\s*)"', lambda m: "\n" * m[1].count("\n"), token[1:-1].replace("\\n", "  "))


def blocks_of_python(source):
    for match in PYTHON_TOKEN.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        if match["doc"]:
            yield "comments", line, match["doc"].replace('"""', "")
        elif match["hash"]:
            yield "comments", line, plain(match["hash"], r"^[ \t]*#+")


def blocks_of_markdown(source):
    """Paragraphs, headings, list items and cells of tables, each a block; code is left out, code within a line is a word."""
    lines, block, start, fence = source.splitlines(), [], 0, None
    for number, line in enumerate([*lines, ""], 1):
        bare = line.strip()
        mark = re.match(r"(```+|~~~+)", bare)
        if fence:
            fence = None if mark and mark[1].startswith(fence) else fence
            continue
        item = re.match(r"(?:[-*+]|\d+[.)])\s+|>\s*|#+\s+", bare)
        if block and (not bare or mark or item or bare.startswith("|")):
            yield "docs", start, "\n".join(block)
            block = []
        if mark:
            fence = mark[1]
        elif bare.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "``", bare))[1:-1]:
                if re.search("[A-Za-z`]", cell):
                    yield "docs", number, cell.strip()
        elif bare and not bare.startswith("<") and not re.match(r" {4,}\S", line if not block else ""):
            start = start if block else number
            block.append(bare[item.end():] if item else bare)


def clean(text, kind):
    """Code is a word: `a b` counts as one."""
    text = re.sub(r"`[^`\n]*(?:\n[^`\n]*)?`", lambda m: "``" + "\n" * m.group().count("\n"), text)
    return re.sub(r"\]\([^)\s]*\)", "]", text) if kind == "docs" else text


def blocks(path, relative):
    source = path.read_text()
    if path.suffix == ".md":
        return blocks_of_markdown(source)
    return blocks_of_python(source) if path.suffix == ".py" else blocks_of_c(source, relative.partition("/")[0] in PRODUCT)


def is_read(path):
    return path.suffix in (".c", ".h", ".cu", ".cuh", ".inc", ".md", ".py")


def part_of(relative):
    """Two folders deep; documents at the top and README.md are their own."""
    names = relative.split("/")
    return "/".join(names[:2]) if len(names) > 2 else names[0]


class Count:
    def __init__(self):
        self.words, self.sentences, self.long = 0, 0, 0
        self.hits = collections.Counter()

    def rate(self, column):
        return 1e4 * self.hits[column] / max(1, self.words)

    def share(self):
        return 100 * self.long / max(1, self.sentences)

    def add(self, other):
        self.words, self.sentences, self.long = self.words + other.words, self.sentences + other.sentences, self.long + other.long
        self.hits.update(other.hits)


def count_block(count, kind, line, text, note):
    text = clean(text, kind)
    count.words += len(WORD.findall(text))
    flat = re.sub(r"\s", " ", text)
    lead = len(flat) - len(flat.lstrip(" *<-!")) if kind != "texts" else 0  # " of " within a text goes on from another one
    for column, pattern in COLUMNS.items():
        for match in pattern.finditer(flat, lead) if column != "of" else filter(None, [pattern.match(flat[lead:])]):
            count.hits[column] += 1
            at = match.start() + (lead if column == "of" else 0)
            note(line + text.count("\n", 0, at), column, " ".join(flat[max(0, at - 30):at + 60].split()))
    if kind != "docs":
        return
    at = 0
    for sentence in re.split(f"(?:{SENTENCE_END.pattern})", flat):
        words = len(WORD.findall(sentence))
        where = text.find(sentence.strip().split(" ")[0], at) if sentence.strip() else at
        if words > 2:
            count.sentences += 1
        if words > LONG_WORDS:
            count.long += 1
            note(line + text.count("\n", 0, max(at, where)), "long", f"{words} words: {' '.join(sentence.split())[:60]}")
        at += len(sentence)


def measure(root, below=""):
    """({(part, kind): Count}, [(file, line, kind, column, text)])"""
    counts, hits = collections.defaultdict(Count), []
    paths = [root / "README.md"] + [path for tree in TREES for path in sorted((root / tree).rglob("*"))]
    for path in paths:
        relative = path.relative_to(root).as_posix()
        if not is_read(path) or not relative.startswith(below) or relative in QUOTED or "__pycache__" in relative or not path.is_file():
            continue
        for kind, line, text in blocks(path, relative):
            count_block(counts[part_of(relative), kind], kind, line, text,
                        lambda at, column, quote: hits.append((relative, at, kind, column, quote)))
    return counts, hits


def limits():
    """{(part, kind, column): limit} of the parts that are still above."""
    found = {}
    for line in RATCHET.read_text().splitlines() if RATCHET.exists() else ():
        if line and not line.startswith("#"):
            part, kind, column, limit = line.split()
            found[part, kind, column] = float(limit)
    return found


def figures(count, kind):
    """(column, hits, rate, limit)"""
    for column in COLUMNS:
        yield column, count.hits[column], count.rate(column), LIMIT
    if kind == "docs":
        yield "long", count.long, count.share(), LONG_LIMIT


def check(root):
    breaches, raised, counts = [], limits(), measure(root)[0]
    for (part, kind), count in sorted(counts.items()):
        for column, hits, rate, limit in figures(count, kind):
            limit = max(limit, raised.get((part, kind, column), 0))
            if hits > LEAST and rate > limit:
                unit = "% of its sentences have over 30 words" if column == "long" else " per 10,000 words"
                breaches.append(f"{part}, {kind}, column {column}: {rate:.1f}{unit}, and {limit:g} is the limit: "
                                f"words.py --density {part} --list shows each")
    total = sum(count.words for count in counts.values())
    print(f"{total} words of comments, texts and documents in four columns; {len(raised)} limits are above the aim")
    return breaches


def lower(root):
    """Writes the ratchet anew: a limit never rises."""
    old, first, rows = limits(), not RATCHET.exists(), []
    for (part, kind), count in sorted(measure(root)[0].items()):
        for column, hits, rate, limit in figures(count, kind):
            spare = 100 / max(1, count.sentences) if column == "long" else 1e4 / max(1, count.words)  # one hit more
            ceiling = float(int(rate + spare) + 1)
            ceiling = ceiling if first else min(ceiling, old.get((part, kind, column), 0))
            if hits > LEAST and ceiling > limit:
                rows.append(f"{part} {kind} {column} {ceiling:g}")
    RATCHET.write_text("# Parts of the tree that are above the aim of density.py: part, kind, column, limit. Rows go down and away, never up:\n"
                       "# words.py --density --lower writes this file.\n" + "\n".join(rows) + "\n")
    print(f"{len(rows)} limits are above the aim")


def report(root, below, listed):
    counts, hits = measure(root, below)
    if listed:
        for file, line, kind, column, quote in hits:
            print(f"{file}:{line}: {column}: {quote}")
        return
    print(f"{'':<34}{'words':>8}" + "".join(f"{column:>8}" for column in COLUMNS) + f"{'long %':>8}")
    totals = collections.defaultdict(Count)
    for (part, kind), count in counts.items():
        totals["all", kind].add(count)
        if "/" in part:
            totals[part.partition("/")[0] + "/", kind].add(count)
    for (part, kind), count in [*sorted(totals.items()), *sorted(counts.items())]:
        row = "".join(f"{rate:>8.1f}" for _, _, rate, _ in figures(count, kind))
        print(f"{part:<25}{kind:<9}{count.words:>8}{row}")
