"""muster run --warm-keep: a template that outlives its jobs, the jobs that are forked from it, and muster warm.

    MUSTER_BUILD=build python3 tests/e2e/warm/keep_test.py [TestClass.test_name ...]

The modules that templates import here are small files; real PyTorch is in tests/compat/real_scripts_torch_test.py."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import MUSTER, AdoptingTest, alive, environment, wait_until
from warm_test import COUNTED, FACTS, OWN


class KeepTest(AdoptingTest):
    """XDG_RUNTIME_DIR is the test's; its templates are ended after it."""

    def setUp(self):
        super().setUp()
        self.runtime = self.folder / "runtime"
        self.runtime.mkdir(mode=0o700)
        (self.folder / "counted.py").write_text(COUNTED)

    def nothing_left(self):
        done = self.muster_warm("--stop")
        for pid in re.findall(r"template (\d+) ends", done.stdout):
            wait_until(lambda pid=pid: not alive(pid), f"the end of template {pid}")
        super().nothing_left()

    def env(self, **more):
        return {"XDG_RUNTIME_DIR": str(self.runtime), **more}

    def muster_warm(self, *flags):
        return subprocess.run([MUSTER, "warm", *flags], env=environment(**self.env()), capture_output=True, text=True, timeout=200)

    def begin(self, *arguments, env=None, modules="counted", keep="--warm-keep", **options):
        return self.start("--standalone", f"--warm={modules}", keep, *arguments, env=self.env(**(env or {})), **options)

    def run_kept(self, *arguments, code=0, **options):
        return self.finish(self.begin(*arguments, **options), code)

    def imports(self):
        path = self.folder / "imports"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def templates(self):
        """The pids that `muster warm` shows."""
        return [int(pid) for pid in re.findall(r"^template (\d+),", self.muster_warm().stdout, re.MULTILINE)]


class LikeAnyOther(KeepTest):
    def facts(self, *flags):
        self.script("facts.py", FACTS)
        command = [MUSTER, "run", "--standalone", "--nproc-per-node=2", *flags, "facts.py", "one", "drei\tü"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL,
                              env=environment(E2E_FOLDER=str(self.folder), E2E_PARENT="1", **self.env()))  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [json.loads((self.folder / f"facts.{rank}").read_text()) for rank in range(2)]
        for facts in found:
            facts["environment"] = {name: value for name, value in facts["environment"].items() if name not in OWN}
            facts["shown"] = [entry for entry in facts["shown"] if entry.partition("=")[0] not in OWN]
            for own in ("hook", "parent"):
                del facts[own]
        return found, done.stderr

    def test_a_script(self):
        self.maxDiff = None
        cold, _ = self.facts()
        for word in ("new", "kept from before"):
            warm, said = self.facts("--warm=json", "--warm-keep=1000")
            self.assertRegex(said, rf"--warm-keep: template \d+, \d+ MB, {word}, stays for 1000 s after its last job")
            self.assertEqual(warm, cold)

    def test_standard_input_and_another_script(self):
        self.run_kept(self.script("first.py", "print('first')\n"))
        path = self.script("second.py", "import counted, sys\nprint(sys.stdin.read(), sys.argv, __file__)\n")
        text = self.folder / "text"
        text.write_text("typed")
        with open(text) as file:
            command = [MUSTER, "run", "--standalone", "--warm=counted", "--warm-keep", path, "x"]
            done = subprocess.run(command, cwd=self.folder, stdin=file, capture_output=True, text=True, timeout=200,
                                  env=environment(E2E_FOLDER=str(self.folder), **self.env()))  # fmt: skip
        self.assertEqual(done.stdout, f"typed ['{path}', 'x'] {path}\n", done.stderr)
        self.assertEqual(len(self.imports()), 1)

    def test_ends(self):
        """Exit codes, signals and the agent's lines about them, as of workers that are the agent's children."""
        for text, code in (
            ("import sys\nsys.exit(7)\n", 7),
            ("import os, signal\nos.kill(os.getpid(), signal.SIGUSR2)\n", 140),
            ("raise ValueError('no')\n", 1),
            ("print('fine')\n", 0),
        ):
            self.script("x.py", text)
            ends = []
            for begin in (lambda: self.start("--standalone", "x.py", env=self.env()), lambda: self.begin("x.py")):
                _, err = self.finish(begin(), code)
                lines = [line for line in err.splitlines() if "warm-keep" not in line and not line.startswith("  time ")]
                ends.append([re.sub(r"(?i)pid:? \d+", "pid N", line) for line in lines])
            with self.subTest(text=text):
                self.assertEqual(ends[1], ends[0])
        self.assertEqual(len(self.imports()), 1)

    def test_stopped_by_a_signal(self):
        path = self.script("x.py", "import os, time\nopen('pid.0', 'w').write('%d\\n' % os.getpid())\ntime.sleep(1000)\n")
        process = self.begin(path)
        [worker] = self.pids("pid", 1)
        process.terminate()
        self.finish(process, 143)
        self.assertFalse(alive(worker))


class Kept(KeepTest):
    # a worker with a child in a session of its own and an empty environment; the first round stays, the next ends
    SLEEP = """import os, subprocess, time
import counted
hidden = subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True)
for name, pid in (("pid", os.getpid()), ("hidden", hidden.pid)):
    path = "%s.%s.%s" % (name, os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"])
    with open(path + ".new", "w") as file:
        file.write("%d\\n" % pid)
    os.rename(path + ".new", path)
if os.environ["TORCHELASTIC_RESTART_COUNT"] != "1":
    time.sleep(1000)
hidden.kill()
hidden.wait()
"""

    def begin_sleep(self, *flags):
        return self.begin("--nproc-per-node=2", "--max-restarts=1", *flags, self.script("sleep.py", self.SLEEP))

    def test_many_jobs_import_once(self):
        path = self.script("x.py", "import counted, os\nprint(os.environ['RANK'])\n")
        for _ in range(3):
            out, _ = self.run_kept("--nproc-per-node=3", path)
            self.assertEqual(sorted(out.split()), ["0", "1", "2"])
        self.assertEqual(len(self.imports()), 1)
        self.assertEqual(self.templates(), self.imports())

    def test_two_jobs_at_once(self):
        path = self.script("sleep.py", self.SLEEP)
        first = self.begin("--nproc-per-node=2", path)
        workers = self.pids("pid.0", 2)
        self.run_kept("-m", "json.tool", "/dev/null", code=1)  # another one ends
        out, _ = self.run_kept(self.script("x.py", "print('beside')\n"))
        self.assertEqual(out, "beside\n")
        self.assertTrue(all(map(alive, workers)))
        self.assertRegex(self.muster_warm().stdout, r"template \d+, \d+ MB, 1 job: .*python3? counted\n")
        first.terminate()
        self.finish(first, 143)

    def test_restart(self):
        process = self.begin_sleep()
        workers, hidden = self.pids("pid.0", 2), self.pids("hidden.0", 2)
        os.kill(workers[1], signal.SIGKILL)
        self.finish(process, 0)
        self.assertEqual(len(self.imports()), 1)
        self.assertFalse(any(map(alive, hidden)))

    def test_nothing_survives_a_killed_agent(self):
        process = self.begin_sleep()
        pids = self.pids("pid.0", 2) + self.pids("hidden.0", 2)
        process.kill()
        wait_until(lambda: not any(map(alive, pids)), "the end of the workers and of what they started")
        process.wait()
        self.assertEqual(self.templates(), self.imports())  # which is there for the next
        self.run_kept(self.script("x.py", "import counted\n"))
        self.assertEqual(len(self.imports()), 1)

    def test_a_kept_template_that_is_killed(self):
        """The job does not notice, not even when it restarts; the next job starts another."""
        process = self.begin_sleep()
        workers = self.pids("pid.0", 2)
        [template] = self.imports()
        os.kill(template, signal.SIGKILL)
        wait_until(lambda: not alive(template), "the template's end")
        os.kill(workers[0], signal.SIGKILL)
        self.finish(process, 0)
        self.assertEqual(len(self.imports()), 1)
        _, err = self.run_kept(self.script("x.py", "import counted\n"))
        self.assertIn("MB, new, stays", err)
        self.assertEqual(len(self.imports()), 2)

    @staticmethod
    def parent(pid):
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
        return int(text[text.rindex(")") + 2 :].split()[1])

    def test_a_reaper_that_is_killed(self):
        """Its workers die with it, and their descendants; the next round starts without a template."""
        process = self.begin_sleep()
        workers, hidden = self.pids("pid.0", 2), self.pids("hidden.0", 2)
        [reaper] = {self.parent(pid) for pid in workers}
        os.kill(reaper, signal.SIGKILL)
        _, err = self.finish(process, 0)
        # a worker writes its file before the agent has taken it up: on a slow machine the reaper ends between, and it starts cold
        said = r"(cannot be used \(|made no worker: )the parent of its workers \(muster-reaper\) ended\)?: workers start their own interpreters"
        self.assertRegex(err, said)
        self.assertRegex(err, r"Signal 9 \(SIGKILL\)|SIGKILL")
        self.assertFalse(any(map(alive, workers + hidden)))
        cold = len(self.imports()) - 1  # without the template's
        self.assertIn(cold, (2, 3, 4) if "made no worker" in err else (2,))

    def test_a_job_template_that_is_killed(self):
        process = self.begin_sleep()
        workers = self.pids("pid.0", 2)
        reaper = self.parent(workers[0])
        keeper = [pid for pid in self.children_of(reaper) if pid not in workers]
        [template] = self.children_of(keeper[0])
        os.kill(template, signal.SIGKILL)
        self.wait_said(process, "the template cannot be used (it ended)")
        os.kill(workers[0], signal.SIGKILL)
        self.finish(process, 0)

    @staticmethod
    def children_of(pid):
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def test_an_agent_that_ends_while_it_imports(self):
        (self.folder / "slow.py").write_text("import os, time\nopen('slow.0', 'w').write('%d\\n' % os.getpid())\ntime.sleep(1000)\n")
        path = self.script("x.py", "print('never')\n")
        for end in (signal.SIGTERM, signal.SIGKILL):
            process = self.begin(path, modules="slow")
            [template] = self.pids("slow", 1)
            process.send_signal(end)
            process.wait()
            wait_until(lambda pid=template: not alive(pid), "the template's end")
            (self.folder / "slow.0").unlink()

    def test_it_ends_when_it_is_idle(self):
        path = self.script("x.py", "import counted\n")
        _, err = self.run_kept(path, keep="--warm-keep=0.1")
        self.assertIn("stays for 0.1 s after its last job", err)
        [template] = self.imports()
        wait_until(lambda: not alive(template), "the template's end")
        self.assertEqual([entry.name for entry in (self.runtime / "muster").iterdir()], ["lock"])
        self.assertEqual(self.muster_warm().stdout, "no template is kept\n")
        self.run_kept(path)
        self.assertEqual(len(self.imports()), 2)

    def test_stop(self):
        """A job that runs goes on, from its own template, also after a restart."""
        process = self.begin_sleep()
        workers = self.pids("pid.0", 2)
        [template] = self.imports()
        self.assertEqual(self.muster_warm("--stop").stdout, f"template {template} ends\n")
        wait_until(lambda: not alive(template), "the template's end")
        os.kill(workers[0], signal.SIGKILL)
        self.finish(process, 0)
        self.assertEqual(len(self.imports()), 1)


class Fits(KeepTest):
    """Which jobs a kept template is for."""

    def test_other_environments_and_limits(self):
        path = self.script("x.py", "import counted, os\nprint(os.environ.get('COLOUR'), os.environ.get('WORLD_SIZE'))\n")
        self.run_kept(path)
        self.run_kept(path, env={"RANK": "7", "SSH_CLIENT": "x", "SHLVL": "9"})  # a job or a terminal's: no difference
        self.assertEqual(len(self.imports()), 1)
        out, err = self.run_kept(path, env={"COLOUR": "blue"})
        self.assertEqual(out, "blue 1\n")
        self.assertIn("another is kept and differs in: variable COLOUR", err)
        _, err = self.run_kept(path, env={"COLOUR": "blue"})
        self.assertIn("kept from before", err)
        self.assertEqual(len(self.imports()), 2)
        _, err = self.run_kept(path, umask=0o027)
        self.assertIn("differs in: Umask", err)
        self.assertEqual(len(self.templates()), 3)

    def test_a_changed_module_is_imported_anew(self):
        path = self.script("x.py", "import counted, changing\nprint(changing.value)\n")
        for number, value in enumerate(("one", "three", "three", "seventeen")):
            (self.folder / "changing.py").write_text(f"value = {value!r}\n")
            if number == 2:
                continue  # only its time of change differs
            out, _ = self.run_kept(path, modules="counted,changing")
            self.assertEqual(out, value + "\n")
        self.assertEqual(len(self.imports()), 3)
        self.assertEqual(len(set(self.imports())), 1)  # one process

    def test_a_module_that_does_not_fit(self):
        (self.folder / "threads.py").write_text("import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")
        path = self.script("x.py", "import counted, threading\nprint(threading.active_count())\n")
        for _ in range(2):
            out, err = self.run_kept(path, modules="counted,threads")
            self.assertEqual(out, "1\n")
            self.assertIn("--warm: left out of the template: threads: starts threads", err)

    def refused(self, reason):
        out, err = self.run_kept(self.script("x.py", "import counted\nprint('here')\n"))
        self.assertEqual(out, "here\n")
        self.assertRegex(err, f"--warm-keep: {reason}: the template ends with this job")

    def test_a_folder_that_others_may_enter(self):
        (self.runtime / "muster").mkdir(mode=0o755)
        os.chmod(self.runtime / "muster", 0o755)
        self.refused(r".*/muster, the folder of kept templates, has mode 0755, so that others may enter it: chmod 700 .*")
        self.assertEqual(self.muster_warm().returncode, 1)
        os.chmod(self.runtime / "muster", 0o700)

    def test_a_folder_that_is_a_link(self):
        (self.folder / "elsewhere").mkdir(mode=0o700)
        (self.runtime / "muster").symlink_to(self.folder / "elsewhere")
        self.refused(r"cannot open .*/muster, the folder of kept templates: .*")

    @unittest.skipUnless(os.geteuid() == 0, "gives a folder to another user")
    def test_a_folder_of_another_user(self):
        (self.runtime / "muster").mkdir(mode=0o700)
        os.chown(self.runtime / "muster", 12345, 12345)
        self.refused(r".*/muster, the folder of kept templates, belongs to user 12345, and we are user 0: .*")
        os.chown(self.runtime / "muster", 0, 0)

    @unittest.skipUnless(os.geteuid() == 0, "is another user")
    def test_another_user_is_not_answered(self):
        """Not even past the folder."""
        self.run_kept(self.script("x.py", "import counted\n"))
        [path] = (self.runtime / "muster").glob("*.template")
        folders = (self.folder, self.runtime, self.runtime / "muster")
        try:
            for folder in folders:
                os.chmod(folder, 0o755)
            os.chmod(path, 0o777)
            answers = [self.ask_as(user, path) for user in (0, 12345)]
        finally:
            for folder in folders:
                os.chmod(folder, 0o700)
        self.assertRegex(answers[0], rb"^\d+ \d+ 0 ")
        self.assertIn(answers[1], (b"", b"reset"))

    @staticmethod
    def ask_as(user, path):
        """The answer to a process of that user."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setresuid(user, user, user)
            link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            link.connect(str(path))
            try:
                link.send(b"list")
                os.write(writer, link.recv(999))
            except (ConnectionResetError, BrokenPipeError):
                os.write(writer, b"reset")
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            found = file.read()
        os.waitpid(pid, 0)
        return found

    def test_a_program_that_is_its_own_template(self):
        path = self.script("program", "#!/bin/sh\necho cold\n")
        os.chmod(path, 0o755)
        _, err = self.run_kept("--", path)
        self.assertRegex(err, "--warm-keep: .*program is its own template: the template ends with this job")

    def test_inside_another_agent(self):
        """What that starts does not outlive it, the template of an agent among its workers neither."""
        self.script("x.py", "import counted\n")
        inner = self.script("inner.sh", f'#!/bin/sh\nfor i in 1 2; do "{MUSTER}" run --standalone --warm=counted --warm-keep x.py || exit 9; done\n')
        os.chmod(inner, 0o755)
        self.run_muster("--standalone", "--no-python", inner, env=self.env())
        [template] = self.imports()
        self.assertFalse(alive(template))

    @unittest.skipUnless(os.geteuid() == 0, "makes a namespace")
    def test_process_1(self):
        command = ["unshare", "--pid", "--fork", "--mount-proc", MUSTER, "run", "--standalone", "--warm=counted", "--warm-keep"]
        path = self.script("x.py", "import counted\nprint('here')\n")
        done = subprocess.run([*command, path], cwd=self.folder, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL,
                              env=environment(E2E_FOLDER=str(self.folder), **self.env()))  # fmt: skip
        self.assertEqual((done.returncode, done.stdout), (0, "here\n"), done.stderr)
        self.assertIn("--warm-keep: nothing outlives process 1 of a container, which this agent is: the template ends with this job", done.stderr)

    def test_without_warm(self):
        _, err = self.run_muster("--standalone", "--warm-keep", self.script("x.py", ""), env=self.env())
        self.assertIn("--warm-keep has no effect without --warm", err)

    def test_one_that_does_not_answer(self):
        path = self.script("x.py", "import counted\nprint('here')\n")
        self.run_kept(path)
        [template] = self.imports()
        os.kill(template, signal.SIGSTOP)
        self.addCleanup(os.kill, template, signal.SIGCONT)
        out, err = self.run_kept(path)
        self.assertEqual(out, "here\n")
        self.assertIn("(the kept template does not answer; muster warm --stop ends it): workers start their own interpreters", err)
        os.kill(template, signal.SIGCONT)


if __name__ == "__main__":
    unittest.main()
