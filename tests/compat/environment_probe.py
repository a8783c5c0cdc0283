"""Writes a worker's arguments and its environment, to FOLDER/RANK.json."""

import json
import os
import sys

with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w") as out:
    json.dump({"arguments": sys.argv[2:], "environment": dict(os.environ)}, out)
