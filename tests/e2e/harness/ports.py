"""Ports for tests that must know a number before a program listens there. Standard library only."""

import itertools
import pathlib
import random
import socket

BLOCK = 32  # ports that a process claims at a time, aligned
LOWEST = 10240
RANGE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")

claims = []  # sockets; a claim lasts as long as its process
waiting = iter(())


def claim():
    """The first port of a block that is this process's from now on. Below the range from which the kernel gives ports by itself no
    connection of anybody takes one; other tests are kept away by a local socket's name. tests/support/free_port.c does the same."""
    first_given = int(RANGE.read_text().split()[0])
    highest = (first_given if first_given >= 2 * LOWEST else 32768) // BLOCK
    while True:
        block = random.randrange(LOWEST // BLOCK, highest) * BLOCK
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0muster-test-ports-{block}")
        except OSError:
            name.close()
            continue
        claims.append(name)
        return block


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # earlier tests' ports in TIME_WAIT are no hindrance
        try:
            probe.bind(("", port))
            probe.listen()
            return True
        except OSError:
            return False


def free_port(count=2):
    """The first of `count` neighbouring ports that no other test gets while this process lives."""
    global waiting
    while True:
        ports = list(itertools.islice(waiting, count))
        if len(ports) < count:
            block = claim()
            waiting = iter(range(block, block + BLOCK))
        elif all(map(is_free, ports)):
            return ports[0]
