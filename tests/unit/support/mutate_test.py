"""The changes of the mutants' operators, and the list of survivors (tests/mutate).

    python3 tests/unit/support/mutate_test.py"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "mutate"))

import mutate  # noqa: E402
import operators  # noqa: E402
import schemata  # noqa: E402

SOURCE = """\
enum { LIMIT = 5 };

/* a < b */
static bool is_small(int a, int b)
{
    const char *text = "a < b && !c";
    char room[LIMIT - 64] = {0};
    if (a < b && !done(a)) {
        total += 1;
        log_warning(log, "x %d", a + 1);
    }
    assert(a > 0);
    mem_free(text);
    return a == b;
}

int next(struct thing *thing)
{
    thing->count++;
    step(thing,
         3);
    return 0;
}
"""


def after(function, before):
    """What becomes of a line."""
    return {m.after for m in operators.mutants("x.c", SOURCE) if m.function == function and m.before == before}


class Operators(unittest.TestCase):
    def test_each_token_by_itself(self):
        self.assertEqual(
            after("is_small", "if (a < b && !done(a)) {"),
            {"if (a <= b && !done(a)) {", "if (a < b || !done(a)) {", "if (a < b && done(a)) {"},
        )
        self.assertEqual(after("is_small", "total += 1;"), {"total -= 1;", "total += 0;", ";"})
        self.assertEqual(after("is_small", "return a == b;"), {"return a != b;", "return !(a == b);"})
        self.assertEqual(after("next", "thing->count++;"), {"thing->count--;", ";"})
        self.assertEqual(after("next", "return 0;"), {"return -1;"})
        self.assertEqual(after("next", "3);"), {"4);"})

    def test_extremes_and_successes(self):
        """Places that <= would not change; values that a caller cannot tell from 0."""
        source = "int f(int a, int b)\n{\n    int c = a < b ? a : b, d = x.y > z[1] ? z[1] : x.y;\n    int e = a < b ? b + 1 : a;\n"
        source += "    return a < b ? g() : 0;\n}\n"
        found = {m.after for m in operators.mutants("x.c", source)}
        self.assertFalse([line for line in found if "a <= b ? a : b" in line or ">=" in line])
        self.assertIn("int e = a <= b ? b + 1 : a;", found)
        self.assertIn("return a < b ? g() : -1;", found)
        self.assertNotIn("return a < b ? g() : 1;", found)

    def test_alike_lines_have_numbers(self):
        source = "void f(void)\n{\n    a++;\n    b++;\n    a++;\n}\n"
        keys = [m.key for m in operators.mutants("x.c", source)]
        self.assertEqual(len(keys), len(set(keys)))
        self.assertIn(("x.c", "f #2", "a++;", ";"), keys)

    def test_what_is_left_alone(self):
        changed = {m.before for m in operators.mutants("x.c", SOURCE)}
        for line in SOURCE.splitlines():
            if any(word in line for word in ("enum", "/*", '"', "room", "assert", "mem_free", "step(")):
                self.assertNotIn(line.strip(), changed)

    def test_one_change_of_one_line(self):
        for mutant in operators.mutants("x.c", SOURCE):
            line = SOURCE.splitlines()[mutant.line]
            self.assertEqual(line.strip(), mutant.before)
            self.assertNotEqual(mutant.text.strip(), mutant.before)


PROGRAM = """\
#include <stdlib.h>
#include <stdio.h>

static int sum(int n)
{
    int total = 0;
    for (int i = 1; i <= n; i++)
        total += i;
    if (total > 100)
        goto end;
    total += 1000;
end:
    return total;
}

int main(void)
{
    printf("%d", sum(4));
    return 0;
}
"""


class Weaving(unittest.TestCase):
    """One build, of which the environment chooses a mutant."""

    def outputs(self, mutants):
        with tempfile.TemporaryDirectory() as folder:
            woven, self.where = schemata.woven("a/b.c", PROGRAM, mutants)
            source, program = pathlib.Path(folder) / "x.c", pathlib.Path(folder) / "x"
            source.write_text(woven)
            subprocess.run(["cc", "-w", "-o", program, source], check=True)
            chosen = ["", "a/b.c:999", "a/bb.c:1", *(f"a/b.c:{number}" for number, _ in mutants)]
            runs = [subprocess.run([program], env={schemata.NAME: name}, capture_output=True, text=True, timeout=20) for name in chosen]
            return [run.stdout for run in runs[:3]], {m.after: run.stdout for (_, m), run in zip(mutants, runs[3:])}

    def test_each_mutant_by_its_number(self):
        every = [(n, m) for n, m in enumerate(operators.mutants("a/b.c", PROGRAM), 1) if m.function == "sum" and "++" not in m.before]
        plain, found = self.outputs(every)
        self.assertEqual(plain, ["1010"] * 3)
        self.assertEqual(found["total += 1001;"], "1011")
        self.assertEqual(found["total -= 1000;"], "-990")
        self.assertEqual(found["total -= i;"], "990")
        self.assertEqual(found["int total = 1;"], "1011")
        self.assertEqual(found["if (total > 101)"], "1010")

    def test_a_line_belongs_to_its_mutant(self):
        every = list(enumerate(operators.mutants("a/b.c", PROGRAM), 1))
        woven, where = schemata.woven("a/b.c", PROGRAM, every)
        for number, mutant in every:
            mine = [line for at, line in enumerate(woven.splitlines(), 1) if where.get(at) == number]
            self.assertIn(mutant.text, mine)


class TheList(unittest.TestCase):
    ENTRY = "a/b.c: f\n- x < y;\n+ x <= y;\nequivalent: they are never equal\n"

    def test_entries(self):
        found = mutate.read_list(f"# a comment\n\n{self.ENTRY}\n{self.ENTRY.replace('equivalent', 'argued').replace('f', 'g')}")
        self.assertEqual(found["a/b.c", "f", "x < y;", "x <= y;"], ("equivalent", "they are never equal"))
        self.assertEqual(len(found), 2)

    def test_what_is_no_entry(self):
        for text in self.ENTRY.replace("equivalent", "perhaps"), self.ENTRY.replace("- ", ""), self.ENTRY[:-40], self.ENTRY + "a/b.c: f\n":
            with self.assertRaises(ValueError):
                mutate.read_list(text)

    def test_the_real_list_names_what_is_there(self):
        """An entry whose line has changed argues for nothing."""
        for path, function, before, after_ in mutate.read_list(mutate.LIST.read_text()):
            found = operators.mutants(path, (mutate.ROOT / path).read_text())
            self.assertIn((path, function, before, after_), {mutant.key for mutant in found})

    def test_the_table_names_files_that_are_there(self):
        self.assertGreater(len(mutate.files(None)), 50)


class Drawing(unittest.TestCase):
    def test_the_same_seed_draws_the_same(self):
        every = list(range(1000))
        self.assertEqual(mutate.draw(every, 20, 7), mutate.draw(every, 20, 7))
        self.assertNotEqual(mutate.draw(every, 20, 7), mutate.draw(every, 20, 8))
        self.assertEqual(mutate.draw(every, None, 7), every)
        self.assertEqual(len(mutate.draw(every, 5000, 7)), 1000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
