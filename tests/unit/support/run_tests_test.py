"""The tests' runner: its report about failures, and about files that no test covers (tests/support/run_tests.py).

    python3 tests/unit/support/run_tests_test.py"""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import run_tests  # noqa: E402


def canary(slowest=1.2, largest_ms=3.0):
    return run_tests.Canary(seconds=10, cpu=4, probes=95, factor=1.1, slowest=slowest, largest_ms=largest_ms)


CALM, SLOW = canary(), canary(slowest=run_tests.STARVED_SLOWEST)
HELD_UP = canary(largest_ms=run_tests.STARVED_MS)


class Costs(unittest.TestCase):
    def test_the_costliest_are_named(self):
        canaries = {f"t{cpu}": CALM._replace(cpu=cpu) for cpu in (3, 90, 1, 20.4, 5, 7, 2)}
        line = run_tests.costs({**canaries, "without": None})
        self.assertEqual(line, "128 s of a processor in 7 tests; most: t90 90, t20.4 20, t7 7, t5 5, t3 3")

    def test_nothing_is_known(self):
        self.assertEqual(run_tests.costs({"without": None}), "")


class Judge(unittest.TestCase):
    def judge(self, canaries, alone=()):
        return run_tests.judge(list(canaries), canaries, set(alone))

    def test_starved_is_measured(self):
        self.assertFalse(run_tests.is_starved(None))
        self.assertFalse(run_tests.is_starved(CALM))
        self.assertFalse(run_tests.is_starved(canary(run_tests.STARVED_SLOWEST - 0.1, run_tests.STARVED_MS - 1)))
        self.assertTrue(run_tests.is_starved(SLOW))
        self.assertTrue(run_tests.is_starved(HELD_UP))

    def test_only_starved_and_passed_alone_is_flaky(self):
        for starved in SLOW, HELD_UP:
            green, lines = self.judge({"e2e_a": starved}, ["e2e_a"])
            self.assertTrue(green)
            self.assertIn("e2e_a: FLAKY: starved, and passes alone", lines[0])

    def test_a_race_stays_red(self):
        for calm in CALM, None:
            green, lines = self.judge({"e2e_a": calm}, ["e2e_a"])
            self.assertFalse(green)
            self.assertIn("e2e_a: FAILED: passes alone: a race, not starvation", lines[0])

    def test_starved_and_failed_alone_is_red(self):
        green, lines = self.judge({"e2e_a": SLOW})
        self.assertFalse(green)
        self.assertRegex(lines[0], r"^e2e_a: FAILED \(the machine at its slowest 8.0 times slower")

    def test_one_race_among_the_starved_is_red(self):
        for canaries in {"e2e_a": SLOW, "e2e_b": CALM}, {"e2e_a": CALM, "e2e_b": SLOW}:
            green, lines = self.judge(canaries, ["e2e_a", "e2e_b"])
            self.assertFalse(green)
            self.assertEqual(len(lines), 2)
        self.assertTrue(self.judge({"e2e_a": SLOW, "e2e_b": HELD_UP}, ["e2e_a", "e2e_b"])[0])

    def test_which_are_run_once_more(self):
        few = ["gpu_train_nccl", "compat_b", "comm_tcp_process_test"]
        self.assertEqual(run_tests.worth_a_rerun(few), few)
        self.assertEqual(run_tests.worth_a_rerun([*few, "e2e_d"]), [])
        self.assertEqual(run_tests.worth_a_rerun(["e2e_a", "store_test"]), [])
        self.assertEqual(run_tests.worth_a_rerun(["gpu_train_nccl", "gpu_products"]), [])
        self.assertEqual(run_tests.worth_a_rerun([]), [])

    def test_the_last_line_names_them(self):
        self.assertEqual(run_tests.last_line([], True), "")
        self.assertRegex(run_tests.last_line(["e2e_a", "e2e_b"], True), "^FLAKY: .*: e2e_a e2e_b$")
        self.assertEqual(run_tests.last_line(["e2e_a"], False), "FAILED: e2e_a")

    def test_a_canary_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "one"
            self.assertIsNone(run_tests.read_canary(path))
            path.write_text("seconds 10 cpu 4 probes 95 factor 1.1 slowest 1.2 largest_ms 3\n")
            self.assertEqual(run_tests.read_canary(path), CALM)
            for broken in "", "seconds 10", "seconds ten cpu 4 probes 95 factor 1.1 slowest 1.2 largest_ms 3\n":
                path.write_text(broken)
                self.assertIsNone(run_tests.read_canary(path))


class Untested(unittest.TestCase):
    def test_reasons(self):
        output = """
test_one (__main__.A.test_one) ... ok
test_two (__main__.A.test_two) ... skipped 'only root can'
test_three (__main__.A.test_three)
What it is. ... skipped "it isn't here"
test_four (__main__.A.test_four) ... skipped 'only root can'
[ RUN      ] counts
skipped: a sanitizer has its own malloc
[  SKIPPED ] counts
cut off, static, 4 nodes: skipped, MUSTER_TORCH_PYTHON is not set
"""
        expected = {
            "only root can": 2,
            "it isn't here": 1,
            "a sanitizer has its own malloc": 1,
            "cut off, static, 4 nodes: skipped, MUSTER_TORCH_PYTHON is not set": 1,
        }
        self.assertEqual(dict(run_tests.reasons(output)), expected)
        self.assertEqual(run_tests.reasons("nothing was skipped\n3 jobs, 0 failed, 0 skipped\n"), {})

    def test_the_list(self):
        every = {"a": ["unit"], "b": ["e2e"], "c": ["e2e"], "d": ["full"], "e": ["soak"], "f": ["full"], "g": ["lint"]}
        ran = {
            "a": ("run", "fine"),
            "b": ("notrun", "skipped: no PyTorch\n"),
            "c": ("run", "t (x) ... skipped 'needs root'\nu (x) ... skipped 'needs root'\n"),
        }
        lines = run_tests.untested(every, ran, "MUSTER_CUDA:BOOL=OFF\n")
        self.assertEqual(
            lines[:5],
            ["b: no PyTorch", "c: 2 cases: needs root", "1 tests that the arguments leave out",
             "tier full, 2 tests: ./dev test --full", "tier soak, 1 tests: ./dev soak"],
        )  # fmt: skip
        self.assertIn("GPUs", lines[5])
        self.assertEqual(lines[6:], list(run_tests.ALSO))

    def test_what_ran_is_not_listed(self):
        lines = run_tests.untested({"a": ["unit"], "d": ["full"]}, {"a": ("run", ""), "d": ("run", "")}, "MUSTER_CUDA:BOOL=ON\n")
        self.assertEqual(lines, list(run_tests.ALSO))

    def test_one_that_does_not_say_why(self):
        self.assertIn("a: it does not say why", run_tests.untested({"a": []}, {"a": ("notrun", "")}, ""))


class Whole(unittest.TestCase):
    """Real runs of ctest, over tests that are one line of shell each."""

    def run_of(self, tests, *arguments):
        """(status, output). tests: {name: command}, run in a folder with canary/ next to them."""
        with tempfile.TemporaryDirectory(prefix="with a blank ") as name:
            folder = pathlib.Path(name)
            (folder / "Testing" / "canary").mkdir(parents=True)
            (folder / "CMakeCache.txt").write_text("MUSTER_CUDA:BOOL=OFF\n")
            lines = []
            for test, command in tests.items():
                lines.append(f'add_test({test} "sh" "-c" [==[{command}]==])\n')
                lines.append(f'set_tests_properties({test} PROPERTIES LABELS "{test.split("_")[0]}" SKIP_RETURN_CODE 77 ')
                lines.append(f'WORKING_DIRECTORY "{folder}")\n')
            (folder / "CTestTestfile.cmake").write_text("".join(lines))
            out = os.open(folder / "out", os.O_WRONLY | os.O_CREAT)
            kept = os.dup(1)
            os.dup2(out, 1)  # ctest's words
            said = io.StringIO()
            try:
                with contextlib.redirect_stderr(said):
                    status = run_tests.main(folder, *arguments)
            finally:
                os.dup2(kept, 1)
                os.close(out)
                os.close(kept)
            return status, said.getvalue()

    @staticmethod
    def once(canary):
        """Fails the first time, and passes then."""
        words = " ".join(f"{name} {value}" for name, value in canary._asdict().items())
        return f"if [ -e been ]; then exit 0; fi; touch been; echo '{words}' >Testing/canary/e2e_a; exit 1"

    def test_all_pass(self):
        status, said = self.run_of({"e2e_a": "exit 0", "soak_b": "exit 1"}, "-LE", "soak")
        self.assertEqual(status, 0)
        self.assertIn("\n  tier soak, 1 tests: ./dev soak\n", said)
        self.assertNotIn("FAILED", said)

    def test_what_was_skipped_is_said(self):
        _, said = self.run_of({"unit_a": "echo 'skipped: no such machine'; exit 77"})
        self.assertIn("\n  unit_a: no such machine\n", said)

    def test_a_race(self):
        status, said = self.run_of({"e2e_a": self.once(CALM)})
        self.assertNotEqual(status, 0)
        self.assertIn("e2e_a: FAILED: passes alone: a race, not starvation", said)
        self.assertTrue(said.endswith("dev: FAILED: e2e_a\n"), said)

    def test_starved(self):
        status, said = self.run_of({"e2e_a": self.once(SLOW), "e2e_b": "exit 0"})
        self.assertEqual(status, 0)
        self.assertRegex(said.splitlines()[-1], "^dev: FLAKY: .*: e2e_a$")

    def test_starved_twice_and_skipped_alone(self):
        for second in "exit 1", "exit 77":
            status, said = self.run_of({"e2e_a": self.once(SLOW).replace("exit 0", second)})
            self.assertNotEqual(status, 0)
            self.assertTrue(said.endswith("dev: FAILED: e2e_a\n"), said)

    def test_others_are_not_run_again(self):
        status, said = self.run_of({"unit_a": self.once(SLOW)})
        self.assertNotEqual(status, 0)
        self.assertNotIn("once more", said)

    def test_no_tests(self):
        self.assertNotEqual(self.run_of({"unit_a": "exit 0"}, "-R", "nothing")[0], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
