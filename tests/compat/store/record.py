"""What a case of store_cases_test.py has: a server of either kind, its clients, and a record of what their calls gave."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import torch_python  # noqa: E402

torch = torch_python.require()
import torch.distributed as dist  # noqa: E402

LONG = timedelta(seconds=300)
SHORT = timedelta(milliseconds=300)
ENDED = re.compile(r"reset by peer|Broken pipe|closed|got 0 bytes|shutdown or crash")
VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


class OurServer:
    name = "ours"

    def __init__(self):
        program = os.path.join(torch_python.build(), "tests", "tcpstore_serve")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(timeout=300) == 0, "our server did not end well"


class TorchServer:
    """In a process of its own, so that it may be made to fall over a bad request and shares no lock with its clients; forked from
    a template that has imported torch already."""

    name = "torch's"
    program = """
import datetime, os, signal, sys, torch.distributed as dist
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if os.fork() == 0:
        store = dist.TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=60), wait_for_workers=False)
        print(os.getpid(), store.port, flush=True)
        while True:
            signal.pause()
"""
    factory = None

    def __init__(self):
        if not TorchServer.factory:
            TorchServer.factory = subprocess.Popen(
                [sys.executable, "-c", self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        self.factory.stdin.write("\n")
        self.factory.stdin.flush()
        self.pid, self.port = map(int, self.factory.stdout.readline().split())

    def close(self):
        os.kill(self.pid, signal.SIGKILL)

    @classmethod
    def close_factory(cls):
        cls.factory.stdin.close()
        cls.factory.stdout.close()
        cls.factory.wait()


class Missing:
    def __repr__(self):
        return "<this torch has no such call>"


class Record:
    """Clients of one server, and what their calls gave."""

    def __init__(self, port):
        self.port = port
        self.lines = []

    def client(self, timeout=LONG, **options):
        """timeout: of its calls; older versions take it for the connection too, and it is not to fail on a busy machine."""
        options.setdefault("wait_for_workers", False)
        store = dist.TCPStore("127.0.0.1", self.port, None, False, LONG, **options)
        if timeout is not LONG:
            store.set_timeout(timeout)
        return store

    def note(self, what, value):
        self.lines.append(f"{what} -> {value!r}")
        return value

    def see(self, store, call, *arguments):
        """Calls a method of a store and writes down the result. A call without a reply is followed by a call with a reply: the
        first call's values are then in the store, for other clients too."""
        shown = ", ".join(f"{argument!r:.60}" for argument in arguments)

        def both():
            value = getattr(store, call)(*arguments)
            if call in ("set", "append", "multi_set", "queue_push"):
                store.num_keys()
            return value

        return self.attempt(f"{call}({shown})", both)

    def attempt(self, what, call):
        try:
            value = call()
        except AttributeError:
            value = Missing()
        except Exception as error:  # noqa: BLE001 - torch's types differ by version; both sides have the same
            text = str(error).splitlines()[0] if str(error) else ""
            value = "the connection ended" if ENDED.search(text) else f"{type(error).__name__}: {text}"
        if isinstance(value, bytes) and len(value) > 60:
            return self.note(what, (len(value), hash(value)))
        return self.note(what, value)

    def wait_until(self, condition):
        deadline = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < deadline, "it does not come true"
            time.sleep(0.005)


def together(count, body):
    """body(0..count-1) in threads; the exceptions are raised here."""
    failures = []

    def guarded(index):
        try:
            body(index)
        except BaseException as error:  # noqa: BLE001
            failures.append(f"{index}: {error!r}")

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


CASES = []


def case(function=None, since=(2, 1)):
    def register(body):
        if VERSION >= since:
            CASES.append(body)
        return body

    return register(function) if function else register
