"""A name server for nodes in network namespaces, which may answer late, wrongly, or that there is no such name.

    python3 name_server.py TABLE ADDRESS

TABLE is a JSON file, read again for each question: {"node0": {"addresses": ["10.66.0.1", "fd66::1"], "delay": 1.5}}; a name that
is not in it does not exist. Answers questions for A and AAAA records at ADDRESS:53 and prints "ready" when it can; ends with its
stdin."""

import heapq
import json
import pathlib
import selectors
import socket
import struct
import sys
import time

HEADER = 12
FAMILIES = {1: socket.AF_INET, 28: socket.AF_INET6}  # by the kind of their records, A and AAAA
NO_SUCH_NAME = 3


def question(query):
    """(name, kind, the question's bytes) of the first question of a query."""
    labels, at = [], HEADER
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii"))
        at += 1 + query[at]
    return ".".join(labels).lower(), struct.unpack_from("!H", query, at + 1)[0], query[HEADER : at + 5]


def answer(query, table):
    """(seconds to wait, answer) to a query."""
    name, kind, asked = question(query)
    entry = table.get(name)
    records = []
    for address in entry["addresses"] if entry else []:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if FAMILIES.get(kind) == family:
            data = socket.inet_pton(family, address)
            records.append(struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(data)) + data)
    flags = 0x8580 | (0 if entry else NO_SUCH_NAME)  # an answer with authority; recursion as was asked
    head = query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    return (entry or {}).get("delay", 0), head + asked + b"".join(records)


def serve(table, address):
    ask = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    ask.bind((address, 53))
    waiting = selectors.DefaultSelector()
    waiting.register(ask, selectors.EVENT_READ)
    waiting.register(sys.stdin, selectors.EVENT_READ)
    held, number = [], 0
    print("ready", flush=True)
    while True:
        left = max(0, held[0][0] - time.monotonic()) if held else None
        for ready, _ in waiting.select(left):
            if ready.fileobj is sys.stdin:
                return
            query, peer = ask.recvfrom(4096)
            try:
                delay, text = answer(query, json.loads(table.read_text()))
            except (IndexError, struct.error, UnicodeDecodeError):
                continue  # not a question
            number += 1
            heapq.heappush(held, (time.monotonic() + delay, number, text, peer))
        while held and held[0][0] <= time.monotonic():
            _, _, text, peer = heapq.heappop(held)
            try:
                ask.sendto(text, peer)
            except OSError:
                pass  # who asked is gone


if __name__ == "__main__":
    serve(pathlib.Path(sys.argv[1]), sys.argv[2])
