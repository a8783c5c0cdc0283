"""Local rank 1 raises inside torch's own @record, the others wait for it in a collective."""

import os

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    dist.init_process_group("gloo")
    if os.environ["LOCAL_RANK"] == "1":
        raise ValueError("the lake is frozen")
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    main()
