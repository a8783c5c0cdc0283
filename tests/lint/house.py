#!/usr/bin/env python3
"""A report, no gate: how finely each part of the tree is cut.

house.py --source DIR [--folders] [--once PREFIX] [--one-client PREFIX]
Prints one row for each top folder (with --folders one for each folder below, too):
  .c, .h      files of C; .cu and .cuh count as such
  lines       of both; "a file" is their mean
  .c p50/p95/max    lines of a .c file; "<100" counts the .c files below 100 lines
  fns, fn p50/p95/max     functions in .c files and the lines of their bodies
  once        static functions that exactly one place of their file calls, as a percentage of all functions; p50 of their lines;
              "<8" counts functions of under 8 lines
  one client  private headers that exactly one file includes other than the .c of the same name; headers of include/ are public
  clients in the folder   headers whose only client is a file of the header's own folder
Passes over "<8" in launcher/, trainer/ and runtime/ inlined little: nearly all that are left name a condition or a formula (is_callable,
luma, ranges_meet) whose line at its call would need a comment. Of the headers with one client half are another folder's interface, and
others have a unit test of their own.
--once and --one-client list these functions and headers of the files whose path begins with PREFIX, with the client.
"""
import argparse
import collections
import pathlib
import re
import sys

from lint import CODE, functions, name_of, sources, without_comments_and_strings

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)


def statics_called_once(code):
    """[(line, lines, name)] of static functions whose name stands at one place besides its definition and prototypes: a call."""
    found, lines, places = [], code.splitlines(), collections.defaultdict(list)
    for number, line in enumerate(lines):
        for match in re.finditer(r"[A-Za-z_]\w+", line):
            places[match.group()].append((number, match.start(), match.end()))
    for name, line, length in functions(code):
        uses, static = [], False
        for number, start, end in places[name]:
            head = lines[number][:start]
            if head[:1].strip() and "=" not in head:  # clang-format: what begins at the margin is a definition or a prototype
                static |= re.search(r"\bstatic\b", head) is not None
            else:
                uses.append(lines[number][end:end + 1])
        if static and uses == ["("]:
            found.append((line, length, name))
    return found


def at(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0


def spread(values):
    return f"{at(values, 0.5)} / {at(values, 0.95)} / {max(values, default=0)}"


def clients(root):
    """{header: files of the product that include it}, without the .c of the same name."""
    found = collections.defaultdict(set)
    for path in sources(root, ".c", ".h", ".cu", ".cuh", ".inc"):
        name = name_of(root, path)
        for header in INCLUDE.findall(path.read_text()):
            if header.rpartition(".")[0] != name.rpartition(".")[0]:
                found[header].add(name)
    return found


def is_private(name):
    return not re.search(r"(^|/)include/", name)


class Row:
    def __init__(self):
        self.c, self.h, self.functions, self.once, self.one_client, self.in_folder = [], [], [], [], 0, 0

    def add(self, other):
        for key, value in vars(other).items():
            setattr(self, key, getattr(self, key) + value)

    def text(self, title):
        files, lines = len(self.c) + len(self.h), sum(self.c) + sum(self.h)
        once = self.once
        share = 100 * len(once) / max(1, len(self.functions))
        return (f"| {title} | {len(self.c)} / {len(self.h)} | {lines} | {lines // max(1, files)} | {spread(self.c)} | "
                f"{sum(1 for n in self.c if n < 100)} | {len(self.functions)} | {spread(self.functions)} | "
                f"{share:.1f}% ({at(once, 0.5)}; {sum(1 for n in once if n < 8)}) | {self.one_client} ({self.in_folder}) |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--folders", action="store_true", help="a row for each folder, too")
    parser.add_argument("--once", metavar="PREFIX", help="list static functions that are called once")
    parser.add_argument("--one-client", metavar="PREFIX", help="list private headers with one client")
    options = parser.parse_args()
    root = options.source.resolve()
    rows, includers, listed = collections.defaultdict(Row), clients(root), []
    for path in sources(root, ".c", ".cu", ".h", ".cuh"):
        name = name_of(root, path)
        text, row = path.read_text(), rows[name.rpartition("/")[0]]
        lines = text.count("\n")
        if path.suffix in (".h", ".cuh"):
            row.h.append(lines)
            if is_private(name) and len(includers[name]) == 1:
                client = next(iter(includers[name]))
                row.one_client += 1
                row.in_folder += client.rpartition("/")[0] == name.rpartition("/")[0]
                if options.one_client is not None and name.startswith(options.one_client):
                    listed.append(f"{name}: {lines} lines, for {client}")
            continue
        code = without_comments_and_strings(text)
        row.c.append(lines)
        row.functions += [length for _, _, length in functions(code)]
        found = statics_called_once(code)
        row.once += [length for _, length, _ in found]
        if options.once is not None and name.startswith(options.once):
            listed += [f"{name}:{line}: {function}, {length} lines" for line, length, function in found]
    if listed or options.once is not None or options.one_client is not None:
        print("\n".join(listed))
        return 0
    print("| | .c / .h | lines | a file | .c p50 / p95 / max | <100 | fns | fn p50 / p95 / max | once (p50; <8) | one client (in the folder) |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for top in ("", *CODE):
        whole = Row()
        inside = [folder for folder in sorted(rows) if not top or folder == top or folder.startswith(top + "/")]
        for folder in inside:
            whole.add(rows[folder])
        print(whole.text(f"**{top or 'all'}**"))
        if options.folders and top:
            for folder in inside:
                print(rows[folder].text(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
