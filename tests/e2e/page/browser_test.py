"""The job's page in headless Chromium while a rank is killed and comes back: what a reader sees, that text stays text, and screenshots in
light and dark at 400 and 1600 pixels (MUSTER_BUILD/page/*.png).

    MUSTER_BUILD=build python3 tests/e2e/page/browser_test.py
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from page_test import HAVE_HTTP, LIMIT, PageTest, free_port, wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", "build")).resolve()
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class BrowserTest(PageTest):
    def browse(self, port, width, dark, *what):
        with tempfile.TemporaryDirectory(prefix="muster page ") as profile:
            done = subprocess.run(
                [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
                 f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--window-size={width},{2400 if width < 800 else 1200}",
                 "--virtual-time-budget=3000", *what, f"http://127.0.0.1:{port}/"], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done.stdout

    def test_a_killed_rank_is_seen_and_comes_back(self):
        port = free_port()
        agent = self.start("--standalone", "--nproc-per-node=2", f"--metrics-port={port}", "--rdzv-id=<b>job", "--max-restarts=3", "--", "sh", self.work())
        self.board_where(port, lambda b: len(b["points"]) > 3, "a curve")
        os.kill(int((self.folder / "up.1.0").read_text()), 9)
        self.board_where(port, lambda b: len(b["rounds"]) == 2 and "first_ms" in b["rounds"][1] and len(b["points"]) > 6, "it came back")
        dom = self.browse(port, 1000, False, "--dump-dom")
        for text in ("rank 1 (pid", "was killed by signal 9 (SIGKILL)", "It came back: round 1", "restart 1 of 3", "&lt;b&gt;job",
                     "line of rank 0 &lt;img src=x onerror=alert(1)&gt;", "first step", "my.value"):
            self.assertIn(text, dom)
        self.assertNotIn("<img", dom)
        self.assertEqual(dom.count("<script>"), 1)
        (BUILD / "page").mkdir(exist_ok=True)
        for width in (400, 1600):
            for dark in (False, True):
                path = BUILD / "page" / f"{width}-{'dark' if dark else 'light'}.png"
                path.unlink(missing_ok=True)
                self.browse(port, width, dark, f"--screenshot={path}")
                self.assertGreater(path.stat().st_size, 20000)
        self.open_gate()
        self.finish(agent, 0)


if __name__ == "__main__":
    if not CHROMIUM or not HAVE_HTTP:
        print("skipped: chromium or libmicrohttpd12 is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
