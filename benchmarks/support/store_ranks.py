"""init_process_group of many ranks against a store that is there already; prints the nanoseconds until the last rank has its group.

    store_ranks.py RANKS PORT

The ranks are forked after torch is imported: only the common work of the ranks is measured. They come as under an agent that serves the
store (TORCHELASTIC_USE_AGENT_STORE)."""

import os
import sys
import time

import torch.distributed as dist


def rank_main(rank, ranks, port, start, done):
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": "True", "GLOO_SOCKET_IFNAME": "lo",
    }
    assert os.read(start, 1) == b""  # until the parent closes it
    dist.init_process_group("gloo")
    os.write(done, b".")
    dist.barrier()
    dist.destroy_process_group()


def main():
    ranks, port = int(sys.argv[1]), sys.argv[2]
    start, go = os.pipe()
    done, mine = os.pipe()
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            os.close(go)
            code = 1
            try:
                rank_main(rank, ranks, port, start, mine)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(mine)
    time.sleep(0.5)  # so that the forks themselves are over; a rank that is late only makes both servers slower
    began = time.monotonic_ns()
    os.close(go)
    arrived = 0
    while arrived < ranks:
        marks = os.read(done, ranks)
        if not marks:
            sys.exit("store_ranks.py: a rank has failed")
        arrived += len(marks)
    print(time.monotonic_ns() - began)
    if any(os.waitpid(child, 0)[1] for child in children):
        sys.exit("store_ranks.py: a rank has failed")


if __name__ == "__main__":
    main()
