"""The job's page in headless Chromium: a reader's view while a rank is killed and comes back, that text stays text, the same in the
report; and the demo as the README has it, with its screenshots.

    MUSTER_BUILD=build python3 tests/e2e/page/browser_test.py [--readme] [TestClass.test_name ...]

Screenshots in light and dark at 400 and 1600 pixels are in MUSTER_BUILD/page. --readme: the demo's screenshots take the place of the README's
(launcher/docs/images), made small by pngquant if it is installed."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from page_test import HAVE_HTTP, LIMIT, SOURCE, WORK, PageTest, free_port, wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", "build")).resolve()
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FORTUNES = pathlib.Path("/usr/share/games/fortunes")
README = "--readme" in sys.argv
IMAGES = SOURCE / "launcher/docs/images"
SHOTS = [(width, dark) for width in (400, 1600) for dark in (False, True)]
HOST = "<b onmouseover=alert(3)>host</b>"


class BrowserTest(PageTest):
    def browse(self, url, width, dark, *what, height=0):
        with tempfile.TemporaryDirectory(prefix="muster page ") as profile:
            done = subprocess.run(
                [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
                 f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--window-size={width},{height or (2600 if width < 800 else 1300)}",
                 "--virtual-time-budget=3000", *what, url], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done.stdout

    def dom(self, port):
        return self.browse(f"http://127.0.0.1:{port}/", 1000, False, "--dump-dom")

    def shoot(self, url, name, width, dark, height=0):
        (BUILD / "page").mkdir(exist_ok=True)
        path = BUILD / "page" / f"{name}-{width}-{'dark' if dark else 'light'}.png"
        path.unlink(missing_ok=True)
        self.browse(url, width, dark, f"--screenshot={path}", height=height)
        self.assertGreater(path.stat().st_size, 20000)
        return path


class Page(BrowserTest):
    def test_a_killed_rank_is_seen_and_comes_back(self):
        port = free_port()
        script = self.script("work.sh", "echo 'h:1:2 [0] NCCL WARN <i>slow</i>'\n" + WORK)
        agent = self.start("--standalone", "--nproc-per-node=2", f"--metrics-port={port}", "--rdzv-id=<b>job", "--max-restarts=3",
                           f"--state-dir={self.folder}", "--", "sh", script, env={"MUSTER_HOSTNAME": HOST})
        self.board_where(port, lambda b: len(b["points"]) > 3, "a curve")
        os.kill(int((self.folder / "up.1.0").read_text()), 9)
        self.board_where(port, lambda b: len(b["rounds"]) == 2 and "first_ms" in b["rounds"][1] and len(b["points"]) > 6, "it came back")
        dom = self.dom(port)
        for text in ("rank 1 (pid", "was killed by signal 9 (SIGKILL)", "It came back: round 1", "restart 1 of 3", "&lt;b&gt;job",
                     "line of rank 0 &lt;img src=x onerror=alert(1)&gt;", "first step", "my.value", "NCCL WARN &lt;i&gt;slow&lt;/i&gt;",
                     "&lt;b onmouseover=alert(3)&gt;host", "waited for", "tokens/s", "Loss", "Exposed communication"):
            self.assertIn(text, dom)
        self.assertNotRegex(dom, r"<(img|i>slow|b onmouseover|b>job)")
        self.assertEqual(dom.count("<script>"), 1)
        for width, dark in SHOTS:
            self.shoot(f"http://127.0.0.1:{port}/", "job", width, dark)
        self.open_gate()
        self.finish(agent, 0)
        report = self.folder / "report.html"
        self.muster("report", f"--state-dir={self.folder}", "--job=<b>job", f"--output={report}")
        dom = self.browse(report.as_uri(), 1000, False, "--dump-dom")
        for text in ("was killed by signal 9 (SIGKILL)", "Recoveries", "goodput", "slowest rank", "succeeded"):
            self.assertIn(text, dom)
        self.assertNotRegex(dom, r"<(img|script|i>slow|b onmouseover|b>job)")
        for width, dark in SHOTS:
            self.shoot(report.as_uri(), "report", width, dark)


@unittest.skipUnless(FORTUNES.is_dir(), "the demo's text (package fortunes) is not installed")
class Demo(BrowserTest):
    def test_which_rank_was_killed_why_and_that_it_came_back(self):
        """`./dev run`, and a person who opens the address that it prints."""
        with open(self.folder / "out", "w") as out, open(self.folder / "err", "w") as err:
            run = subprocess.Popen([SOURCE / "examples/demo.sh", BUILD, self.folder / "demo"], stdout=out, stderr=err, start_new_session=True)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)

        def said(pattern):
            return re.search(pattern, (self.folder / "out").read_text(errors="replace") + (self.folder / "err").read_text())

        port = int(wait_until(lambda: said(r"the job's page: http://127\.0\.0\.1:(\d+)/"), "the address")[1])
        pid = int(wait_until(lambda: said(r"demo: kill -9 (\d+)"), "the kill")[1])
        board = self.board_where(port, lambda b: len(b["rounds"]) == 2 and "first_ms" in b["rounds"][1] and b["rounds"][1]["last_step"] >= 300,
                                 "it came back, and trains")
        dom = self.dom(port)
        self.assertRegex(dom, rf"rank \d \(pid {pid} on [^<]*\) was killed by signal 9 \(SIGKILL\)")
        self.assertRegex(dom, r"It came back: round 1 made its first step \S+ after the failure \(step \d+, restart 1 of 3\)")
        self.assertEqual(board["rounds"][0]["cause"].split(" (pid")[0], re.search(r"(rank \d) \(pid", dom)[1])
        shots = {(width, dark): self.shoot(f"http://127.0.0.1:{port}/", "demo", width, dark, height=1100 if width > 400 else 1900)
                 for width, dark in SHOTS}
        run.terminate()
        self.assertEqual(run.wait(timeout=LIMIT), 143, (self.folder / "err").read_text())
        if README:
            for (width, dark), name in (((1600, False), "page-light.png"), ((400, True), "page-dark.png")):
                shutil.copy(shots[width, dark], IMAGES / name)
                if shutil.which("pngquant"):
                    subprocess.run(["pngquant", "--force", "--output", IMAGES / name, "64", IMAGES / name], check=True)


class Images(unittest.TestCase):
    def test_the_readme_shows_what_this_makes(self):
        shown = re.findall(r'<img src="(launcher/docs/images/[^"]+)"', (SOURCE / "README.md").read_text())
        self.assertEqual(sorted(pathlib.Path(name).name for name in shown), ["page-dark.png", "page-light.png"])
        for name, width in (("page-light.png", 1600), ("page-dark.png", 400)):
            head = (IMAGES / name).read_bytes()[:24]
            self.assertEqual((head[:8], int.from_bytes(head[16:20], "big")), (b"\x89PNG\r\n\x1a\n", width), name)


if __name__ == "__main__":
    if not CHROMIUM or not HAVE_HTTP:
        print("skipped: chromium or libmicrohttpd12 is not installed")
        sys.exit(77)
    unittest.main(argv=[word for word in sys.argv if word != "--readme"], verbosity=2)
