"""All mutants of a file in one: each function's body once for every mutant, and a number that chooses. Pure.

A single build can then be run as any of its mutants: the environment names it, MUSTER_MUTANT=path:number, numbers from 1; without it
the file behaves as before."""

import re

NAME = "MUSTER_MUTANT"
LABEL = re.compile(r"^(\w+):$")
VOID = re.compile(r"(?:static |inline )*void\s+\w+\(")

# One line, so that later lines keep their place. The constructor reads the choice before anything of ours runs.
CHOICE = (
    "extern char *getenv(const char *); static int mutant_chosen; __attribute__((constructor)) static void mutant_choose(void) {{ "
    'const char *text = getenv("{name}"); if (!text || __builtin_strncmp(text, "{path}:", {length})) return; '
    "for (text += {length}; *text >= '0' && *text <= '9'; text++) mutant_chosen = mutant_chosen * 10 + *text - '0'; }}"
)


def bodies(lines):
    """[(line of the {, line of the })] of the functions, as operators.functions sees them."""
    found, begin = [], None
    for number, line in enumerate(lines):
        if line.startswith("{"):
            begin = number
        elif line.startswith("}") and begin is not None:
            if line == "}":
                found.append((begin, number))
            begin = None
    return found


def labels(lines):
    """A label is its block's own, so that it may be there once for each mutant."""
    names = [match.group(1) for line in lines if (match := LABEL.match(line)) and match.group(1) != "default"]
    return [f"__label__ {', '.join(names)};"] if names else []


def woven(path, text, mutants):
    """(text of the file with the mutants in it, {its line from 1: number of the mutant it belongs to}); mutants: [(number, mutant)]."""
    lines = text.splitlines()
    out, where, at = [CHOICE.format(name=NAME, path=path, length=len(path) + 1)], {}, 0
    for begin, end in bodies(lines):
        here = [(number, mutant) for number, mutant in mutants if begin < mutant.line < end]
        if not here:
            continue
        out += lines[at : begin + 1]
        own = labels(lines[begin + 1 : end])
        out.append("switch (mutant_chosen) {")
        for number, mutant in here:
            out += [f"case {number}: {{", *own]
            first = len(out)
            out += lines[begin + 1 : end]
            out[first + mutant.line - begin - 1] = mutant.text
            out += ["}", "break;"]
            where.update((line, number) for line in range(first, len(out)))
        out += ["default: {", *own, *lines[begin + 1 : end], "}", "}"]
        at = end
    return "\n".join(out + lines[at:]) + "\n", where
