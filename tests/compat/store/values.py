"""Cases of store_cases_test.py: keys and their values."""

import random
import string

import torch.distributed as dist

from record import LONG, SHORT, VERSION, case
from raw import ask, query, raw_client, text, vector


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
