"""muster run --warm: a worker that was forked from the template is one like any other.

    MUSTER_BUILD=build python3 tests/e2e/warm_test.py [TestClass.test_name ...]

The modules that templates import here are small files; real PyTorch is in tests/compat/real_scripts_torch_test.py."""

import json
import os
import py_compile
import signal
import stat
import subprocess
import time
import unittest

from harness import AgentTest, Machine, alive, wait_until

# Everything about a process that a script can see, but for its own facts (pid, time).
FACTS = """
import ctypes, json, os, resource, signal, sys, threading
seen = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(seen), 0, 0, 0)  # PR_GET_PDEATHSIG
with open("/proc/self/cmdline") as file:
    command = file.read()
with open("/proc/self/environ") as file:
    shown = sorted(file.read().split("\\0"))
main = sys.modules["__main__"]
facts = {
    "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "path": sys.path, "flags": str(sys.flags), "name": __name__,
    "file": __file__, "main": sorted(vars(main)), "main is this": vars(main) is globals(), "package": __package__,
    "spec": getattr(main.__spec__, "name", None), "loader": type(main.__loader__).__name__, "cached": main.__dict__.get("__cached__"),
    "command": command, "shown": shown, "environment": dict(os.environ), "cwd": os.getcwd(),
    "session": os.getsid(0) == os.getpid() == os.getpgid(0), "parent": os.getppid() == int(os.environ["E2E_PARENT"]) or os.getppid(),
    "death signal": seen.value, "affinity": sorted(os.sched_getaffinity(0)),
    "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK)],
    "mark": resource.getrlimit(15)[0] != resource.RLIM_INFINITY,
    "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "actions": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)),
    "inheritable": [os.get_inheritable(fd) for fd in range(5)],
    "threads": threading.active_count(), "main thread": threading.current_thread() is threading.main_thread(),
    "streams": [(stream.fileno(), stream.encoding, stream.write_through, stream.line_buffering) for stream in (sys.stdout, sys.stderr)],
    "hook": sys.excepthook is sys.__excepthook__ or "own", "oom": open("/proc/self/oom_score_adj").read(), "umask": os.umask(0o22),
}
with open(os.environ["E2E_FOLDER"] + "/facts." + os.environ["RANK"], "w") as file:
    json.dump(facts, file)
"""
# required differences: nothing else may differ
OWN = {"TORCHELASTIC_RUN_ID", "MUSTER_AGENT_ID", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "E2E_PARENT", "MUSTER_WARM"}

COUNTED = """import os
with open(os.environ["E2E_FOLDER"] + "/imports", "a") as file:
    file.write("%d\\n" % os.getpid())
"""


class WarmTest(AgentTest):
    def module(self, name, text):
        (self.folder / f"{name}.py").write_text(text)
        return name

    def imports(self):
        path = self.folder / "imports"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


class LikeAnyOther(WarmTest):
    def facts(self, warm, arguments, count=2):
        """For each rank; the agent is started by a shell that prints its pid, so that the workers know their parent."""
        env = {"MUSTER_WARM": "json"} if warm else {}
        command = 'E2E_PARENT=$$ exec "$0" "$@"'
        flags = ["--standalone", f"--nproc-per-node={count}", *arguments]
        from harness import MUSTER, environment

        done = subprocess.run(["sh", "-c", command, MUSTER, "run", *flags], cwd=self.folder, capture_output=True, text=True,
                              env=environment(E2E_FOLDER=str(self.folder), **env), timeout=200)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("warm", done.stderr)
        found = [json.loads((self.folder / f"facts.{rank}").read_text()) for rank in range(count)]
        for facts in found:
            facts["environment"] = {name: value for name, value in facts["environment"].items() if name not in OWN}
            facts["shown"] = [entry for entry in facts["shown"] if entry.partition("=")[0] not in OWN]
        return found

    def compare(self, arguments, **options):
        cold, warm = self.facts(False, arguments, **options), self.facts(True, arguments, **options)
        self.maxDiff = None
        for before, now in zip(cold, warm):
            self.assertEqual(before.pop("hook"), True)
            self.assertEqual(now.pop("hook"), "own")  # which leaves the template's frames out
            self.assertEqual(before, now)
        self.assertEqual(warm[0]["parent"], True)

    def test_a_script(self):
        self.compare([self.script("facts.py", FACTS), "one", "--two=$local_rank", "drei\tü"])

    def test_a_module(self):
        (self.folder / "pack").mkdir()
        (self.folder / "pack" / "__init__.py").write_text("")
        (self.folder / "pack" / "facts.py").write_text(FACTS)
        self.compare(["-m", "pack.facts", "an argument"])

    def test_bound_to_processors(self):
        self.compare(["--numa-binding=node", self.script("facts.py", FACTS)])

    def ends(self, text, code, *, warm, launch=("x.py",)):
        if text is not None:
            self.script("x.py", text)
        _, err = self.run_muster("--standalone", *(["--warm=json"] if warm else []), *launch, code=code)
        changing = ("muster:", "  time ", "  exitcode", "  traceback : Signal")
        return [line for line in err.splitlines() if not line.startswith(changing)]

    def test_ends_and_tracebacks(self):
        inner = "def f():\n    raise ValueError('no')\nif __name__ == '__main__':\n    f()\n"
        for text, code in (
            ("import sys\nsys.exit(7)\n", 7),
            ("import sys\nsys.exit('in words')\n", 1),
            (inner, 1),
            ("def f(:\n", 1),
            ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n", 143),
            ("raise KeyboardInterrupt\n", 130),
            ("import atexit\natexit.register(print, 'at the end', flush=True)\n1/0\n", 1),
            ("import threading, time\nthreading.Thread(target=lambda: (time.sleep(.3), print('late'))).start()\n", 0),
        ):
            with self.subTest(text=text):
                self.assertEqual(self.ends(text, code, warm=True), self.ends(text, code, warm=False))
        self.assertIn("in f", "\n".join(self.ends(inner, 1, warm=True)))

    def test_what_cannot_be_run(self):
        gone = "import os\nos.unlink('x.py')\n"  # in the first of two rounds
        for warm in (False, True):
            self.script("x.py", gone + "os._exit(1)\n")
            _, err = self.run_muster("--standalone", "--max-restarts=1", *(["--warm=json"] if warm else []), "x.py", code=2)
            self.assertRegex(err, r"python3: can't open file '.*/x.py': \[Errno 2\] No such file or directory")
        for module in ("nosuch", "json", "os.nosuch"):
            with self.subTest(module=module):
                cold, warm = (self.ends(None, 1, warm=warm, launch=("-m", module)) for warm in (False, True))
                self.assertEqual(warm, cold)

    def test_seeds_differ(self):
        self.module("numpy_like", "import random\n")
        path = self.script("draw.py", "import random, uuid, multiprocessing as m\nprint(random.random(), m.current_process().authkey.hex())\n")
        out, _ = self.run_muster("--standalone", "--nproc-per-node=4", "--warm=random,multiprocessing", path)
        words = out.split()
        self.assertEqual(len(set(words)), 8, words)


class Template(WarmTest):
    SLEEP = """import os, sys, time
print("round", os.environ["TORCHELASTIC_RESTART_COUNT"], os.getpid(), flush=True)
import counted
with open("%s/pid.%s.%s" % (os.environ["E2E_FOLDER"], os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]), "w") as file:
    file.write("%d\\n" % os.getpid())
if os.environ["TORCHELASTIC_RESTART_COUNT"] != os.environ["E2E_LAST"]:
    time.sleep(1000)
"""

    def begin(self, *flags, last=1, count=2, **env):
        self.module("counted", COUNTED)
        process = self.start("--standalone", f"--nproc-per-node={count}", "--max-restarts=3", "--warm=counted", *flags,
                             self.script("sleep.py", self.SLEEP), env={"E2E_LAST": str(last), **env})  # fmt: skip
        return process

    def workers(self, round_, count=2):
        def read():
            paths = [self.folder / f"pid.{round_}.{rank}" for rank in range(count)]
            texts = [path.read_text() for path in paths if path.exists()]
            return [int(text) for text in texts] if len(texts) == count and all(text.endswith("\n") for text in texts) else None

        return wait_until(read, f"workers of round {round_}")

    def test_imports_once_for_all_rounds(self):
        process = self.begin(last=2)
        for round_ in range(2):
            os.kill(self.workers(round_)[1], signal.SIGKILL)
        out, _ = self.finish(process, 0)
        self.assertEqual(len(self.imports()), 1)
        workers = {int(line.split()[2]) for line in out.splitlines()}
        self.assertEqual(len(workers), 6)
        self.assertNotIn(self.imports()[0], workers)

    def test_many_workers(self):
        process = self.begin(last=0, count=32)
        out, _ = self.finish(process, 0)
        self.assertEqual((len(out.splitlines()), len(self.imports())), (32, 1))

    def test_a_template_that_ends_is_done_without(self):
        process = self.begin()
        victims = self.workers(0)
        template = self.imports()[0]
        os.kill(template, signal.SIGKILL)
        wait_until(lambda: not alive(template), "the template's end")
        os.kill(victims[0], signal.SIGKILL)
        _, err = self.finish(process, 0)
        self.assertIn("--warm: the template cannot be used (it ended): workers start their own interpreters", err)
        self.assertEqual(len(self.imports()), 3)

    def test_nothing_survives_a_killed_agent(self):
        process = self.begin(last=5)
        pids = [*self.workers(0), *self.imports()]
        with Machine() as machine:
            process.kill()
            begun = time.monotonic()
            wait_until(lambda: not any(map(alive, pids)), "the end of workers and template")
            took = time.monotonic() - begun
        self.assertLess(took, machine.bound(1.0), machine)
        process.wait()

    def test_a_signal_while_it_imports(self):
        self.module("slow", "import time\nopen(__file__ + '.begun', 'w').close()\ntime.sleep(1000)\n")
        process = self.start("--standalone", "--warm=slow", self.script("x.py", "print('never')\n"))
        wait_until((self.folder / "slow.py.begun").exists, "the import")
        with Machine() as machine:
            begun = time.monotonic()
            process.terminate()
            out, _ = self.finish(process, 143)
            took = time.monotonic() - begun
        self.assertEqual(out, "")
        self.assertLess(took, machine.bound(1.0), machine)

    def test_modules_that_do_not_fit_are_left_out_by_name(self):
        self.module("counted", COUNTED)
        self.module("threads", "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")
        self.module("broken", "raise RuntimeError('two\\nlines')\n")
        path = self.script("x.py", "import counted, threading\nprint(threading.active_count())\n")
        out, err = self.run_muster("--standalone", "--nproc-per-node=2", "--warm=counted,threads,broken,nosuch", path)
        self.assertEqual(out, "1\n1\n")
        self.assertIn(
            "muster: warning: --warm: left out of the template: threads: starts threads; broken: RuntimeError: two lines; "
            "nosuch: ModuleNotFoundError: No module named 'nosuch'\n",
            err,
        )
        self.assertEqual(len(set(self.imports())), 1)  # twice by one process, which began again

    @unittest.skipUnless(os.geteuid() == 0, "makes a device file")
    def test_a_module_that_opens_the_gpu(self):
        node = f"/dev/nvidia-test-{os.getpid()}"
        os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # is /dev/null
        self.addCleanup(os.unlink, node)
        self.module("gpu", f"kept = open({node!r})\n")
        _, err = self.run_muster("--standalone", "--warm=gpu", self.script("x.py", "print('here')\n"))
        self.assertIn(f"left out of the template: gpu: opens the GPU ({node})", err)

    def test_threads_that_end_at_a_fork_are_no_reason(self):
        """As OpenBLAS's do: they are counted after a fork."""
        self.module(
            "pool",
            "import os, threading\n"
            "stop = threading.Event()\n"
            "thread = threading.Thread(target=stop.wait, daemon=True)\n"
            "thread.start()\n"
            "os.register_at_fork(before=lambda: (stop.set(), thread.join()))\n",
        )
        _, err = self.run_muster("--standalone", "--warm=pool", self.script("x.py", "import pool\n"))
        self.assertEqual(err, "")


class AnyProgram(WarmTest):
    """The protocol of launcher/docs/warm.md, by a program without Python's template; and templates that break it."""

    def executable(self, text):
        path = self.script("program", "#!/usr/bin/env python3\n" + text)
        os.chmod(path, 0o755)
        return path

    SPEAKS = """import array, fcntl, os, socket, sys
if "MUSTER_TEMPLATE_FD" not in os.environ:
    print("cold", os.environ["RANK"])
    sys.exit(0)
link = socket.socket(fileno=fcntl.fcntl(int(os.environ["MUSTER_TEMPLATE_FD"]), fcntl.F_DUPFD_CLOEXEC, 20))
%s
"""

    def test_a_template_of_its_own(self):
        path = self.executable(self.SPEAKS % """
link.send(b"ready")
while True:
    data, control, _, _ = link.recvmsg(4096, socket.CMSG_SPACE(64))
    if not data:
        os._exit(0)
    _, number, agent, cpus = data.decode().split()
    fds = list(array.array("i", control[0][2]))
    middle = os.fork()
    if middle == 0:
        if os.fork():
            os._exit(0)
        break
    os.waitpid(middle, 0)
    for fd in fds:
        os.close(fd)
os.setsid()
while os.getppid() != int(agent):
    pass
texts = os.pread(fds[0], 1 << 20, 0).decode().split("\\0")
argc = int(texts[0])
argv, envp = texts[1:1 + argc], dict(text.split("=", 1) for text in texts[2 + argc:2 + argc + int(texts[1 + argc])])
fds = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 30) for fd in fds]
for place, fd in enumerate(fds[1:], 1):
    os.dup2(fd, place)
link.send(b"worker %s %d" % (number.encode(), os.getpid()))
print("warm", envp["RANK"], argv[1:], flush=True)
os._exit(0)
""")  # fmt: skip
        out, err = self.run_muster("--standalone", "--nproc-per-node=3", "--warm", "--", path, "a", "b c")
        self.assertEqual((sorted(out.splitlines()), err), ([f"warm {rank} ['a', 'b c']" for rank in range(3)], ""))

    def falls_back(self, text, reason, count=2):
        out, err = self.run_muster("--standalone", f"--nproc-per-node={count}", "--warm", "--", self.executable(self.SPEAKS % text))
        self.assertEqual(sorted(out.splitlines()), [f"cold {rank}" for rank in range(count)])
        self.assertRegex(err, reason)

    def test_templates_that_break_the_protocol(self):
        for text, reason in (
            ("sys.exit(0)", "it ended before it was ready"),
            ("link.send(b'what'); link.recv(1)", "it sent an unknown message"),
            ("link.send(b'worker 0 1'); link.recv(1)", "it answered without a request"),
            ("link.send(b'ready'); link.recv(100); sys.exit(1)", "the template made no worker: it ended"),
            ("link.send(b'ready'); link.recv(100); link.send(b'failed 0 no room here'); link.recv(100)", "no room here"),
            ("link.send(b'ready'); link.recv(100); link.send(b'worker 0 1'); link.recv(100)", "its worker is not a child of the agent"),
            ("link.send(b'ready'); import time; time.sleep(1000)", "it did not answer in time"),
        ):
            with self.subTest(text=text):
                self.falls_back(text, reason)

    def test_compiled_scripts_start_cold(self):
        path = self.script("x.py", "print('compiled')\n")
        py_compile.compile(path, cfile=str(self.folder / "x.pyc"))
        out, err = self.run_muster("--standalone", "--warm", str(self.folder / "x.pyc"))
        self.assertEqual(out, "compiled\n")
        self.assertIn("x.pyc is no Python source: workers start their own interpreters", err)

    def test_the_flag(self):
        out, _ = self.run_muster("--standalone", "--warm=", self.script("x.py", "import os\nprint(os.environ.get('MUSTER_TEMPLATE_FD'))\n"))
        self.assertEqual(out, "None\n")
        out, _ = self.run_muster("--standalone", "--warm=json", "--dry-run", self.script("x.py", ""))
        self.assertNotIn("TEMPLATE", out)


if __name__ == "__main__":
    unittest.main()
