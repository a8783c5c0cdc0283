"""Runs of muster-train whose losses are compared, and a killed run."""
import fcntl
import json
import os
import subprocess
import sys

import torch_python


def kill_behind_a_checkpoint(command, folder):
    """As a machine that is lost: SIGKILL, where a checkpoint is there and steps are left. The third checkpoint, of step 6, begins when the
    first one is whole; and unread lines fill the pipe, so that the run is at most about 30 lines ahead."""
    ours, its = os.pipe()
    fcntl.fcntl(its, fcntl.F_SETPIPE_SZ, 4096)
    child = subprocess.Popen(command, cwd=folder, stdout=its, stderr=subprocess.DEVNULL)
    os.close(its)
    said = b""
    while b"\nstep 7/" not in said:
        read = os.read(ours, 1)
        if not read:
            sys.exit(f"the run ended before it was killed: {said.decode()}")
        said += read
    child.kill()
    child.wait()
    os.close(ours)


def losses(command, folder):
    """The losses of all steps, by the log.jsonl in the folder, and the output."""
    done = torch_python.run(command, cwd=folder)
    if done.returncode:
        sys.exit(f"{folder.name}: {done.stdout}{done.stderr}")
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "step"}, done.stdout


class TrainingRuns:
    """Faults are in failures."""

    def __init__(self, path):
        self.path, self.failures = path, []

    def check(self, what, holds, shown=""):
        print(f"{'ok' if holds else 'FAILED':6} {what} {shown}", flush=True)
        if not holds:
            self.failures.append(what)

    def same(self, what, found, wanted, control):
        """T1: within 1e-6, or three times what another summation order on one rank makes."""
        off = lambda run: max(abs(run[step] - wanted[step]) / wanted[step] for step in run)
        bound = max(1e-6, 3 * off(control))
        self.check(what, len(found) == len(wanted) and off(found) <= bound, f"{off(found):.1e} (at most {bound:.1e})")
