"""Cases of store_cases_test.py: clients, their ends, and torch's own ways to a store."""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time

import torch
import torch.distributed as dist

import torch_python
from record import LONG, SHORT, VERSION, Missing, case, together


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
