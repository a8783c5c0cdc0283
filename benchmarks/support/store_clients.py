"""Threads with torch's own TCPStore clients, with their orders on standard input. Run by tcpstore.py and store.py under torch's Python.

    store_clients.py FIRST THREADS ALL NAME=PORT...

Thread i of this process is client FIRST + i of ALL; it has a connection to each server. A line on stdin is "SERVER OPERATION COUNT
TURN": the line "ready" answers it once every thread waits for the start, an empty line starts them, and "START_NS END_NS" (monotonic)
answers when all have made COUNT calls. TURN is new each time: it names keys that must be new."""

import sys
import threading
import time
from datetime import timedelta

import torch.distributed as dist

VALUE = b"sixteen bytes...."[:16]
MANY = 16  # keys of a multi_get or multi_set


def settle(store):
    """SET and its like have no reply: a call that has one shows that the server is through."""
    store.check(["nothing"])


def op_set(store, key, count, turn):
    for _ in range(count):
        store.set(key, VALUE)
    settle(store)


def op_get(store, key, count, turn):
    for _ in range(count):
        store.get(key)


def op_add(store, key, count, turn):
    for _ in range(count):
        store.add("n" + key, 1)


def op_check(store, key, count, turn):
    names = [key]
    for _ in range(count):
        store.check(names)


def op_compare_set(store, key, count, turn):
    for _ in range(count):
        store.compare_set(key, VALUE, VALUE)


def op_wait(store, key, count, turn):
    names = [key]
    for _ in range(count):
        store.wait(names)


def op_append(store, key, count, turn):
    for _ in range(count):
        store.append(f"a{key}{turn}", "x")
    settle(store)
    store.delete_key(f"a{key}{turn}")


def op_multi_set(store, key, count, turn):
    names, values = [f"{key}.{i}" for i in range(MANY)], [VALUE] * MANY
    for _ in range(count):
        store.multi_set(names, values)
    settle(store)


def op_multi_get(store, key, count, turn):
    names = [f"{key}.{i}" for i in range(MANY)]
    for _ in range(count):
        store.multi_get(names)


def op_queue(store, key, count, turn):
    for _ in range(count):
        store.queue_push("q" + key, VALUE)
        store.queue_pop("q" + key)


OPERATIONS = {name[3:]: call for name, call in list(globals().items()) if name.startswith("op_")}


def wake(store, client, clients, count, turn):
    """A token goes round count times: each client waits for its key and then sets the next one's, so that one client at a time is
    awake. One SET and one released WAIT a hop."""
    for i in range(count):
        if client > 0 or i > 0:
            store.wait([f"w{turn}.{i if client else i - 1}.{client}"])
        store.set(f"w{turn}.{i}.{(client + 1) % clients}", "")
    if client == 0:
        store.wait([f"w{turn}.{count - 1}.0"])


def barrier(store, client, clients, count, turn):
    """As the agents of torchrun meet: a sum, and a wait for the mark that the last one sets."""
    for i in range(count):
        if store.add(f"c{turn}.{i}", 1) == clients:
            store.set(f"b{turn}.{i}", "")
        store.wait([f"b{turn}.{i}"])


def barrier_query(store, client, clients, count, turn):
    """The query that torch 2.13 has for it: one request and one reply."""
    for i in range(count):
        store.barrier(f"b{turn}.{i}", clients)


def gather(store, client, clients, count, turn):
    """Each client's small value to all, by multi_get."""
    for i in range(count):
        store.set(f"g{turn}.{i}.{client}", f"value of {client}")
        values = store.multi_get([f"g{turn}.{i}.{other}" for other in range(clients)])
    assert values == [f"value of {other}".encode() for other in range(clients)]


def gather_gets(store, client, clients, count, turn):
    """The same by one get after the other, as gloo does."""
    for i in range(count):
        store.set(f"g{turn}.{i}.{client}", f"value of {client}")
        values = [store.get(f"g{turn}.{i}.{other}") for other in range(clients)]
    assert values == [f"value of {other}".encode() for other in range(clients)]


TOGETHER = {call.__name__: call for call in (wake, barrier, barrier_query, gather, gather_gets)}


class Threads:
    def __init__(self, first, threads, clients, ports):
        self.clients, self.errors, self.times, self.job = clients, [], [None] * threads, None
        self.begin, self.start, self.end = (threading.Barrier(threads + 1) for _ in range(3))
        for i in range(threads):
            stores = {
                name: dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=300), wait_for_workers=False)
                for name, port in ports.items()
            }
            threading.Thread(target=self.run, args=(i, first + i, stores), daemon=True).start()

    def run(self, i, client, stores):
        key = f"key{client:04d}"
        for store in stores.values():
            store.set(key, VALUE)
            store.multi_set([f"{key}.{j}" for j in range(MANY)], [VALUE] * MANY)
        while True:
            self.begin.wait()
            server, operation, count, turn = self.job
            self.start.wait()
            began = time.monotonic_ns()
            try:
                if operation in TOGETHER:
                    TOGETHER[operation](stores[server], client, self.clients, count, turn)
                else:
                    OPERATIONS[operation](stores[server], key, count, turn)
            except Exception as error:  # noqa: BLE001 - reported to the process that started us, of any kind
                self.errors.append(error)
            self.times[i] = (began, time.monotonic_ns())
            self.end.wait()


def main():
    first, threads, clients = map(int, sys.argv[1:4])
    ports = {name: int(port) for name, port in (pair.split("=") for pair in sys.argv[4:])}
    crew = Threads(first, threads, clients, ports)
    print("ready", flush=True)
    for line in sys.stdin:
        server, operation, count, turn = line.split()
        crew.job = (server, operation, int(count), turn)
        crew.begin.wait()
        print("ready", flush=True)
        sys.stdin.readline()
        crew.start.wait()
        crew.end.wait()
        if crew.errors:
            raise crew.errors[0]
        print(min(began for began, _ in crew.times), max(ended for _, ended in crew.times), flush=True)


if __name__ == "__main__":
    main()
