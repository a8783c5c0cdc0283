"""Rounds of `./dev bench goodput`, made of steps and faults alone.

    python3 tests/unit/support/goodput_rounds_test.py"""

import pathlib
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(SOURCE / "benchmarks" / "goodput"))

import rounds  # noqa: E402


def every(gap, first, last, start):
    return [(number, start + gap * (number - first)) for number in range(first, last + 1)]


class Rounds(unittest.TestCase):
    def test_without_faults_all_is_one_round(self):
        self.assertEqual(rounds.of(every(100, 1, 10, 1000), []), [(1, 10, 1000, 1900)])
        self.assertEqual(rounds.of([], []), [])

    def test_steps_that_follow_each_other_over_a_pause_are_two_rounds(self):
        """Replicas: step 11 follows step 10, one second later."""
        steps = every(100, 1, 10, 1000) + every(100, 11, 20, 2900)
        self.assertEqual(rounds.of(steps, [1950]), [(1, 10, 1000, 1900), (11, 20, 2900, 3800)])
        self.assertEqual(rounds.pauses(steps, [1950]), [1000])

    def test_a_step_of_the_survivors_after_the_fault_is_of_the_round_before(self):
        steps = every(100, 1, 10, 1000) + every(100, 11, 20, 2900)
        self.assertEqual(rounds.of(steps, [1850]), [(1, 10, 1000, 1900), (11, 20, 2900, 3800)])

    def test_steps_made_again_begin_a_round_without_a_fault(self):
        steps = every(100, 1, 10, 1000) + every(100, 6, 12, 2500)
        for faults in ([], [1950]):
            self.assertEqual(rounds.of(steps, faults), [(1, 10, 1000, 1900), (6, 12, 2500, 3100)])

    def test_each_fault_has_its_own_pause(self):
        """The second one is shorter, and the third comes in the pause of the second."""
        steps = every(100, 1, 10, 1000) + every(100, 11, 20, 2900) + every(100, 21, 30, 4100) + every(100, 31, 33, 5100)
        self.assertEqual(
            rounds.of(steps, [1950, 3850, 3950, 5050]), [(1, 10, 1000, 1900), (11, 20, 2900, 3800), (21, 30, 4100, 5000), (31, 33, 5100, 5300)]
        )
        self.assertEqual(rounds.pauses(steps, [1950, 3850, 3950, 5350]), [1000, None, 300, None])


if __name__ == "__main__":
    unittest.main()
