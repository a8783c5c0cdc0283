"""One-token changes of C code, found in its text: possible slips of a hand. Pure.

Only function bodies are changed. Left out: assert, logging (words are not held by tests), releases (the
sanitizers hold that) and the sizes of arrays."""

import collections
import dataclasses
import re

SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "+=": "-=", "-=": "+=",
         "&&": "||", "||": "&&", "++": "--", "--": "++", "true": "false", "false": "true"}  # fmt: skip
BINARY = re.compile(r"(?<= )(<=|>=|==|!=|&&|\|\||\+=|-=|<|>|\+|-)(?= |$)")
WORD = re.compile(r"\b(true|false)\b")
STEP = re.compile(r"\+\+|--")
NOT = re.compile(r"!(?=[\w(*])")
NUMBER = re.compile(r"(?<![\w.])(\d{1,9})(?![\w.])")
# What makes a minimum or a maximum of two, where <= is as good as <.
EXTREME = re.compile(r"(?<![\w.>\])])([\w.>\[\]-]+) [<>] ([\w.>\[\]-]+) \? (?:\1 : \2|\2 : \1)(?![\w.\[(-])")
RETURN = re.compile(r"^\s*return (?P<value>[^;]+);$")
STATEMENT = re.compile(r"^\s*(?:\(void\))?[*\w][\w.>\[\]+-]*(?:\(.*\)|(?: [-+|&^]?=| <<=| >>=) .*|\+\+|--);$")
KEPT = re.compile(r"^\s*(?:return|break|continue|goto|case|default|assert|else|do)\b")
LEFT_OUT = re.compile(r"\bassert\(|^\s*(?:\(void\))?(?:log_\w+|\w*(?:free|destroy|close|wipe|unlock|lock|unlink))\(")
DECLARED = re.compile(r"^\s*(?:static )?(?:const )?(?:unsigned |struct |enum )?\w+ [\w *,]*\w(\[[^\]]*\])")  # an array, and its size
FUNCTION = re.compile(r"^[A-Za-z_][\w \t*,.()\[\]]*?\b(\w+)\(")


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: str
    function: str
    line: int  # from 0
    before: str  # the line, without blanks at its ends
    after: str
    text: str  # the whole of the new line
    nth: int = 1  # which of those in its function that read the same

    @property
    def key(self):
        """Its identity, wherever its line stands."""
        return self.path, self.function + (f" #{self.nth}" if self.nth > 1 else ""), self.before, self.after


def blanked(text):
    """The same text with comments, strings and preprocessor lines blank."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*', re.S | re.M)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def functions(lines):
    """For each line the function in whose body it stands, None outside; and whether that returns bool."""
    found, name, is_bool, inside = [], None, False, False
    for line in lines:
        if not inside and (match := FUNCTION.match(line)):
            name, is_bool = match.group(1), bool(re.match(r"(?:static )?(?:inline )?bool\b", line))
        found.append((name, is_bool) if inside and line != "}" else None)
        if line.startswith("{"):
            inside = name is not None
        elif line.startswith("}"):
            inside, name = False, None
    return found


def changes(line, is_bool):
    """[(start, end, instead)] of a blanked line."""
    if declared := DECLARED.match(line):  # the size is left alone
        line = line[: declared.start(1)] + " " * len(declared.group(1)) + line[declared.end(1) :]
    found = [(m.start(), m.end(), SWAPS[m.group()]) for pattern in (BINARY, WORD, STEP) for m in pattern.finditer(line)]
    extremes = [(m.start(), m.end()) for m in EXTREME.finditer(line)]
    found = [entry for entry in found if entry[2] not in ("<=", ">=") or not any(begin < entry[0] < end for begin, end in extremes)]
    found += [(m.start(), m.end(), "") for m in NOT.finditer(line)]
    for m in NUMBER.finditer(line):
        value = int(m.group())
        is_size = line[: m.start()].endswith("[") and value > 1
        is_zeroed = line[: m.start()].endswith("{") and line[m.end() :].startswith("}")
        # by contract 0 or -1: callers look whether it is below 0
        is_last = line[m.end() :] == ";" and re.search(r"(return|:) 0;$", line)
        is_success = not is_bool and re.match(r"\s*(return|:)", line) and (is_last or line[m.start() :] == "0 : -1;")
        if not is_size and not is_zeroed:
            found.append((m.start(), m.end(), "-1" if is_success else str(1 - value if value < 2 else value + 1)))
    if (m := RETURN.match(line)) and is_bool and m["value"] not in ("true", "false"):
        found.append((m.start("value"), m.end("value"), None))  # negated
    return found


def is_statement(line, previous):
    """Whether the line is a whole call or assignment, which can go."""
    whole = STATEMENT.match(line) and not KEPT.match(line) and line.count("(") == line.count(")")
    return bool(whole) and bool(re.search(r"[;{})]$|\belse$", previous))


def mutants(path, text):
    lines, plain = text.splitlines(), blanked(text).splitlines()
    found, seen, previous = [], collections.Counter(), "{"

    def add(name, number, new):
        alike = name, lines[number].strip(), new.strip()
        seen[alike] += 1
        found.append(Mutant(path, name, number, alike[1], alike[2], new, seen[alike]))

    for number, (where, line) in enumerate(zip(functions(plain), plain)):
        line = line.rstrip()
        if where and line.strip() and not LEFT_OUT.search(line):
            name, is_bool = where
            for start, end, instead in changes(line, is_bool):
                whole = lines[number]
                instead = f"!({whole[start:end]})" if instead is None else instead
                add(name, number, whole[:start] + instead + whole[end:])
            if is_statement(line, previous):
                add(name, number, ";")
        if line.strip():
            previous = line
    return found
