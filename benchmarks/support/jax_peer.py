"""The interpreter with JAX that benchmarks measure against, in a virtual environment that is made at its first use."""

import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HOME = SOURCE / ".venv-peers" / "jax"
REQUIREMENTS = ["jax==0.10.2", "jaxlib==0.10.2"]


def add_argument(parser):
    """--jax-python; MUSTER_JAX_PYTHON without it, else the interpreter that is made here"""
    default = os.environ.get("MUSTER_JAX_PYTHON", str(HOME / "bin" / "python"))
    parser.add_argument("--jax-python", default=default, help="an interpreter that has jax; %(default)s")


def install(python):
    """Why there is no JAX; None: there is."""
    if os.path.exists(python):
        return None
    if pathlib.Path(python) != HOME / "bin" / "python":
        return f"{python} does not exist"
    for command in (
        [sys.executable, "-m", "venv", str(HOME)],
        [str(HOME / "bin" / "pip"), "--quiet", "--disable-pip-version-check", "install", *REQUIREMENTS],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return None
