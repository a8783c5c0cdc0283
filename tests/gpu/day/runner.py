"""Runs phases one after the other, each in a process of its own with a limit and files of its own. Nothing here knows about GPUs.

    OUTPUT/NN-NAME.jsonl   lines of the phase: a head with date and device, its own lines, and an end
    OUTPUT/NN-NAME.txt     the output of its programs
    OUTPUT/results.jsonl   the lines of all phases, in order
    OUTPUT/report.txt      a line a phase, and its failed checks

    {"kind": "head", "phase": "rates", "date": "...", "device": {...}, "source": "...", "rehearsal": false, "limit_s": 20}
    {"kind": "figure", "figure": "products in tf32", "value": 401.2, "unit": "TFLOP/s"}
    {"kind": "check", "check": "losses as on the CPU", "ok": true, "text": "..."}
    {"kind": "end", "status": "passed", "seconds": 11.2, "reason": ""}

A status is passed, failed, late (over its limit, and ended) or skipped. A phase that is not passed does not stop the next one. A phase
gets its limit or the rest of the whole time, if that is less; where none is left it is skipped."""

import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import signal
import subprocess
import time
import traceback

PR_SET_CHILD_SUBREAPER = 36
SKIPPED = 77
ENDING = 2  # seconds of a phase's limit that its processes may take to end


class Skip(Exception):
    """The reason why a phase, or a part, cannot be tried here."""


class Lines:
    """The lines of a phase, written at once: they are there after a phase that was ended."""

    def __init__(self, path):
        self.path, self.failed, self.tried, self.skipped = pathlib.Path(path), 0, 0, []

    def add(self, kind, **fields):
        with open(self.path, "a") as file:
            file.write(json.dumps({"kind": kind, **fields}) + "\n")

    def figure(self, figure, value, unit, **more):
        self.add("figure", figure=figure, value=float(f"{value:.6g}"), unit=unit, **more)

    def check(self, check, ok, text=""):
        self.tried += 1
        self.failed += not ok
        self.add("check", check=check, ok=bool(ok), text=text)

    def note(self, text):
        self.add("note", text=text)

    @contextlib.contextmanager
    def trying(self, what):
        """A part of a phase: an exception is a failed check, and the next part is tried. Skip is a note."""
        try:
            yield
        except Skip as reason:
            self.skipped.append(f"{what}: {reason}")
            self.add("skipped", check=what, reason=str(reason))
        except Exception as error:  # the rest can be tried after any
            traceback.print_exc()
            self.check(what, False, str(error)[-800:] or type(error).__name__)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def parents():
    """{process: its parent} of this machine."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return found


def end_all():
    """Ends every process that this one has started, at any depth: they come to us when their parents end."""
    limit = time.monotonic() + ENDING
    while time.monotonic() < limit:
        table, own = parents(), {os.getpid()}
        while more := {process for process, parent in table.items() if parent in own} - own:
            own |= more
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if own == {os.getpid()}:
            return
        for process in own - {os.getpid()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


class Runner:
    def __init__(self, output, device, source, rehearsal, seconds, command):
        """command(name, path): the words of a command that runs a phase and adds its lines to path; it ends with 0, 1 or SKIPPED."""
        self.output, self.command = pathlib.Path(output), command
        self.about = {"device": device, "source": source, "rehearsal": rehearsal}
        self.until = time.monotonic() + seconds
        self.failed = []
        self.output.mkdir(parents=True, exist_ok=True)
        for name in "results.jsonl", "report.txt":
            (self.output / name).write_text("")
        # Processes whose parents have ended are ours to end.
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")

    def say(self, text):
        print(text, flush=True)
        with open(self.output / "report.txt", "a") as file:
            file.write(text + "\n")

    def wait(self, command, text_path, lines_path, limit):
        """(status, reason) of a phase's process."""
        with open(text_path, "w") as text:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=text, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = process.wait(max(0.1, limit))
            except subprocess.TimeoutExpired:
                end_all()
                process.returncode = -signal.SIGKILL  # reaped already
                return "late", f"over its limit of {limit:.0f} s"
        end_all()
        lines = read_lines(lines_path)
        failed = [line["check"] for line in lines if line["kind"] == "check" and not line["ok"]]
        if status == SKIPPED:
            return "skipped", "; ".join(line["reason"] for line in lines if line["kind"] == "skipped")
        if status:
            return "failed", ", ".join(failed) or f"its process ended with {status}"
        return "passed", ""

    def run(self, number, name, limit):
        base = self.output / f"{number:02}-{name}"
        path, text = base.with_suffix(".jsonl"), base.with_suffix(".txt")
        limit = min(limit, self.until - time.monotonic())
        head = {"kind": "head", "phase": name, "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC", **self.about, "limit_s": round(limit, 1)}
        path.write_text(json.dumps(head) + "\n")
        begun = time.monotonic()
        if limit <= ENDING:
            status, reason = "skipped", "no time was left"
        else:
            status, reason = self.wait(self.command(name, path), text, path, limit - ENDING)
        seconds = time.monotonic() - begun
        with open(path, "a") as file:
            file.write(json.dumps({"kind": "end", "status": status, "seconds": round(seconds, 2), "reason": reason}) + "\n")
        with open(self.output / "results.jsonl", "a") as file:
            file.write(path.read_text())
        self.say(f"{status:8} {name} ({seconds:.1f} s){': ' + reason if reason else ''}")
        self.tell(path, text, status)
        return status

    def tell(self, path, text, status):
        lines = read_lines(path)
        for line in lines:
            if line["kind"] == "figure":
                self.say(f"           {line['figure']}: {line['value']:g} {line['unit']}")
            elif line["kind"] == "skipped":
                self.say(f"           left out: {line['check']}: {line['reason']}")
            elif line["kind"] == "check" and not line["ok"]:
                self.say(f"           FAILED {line['check']}: {line['text']}")
        if status in ("failed", "late"):
            self.failed.append(path.stem)
            for line in text.read_text(errors="replace").splitlines()[-15:] if text.exists() else ():
                self.say(f"           | {line[:300]}")


def phase_main(name, function, path, *arguments):
    """In a phase's own process: function(lines, *arguments), and the exit status."""
    lines = Lines(path)
    with lines.trying(name):
        function(lines, *arguments)
    if lines.failed:
        return 1
    return 0 if lines.tried or not lines.skipped else SKIPPED
