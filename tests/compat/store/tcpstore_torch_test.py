"""PyTorch's own TCPStore client against our server, and our client against PyTorch's server.

Every case also runs against PyTorch's own server, so that the expectation is PyTorch's behaviour and not our belief.
"""
import contextlib
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import threading
import time

from record import LONG, SHORT, dist, together, torch, torch_python

CLIENTS = 8


class OurServer:
    """tests/tcpstore_serve as a process."""

    def __init__(self):
        program = os.path.join(torch_python.build(), "tests", "tcpstore_serve")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def command(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def stats(self):
        return dict(zip(("requests", "keys", "connections", "parked"), map(int, self.command("stats").split())))

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=300) == 0, "our server did not end well"


class TorchServer:
    def __init__(self):
        self.store = dist.TCPStore("127.0.0.1", 0, 1, True, LONG, wait_for_workers=False)
        self.port = self.store.port

    def close(self):
        del self.store


def client(server, timeout=LONG):
    """timeout: of its calls; to connect a busy machine gets the long one."""
    store = dist.TCPStore("127.0.0.1", server.port, None, False, LONG, wait_for_workers=False)
    store.set_timeout(timeout)
    return store


def raises(part, call, *args):
    try:
        call(*args)
    except Exception as error:  # noqa: BLE001 - torch's types differ by version; the text is what users see
        assert part in str(error), f"expected {part!r} in {error}"
        return
    raise AssertionError(f"expected an error with {part!r}")


def set_get_add(server):
    store = client(server)
    store.set("a", "1")
    store.set("binary", bytes(range(256)))
    assert store.get("a") == b"1"
    assert store.get("binary") == bytes(range(256))
    store.set("empty", "")
    assert store.get("empty") == b""
    assert store.add("n", 3) == 3
    assert store.add("n", -5) == -2
    assert store.get("n") == b"-2"
    store.set("n", "40")
    assert store.add("n", 2) == 42
    big = os.urandom(1) * (4 << 20)
    store.set("big", big)
    assert store.get("big") == big


def keys(server):
    store = client(server)
    before = store.num_keys()
    assert store.check(["x"]) is False
    store.set("x", "1")
    store.set("y", "2")
    assert store.check(["x", "y"]) is True
    assert store.check(["x", "z"]) is False
    assert store.num_keys() == before + 2
    assert store.delete_key("x") is True
    assert store.delete_key("x") is False
    assert store.num_keys() == before + 1
    raises("timeout", store.wait, ["x"], SHORT)
    if hasattr(store, "list_keys"):
        assert "y" in store.list_keys() and "x" not in store.list_keys()


def compare_set(server):
    store = client(server)
    assert store.compare_set("c", "wrong", "new") == b"wrong"
    assert store.check(["c"]) is False
    assert store.compare_set("c", "", "one") == b"one"
    assert store.compare_set("c", "wrong", "two") == b"one"
    assert store.compare_set("c", "one", "two") == b"two"
    assert store.get("c") == b"two"


def many_at_once(server):
    store = client(server)
    names = [f"m{i}" for i in range(1000)]
    store.multi_set(names, [f"v{i}" for i in range(1000)])
    assert store.multi_get(names) == [f"v{i}".encode() for i in range(1000)]
    assert store.get("m999") == b"v999"
    store.append("log", "one ")
    store.append("log", "two")
    assert store.get("log") == b"one two"


def wait_and_time_out(server):
    store, other = client(server), client(server)
    start = time.monotonic()
    raises("wait timeout after 300ms, keys: /late", store.wait, ["late"], SHORT)
    assert time.monotonic() - start >= 0.29
    assert store.add("still usable", 1) == 1  # the cancelled wait left nothing in the stream
    timer = threading.Timer(0.2, lambda: (other.set("p", "1"), other.set("late", "now")))
    timer.start()
    store.wait(["late", "p"], LONG)
    assert store.get("late") == b"now"
    timer.join()
    slow = client(server, SHORT)
    raises("/never", slow.get, "never")
    slow.set_timeout(LONG)
    assert slow.get("late") == b"now"


def queue(server):
    store, other = client(server), client(server)
    if not hasattr(store, "queue_push"):
        return
    store.queue_push("q", "one")
    store.queue_push("q", "two")
    assert store.queue_len("q") == 2
    assert other.queue_pop("q") == b"one"
    assert other.queue_pop("q") == b"two"
    assert other.queue_len("q") == 0
    raises("", store.queue_pop, "q", False)
    got = []
    popper = threading.Thread(target=lambda: got.append(other.queue_pop("q")))
    popper.start()
    store.queue_push("q", "three")
    popper.join(timeout=300)
    assert got == [b"three"], got


def prefixes(server):
    plain = client(server)
    outer = dist.PrefixStore("job", plain)
    inner = dist.PrefixStore("round0", outer)
    inner.set("k", "deep")
    assert plain.get("job/round0/k") == b"deep"
    assert outer.get("round0/k") == b"deep"
    assert inner.add("n", 1) == 1
    assert outer.check(["n"]) is False
    clone = plain.clone()
    clone.set("from the clone", "1")
    assert plain.get("from the clone") == b"1"


def barrier(server):
    if not hasattr(dist.TCPStore, "barrier"):
        return
    late = []

    def arrive(index):
        store = client(server)
        if index == 0:
            time.sleep(0.2)
            late.append(True)
        store.barrier("gate", CLIENTS, LONG)
        assert late, "a barrier opened before everybody was there"

    together(CLIENTS, arrive)
    lone = client(server)
    raises("", lone.barrier, "nobody else", 2, SHORT)
    assert lone.add("after the barrier", 1) == 1
    lone.barrier("gate", CLIENTS, LONG)  # late ones pass


def clients_at_once(server):
    """An all-gather and a counter, eight clients, fifty rounds."""

    def body(index):
        store = client(server)
        for turn in range(50):
            store.set(f"{turn}/{index}", f"{turn}-{index}")
            got = store.multi_get([f"{turn}/{i}" for i in range(CLIENTS)])
            assert got == [f"{turn}-{i}".encode() for i in range(CLIENTS)], got
            store.add("total", 1)

    together(CLIENTS, body)
    assert client(server).add("total", 0) == 50 * CLIENTS


def our_client(server):
    store = client(server)
    store.set("greeting", "hello")
    program = os.path.join(torch_python.build(), "tests", "tcpstore_call")
    subprocess.run([program, "127.0.0.1", str(server.port)], check=True, timeout=600)
    assert store.get("answer") == b"world"


# --- process groups ---


def rank_main(rank, world, port, failures):
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    try:
        dist.init_process_group("gloo", timeout=LONG)
        ones = torch.ones(4) * (rank + 1)
        dist.all_reduce(ones)
        assert ones.tolist() == [world * (world + 1) / 2] * 4, ones
        objects = [None] * world
        dist.all_gather_object(objects, {"rank": rank})
        assert [o["rank"] for o in objects] == list(range(world))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException as error:  # noqa: BLE001 - told to the parent
        failures.put(f"rank {rank}: {error!r}")
        raise


def process_group(server, world):
    context = multiprocessing.get_context("fork")
    failures = context.Queue()
    ranks = [context.Process(target=rank_main, args=(r, world, server.port, failures)) for r in range(world)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    codes = [rank.exitcode for rank in ranks]
    assert codes == [0] * world, (codes, [failures.get() for _ in range(sum(c != 0 for c in codes))])


# --- what only our server has ---


def new_round(server):
    """A fresh key space, and nobody of the old round is connected any more."""
    old, parked = client(server), client(server)
    old.set("stale", "id")
    ended = []

    def wait_for_ever():
        try:
            parked.wait(["never"], LONG)
        except Exception as error:  # noqa: BLE001
            ended.append(error)

    thread = threading.Thread(target=wait_for_ever)
    thread.start()
    deadline = time.monotonic() + 300
    while server.stats()["parked"] != 1:
        assert time.monotonic() < deadline, "the wait never parked"
    assert server.command("round") == "ok"
    thread.join(timeout=300)
    assert ended, "a parked client of the old round was not told"
    raises("", old.get, "stale")
    assert client(server).check(["stale"]) is False
    stats = server.stats()
    assert stats["keys"] == 0 and stats["parked"] == 0, stats
    process_group(server, 2)


def vanished_clients(server):
    """Killed clients leave keys and nothing else."""
    context = multiprocessing.get_context("fork")

    def park():
        store = client(server)
        store.set("left behind", "1")
        store.wait(["never"], LONG)

    process = context.Process(target=park)
    process.start()
    client(server).wait(["left behind"], LONG)
    deadline = time.monotonic() + 300
    while server.stats()["parked"] != 1:
        assert time.monotonic() < deadline, "the wait never parked"
    process.kill()
    process.join()
    while server.stats()["parked"] != 0:
        assert time.monotonic() < deadline, "a dead client's wait stays"
    assert client(server).get("left behind") == b"1"


def other_programs(server):
    """A client of another protocol is dropped and harms no other; a VALIDATE split at every byte is understood."""
    store = client(server)
    for opening in (b"GET / HTTP/1.1\r\n\r\n", b"\x00wrong", b"\x16\x03\x01", b"\x01" + b"\xff" * 8):
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(opening)
            peer.settimeout(300)
            with contextlib.suppress(ConnectionResetError):
                assert peer.recv(1) == b""
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"\x00\xce\xf7\x85\x3c\x0d" + struct.pack("<I", 77):
            slow.sendall(bytes([byte]))
        slow.settimeout(300)
        assert slow.recv(4, socket.MSG_WAITALL) == struct.pack("<I", 77)
    assert store.add("unharmed", 1) == 1


BOTH = [set_get_add, keys, compare_set, many_at_once, wait_and_time_out, queue, prefixes, barrier, clients_at_once, our_client]
OURS = [new_round, vanished_clients, other_programs]


def main():
    print(f"torch {torch.__version__}", flush=True)
    for name, make, extra in (("torch's server", TorchServer, []), ("our server", OurServer, OURS)):
        for case in BOTH + extra:
            server = make()
            case(server)
            server.close()
            print(f"ok: {name}: {case.__name__}", flush=True)
    for world in (2, 8):
        server = OurServer()
        process_group(server, world)
        server.close()
        print(f"ok: our server: init_process_group of {world}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
