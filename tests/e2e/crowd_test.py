"""All agents of a large job come at once, over real sockets: the server takes all of them at the first try, with and without
a secret. The agents are members in one process (benchmarks/crowd.c).

    MUSTER_BUILD=build python3 tests/e2e/crowd_test.py [--full]      150 agents; --full: 500, 4,000 and 16,384"""

import re
import resource
import subprocess
import sys
import unittest

from harness import BUILD

CROWD = BUILD / "benchmarks" / "crowd"
SIZES = (150,)  # on a machine that has much else to do the greetings of more take longer than a greeting may
PLAYED = 8000  # agents of one process, as crowd.c has it
GREETING_NS = 2e9  # who takes longer to say who it is may be sent away


class Crowd(unittest.TestCase):
    def form(self, *flags):
        for agents in SIZES:
            with self.subTest(agents=agents):
                self.form_of(agents, *flags)

    def form_of(self, agents, *flags):
        needed, (_, hard) = max(2 * min(agents, PLAYED), agents) + 300, resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < needed:
            self.skipTest(f"{agents} agents in one process need {needed} descriptors; the limit is {hard}")
        done = subprocess.run([CROWD, "ours", str(agents), *flags], capture_output=True, text=True, timeout=1500)
        self.assertEqual(done.returncode, 0, done.stderr)
        wall_ns = int(re.search(r"wall_ns (\d+)", done.stdout).group(1))
        if wall_ns < GREETING_NS:  # else an agent may have been too slow to greet, and came again, and that is right
            self.assertNotIn("refused", done.stderr)

        return {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", done.stdout)}

    def test_static(self):
        self.form()

    def test_a_slow_server_is_not_made_slower(self):
        """With a quarter of a processor the world forms, too, and agents send hardly more messages."""
        for agents in SIZES:
            with self.subTest(agents=agents):
                found = self.form_of(agents, "--slow", "25")
                self.assertLess(found["joins"], 1.5 * agents)
                self.assertLess(found["messages"], 1.5 * 4 * agents)

    def test_static_with_a_secret(self):
        self.form("--secret")

    def test_elastic_with_a_secret(self):
        self.form("--elastic", "--secret")


if __name__ == "__main__":
    if "--full" in sys.argv:
        sys.argv.remove("--full")
        SIZES = (500, 4000, 16384)
    unittest.main(verbosity=2)
