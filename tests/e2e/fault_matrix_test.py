"""Plays the fault matrix (fault_rows.py): every row in its modes and sizes, several jobs side by side, each in namespaces of its own.

    MUSTER_BUILD=build python3 tests/e2e/fault_matrix_test.py [--full] [--rows TEXT] [--mode static|elastic] [--nodes N[,N...]]
        [--keep FOLDER] [--jobs N] [--list]

For each job one line is printed: the fault, mode, nodes, when the first agent logged the fault, when a world trained again, and the
outcome. The times are for information only. Checks of every job: it ended as its row expects, nothing hung, no two worlds trained at
once, the cause was named. --rows takes rows whose name has the text in it; --keep keeps the logs of all jobs there,
each in a folder of its own (otherwise a failed job's logs are printed, the last lines of each agent). A job that fails
while the machine starves is played again: an agent that gets no processor for seconds is lost to the others, and rightly so; but
two worlds that train at once are never forgiven."""

import argparse
import os
import pathlib
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from harness import cluster
from harness.fault_rows import ALONE, BOTH, ROWS, SAME, STANDS, STOPPED, of_mode
from harness.job import Job

SIZES, FULL_SIZES = {"static": (2,), "elastic": (3,)}, (2, 4, 8, 16)


class Neighbours:
    """A kernel has one table of neighbours, 1,024 in all, for all of its network namespaces: so many jobs at a time as fit."""

    def __init__(self, room=800):
        self.room, self.changed = room, threading.Condition()

    def take(self, count):
        with self.changed:
            self.changed.wait_for(lambda: self.room >= count)
            self.room -= count

    def give(self, count):
        with self.changed:
            self.room += count
            self.changed.notify_all()


NEIGHBOURS = Neighbours()


class Machine:
    """Notes when this process got no processor for so long that agents may have been taken for lost."""

    SLICE, LATE = 0.05, 0.7

    def __init__(self):
        self.starved_at = 0.0
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            before = time.monotonic()
            time.sleep(self.SLICE)
            if time.monotonic() - before > self.SLICE + self.LATE:
                self.starved_at = time.monotonic()

    def starved_since(self, when):
        return self.starved_at > when


MACHINE = Machine()
TRIES = 3  # a job whose machine starved's


class Played:
    """One row in one mode with one number of nodes."""

    def __init__(self, row, mode, count, options):
        self.row, self.mode, self.count, self.options = row, mode, count, options
        self.error = ""
        self.heard = self.back_again = None
        self.starved = False

    def __str__(self):
        return f"{self.row.name}, {self.mode}, {self.count} nodes"

    def expect(self, field):
        return of_mode(getattr(self.row, field), self.mode, self.count)

    def make_job(self, nodes):
        limit = 90 + 10 * self.count + (90 if self.options.full else 0)
        lowest = None if self.row.lowest is None else of_mode(self.row.lowest, self.mode, self.count)
        job = Job(nodes, self.mode, self.count, self.row.flags, lowest, step_ms=20 if self.count < 8 else 100, limit=limit)
        job.gap = 90 / max(1, self.count - 1) if self.options.full else 1
        job.torch_python = self.options.torch
        return job

    def listen(self, job, since):
        """Notes when any agent prints anything: in a thread, since the row waits for other things."""
        sizes = {}
        for agent in job.all_agents:
            sizes[f"{agent.log}.err"] = os.stat(f"{agent.log}.err").st_size

        def look():
            while not self.over.wait(0.02):
                if any(os.stat(path).st_size > size for path, size in sizes.items()):
                    self.heard = (time.monotonic_ns() - since) / 1e9
                    return

        self.over = threading.Event()
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        return thread

    def wait_gone(self, job, since):
        gone = self.expect("gone")
        if gone == STOPPED:
            job.stopped([node for node in job.members if job.agents[node].runs() and not node.frozen and not node.cut_ways])
        elif gone == ALONE:
            job.stopped([job.server])
        elif gone == STANDS:
            time.sleep(5)  # the fault's length: twice what makes a node lost
        elif gone:
            job.trains(gone, since)

    def wait_again(self, job, before, since):
        """The world that trains afterwards."""
        again, restarts = self.expect("again"), self.expect("restarts")
        after = job.moves(self.count if again == SAME else again, since)
        if again == SAME and before:
            assert after.id == before.id, f"another world: {after}"
        assert restarts in (None, after.restarts), f"{after}: {restarts} restarts were expected"
        return after

    def play(self, job):
        self.row.begin(job)
        before = next(iter(job.observer.worlds()), None)
        since = time.monotonic_ns()
        listener = self.listen(job, since)
        try:
            self.row.harm(job)
            self.wait_gone(job, since)
            healed = time.monotonic_ns()
            self.row.back(job)
            if self.expect("again"):
                self.back_again = (self.wait_again(job, before, healed).first - since) / 1e9
                job.finish()
            else:
                job.let_go()
            self.check_end(job)
        finally:
            self.over.set()
            listener.join()

    def check_end(self, job):
        codes, expected = job.end(), self.expect("codes")
        for name, code in codes.items():
            wanted = expected
            if isinstance(expected, dict):
                wanted = next((expected[piece] for piece in expected if piece in name), expected["*"])
            if code != -9 and wanted is not None:  # -9: the row killed it
                assert code == wanted, f"{name} left with {code}, not {wanted}\n{job.tails()}"
        if self.row.cause:
            self.check_cause(job)
        says = self.expect("says")
        assert re.search(says, job.said()), f"nobody said '{says}'\n{job.tails()}"

    def check_cause(self, job):
        class_, node_of = self.row.cause
        for node, agent in job.agents.items():
            cause = (job.failure(node) or {}).get("first_cause") or {}
            found, wanted = (cause.get("class"), cause.get("host")), (class_, node_of(job).name)
            assert agent.poll() == -9 or found == wanted, f"{agent.log.name} takes {found} for the cause, not {wanted}\n{job.tails()}"

    def run(self):
        known = (self.count + self.row.spares + 1) ** 2  # each node knows all nodes, and the hub
        NEIGHBOURS.take(known)
        try:
            for _ in range(TRIES):
                done = self.run_job()
                if done or not self.starved:
                    break
                print(f"--- {self}: the machine starved meanwhile, once more", flush=True)
            return done
        finally:
            NEIGHBOURS.give(known)

    def run_job(self):
        began = time.monotonic()
        self.error, self.heard, self.back_again = "", None, None
        folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-faults-"))
        job = None
        try:
            with cluster.Cluster(self.count + self.row.spares, folder) as nodes:
                job = self.make_job(nodes)
                self.play(job)
        except Exception as error:  # one job's failure is not the others'
            self.error = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        try:
            stood = job and "freezes" not in self.row.name and "event loop stalled" in job.said()
            breaches = job.observer.breaches() if job else []
            self.starved = not breaches and bool(stood or MACHINE.starved_since(began))
            if breaches:
                self.error += "\n".join(["", *breaches, *map(str, job.observer.worlds())])
        finally:
            self.keep(folder)
        return self.report(time.monotonic() - began)

    def keep(self, folder):
        if self.options.keep:
            name = re.sub(r"[^a-z0-9]+", "-", f"{self.row.name} {self.mode} {self.count}".lower())
            kept = pathlib.Path(self.options.keep) / name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.move(folder, kept)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    def report(self, seconds):
        def text(value):
            return "-" if value is None else f"{value:.2f} s"

        verdict = "FAILED" if self.error else "ok"
        print(f"{self.row.name:52} {self.mode:8} {self.count:2} nodes  heard {text(self.heard):>8}  again {text(self.back_again):>8}  "
              f"{seconds:6.1f} s  {verdict}", flush=True)  # fmt: skip
        if self.error:
            print(f"--- {self}:\n{self.error}\n", flush=True)
        return not self.error


def chosen(options):
    for row in ROWS:
        if options.rows.lower() not in row.name.lower():
            continue
        for mode in row.modes if options.full or options.mode or options.nodes else row.short:
            if mode not in row.modes or (options.mode and mode != options.mode):
                continue
            sizes = options.nodes or (FULL_SIZES if options.full else SIZES[mode])
            for count in row.sizes or sorted({max(row.least, count) for count in sizes}):
                yield Played(row, mode, count, options)


def skips(job):
    """Why it cannot be played here; "" where it can."""
    return "" if job.options.torch or not job.row.needs_torch else "MUSTER_TORCH_PYTHON is not set"


def play(doc, chosen, jobs, skips=skips, torch=os.environ.get("MUSTER_TORCH_PYTHON")):
    """A program that plays the jobs which chosen yields for its options, so many at once by default; returns its exit code."""
    parser = argparse.ArgumentParser(description=doc.split("\n", 1)[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--rows", default="")
    parser.add_argument("--mode", choices=BOTH)
    parser.add_argument("--nodes", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--keep")
    parser.add_argument("--jobs", type=int, default=jobs)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    options.torch = torch
    jobs = list(chosen(options))
    if options.list:
        print("\n".join(map(str, jobs)))
        return 0
    cluster.need()
    skipped = [job for job in jobs if skips(job)]
    for job in skipped:
        print(f"{job}: skipped, {skips(job)}")
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda job: job.run(), [job for job in jobs if job not in skipped]))
    failed = results.count(False)
    print(f"{len(results)} jobs, {failed} failed, {len(skipped)} skipped")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(play(__doc__, chosen, jobs=8))
