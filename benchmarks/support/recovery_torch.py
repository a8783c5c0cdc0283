"""The worker of recovery.py that imports PyTorch, as every script does: reports its start when its imports are done, and again when
its process group is there.

    recovery_torch.py FILE

Lines and clock are as in recovery_worker.c."""

import os
import signal
import socket
import sys
import time

import torch.distributed


def report(what):
    line = f"{what} {socket.gethostname()} {os.environ['RANK']} {os.environ['WORLD_SIZE']} {time.monotonic_ns()}\n"
    with open(sys.argv[1], "ab", buffering=0) as file:
        file.write(line.encode())


report("start")
torch.distributed.init_process_group("gloo")
report("group")
signal.pause()
