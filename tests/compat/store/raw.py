"""Cases of store_cases_test.py: requests as bytes, without torch's client."""

import socket
import struct
import time

from record import VERSION, case


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
