"""Writes this process's environment to a file of its rank.

usage: probe.py FOLDER"""

import json
import os
import sys

rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or "0"
with open(os.path.join(sys.argv[1], f"rank-{rank}.json"), "w") as file:
    json.dump(dict(os.environ), file)
