"""Processes full of store clients that make the same calls at once: support/store_clients.py or store_clients.c."""

import pathlib
import subprocess
import sys

from support import store_servers

THREADS_OF_PYTHON = 16  # threads of a process: more only wait for its interpreter's lock


class Crew:
    def __init__(self, command, threads, clients, servers):
        """threads: at most so many clients in one process."""
        self.clients, self.turn, self.processes = clients, 0, []
        ports = [f"{name}={server.port}" for name, server in servers.items()]
        for first in range(0, clients, threads):
            arguments = [*command, str(first), str(min(threads, clients - first)), str(clients), *ports]
            self.processes.append(
                subprocess.Popen(
                    arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=store_servers.quiet_environment()
                )
            )
        self.expect_ready()

    def expect_ready(self):
        for process in self.processes:
            if process.stdout.readline() != "ready\n":
                sys.exit("a process with clients has failed")

    def tell(self, line):
        for process in self.processes:
            process.stdin.write(line + "\n")
            process.stdin.flush()

    def run(self, name, server, operation, calls):
        """(seconds of wall time, seconds of the server's processor time, calls made)"""
        each = max(1, calls // self.clients)
        self.turn += 1
        self.tell(f"{name} {operation} {each} {self.turn}")
        self.expect_ready()
        before = server.cpu_ns()
        self.tell("")
        times = [tuple(map(int, process.stdout.readline().split())) for process in self.processes]
        if not all(times):
            sys.exit(f"{operation} with {self.clients} clients of {name} has failed")
        wall = max(end for _, end in times) - min(start for start, _ in times)
        return wall / 1e9, (server.cpu_ns() - before) / 1e9, each * self.clients

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(timeout=60)


def torch_crew(python, clients, servers):
    script = pathlib.Path(__file__).resolve().parent / "store_clients.py"
    return Crew([python, str(script)], THREADS_OF_PYTHON, clients, servers)


def c_crew(build, clients, servers):
    return Crew([str(build / "benchmarks" / "store_clients")], clients, clients, servers)
