"""The template of Python workers: imports modules once, then makes each worker by fork.

The agent runs it as `python3 -u -c SOURCE MODULES -- ARGV...`, with the protocol of launcher/docs/warm.md on the
descriptor MUSTER_TEMPLATE_FD. In a worker it returns, and the code at the end runs the program as __main__.

With MUSTER_TEMPLATE_KEPT it outlives its jobs: it listens, and forks for each job the process that then speaks that
protocol, and the workers' parent (launcher/warm/warm_kept.h)."""
import os
import sys


class _MusterWorker:
    """The content of a request: the worker's argv, environment and processors."""

    def __init__(self, number, agent, processors, payload):
        self.number, self.agent, self.processors = number, agent, processors
        parts = payload.split(b"\0")
        count = int(parts[0])
        self.argv = parts[1 : 1 + count]
        self.environment = parts[2 + count : 2 + count + int(parts[1 + count])]


class _MusterTemplate:
    LEFT_OUT = "_MUSTER_TEMPLATE_LEFT_OUT"  # modules that this process must not import, over an exec of itself
    FIRST_FREE = 16  # descriptors of requests are kept above the descriptors of a worker

    def __init__(self):
        import ctypes
        import fcntl
        import socket

        self.ctypes, self.socket = ctypes, socket
        self.c = ctypes.CDLL(None, use_errno=True)
        self.fcntl = fcntl
        kept = os.environ.pop("MUSTER_TEMPLATE_KEPT", None)
        self.kept = _MusterKept(self, kept) if kept else None
        if self.kept is None:
            given = int(os.environ.pop("MUSTER_TEMPLATE_FD"))
            self.link = self.take_socket(given)
            self.given = given
        with open("/proc/self/cmdline", "rb") as file:
            self.command = file.read().split(b"\0")[:-1]
        end = sys.argv.index("--")
        self.modules, self.argv = sys.argv[1:end], sys.argv[end + 1 :]
        left_out = os.environ.pop(self.LEFT_OUT, "")
        self.left_out = dict(line.split("\t", 1) for line in left_out.split("\n") if line)

    def take_high(self, given):
        """A copy of a descriptor above the descriptors of a worker; the given one is not inherited."""
        os.set_inheritable(given, False)
        return self.fcntl.fcntl(given, self.fcntl.F_DUPFD_CLOEXEC, self.FIRST_FREE)

    def take_socket(self, given):
        return self.socket.socket(fileno=self.take_high(given))

    # --- the modules ---

    def find_as_worker(self):
        """The first folder of imports is the worker's: the script's, or the working directory with -m."""
        sys.argv = ["-m"] + self.argv[4:] if self.argv[2] == "-m" else self.argv[2:]
        if getattr(sys.flags, "safe_path", False):
            return
        first = os.getcwd() if self.argv[2] == "-m" else os.path.dirname(os.path.realpath(self.argv[2]))
        if sys.path and sys.path[0] == "":
            sys.path[0] = first

    def unfit(self):
        """Why no worker can be forked from this process now, or None."""
        if len(os.listdir("/proc/self/task")) > 1:
            # Some threads end by themselves before a fork (OpenBLAS's): remaining threads are lost in workers.
            import warnings

            with warnings.catch_warnings():  # newer Pythons warn of exactly this
                warnings.simplefilter("ignore")
                pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
            if len(os.listdir("/proc/self/task")) > 1:
                return "starts threads"
        for name in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink("/proc/self/fd/" + name)
            except OSError:
                continue
            if target.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri")):
                return "opens the GPU (" + target + ")"
        return None

    def import_all(self):
        """A module that cannot be imported or makes this process unfit is left out: of the latter the process is
        rid by executing itself again."""
        import importlib

        for name in self.modules:
            if name in self.left_out:
                continue
            try:
                importlib.import_module(name)
                reason = self.unfit()
            except Exception as error:  # the worker will say it in full, if it imports that module
                self.left_out[name] = "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:200])
                continue
            if reason:
                self.left_out[name] = reason
                self.begin_again()

    def begin_again(self):
        os.environ[self.LEFT_OUT] = "\n".join("%s\t%s" % item for item in self.left_out.items())
        if self.kept is not None:
            self.kept.prepare_exec()
        else:
            os.environ["MUSTER_TEMPLATE_FD"] = str(self.given)
            os.dup2(self.link.fileno(), self.given)
        os.execv(sys.executable, self.command)

    # --- requests ---

    def receive(self):
        """A request and its descriptors: the payload's, stdout, stderr, and further ones; None at the agent's end."""
        data, high = self.receive_with_fds(self.link)
        if not data:
            return None, high
        word, number, agent, processors = data.decode().split(" ")
        assert word == "fork", data
        return _MusterWorker(number, int(agent), processors, self.read_memfd(high[0])), high

    def receive_with_fds(self, link):
        data, ancillary, _, _ = link.recvmsg(4096, self.socket.CMSG_SPACE(16 * 4), self.socket.MSG_CMSG_CLOEXEC)
        fds = []
        for level, kind, content in ancillary:
            if level == self.socket.SOL_SOCKET and kind == self.socket.SCM_RIGHTS:
                for at in range(0, len(content) - len(content) % 4, 4):
                    fds.append(int.from_bytes(content[at : at + 4], sys.byteorder))
        high = [self.fcntl.fcntl(fd, self.fcntl.F_DUPFD_CLOEXEC, self.FIRST_FREE) for fd in fds]
        for fd in fds:
            os.close(fd)
        return data, high

    @staticmethod
    def read_memfd(fd):
        content = b""
        while True:  # the descriptor's position is the agent's too
            piece = os.pread(fd, 1 << 20, len(content))
            if not piece:
                return content
            content += piece

    def send(self, text):
        self.link.send(text.encode())

    def serve(self):
        """Returns in each worker, and nowhere else."""
        try:
            self.send("ready" + "".join("\n%s\t%s" % item for item in self.left_out.items()))
        except OSError:  # the agent has gone
            os._exit(0)
        middles = []
        while True:
            if not self.is_requested():  # else the next worker is made while the last one's parent ends
                for middle in middles:
                    os.waitpid(middle, 0)
                middles = []
            worker, fds = self.receive()
            if worker is None:
                os._exit(0)
            middle = self.clone(self.SIGCHLD)
            if middle == 0:
                if self.fork_worker(worker) == 0:
                    self.become(worker, fds)
                    return worker
                os._exit(0)  # its child becomes the agent's
            for fd in fds:
                os.close(fd)
            if middle > 0:
                middles.append(middle)
            else:
                self.refuse(worker, self.ctypes.get_errno())

    def is_requested(self):
        import select

        poll = select.poll()
        poll.register(self.link, select.POLLIN)
        return bool(poll.poll(0))

    def refuse(self, worker, number):
        self.send("failed %s cannot fork: %s" % (worker.number, os.strerror(number)))

    SIGCHLD = 17  # on both machines below

    def clone(self, signal):
        """A fork without what Python does at a fork, for a process that soon forks or executes; its end sends this signal."""
        number = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)
        if number is None and signal == self.SIGCHLD:  # an ordinary fork does, too
            try:
                return os.fork()
            except OSError as error:
                self.ctypes.set_errno(error.errno)
                return -1
        return self.c.syscall(*(self.ctypes.c_long(value) for value in (number, signal, 0, 0, 0, 0)))

    def fork_worker(self, worker):
        try:
            return os.fork()
        except OSError as error:
            self.refuse(worker, error.errno)
            return -1

    # --- in a worker ---

    def become(self, worker, fds):
        try:
            os.setsid()
            for place, fd in enumerate(fds[1:], 1):
                os.dup2(fd, place)
            for fd in fds:
                os.close(fd)
            if worker.processors != "-":
                os.sched_setaffinity(0, self.numbers(worker.processors))
            os.environb.clear()
            for entry in worker.environment:
                name, _, value = entry.partition(b"=")
                os.environb[name] = value
            self.show(worker)
            self.forget_seeds()
            self.become_child_of(worker.agent)  # last: the parent ends at the same time
            self.send("worker %s %d" % (worker.number, os.getpid()))
        except BaseException as error:
            try:
                self.send("failed %s %s" % (worker.number, error))
            finally:  # also where the agent has gone, or does not wait for it any more
                os._exit(1)
        self.link.close()

    def become_child_of(self, agent):
        """Its parent has ended or is about to: the agent, which adopts orphans, is next."""
        import time

        limit = time.monotonic() + 2
        while os.getppid() != agent:
            if time.monotonic() > limit:
                raise RuntimeError("the agent did not adopt the worker: its parent is %d" % os.getppid())
            time.sleep(0.0001)
        PR_SET_PDEATHSIG, SIGKILL = 1, 9
        self.c.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        if os.getppid() != agent:
            os._exit(1)

    @staticmethod
    def numbers(ranges):
        """{0, 1, 2, 8} of "0-2,8"."""
        found = set()
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
        return found

    def show(self, worker):
        """/proc/PID/cmdline and environ show the worker's, as after an exec. If the kernel refuses, they stay as they are."""
        import mmap

        ctypes = self.ctypes
        texts = [b"".join(text + b"\0" for text in part) for part in (worker.argv, worker.environment)]
        size = sum(map(len, texts))
        area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        area.write(b"".join(texts))
        at = ctypes.addressof(ctypes.c_char.from_buffer(area))
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        field = lambda number: int(fields[number - 3])  # numbers of proc(5)
        self.c.sbrk.restype = ctypes.c_void_p
        self.c.sbrk.argtypes = [ctypes.c_ssize_t]

        class Map(ctypes.Structure):  # struct prctl_mm_map
            _fields_ = [
                ("places", ctypes.c_uint64 * 11),
                ("auxv", ctypes.c_uint64),
                ("auxv_size", ctypes.c_uint32),
                ("exe_fd", ctypes.c_uint32),
            ]

        code_data = [field(26), field(27), field(45), field(46), field(47), self.c.sbrk(0), field(28)]
        middle, end = at + len(texts[0]), at + size
        places = (ctypes.c_uint64 * 11)(*code_data, at, middle, middle, end)
        PR_SET_MM, PR_SET_MM_MAP = 35, 14
        if self.c.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.byref(Map(places, 0, 0, 0xFFFFFFFF)), ctypes.sizeof(Map), 0) == 0:
            sys._muster_command_line = area  # for the process's life
        sys.orig_argv = [os.fsdecode(argument) for argument in worker.argv]

    def forget_seeds(self):
        """Random draws must differ from process to process: Python's own generators draw again by
        themselves after a fork."""
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        process = sys.modules.get("multiprocessing.process")
        if process is not None:
            process.current_process().authkey = os.urandom(32)


class _MusterKept:
    """A template that outlives its jobs: it waits for jobs, and forks for each its reaper and template."""

    LISTENER, LIFE, KEY = 3, 4, 5  # descriptors at the start

    def __init__(self, template, text):
        import time

        self.template, self.os_time = template, time
        seconds, _, self.path = text.partition(" ")
        self.seconds = float(seconds)
        self.listener = template.take_socket(self.LISTENER)
        self.key_fd = template.take_high(self.KEY)
        self.key = template.read_memfd(self.key_fd)
        self.imported_anew = os.environ.pop("_MUSTER_TEMPLATE_ANEW", "") == "1"
        self.jobs, self.waiting = [], []  # connections: one for each job that runs; new ones that have said nothing yet
        self.in_job = False
        self.files = {}
        if not self.imported_anew:
            self.end_with_the_agent()
        os.close(self.LISTENER)
        os.close(self.KEY)

    def end_with_the_agent(self):
        """While this process imports: the agent's end of the pipe closes, and the kernel ends it (SIGIO)."""
        fcntl = self.template.fcntl
        self.life = self.template.take_high(self.LIFE)
        os.close(self.LIFE)
        fcntl.fcntl(self.life, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self.life, fcntl.F_SETFL, fcntl.fcntl(self.life, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
        try:
            if os.read(self.life, 1) == b"":  # it has gone before
                os._exit(0)
        except BlockingIOError:
            pass

    def prepare_exec(self):
        """Descriptors and variables as at the start."""
        for fd, place in ((self.listener.fileno(), self.LISTENER), (self.key_fd, self.KEY)):
            os.dup2(fd, place)
        if not self.imported_anew:
            os.dup2(self.life, self.LIFE)
        os.environ["MUSTER_TEMPLATE_KEPT"] = "%r %s" % (self.seconds, self.path)
        if self.imported_anew:
            os.environ["_MUSTER_TEMPLATE_ANEW"] = "1"

    # --- which files were read ---

    @staticmethod
    def state_of(path):
        try:
            status = os.stat(path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def note_files(self):
        names = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        with open("/proc/self/maps", "rb") as file:
            names.update(os.fsdecode(line.split(None, 5)[5].rstrip(b"\n")) for line in file if line.count(b"/"))
        for name in names:
            state = self.state_of(name) if isinstance(name, str) and name.startswith("/") else None
            if state:
                self.files[name] = state

    def changed_file(self):
        for name, state in self.files.items():
            if self.state_of(name) != state:
                return name
        return None

    # --- connections ---

    def is_ours(self, link):
        socket = self.template.socket
        peer = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(peer[4:8], sys.byteorder) == os.geteuid()

    def memory_kb(self):
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    def serve(self):
        """Returns in each job's template, and nowhere else."""
        import select

        self.note_files()
        self.detach()
        now = idle_since = reap_until = self.os_time.monotonic()
        while True:
            links = [self.listener] + self.waiting + self.jobs
            limits = [] if self.jobs else [idle_since + self.seconds - now]
            if self.reap() and now < reap_until:
                limits.append(self.REAP_PAUSE)
            poll = select.poll()
            for link in links:
                poll.register(link, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(max(0, int(min(limits) * 1000) + 1) if limits else None)}
            now = self.os_time.monotonic()
            if not ready and not self.jobs and now >= idle_since + self.seconds:
                self.end()
            for link in links:
                if link.fileno() not in ready:
                    continue
                if link is self.listener:
                    self.waiting.append(link.accept()[0])
                    if not self.is_ours(self.waiting[-1]):
                        self.waiting.pop().close()
                    continue
                ends = link in self.jobs
                (self.jobs if ends else self.waiting).remove(link)
                keeps = None if ends else self.answer(link)
                if keeps is None:
                    link.close()
                else:
                    keeps.append(link)
                if self.in_job:
                    return
                if ends:
                    idle_since, reap_until = now, now + self.REAP_S

    REAP_S, REAP_PAUSE = 5, 0.05  # how long after the end of a job, and how often, its reaper is waited for

    @staticmethod
    def reap():
        """Reapers and keepers of jobs that have ended, which this process adopts: process 1 of a container may reap nothing.
        Whether there are others."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            return True
        except ChildProcessError:
            return False

    def detach(self):
        """Nothing of the agent that started it is held."""
        PR_SET_CHILD_SUBREAPER = 36
        self.template.c.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if not self.imported_anew:
            os.close(self.life)
        nothing = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(nothing, fd)
        os.close(nothing)

    def end(self):
        """With the lock, so that a job that comes now does not start another under the same name before this one is gone."""
        folder, name = os.path.split(self.path)
        lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CLOEXEC)
        self.template.fcntl.flock(lock, self.template.fcntl.LOCK_EX)
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        os._exit(0)

    def answer(self, link):
        """The list in which the connection stays, None if it does not."""
        try:
            data, fds = self.template.receive_with_fds(link)
        except OSError:
            return None
        try:
            word, _, rest = data.decode().partition(" ")
            if word == "hello":  # the agent's descriptors come when this process takes them at once, not into a queue
                link.send(b"hello")
                return self.waiting
            if word == "job":
                return self.begin_job(link, rest, fds)
            if word == "list":
                modules = " ".join(self.template.modules)
                link.send(("%d %d %d %s %s" % (os.getpid(), self.memory_kb(), len(self.jobs), sys.executable, modules)).encode())
            elif word == "key":
                socket = self.template.socket
                link.sendmsg([b"key"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, self.key_fd.to_bytes(4, sys.byteorder))])
            elif word == "stop":
                link.send(b"%d" % os.getpid())
                self.end()
        except OSError:  # it has gone
            pass
        finally:
            for fd in fds:
                os.close(fd)
        return None

    @staticmethod
    def has_gone(link):
        import select

        poll = select.poll()
        poll.register(link, 0)
        return bool(poll.poll(0))

    # --- a job ---

    def begin_job(self, link, rest, fds):
        if self.has_gone(link):
            return None
        if self.template.read_memfd(fds[0]) != self.key:
            link.send(b"refused it was started for another environment")
            return None
        changed = self.changed_file()
        if changed:
            link.send(b"changed " + os.fsencode(changed))
            self.imported_anew = True
            self.template.left_out = {}
            self.template.begin_again()
        seconds, mark = rest.split(" ")
        self.seconds = float(seconds)
        try:
            middle = os.fork()
        except OSError as error:
            link.send(("refused it cannot fork: %s" % error.strerror).encode())
            return None
        if middle == 0:
            try:
                if os.fork() == 0:
                    self.become_job(link, int(mark), *fds[1:])
                    self.in_job = True
                    return None
            finally:
                if not self.in_job:
                    os._exit(0)
        os.waitpid(middle, 0)
        link.send(("serving %d %d %d" % (os.getpid(), self.memory_kb(), len(self.jobs) + 1)).encode())
        return self.jobs

    def become_job(self, link, mark, template_end, reaper_end, program, stdin, stderr):
        """Returns in the job's template; this process executes the reaper, whose child's child it is."""
        import resource
        import signal

        os.setsid()
        RLIMIT_RTTIME = 15
        hard = resource.getrlimit(RLIMIT_RTTIME)[1]
        if hard == resource.RLIM_INFINITY or hard >= mark:  # else the agent finds it by other means
            resource.setrlimit(RLIMIT_RTTIME, (mark, hard))
        for other in [self.listener, link] + self.waiting + self.jobs:
            other.close()
        os.close(self.key_fd)
        os.dup2(stdin, 0)
        os.dup2(stderr, 1)
        os.dup2(stderr, 2)
        reaper = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        keeper = self.template.clone(0)  # no signal, so that it does not count among the reaper's children
        if keeper == 0:
            if self.fork_under_keeper(reaper):
                signal.pthread_sigmask(signal.SIG_SETMASK, [])
                self.template.link = self.template.take_socket(template_end)
                return
            os._exit(0)
        os.dup2(reaper_end, 3)
        os.execve(program, ["muster", "warm-reaper", str(keeper)], os.environ)

    def end_with(self, parent):
        PR_SET_PDEATHSIG, SIGKILL = 1, 9
        self.template.c.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)

    def fork_under_keeper(self, reaper):
        """True in the job's template; the keeper, which the reaper does not see as a child, ends with either."""
        self.end_with(reaper)
        keeper = os.getpid()
        PR_SET_NAME = 15
        self.template.c.prctl(PR_SET_NAME, b"muster-template", 0, 0, 0)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            self.end_with(keeper)
            self.template.c.prctl(PR_SET_NAME, os.path.basename(sys.executable).encode(), 0, 0, 0)
            return True
        os.closerange(0, 1 << 16)
        os.waitpid(pid, 0)
        return False


def _muster_hide_frames():
    """A traceback begins with the program's own frame."""

    def hook(kind, error, trace):
        while trace is not None and trace.tb_frame.f_code.co_filename in ("<string>", "<frozen runpy>"):
            trace = trace.tb_next
        sys.__excepthook__(kind, error.with_traceback(trace), trace)

    sys.excepthook = hook


def _muster_main_module():
    import types

    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    main.__dict__["__annotations__"] = {}
    sys._muster_template = sys.modules["__main__"]  # whose code is still being executed
    sys.modules["__main__"] = main
    return main.__dict__


def _muster_load(path):
    """The script's code and its __main__, as python3 makes them."""
    import importlib.machinery

    names = _muster_main_module()
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        sys.stderr.write("%s: can't open file %r: [Errno %d] %s\n" % (sys.executable, os.path.abspath(path), error.errno, error.strerror))
        sys.stderr.flush()
        sys.exit(2)
    if sys.version_info >= (3, 9):
        path = os.path.join(os.getcwd(), path[2:] if path.startswith("./") else path)
    names["__file__"] = path
    names["__cached__"] = None
    names["__loader__"] = importlib.machinery.SourceFileLoader("__main__", path)
    return compile(source, path, "exec", dont_inherit=True), names


def _muster_template():
    import gc

    template = _MusterTemplate()
    template.find_as_worker()
    thresholds, none = gc.get_threshold(), (0, 0, 0)
    gc.set_threshold(*none)  # imported objects stay: a search for garbage is up to a tenth of an import
    template.import_all()
    if gc.get_threshold() == none:  # no module wants others
        gc.set_threshold(*thresholds)
    import importlib.machinery  # what workers need themselves
    import mmap
    import time
    import types

    gc.collect()
    gc.freeze()  # a collection in a worker would copy every page of the imported modules
    if template.kept is not None:
        template.kept.serve()
        template.kept = None
    worker = template.serve()
    return [os.fsdecode(argument) for argument in worker.argv]


_muster_argv = _muster_template()
_muster_hide_frames()
if _muster_argv[2] == "-m":
    import runpy

    sys.argv = ["-m"] + _muster_argv[4:]
    _muster_main_module()
    runpy._run_module_as_main(_muster_argv[3])
else:
    sys.argv = _muster_argv[2:]
    exec(*_muster_load(_muster_argv[2]))
