"""Cases of store_cases_test.py: waits, queues, lists and barriers."""

import random
import signal
import threading
import time
from datetime import timedelta

import torch.distributed as dist

from record import LONG, SHORT, VERSION, case, together


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
