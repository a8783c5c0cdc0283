"""The cases of PyTorch's own store tests that speak to a server from outside, against our TCPStore, with torch's own client.

    MUSTER_BUILD=build python3 tests/compat/store_cases_test.py [case ...]

Every case is a list of calls, and each call's result or exception is written down. It runs twice, on the server that this version of
torch starts by default and on ours, and the two records have to be equal: torch's behaviour is expected. Runs with every torch
from 2.1 on; a call that a version has not is written down as missing on both sides."""
import contextlib
import os
import random
import re
import signal
import socket
import string
import struct
import subprocess
import sys
import threading
import time
from datetime import timedelta

import torch_python

torch = torch_python.require()
import torch.distributed as dist  # noqa: E402

LONG = timedelta(seconds=300)
SHORT = timedelta(milliseconds=300)
ENDED = re.compile(r"reset by peer|Broken pipe|closed|got 0 bytes|shutdown or crash")
VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


# --- servers ---


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


# --- means of a case ---


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


# --- keys and values ---


@case
def set_and_get(r):
    store, other = r.client(), r.client()
    for key, value in (("key", "value"), ("key0", "0"), ("number", "12"), ("empty", ""), ("blank key", "a b"), ("ключ", "значение"), ("", "the empty key")):
        r.see(store, "set", key, value)
        r.see(other, "get", key)
    r.see(store, "set", "key", "second")
    r.see(other, "get", "key")
    r.see(store, "set", "bytes", bytes(range(256)))
    r.see(other, "get", "bytes")
    r.see(store, "set", "nul\0key", b"\0")
    r.see(other, "get", "nul\0key")
    r.see(store, "num_keys")


@case
def check(r):
    store = r.client()
    r.see(store, "check", [])
    r.see(store, "check", ["a"])
    r.see(store, "set", "a", "1")
    r.see(store, "set", "b", "")
    for keys in (["a"], ["b"], ["a", "b"], ["a", "b", "a"], ["a", "c"], ["c", "d"]):
        r.see(store, "check", keys)
    r.see(store, "check", [f"k{i}" for i in range(5000)])


@case
def add(r):
    store, other = r.client(), r.client()
    for delta in (1, 2, 0, -7, 2**40, -(2**62), -(2**62)):
        r.see(store, "add", "n", delta)
        r.see(other, "get", "n")
    for text in ("40", "-3", "+5", " 12", "12abc", "7.9", "0x10", "007", "1e3"):
        r.see(store, "set", "t", text)
        r.see(store, "add", "t", 1)
    r.see(store, "set", "t", str(2**63 - 1))
    r.see(store, "add", "t", 1)
    r.see(store, "num_keys")


@case
def add_to_what_is_no_number(r):
    for text in ("abc", "", "-", str(2**63), "9" * 30):
        store = r.client()
        r.see(store, "set", "word", text)
        r.see(store, "add", "word", 1)
        r.see(store, "add", "other", 1)
    r.see(r.client(), "get", "word")  # the server goes on


@case
def compare_set(r):
    store = r.client()
    for expected, desired in (("wrong", "new"), ("", "one"), ("wrong", "two"), ("", "two"), ("one", "two"), ("two", ""), ("", "three"), ("three", "three")):
        r.see(store, "compare_set", "c", expected, desired)
        r.see(store, "check", ["c"])
        r.see(store, "num_keys")
    r.see(store, "get", "c")
    r.see(store, "compare_set", "missing", "x", "y")
    r.see(store, "compare_set", "big", "", "v" * 100_000)


@case
def delete_and_count(r):
    store = r.client()
    r.see(store, "num_keys")
    r.see(store, "delete_key", "never")
    for i in range(5):
        store.set(f"k{i}", "v")
    r.see(store, "num_keys")
    for key in ("k0", "k0", "k1"):
        r.see(store, "delete_key", key)
        r.see(store, "num_keys")
    r.see(store, "check", ["k0"])
    r.see(store, "set", "k0", "again")
    r.see(store, "get", "k0")
    r.see(store, "num_keys")


@case
def workers_are_counted_in_a_key_of_their_own(r):
    store = r.client()
    r.see(store, "num_keys")
    for _ in range(3):
        r.client(wait_for_workers=True)  # not the server's owner: it counts itself and waits for nobody
    r.see(store, "num_keys")
    r.see(store, "check", ["init/"])
    if VERSION >= (2, 4):
        raw = raw_client(r)
        r.note("init/", ask(raw, query("GET") + text(b"init/"), vector))
        raw.close()


@case
def append(r):
    store = r.client()
    for value in ("one", "", " two", "\0"):
        r.see(store, "append", "log", value)
        r.see(store, "get", "log")
    for i in range(200):
        store.append("many", f"{i},")
    r.see(store, "get", "many")
    r.see(store, "num_keys")


@case
def many_keys_at_once(r):
    store = r.client()
    names = [f"m{i}" for i in range(2000)]
    r.see(store, "multi_set", [], [])
    r.see(store, "multi_get", [])
    r.see(store, "multi_set", names, [f"v{i}" for i in range(2000)])
    r.attempt("multi_get of 2000", lambda: store.multi_get(names) == [f"v{i}".encode() for i in range(2000)])
    r.see(store, "multi_get", ["m7", "m7", "m1999"])
    r.see(store, "multi_set", ["twice", "twice"], ["first", "last"])
    r.see(store, "get", "twice")
    r.see(store, "num_keys")
    r.see(store, "has_extended_api")
    late = r.client(SHORT)
    r.see(late, "multi_get", ["m1", "missing"])
    late.set_timeout(LONG)
    r.see(late, "multi_get", ["m1", "m2"])


@case
def large_values(r):
    store, other = r.client(), r.client()
    for size in (1000, 1440, 1441, 65536, 1 << 20, (8 << 20) - 1, 8 << 20):
        r.see(store, "set", "big", bytes([size % 251]) * size)
        r.see(other, "get", "big")
    names = [f"b{i}" for i in range(6)]
    r.attempt("multi_set of 24 MiB", lambda: store.multi_set(names, [bytes([65 + i]) * (4 << 20) for i in range(6)]))
    r.attempt("multi_get of 24 MiB", lambda: [(v[:1], len(v)) for v in other.multi_get(names)])


@case(since=(2, 4))
def limits(r):
    """For the libuv server, which is the default since 2.4."""
    for size in (8191, 8192, 20000):
        store = r.client()
        r.see(store, "set", "k" * size, "v")
        r.see(store, "get", "k" * size)
    store = r.client()
    r.attempt("a value of 8 MiB and 1", lambda: store.set("big", b"x" * ((8 << 20) + 1)) or store.num_keys())
    for count in (131072, 131073):
        store = r.client()
        r.attempt(f"check of {count}", lambda: store.check([f"k{i}" for i in range(count)]))
    r.see(r.client(), "add", "alive", 1)


@case
def prefixes(r):
    plain = r.client()
    outer = dist.PrefixStore("job", plain)
    inner = dist.PrefixStore("round 0", outer)
    r.see(inner, "set", "k", "deep")
    r.see(plain, "get", "job/round 0/k")
    r.see(outer, "get", "round 0/k")
    r.see(inner, "add", "n", 1)
    r.see(inner, "compare_set", "c", "", "x")
    r.see(inner, "append", "a", "x")
    r.see(inner, "multi_set", ["p", "q"], ["1", "2"])
    r.see(inner, "multi_get", ["p", "q"])
    r.see(outer, "check", ["n"])
    r.see(inner, "check", ["n", "c", "a"])
    r.see(inner, "num_keys")
    r.see(inner, "delete_key", "k")
    r.see(plain, "check", ["job/round 0/k"])
    r.see(inner, "wait", ["n"], LONG)
    r.see(inner, "wait", ["nothing"], SHORT)
    r.see(inner, "queue_push", "s", "v")
    r.see(plain, "queue_len", "job/round 0/s")
    r.see(inner, "queue_pop", "s")
    empty = dist.PrefixStore("", plain)
    r.see(empty, "set", "k", "v")
    r.see(plain, "get", "/k")


# --- waits ---


@case
def wait_for_what_is_there(r):
    store = r.client()
    store.multi_set(["a", "b"], ["1", ""])
    r.see(store, "wait", [])
    r.see(store, "wait", ["a"])
    r.see(store, "wait", ["a", "b", "a"], LONG)


@case
def every_writer_ends_a_wait(r):
    writers = {
        "set": lambda s, k: s.set(k, "v"),
        "set of nothing": lambda s, k: s.set(k, ""),
        "add": lambda s, k: s.add(k, 1),
        "multi_set": lambda s, k: s.multi_set([k + "x", k], ["1", "2"]),
    }
    if VERSION >= (2, 13):  # older servers forget to wake for some of these
        writers["append"] = lambda s, k: s.append(k, "v")
        writers["compare_set"] = lambda s, k: s.compare_set(k, "", "v")
        writers["queue_push"] = lambda s, k: s.queue_push(k, "v")
        writers["barrier"] = lambda s, k: s.barrier(k, 1)
    for name, write in writers.items():
        store, other = r.client(), r.client()
        timer = threading.Timer(0.1, write, (other, name))
        timer.start()
        r.see(store, "wait", [name], LONG)
        timer.join()


@case
def wait_for_many(r):
    store, other = r.client(), r.client()
    names = [f"w{i}" for i in range(300)]
    shuffled = random.Random(1).sample(names, len(names))

    def write():
        for name in shuffled:
            other.set(name, "v")

    writer = threading.Thread(target=write)
    writer.start()
    r.see(store, "wait", names, LONG)
    writer.join()
    r.attempt("all are there", lambda: store.multi_get(names) == [b"v"] * 300)


@case
def a_wait_that_times_out_harms_nothing(r):
    store, other = r.client(), r.client()
    for round_ in range(3):
        start = time.monotonic()
        r.see(store, "wait", ["late"], SHORT)
        r.note("it waited", 0.29 < time.monotonic() - start < 200)
        r.see(store, "add", "used", 1)
        r.see(store, "wait", ["a", "b"], SHORT)
        r.see(store, "set", "mine", str(round_))
        r.see(store, "get", "mine")
    other.set("late", "now")
    r.see(store, "wait", ["late"], LONG)
    r.see(store, "get", "late")
    quick = r.client(SHORT)
    for limit in (SHORT, timedelta(milliseconds=50)):
        r.see(quick, "set_timeout", limit)
        r.see(quick, "get", "never")
        quick.set_timeout(LONG)  # a present key takes as long as a busy machine needs
        r.see(quick, "get", "late")
    r.note("timeout", getattr(quick, "timeout", None))


@case
def waits_that_race_with_their_end(r):
    """Keys that appear just when the wait is given up: in either order, the next answers are in order."""
    store, other = r.client(), r.client()

    def write():
        for i in range(60):
            time.sleep(0.001)
            other.set(f"race{i}", str(i))

    writer = threading.Thread(target=write)
    writer.start()
    for i in range(60):
        try:
            store.wait([f"race{i}"], timedelta(milliseconds=1))
        except Exception:  # noqa: BLE001 - either is right
            pass
        assert store.add("turns", 1) == i + 1
    writer.join()
    r.see(store, "get", "race59")
    r.see(store, "get", "turns")


@case
def a_deleted_key_is_waited_for_again(r):
    store, other = r.client(), r.client()
    r.see(store, "set", "k", "v")
    r.see(store, "delete_key", "k")
    r.see(store, "wait", ["k"], SHORT)
    timer = threading.Timer(0.05, lambda: other.set("k", "again"))
    timer.start()
    r.see(store, "get", "k")
    timer.join()


@case(since=(2, 4))
def a_signal_does_not_break_a_wait(r):
    store, other = r.client(), r.client()
    caught = []
    before = signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
    main = threading.main_thread().ident

    def disturb():
        for _ in range(5):
            time.sleep(0.05)
            signal.pthread_kill(main, signal.SIGUSR1)
        other.set("at last", "now")

    thread = threading.Thread(target=disturb)
    thread.start()
    r.see(store, "wait", ["at last"], LONG)
    thread.join()
    signal.signal(signal.SIGUSR1, before)
    r.see(store, "get", "at last")
    r.note("caught", bool(caught))


@case
def waits_of_many_threads(r):
    barrier = threading.Barrier(9)

    def wait(index):
        store = r.client()
        barrier.wait()
        store.wait(["go", f"go{index}"], LONG)
        store.add("gone", 1)

    def release():
        store = r.client()
        barrier.wait()
        store.set("go", "1")
        for index in range(8):
            store.set(f"go{index}", "1")

    together(9, lambda index: wait(index) if index < 8 else release())
    r.see(r.client(), "get", "gone")


# --- queues, lists, barriers ---


@case
def queues(r):
    store, other = r.client(), r.client()
    r.see(store, "queue_len", "q")
    r.see(store, "queue_pop", "q", False)
    for value in ("one", "", "three"):
        r.see(store, "queue_push", "q", value)
    r.see(other, "queue_len", "q")
    r.see(store, "num_keys")
    r.see(store, "check", ["q"])
    for _ in range(3):
        r.see(other, "queue_pop", "q")
    r.see(store, "check", ["q"])
    r.see(other, "queue_pop", "q", False)
    quick = r.client(SHORT)
    r.see(quick, "queue_pop", "q")
    quick.set_timeout(LONG)
    r.see(quick, "queue_push", "q", "after the time-out")
    r.see(quick, "queue_pop", "q", True)
    r.see(store, "queue_push", "both", "item")
    r.see(store, "set", "both", "value")
    r.see(store, "get", "both")
    r.see(store, "delete_key", "both")
    r.see(store, "queue_len", "both")
    r.see(store, "get", "both") if VERSION >= (2, 9) else None
    r.see(store, "queue_push", "big", b"v" * (4 << 20))
    r.see(other, "queue_pop", "big")


@case(since=(2, 8))
def queues_that_block(r):
    store, other = r.client(), r.client()
    popped = []
    popper = threading.Thread(target=lambda: popped.append(other.queue_pop("q")))
    popper.start()
    time.sleep(0.05)
    r.see(store, "queue_push", "q", "for the one who waits")
    popper.join()
    r.note("popped", popped)
    taken = []

    def pop(mine):
        """A pop that blocks is a WAIT and then a pop: where several do it, another may have been quicker, with every server."""
        while True:
            try:
                return mine.queue_pop("jobs")
            except Exception as error:  # noqa: BLE001 - a type that older versions have not
                if "empty" not in str(error):
                    raise

    def work(index):
        mine = r.client()
        for _ in range(20):
            if index < 4:
                taken.append(pop(mine))
            else:
                mine.queue_push("jobs", f"{index}")

    together(8, work)
    r.note("all were taken", sorted(taken))
    r.see(store, "queue_len", "jobs")


@case(since=(2, 8))
def two_queues_back_and_forth(r):
    def answer(index):
        mine = r.client()
        for i in range(50):
            if index == 0:
                mine.queue_push("there", f"{i}")
                assert mine.queue_pop("back") == f"{i}!".encode()
            else:
                mine.queue_push("back", mine.queue_pop("there") + b"!")

    together(2, answer)
    r.see(r.client(), "queue_len", "there")


@case(since=(2, 12))
def list_of_keys(r):
    store = r.client()
    r.attempt("list", lambda: sorted(store.list_keys()))
    store.multi_set(["a", "b", "nul\0"], ["1", "2", "3"])
    store.add("n", 1)
    store.queue_push("q", "v")
    r.attempt("list", lambda: sorted(store.list_keys()))
    store.delete_key("a")
    r.attempt("list", lambda: sorted(store.list_keys()))
    store.multi_set([f"many{i}" for i in range(3000)], ["v"] * 3000)
    r.attempt("list", lambda: len(store.list_keys()))
    r.attempt("list of a prefix", lambda: sorted(dist.PrefixStore("p", store).list_keys())[:3])


@case(since=(2, 12))
def barriers(r):
    order = []

    def arrive(index):
        mine = r.client()
        if index == 0:
            time.sleep(0.1)
            order.append("last")
        mine.barrier("gate", 4, LONG)
        assert order, "it opened before all were there"

    together(4, arrive)
    lone = r.client()
    r.see(lone, "barrier", "gate", 4, LONG)  # late ones pass
    r.see(lone, "get", "gate")
    r.see(lone, "barrier", "alone", 2, SHORT)
    r.see(lone, "get", "alone")
    r.see(lone, "add", "after", 1)
    r.see(lone, "barrier", "alone", 2, LONG)
    for size in (1, 0, -1):
        r.see(lone, "barrier", f"of {size}", size, LONG)
    r.see(lone, "set", "word", "abc")
    r.see(lone, "barrier", "word", 2, LONG)


# --- clients ---


@case(since=(2, 8))
def clones(r):
    store = r.client()
    clone = store.clone()
    r.see(clone, "set", "from the clone", "1")
    r.see(store, "get", "from the clone")
    del store
    r.see(clone, "get", "from the clone")
    copies = [clone.clone() for _ in range(4)]
    together(4, lambda index: [copies[index].add("n", 1) for _ in range(50)])
    r.see(clone, "get", "n")
    waiter = clone.clone()
    timer = threading.Timer(0.05, lambda: clone.set("k", "v"))
    timer.start()
    r.see(waiter, "wait", ["k"], LONG)
    timer.join()


@case
def clients_of_both_kinds(r):
    """use_libuv chooses a server's implementation; a client is the same."""
    for kind in (True, False):
        store = r.client(use_libuv=kind)
        r.see(store, "set", "kind", f"{kind}")
        r.see(store, "get", "kind")
        r.see(store, "num_keys")


def worker_of(port, rank, world, counted):
    store = dist.TCPStore("127.0.0.1", port, world if counted else None, False, LONG)
    store.set(f"from {rank}", f"{rank}")
    for other in range(world):
        assert store.get(f"from {other}") == f"{other}".encode()
    store.add("seen", 1)
    deadline = time.monotonic() + 300
    while store.add("seen", 0) != world and time.monotonic() < deadline:
        time.sleep(0.005)
    assert store.add("seen", 0) == world


@case
def workers_that_know_their_number_and_others(r):
    for counted in (True, False):
        server = r.client()
        children = []
        for rank in range(4):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    worker_of(r.port, rank, 4, counted)
                    status = 0
                finally:
                    os._exit(status)
            children.append(pid)
        r.note("ended", [os.waitpid(pid, 0)[1] for pid in children])
        r.see(server, "get", "seen")
        r.see(server, "num_keys")
        r.see(server, "delete_key", "seen")


@case
def clients_that_vanish(r):
    pid = os.fork()
    if pid == 0:
        store = r.client()
        store.set("left behind", "1")
        store.wait(["never"], LONG)
        os._exit(0)
    store = r.client()
    r.see(store, "wait", ["left behind"], LONG)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    r.see(store, "get", "left behind")
    r.see(store, "set", "never", "came")
    r.see(store, "get", "never")


@case
def a_port_that_is_served_already(r):
    def claim(**options):
        try:
            dist.TCPStore("127.0.0.1", r.port, 1, True, SHORT, wait_for_workers=False, **options)
        except Exception as error:  # noqa: BLE001
            return "in use" if "EADDRINUSE" in str(error) or "Address already in use" in str(error) else str(error)
        return "taken"

    r.note("is_master", claim())
    r.see(r.client(), "add", "unharmed", 1)


@case
def the_agents_store(r):
    """What init_process_group does in a worker of an agent that serves the store."""
    for rank in (0, 1):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(r.port), TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
        store, got_rank, world = next(dist.rendezvous("env://"))
        r.note("env://", (got_rank, world))
        r.see(store, "add", "came", 1)
        again, got_rank, world = next(dist.rendezvous(f"tcp://127.0.0.1:{r.port}?rank={rank}&world_size=2"))
        r.note("tcp://", (got_rank, world))
        r.see(again, "get", "came")
    if VERSION >= (2, 5):  # a script that wants to serve on the agent's port gets the agent's store
        r.attempt("is_master at MASTER_PORT", lambda: dist.TCPStore("127.0.0.1", r.port, 2, True, LONG, wait_for_workers=False).add("came", 1))
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"):
        del os.environ[name]


@contextlib.contextmanager
def a_worker_of_an_agent(r):
    """The environment by which torch takes the server at MASTER_PORT for the agent's, and only connects."""
    given = dict(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(r.port), TORCHELASTIC_USE_AGENT_STORE="True")
    given.update(TORCHELASTIC_RESTART_COUNT="0", GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]


@case
def urls_with_options(r):
    with a_worker_of_an_agent(r):
        for option in ("", "&use_libuv=0", "&use_libuv=1"):
            store, rank, world = next(dist.rendezvous(f"tcp://127.0.0.1:{r.port}?rank=0&world_size=1{option}", timeout=LONG))
            r.note(f"tcp://{option}", (rank, world))
            r.note("timeout", getattr(store, "timeout", None))
            r.see(store, "add", "came", 1)
            store.set_timeout(SHORT)
            r.see(store, "get", "nonexistent key")
            store.set_timeout(LONG)
            r.see(store, "set", "nonexistent key", "x")
            r.see(store, "get", "nonexistent key")
            r.see(store, "delete_key", "nonexistent key")


@case
def a_process_group_and_rpc_over_one_store(r):
    import torch.distributed.rpc as rpc

    def use():
        total = torch.ones(3)
        dist.init_process_group("gloo", init_method="env://")
        dist.all_reduce(total)
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{r.port}", _transports=["uv"])
        rpc.init_rpc("worker0", rank=0, world_size=1, rpc_backend_options=options)
        answer = rpc.rpc_sync("worker0", torch.add, args=(total, 2))
        rpc.shutdown()
        dist.destroy_process_group()
        return answer.tolist()

    with a_worker_of_an_agent(r):
        r.attempt("all_reduce and rpc", use)
    r.see(r.client(), "add", "unharmed", 1)


@case
def what_a_client_says_of_itself(r):
    store = r.client()
    r.note("host", store.host)
    r.note("port", store.port == r.port)
    r.note("repr", re.sub(r"\d+", "N", repr(store)) if "TCPStore(" in repr(store) else Missing())  # an older one gives its address
    if VERSION != (2, 4):  # whose own client dies of SIGSEGV, at its own server too
        r.attempt("a world of none", lambda: dist.TCPStore("127.0.0.1", r.port, world_size=0, is_master=False, timeout=LONG).add("came", 1))


@case
def our_own_client(r):
    """The client of libmuster, which runs under torchrun as well."""
    store = r.client()
    r.see(store, "set", "greeting", "hello")
    done = subprocess.run([os.path.join(torch_python.build(), "tests", "tcpstore_call"), "127.0.0.1", str(r.port)], capture_output=True, text=True, timeout=600)
    r.note("tcpstore_call", (done.returncode, done.stderr))
    r.see(store, "get", "answer")


# --- bytes ---

QUERIES = "SET COMPARE_SET GET ADD CHECK WAIT GETNUMKEYS DELETE_KEY APPEND MULTI_GET MULTI_SET CANCEL_WAIT PING".split()


def query(name):
    """The query as this version of torch numbers it: 2.1 has no VALIDATE."""
    return bytes([QUERIES.index(name) + (VERSION >= (2, 2))])


def text(data):
    return struct.pack("<Q", len(data)) + data


def raw_client(r):
    raw = socket.create_connection(("127.0.0.1", r.port), timeout=300)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if VERSION >= (2, 2):
        raw.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE))
    return raw


def exactly(raw, count):
    got = b""
    while len(got) < count:
        more = raw.recv(count - len(got))
        if not more:
            raise EOFError("the connection ended")
        got += more
    return got


def vector(raw):
    return exactly(raw, struct.unpack("<Q", exactly(raw, 8))[0])


def ask(raw, request, reply):
    raw.sendall(request)
    return reply(raw)


@case
def requests_in_pieces(r):
    """A SET and a GET, cut in two at every byte, and byte by byte."""
    raw = raw_client(r)
    request = query("SET") + text(b"/key") + text(b"value") + query("GET") + text(b"/key")
    answers = set()
    for cut in range(1, len(request)):
        raw.sendall(request[:cut])
        time.sleep(0.001)
        answers.add(ask(raw, request[cut:], vector))
    for byte in request:
        raw.sendall(bytes([byte]))
    answers.add(vector(raw))
    r.note("answers", answers)
    raw.close()


@case(since=(2, 5))
def pings(r):
    """The greeting and the ping that follows it, cut at every byte of the ping (torch's server wants its greeting in one piece, ours
    does not); then pings in a row."""
    request = b"\0" + struct.pack("<I", 0x3C85F7CE) + query("PING") + struct.pack("<I", 4242)
    for cut in range(5, len(request)):
        with socket.create_connection(("127.0.0.1", r.port), timeout=60) as raw:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.sendall(request[:cut])
            time.sleep(0.001)
            r.note(f"cut at {cut}", ask(raw, request[cut:], lambda peer: exactly(peer, 4)))
            many = b"".join(query("PING") + struct.pack("<I", number) for number in range(100))
            r.note("a hundred", ask(raw, many, lambda peer: exactly(peer, 400)) == struct.pack("<100I", *range(100)))


@case
def requests_in_a_row(r):
    """Many requests in one segment: the replies come in their order."""
    raw = raw_client(r)
    requests = b"".join(
        query("ADD") + text(b"/n") + struct.pack("<q", i) + query("SET") + text(b"/s") + text(b"%d" % i) + query("GET") + text(b"/s")
        for i in range(500)
    )
    raw.sendall(requests)
    total, right = 0, True
    for i in range(500):
        total += i
        right = right and struct.unpack("<q", exactly(raw, 8))[0] == total and vector(raw) == b"%d" % i
    r.note("in order", right)
    r.note("count", ask(raw, query("GETNUMKEYS"), lambda _: struct.unpack("<q", exactly(raw, 8))[0]))
    raw.sendall(query("WAIT") + struct.pack("<Q", 1) + text(b"/none"))
    time.sleep(0.05)
    r.note("cancelled", ask(raw, query("CANCEL_WAIT"), lambda _: exactly(raw, 1)))
    r.note("get of a missing key", ask(raw, query("GET") + text(b"/none"), vector)) if VERSION >= (2, 4) else None
    raw.close()


@case
def what_no_server_knows(r):
    raw = raw_client(r)
    raw.sendall(bytes([200]))
    try:
        r.note("an unknown query", raw.recv(1))
    except ConnectionResetError:
        r.note("an unknown query", b"")
    raw.close()
    r.see(r.client(), "add", "unharmed", 1)


# --- everything at once ---


@case
def what_many_clients_do_by_chance(r):
    """The same calls drawn by chance, one client after another, so that the answers are determined."""
    draw = random.Random(7)
    stores = [r.client() for _ in range(4)]
    names = [f"k{i}" for i in range(12)]
    word = lambda: "".join(draw.choices(string.ascii_letters, k=draw.randrange(12)))  # noqa: E731
    for _ in range(600):
        store, key = draw.choice(stores), draw.choice(names)
        call = draw.choice(("set", "get", "append", "compare_set", "delete_key", "num_keys", "add", "multi_get", "check"))
        if call in ("set", "append"):
            r.see(store, call, key, word())
        elif call == "compare_set":
            r.see(store, call, key, draw.choice(("", word())), word())
        elif call == "add":
            r.see(store, call, "counter", draw.randrange(-5, 9))
        elif call == "num_keys":
            r.see(store, call)
        elif call == "check":
            r.see(store, call, draw.sample(names, 2))
        elif call == "delete_key":
            r.see(store, call, key)
        elif call == "get":
            store.append(key, "")  # there, so that it need not be waited for
            r.see(store, call, key)
        else:
            store.append(key, "")
            r.see(store, call, [key, key])


# --- running them ---


def run_on(make, body):
    server = make()
    record = Record(server.port)
    try:
        body(record)
    except Exception as error:  # noqa: BLE001
        record.lines.append(f"the case ended with {type(error).__name__}: {error}")
    server.close()
    return record.lines


def show_difference(theirs, ours):
    for index in range(max(len(theirs), len(ours))):
        a = theirs[index] if index < len(theirs) else "(nothing)"
        b = ours[index] if index < len(ours) else "(nothing)"
        if a != b:
            print(f"    call {index}:\n      torch's server: {a:.300}\n      our server:     {b:.300}", flush=True)


def main():
    wanted = sys.argv[1:]
    failed, calls = [], 0
    print(f"torch {torch.__version__}", flush=True)
    chosen = [body for body in CASES if not wanted or body.__name__ in wanted]
    for body in chosen:
        theirs, ours = run_on(TorchServer, body), run_on(OurServer, body)
        calls += len(ours)
        broken = [line for line in theirs + ours if line.startswith("the case ended")]
        if theirs != ours or broken or not ours:
            failed.append(body.__name__)
            print(f"not equal: {body.__name__}", flush=True)
            show_difference(theirs, ours)
            for line in broken:
                print(f"    {line:.300}", flush=True)
        else:
            print(f"equal: {body.__name__} ({len(ours)} calls)", flush=True)
    if TorchServer.factory:
        TorchServer.close_factory()
    print(f"{len(chosen) - len(failed)} cases equal to torch {torch.__version__}'s own server, {len(failed)} not; {calls} calls", flush=True)
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
