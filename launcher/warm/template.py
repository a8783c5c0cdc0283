"""The template of Python workers: imports modules once, then makes each worker by fork.

The agent runs it as `python3 -u -c SOURCE MODULES -- ARGV...`, with the protocol of launcher/docs/warm.md on the
descriptor MUSTER_TEMPLATE_FD. In a worker it returns, and the code at the end runs the program as __main__."""
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
    FIRST_FREE = 16  # descriptors of requests are kept above those that a worker gets

    def __init__(self):
        import ctypes
        import fcntl
        import socket

        self.ctypes, self.socket = ctypes, socket
        self.c = ctypes.CDLL(None, use_errno=True)
        given = int(os.environ.pop("MUSTER_TEMPLATE_FD"))
        self.link = socket.socket(fileno=fcntl.fcntl(given, fcntl.F_DUPFD_CLOEXEC, self.FIRST_FREE))
        os.set_inheritable(given, False)
        self.fcntl = fcntl
        with open("/proc/self/cmdline", "rb") as file:
            self.command = file.read().split(b"\0")[:-1]
        self.given = given
        end = sys.argv.index("--")
        self.modules, self.argv = sys.argv[1:end], sys.argv[end + 1 :]
        left_out = os.environ.pop(self.LEFT_OUT, "")
        self.left_out = dict(line.split("\t", 1) for line in left_out.split("\n") if line)

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
            # Some threads end by themselves before a fork (OpenBLAS's): those that stay are lost in workers.
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
        os.environ["MUSTER_TEMPLATE_FD"] = str(self.given)
        os.dup2(self.link.fileno(), self.given)
        os.execv(sys.executable, self.command)

    # --- requests ---

    def receive(self):
        """A request and its descriptors: the payload's, stdout, stderr, and further ones; None at the agent's end."""
        data, ancillary, _, _ = self.link.recvmsg(4096, self.socket.CMSG_SPACE(16 * 4), self.socket.MSG_CMSG_CLOEXEC)
        fds = []
        for level, kind, content in ancillary:
            if level == self.socket.SOL_SOCKET and kind == self.socket.SCM_RIGHTS:
                for at in range(0, len(content) - len(content) % 4, 4):
                    fds.append(int.from_bytes(content[at : at + 4], sys.byteorder))
        if not data:
            return None, fds
        high = [self.fcntl.fcntl(fd, self.fcntl.F_DUPFD_CLOEXEC, self.FIRST_FREE) for fd in fds]
        for fd in fds:
            os.close(fd)
        word, number, agent, processors = data.decode().split(" ")
        assert word == "fork", data
        payload = b""
        while True:  # the descriptor's position is the agent's too
            piece = os.pread(high[0], 1 << 20, len(payload))
            if not piece:
                break
            payload += piece
        return _MusterWorker(number, int(agent), processors, payload), high

    def send(self, text):
        self.link.send(text.encode())

    def serve(self):
        """Returns in each worker, and nowhere else."""
        self.send("ready" + "".join("\n%s\t%s" % item for item in self.left_out.items()))
        while True:
            worker, fds = self.receive()
            if worker is None:
                os._exit(0)
            try:
                middle = os.fork()
            except OSError as error:
                self.send("failed %s cannot fork: %s" % (worker.number, error.strerror))
                middle = None
            if middle == 0:
                if self.fork_worker(worker) == 0:
                    self.become(worker, fds)
                    return worker
                os._exit(0)  # its child becomes the agent's
            for fd in fds:
                os.close(fd)
            if middle is not None:
                os.waitpid(middle, 0)

    def fork_worker(self, worker):
        try:
            return os.fork()
        except OSError as error:
            self.send("failed %s cannot fork: %s" % (worker.number, error.strerror))
            return -1

    # --- in a worker ---

    def become(self, worker, fds):
        try:
            self.become_child_of(worker.agent)
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

        os.setsid()
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
        """/proc/PID/cmdline and environ show the worker's, as after an exec. What the kernel refuses stays as it is."""
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
        """What each process draws for itself must not be the same in all: Python's own generators draw again by
        themselves after a fork."""
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        process = sys.modules.get("multiprocessing.process")
        if process is not None:
            process.current_process().authkey = os.urandom(32)


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
    template = _MusterTemplate()
    template.find_as_worker()
    template.import_all()
    import gc
    import importlib.machinery  # what workers need themselves
    import mmap
    import time
    import types

    gc.collect()
    gc.freeze()  # a collection in a worker would copy every page of what was imported
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
