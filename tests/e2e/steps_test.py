"""The observer of worlds: its notion of training, and that it sees two worlds that train at once.

    python3 tests/e2e/steps_test.py"""

import pathlib
import tempfile
import unittest

from harness.steps import Observer


class ObserverTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.seen = Observer(self.folder)
        self.count = 0

    def worker(self, world, rank, size, steps, more=""):
        self.count += 1
        lines = [f"begin 1 world={world} rank={rank} size={size} round=0 restarts=0 host=h{rank}"] if world else []
        lines += [f"step {time} {n}" for n, time in enumerate(steps)]
        (self.folder / f"record.{self.count}").write_text("".join(f"{line}\n" for line in lines) + more)

    def test_one_after_the_other(self):
        self.worker("b", 0, 1, [40, 50])
        self.worker("a", 0, 2, [10, 20])
        self.worker("a", 1, 2, [11, 21])
        worlds = self.seen.worlds()
        self.assertEqual([(w.size, w.steps, w.first, w.last, w.hosts) for w in worlds], [(2, 2, 10, 20, ["h0", "h1"]), (1, 2, 40, 50, ["h0"])])
        self.assertEqual(self.seen.breaches(), [])

    def test_two_at_once(self):
        self.worker("a", 0, 2, [10, 20, 30])
        self.worker("a", 1, 2, [11, 21, 31])
        self.worker("b", 0, 1, [29, 40])
        self.assertIn("two worlds train at once", "".join(self.seen.breaches()))

    def test_inside_a_longer_one(self):
        self.worker("a", 0, 1, [10, 100])
        self.worker("b", 0, 1, [20, 30])
        self.worker("c", 0, 1, [40, 50])
        self.assertEqual(len(self.seen.breaches()), 2)

    def test_who_goes_on_alone_does_not_train(self):
        self.worker("a", 0, 2, [10, 20])
        self.worker("a", 1, 2, [11, 200, 201])  # was frozen, and reads earlier messages
        self.worker("b", 0, 1, [30, 300])
        self.assertEqual(self.seen.breaches(), [])

    def test_a_world_that_is_not_whole_does_not_train(self):
        self.worker("a", 0, 2, [10, 20, 30])
        self.worker(None, 1, 2, [])
        self.worker("b", 0, 1, [15])
        self.assertEqual([w.steps for w in self.seen.worlds()], [1, 0])
        self.assertEqual(self.seen.breaches(), [])

    def test_a_rank_held_twice(self):
        self.worker("a", 0, 2, [10])
        self.worker("a", 0, 2, [10])
        self.assertIn("a rank is held twice", "".join(self.seen.breaches()))

    def test_worlds_that_mix(self):
        self.worker("a", 0, 1, [10], "mixed 11 \n")
        self.seen.worlds()
        self.assertEqual(self.seen.breaches(), ["a worker heard from another world"])

    def test_lines_that_are_half_there(self):
        self.worker("a", 0, 1, [10], "st")
        self.assertEqual(self.seen.worlds()[0].steps, 1)
        with open(self.folder / "record.1", "a") as file:
            file.write("ep 20 1\nend 21 2\n")
        world = self.seen.worlds()[0]
        self.assertEqual((world.steps, world.ended), (2, True))


if __name__ == "__main__":
    unittest.main()
