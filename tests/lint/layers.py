#!/usr/bin/env python3
"""Folders are layers: one folder is one library is one row of the table that CMake writes to BUILD/layers.txt (muster_layer's USES).

layers.py --source DIR --build DIR [--circles | --quiet | --readmes]
Held against the table: every #include, every undefined symbol of every archive and of the objects of programs (an object file calls
the folders that its row names and nothing else), that rows name no folder in vain, that rows make no circle, that few files of a
folder call each other in a circle, and the directions of the whole. --circles prints these circles, too. --readmes writes the line of
callers and uses into the README of each folder; lint.py docs holds it equal.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

CODE = ("proto", "rendezvous", "kernels", "runtime", "trainer", "launcher")
EVERYBODY = {"proto", "proto/base", "proto/include"}
# The directions of the whole: what rows of a folder may name, whatever CMake says.
DIRECTIONS = {
    r"proto\b": r"proto\b",
    r"kernels\b": r"proto\b|kernels\b",
    r"rendezvous/(store|tcpstore|net)$": r"proto\b|rendezvous/(store|tcpstore|net)$",
    r"rendezvous\b": r"proto\b|rendezvous\b",
    r"runtime/nccl/": r"proto\b|runtime/nccl/",
    r"runtime/": r"proto\b|kernels\b|runtime/|rendezvous/(store|tcpstore)$",
    r"trainer/": r"proto\b|runtime/(include|config)$|trainer/",
    r"launcher\b": r"proto\b|rendezvous\b|runtime/nccl/|launcher\b",
}
FILES_LIMIT = 40
SOURCES_LIMIT = {"launcher/agent": 16}  # .c files: a further part has a room below
CIRCLE_LIMIT = 4  # files that call each other in a circle, anywhere
# Folders with a limit of their own: 1 where there is no circle, more where there still is a larger one. Rows go down, never up.
CIRCLE_LIMITS = {
    "launcher/agent": 1,
    "launcher/config": 1,
    "trainer/run": 1,
    "runtime/plan": 1,
    "runtime/train": 1,
}


def read_table(build):
    """{folder: folders that it may use}, {folder: its archive}: archives of an older build in lib/ are no layers."""
    table, archives = {}, {}
    for line in (build / "layers.txt").read_text().splitlines():
        head, _, uses = line.partition(":")
        folder, archive = head.split()
        table[folder] = set(uses.split())
        if archive != "-":
            archives[folder] = build / "lib" / archive
    return table, archives


def readme_lines(table):
    """{folder: the line of its README that names its callers and the folders that it uses}"""
    def names(folders):
        return ", ".join(f"`{folder}/`" for folder in sorted(folders)) or "none"
    return {row: f"Callers: {names(caller for caller, used in table.items() if row in used)}; uses: {names(uses)}."
            for row, uses in table.items() if row not in EVERYBODY}


README_LINE = re.compile(r"^Callers: .*; uses: .*\.$", re.M)


def write_readmes(source, table):
    for row, line in readme_lines(table).items():
        path = source / row / "README.md"
        if path.is_file():
            text = path.read_text()
            found = README_LINE.sub(lambda _: line, text, count=1) if README_LINE.search(text) else f"{text.rstrip()}\n\n{line}\n"
            if found != text:
                path.write_text(found)


def row_of(table, folder):
    """The row that a folder belongs to: its own, or that of the nearest folder above it."""
    while folder and folder not in table:
        folder = folder.rpartition("/")[0]
    return folder


def circles(edges):
    """The strongly connected components with more than one node (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def check_includes(source, table, used):
    breaches, count = [], 0
    for top in CODE:
        for path in sorted((source / top).rglob("*")):
            if path.suffix not in (".c", ".h", ".cu", ".cuh"):
                continue
            name = path.relative_to(source).as_posix()
            row = row_of(table, name.rpartition("/")[0])
            if not row:
                breaches.append(f"{name}: its folder is no layer: give it a CMakeLists.txt with muster_layer()")
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                if not match or match.group(1).endswith(".pb-c.h") or not (source / match.group(1)).is_file():
                    continue
                count += 1
                folder = match.group(1).rpartition("/")[0]
                other = row_of(table, folder)
                if other == row or folder in EVERYBODY or other in EVERYBODY:
                    continue
                used[row].add(other)
                if other not in table[row]:
                    breaches.append(f"{name}:{number}: {row} may not use {other} ({match.group(1)})")
    return breaches, count


def symbols_of(*paths):
    """(defined, undefined) by member of an archive, or by object file; a second member of the same name is another one."""
    members, member, last = {}, None, None
    run = subprocess.run(["nm", "-A", *map(str, paths)], capture_output=True, text=True, check=True)
    for line in run.stdout.splitlines():
        head, _, rest = line.rpartition(":")
        if head != last:
            last, member = head, re.split("[:/]", head.rstrip(":"))[-1]
            while member in members:
                member += "'"
        fields = rest.split()
        kind, name = fields[-2], fields[-1]
        defined, undefined = members.setdefault(member, (set(), set()))
        if kind == "U":
            undefined.add(name)
        elif kind in "TDBRVWCu":
            defined.add(name)
    return members


def check_symbols(source, build, table, archives, used):
    breaches, owner, contents = [], {}, {row: symbols_of(archive) for row, archive in archives.items()}
    for line in (build / "layers_programs.txt").read_text().splitlines():
        row, *objects = line.split("|")  # a path may have blanks
        contents.setdefault(row, {}).update(symbols_of(*objects))
    for row, members in contents.items():
        for defined, _ in members.values():
            for name in defined:
                owner[name] = row
    public = set(re.findall(r"^MUSTER_API [^;]*?\b(muster_\w+)\(", "".join(path.read_text() for path in sorted((source / "runtime/include").glob("*.h"))), re.M))
    calls = 0
    for row, members in contents.items():
        for member, (_, undefined) in members.items():
            for name in sorted(undefined):
                other = owner.get(name)
                if name in public and not row.startswith("runtime/"):
                    other = "runtime/include"
                if other is None or other == row:
                    continue
                calls += 1
                used[row].add(other)
                if other not in table[row] and other not in EVERYBODY:
                    breaches.append(f"{row}/{member}: {row} may not call {name} of {other}")
    return breaches, contents, calls


def check_circles_of_files(contents, show):
    breaches = []
    for row, members in sorted(contents.items()):
        owner = {name: member for member, (defined, _) in members.items() for name in defined}
        edges = {member: {owner[name] for name in undefined if name in owner} for member, (_, undefined) in members.items()}
        found = circles(edges)
        for part in found if show else []:
            print(f"{row}: {len(part)} files call each other: {' '.join(part)}")
        limit = CIRCLE_LIMITS.get(row, CIRCLE_LIMIT)
        for part in found:
            if len(part) > limit:
                breaches.append(f"{row}: {len(part)} files call each other in a circle, and {limit} may: {' '.join(part)}")
    return breaches


def check_sizes(source):
    breaches = []
    for top in CODE + ("tests", "benchmarks"):
        counts = collections.Counter(path.parent.relative_to(source).as_posix() for path in (source / top).rglob("*")
                                     if path.suffix in (".c", ".h", ".cu", ".cuh", ".py"))
        breaches += [f"{folder}: {count} source files; a room has at most {FILES_LIMIT}"
                     for folder, count in sorted(counts.items()) if count > FILES_LIMIT]
    for folder, limit in SOURCES_LIMIT.items():
        count = len(list((source / folder).glob("*.c")))
        breaches += [f"{folder}: {count} .c files, and {limit} may be"] if count > limit else []
    return breaches


def check_table(table, used):
    breaches = []
    for row, uses in sorted(table.items()):
        rule = next((allowed for folder, allowed in DIRECTIONS.items() if re.match(folder, row)), None)
        breaches += [f"{row} names {other}, against the direction of dependencies" for other in sorted(uses)
                     if rule is None or not re.match(rule, other)]
        breaches += [f"{row} names {other}, which is no layer" for other in sorted(uses) if other not in table]
        breaches += [f"{row} names {other} and uses nothing of it" for other in sorted(uses - used[row]) if other in table]
    breaches += [f"folders use each other in a circle: {' '.join(part)}" for part in circles(table)]
    return breaches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--circles", action="store_true")
    parser.add_argument("--quiet", action="store_true", help="print breaches only")
    parser.add_argument("--readmes", action="store_true", help="write the READMEs' lines of callers and uses")
    options = parser.parse_args()
    source, build = options.source.resolve(), options.build.resolve()
    if options.readmes:
        write_readmes(source, read_table(build)[0])
        return 0
    (table, archives), used = read_table(build), collections.defaultdict(set)
    breaches, includes = check_includes(source, table, used)
    of_symbols, contents, calls = check_symbols(source, build, table, archives, used)
    if not options.quiet:
        print(f"{includes} includes looked at; {calls} symbols of other folders are used by {len(archives)} archives")
    breaches += of_symbols + check_table(table, used) + check_circles_of_files(contents, options.circles) + check_sizes(source)
    for breach in breaches:
        print(breach)
    if breaches or not options.quiet:
        print(f"lint layers: {len(table)} layers, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
