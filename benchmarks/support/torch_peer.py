"""The interpreter with PyTorch that benchmarks measure against."""

import os
import pathlib
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def add_argument(parser):
    """--torch-python; MUSTER_TORCH_PYTHON without it, else the interpreter that ./dev makes"""
    default = os.environ.get("MUSTER_TORCH_PYTHON", str(SOURCE / ".venv" / "bin" / "python"))
    parser.add_argument("--torch-python", default=default, type=os.path.abspath, help="an interpreter that has torch; %(default)s")


def version(python):
    """None: this interpreter has no torch."""
    try:
        done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
