"""The fault matrix (tests/e2e/harness/fault_rows.py) with real PyTorch: DDP over gloo on 2 and 4 nodes that are network namespaces.

    MUSTER_BUILD=build MUSTER_TORCH_PYTHON=.venv/bin/python python3 tests/compat/ddp_faults_test.py [--full] [--rows TEXT]
        [--mode static|elastic] [--nodes N[,N...]] [--keep FOLDER] [--jobs N]

Every job is checked as by fault_matrix_test.py, and its result has to equal an undisturbed run's
(steps_train.py). Needs root, for namespaces."""

import json
import pathlib
import sys
import threading

import torch_python

torch_python.require()

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import steps_train  # noqa: E402
from fault_matrix_test import Played, play  # noqa: E402
from harness.fault_rows import ROWS  # noqa: E402

SHORT = {"a worker is killed": "elastic", "an agent is killed": "static"}  # on 2 nodes
SAME_NUMBERS = 1e-9  # relative: sums of float64 in another order
ALONE = threading.Lock()  # jobs are checked side by side, and torch's random numbers are the process's


class Trained(Played):
    """One row, with the workers of steps_train.py."""

    def make_job(self, nodes):
        job = super().make_job(nodes)
        self.work = nodes.folder / "work"
        self.work.mkdir()
        job.program = (HERE / "steps_train.py", self.work)
        job.step_ms, job.limit = 50, 300  # PyTorch takes its time to start, more so many times at once
        trains = job.trains

        def trains_and_saves(size, since=0):
            world = trains(size, since)
            job.until((self.work / "state").exists, "something is saved")
            return world

        job.trains = trains_and_saves
        plain = job.environment
        job.environment = lambda: {**plain(), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
        return job

    def check_end(self, job):
        super().check_end(job)
        if not self.expect("again"):
            return
        result = json.loads((self.work / "result.json").read_text())
        worlds = [world for world in job.observer.worlds() if world.steps]
        if len(worlds) > 1:
            assert result["resumed_at"] >= steps_train.SAVE_EVERY, f"{worlds[-1]} has begun anew"
        with ALONE:
            undisturbed = steps_train.train_alone(result["steps"])
        for name in ("loss", "checksum"):
            bound = SAME_NUMBERS * abs(undisturbed[name])
            assert abs(result[name] - undisturbed[name]) <= bound, f"{result}, but without a fault {undisturbed}"

    def keep(self, folder):
        self.words = "".join(path.read_text(errors="replace") for path in folder.glob("*.err"))
        super().keep(folder)

    def run(self):
        def attempt():
            self.error = ""
            return super(Trained, self).run()

        return torch_python.undisturbed(attempt, lambda fine: "" if fine else self.words)


def chosen(options):
    for row in ROWS:
        if (row.name not in SHORT and not options.full) or options.rows.lower() not in row.name.lower():
            continue
        for mode in row.modes if options.full else (SHORT[row.name],):
            if options.mode and mode != options.mode:
                continue
            sizes = row.sizes or options.nodes or ((2, 4) if options.full else (2,))
            for count in sorted({max(row.least, count) for count in sizes}):
                yield Trained(row, mode, count, options)


if __name__ == "__main__":
    sys.exit(play(__doc__, chosen, jobs=3, torch=sys.executable))  # half of a job is waiting
