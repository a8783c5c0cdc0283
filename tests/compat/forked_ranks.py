"""A worker that is many ranks: imports torch once, forks RANKS processes and makes one process group of them over the store that
it was given by its launcher.

usage: forked_ranks.py RANKS FOLDER [--fail]. With --fail the last rank exits 9 in the first round, after everything worked.

Leaves FOLDER/round-N.json: what every rank found out, and who listens at MASTER_PORT."""
import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist

LIMIT = datetime.timedelta(seconds=300)


def listener(port):
    """Who listens at the port: this process's parent's launcher ("agent"), rank 0 ("worker"), or nobody that can be told."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as file:
            for line in list(file)[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for name, pid in (("agent", int(os.environ["FORKED_RANKS_AGENT"])), ("worker", os.getpid())):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                if os.readlink(f"/proc/{pid}/fd/{fd}") in inodes:
                    return name
            except OSError:
                continue
    return "?"


def object_collectives(rank, world):
    everyone = [None] * world
    dist.all_gather_object(everyone, {"rank": rank, "square": rank * rank})
    assert [each["square"] for each in everyone] == [r * r for r in range(world)], everyone
    told = [{"from": 0, "text": "x" * 1000}, rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(told, src=0)
    assert told[0]["text"] == "x" * 1000 and told[1] == 0
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(world)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"], mine
    gathered = [None] * world if rank == 0 else None
    dist.gather_object((rank, "here"), gathered, dst=0)
    assert rank or gathered == [(r, "here") for r in range(world)]


def groups(rank, world):
    for half in (range(0, world, 2), range(1, world, 2)):  # every rank makes every group
        members = list(half)
        group = dist.new_group(members, timeout=LIMIT)
        if rank in members:
            ones = torch.ones(3)
            dist.all_reduce(ones, group=group)
            assert ones.tolist() == [float(len(members))] * 3
    dist.monitored_barrier(timeout=LIMIT, wait_all_ranks=True)
    store = dist.distributed_c10d._get_default_store()
    dist.distributed_c10d._store_based_barrier(rank, store, "a group of mine", world, LIMIT)


def own_store(rank, world):
    """A script that uses the store itself, as rank 0's agents and libraries do."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, False, LIMIT)
    mine = dist.PrefixStore("a library", store)
    mine.set(f"{rank}", f"port {rank}")
    mine.wait([f"{r}" for r in range(world)], LIMIT)
    assert mine.get(f"{world - 1}") == f"port {world - 1}".encode()
    assert mine.add("arrived", 1) <= world
    while mine.add("arrived", 0) < world:
        time.sleep(0.005)
    return mine.clone() if hasattr(mine, "clone") else mine


def main_of_rank(rank, world, out):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    start = time.monotonic()
    dist.init_process_group("gloo", timeout=LIMIT)
    formed = time.monotonic() - start
    total = torch.ones(4) * (rank + 1)
    dist.all_reduce(total)
    assert total.tolist() == [world * (world + 1) / 2] * 4, total
    object_collectives(rank, world)
    groups(rank, world)
    kept = own_store(rank, world)
    dist.barrier()
    served = listener(int(os.environ["MASTER_PORT"])) if rank == 0 else ""
    dist.barrier()  # a store of rank 0 goes with it
    del kept
    dist.destroy_process_group()
    os.write(out, json.dumps({"rank": rank, "formed": round(formed, 3), "served_by": served}).encode() + b"\n")


def fork_rank(rank, world, out):
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        main_of_rank(rank, world, out)
        status = 0
    except BaseException:  # noqa: BLE001 - a forked process prints its error and ends
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main():
    world, folder = int(sys.argv[1]), sys.argv[2]
    os.environ["FORKED_RANKS_AGENT"] = str(os.getppid())
    torch.set_num_threads(1)
    start = time.monotonic()
    reading, writing = os.pipe()
    pids = [fork_rank(rank, world, writing) for rank in range(world)]
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = [json.loads(line) for line in pipe]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    round_ = int(os.environ.get("MUSTER_ROUND", "0"))
    result = {
        "ranks": sorted(found, key=lambda each: each["rank"]),
        "codes": codes,
        "seconds": round(time.monotonic() - start, 3),
        "torch": torch.__version__,
        "agent_store": os.environ.get("TORCHELASTIC_USE_AGENT_STORE"),
        "port": int(os.environ["MASTER_PORT"]),
    }
    with open(os.path.join(folder, f"round-{round_}.json"), "w") as file:
        json.dump(result, file)
    if any(codes):
        return 1
    return 9 if "--fail" in sys.argv and round_ == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
