"""The programs of the wheel that are started by Python: each replaces the interpreter at once."""

import os
import sys


def train():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libs", "muster-train")
    os.execv(program, [program, *sys.argv[1:]])
