"""The servers that tcpstore.py and store.py compare, each in a process of its own: port, processor time, end."""

import os
import pathlib
import subprocess
import sys
import time

TORCH_SERVER = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
assert store.libuvBackend
print(store.port, flush=True)
sys.stdin.read()
"""


def enter_own_network():
    """Runs the program again in a network namespace of its own, where that is allowed: torch's client looks up the names of its peers,
    and a name server that answers some of many questions late would be most of the measured time; nor do others' packet filters count."""
    mark = "MUSTER_BENCH_OWN_NETWORK"
    if mark in os.environ or subprocess.run(["unshare", "-rn", "ip", "link", "set", "lo", "up"], capture_output=True).returncode:
        return
    os.environ[mark] = "1"
    os.execvp("unshare", ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv])


class Server:
    """thread: the name of the thread that serves, as the kernel has it (15 characters)."""

    def __init__(self, command, thread):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=quiet_environment()
        )
        self.port = int(self.process.stdout.readline())
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        found, deadline = [], time.monotonic() + 30
        while not found:  # a thread names itself once it runs
            assert time.monotonic() < deadline, f"{command[0]} has no thread named {thread}"
            found = [task for task in tasks.iterdir() if (task / "comm").read_text().strip() == thread]
        self.schedstat = found[0] / "schedstat"

    def cpu_ns(self):
        """Processor time of the serving thread. A running thread's is up to a tick old, so: once it sleeps."""
        before = self.schedstat.read_text().split()
        while True:
            time.sleep(0.003)
            now = self.schedstat.read_text().split()
            if now == before:
                return int(now[0])
            before = now

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0, f"{self.process.args[0]} did not end well"


def muster_server(build):
    return Server([str(build / "tests" / "tcpstore_serve"), "0", "127.0.0.1"], "muster-store")


def torch_server(python):
    return Server([python, "-c", TORCH_SERVER], "pt_tcpstore_uv")


def bare_server(build, value_bytes):
    return Server([str(build / "benchmarks" / "store_bare"), str(value_bytes)], "store_bare")


def zeromq_server(build):
    return Server([str(build / "benchmarks" / "store_zmq_serve")], "store_zmq_serve"[:15])


def quiet_environment():
    """For processes with torch: one thread each, and nothing that would change the store."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "USE_LIBUV"))} | {
        "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"
    }
