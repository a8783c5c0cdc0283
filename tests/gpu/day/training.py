"""muster-train as a phase uses it: a configuration, a run, and its log."""

import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from place import PROSE

Run = collections.namedtuple("Run", "status output losses lines seconds folder")
CONFIG = """\
training: {{steps: 20, micro_batch: 1, global_batch: 4, sequence_length: 32, learning_rate: 3.0e-3, warmup_steps: 2, timeout: 60}}
model: {{layers: 4, channels: 64, heads: 2}}
data: {{path: "{text}"}}
logging: {{interval: 1, sample_length: 0}}
"""


class Trainings:
    """Runs in a folder of their own, which is removed at the end."""

    def __init__(self, place, where=None):
        self.place, self.count = place, 0
        self.holder = tempfile.TemporaryDirectory(prefix="day-", dir=where)
        self.folder = pathlib.Path(self.holder.name)
        (self.folder / "text").write_text(PROSE * (3 if place.rehearsal else 300))
        (self.folder / "config.yaml").write_text(CONFIG.format(text=self.folder / "text"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.holder.cleanup()

    def command(self, *sets, ranks=1, device="cuda", comm="host", wrapper=()):
        self.count += 1
        logs = self.folder / f"logs-{self.count}"
        words = [self.place.program("bin/muster"), "run", "--standalone", f"--nproc_per_node={ranks}", "--termination-log=", *wrapper,
                 self.place.program("bin/muster-train"), self.folder / "config.yaml", f"--device={device}", f"--comm={comm}", "--set", f"logging.dir={logs}"]
        for change in sets:
            words += ["--set", change]
        return [str(word) for word in words], logs

    def run(self, *sets, seconds=60, ok=True, ranks=1, device="cuda", comm="host", wrapper=(), **environment):
        words, logs = self.command(*sets, ranks=ranks, device=device, comm=comm, wrapper=wrapper)
        begun = time.monotonic()
        print("$", *words, flush=True)
        try:
            done = subprocess.run(words, env=self.place.environment(**environment), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds)
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, output = None, (late.stdout or b"").decode(errors="replace")
        print(output, flush=True)
        if ok and status != 0:
            raise RuntimeError(f"training ended with {status if status is not None else f'no end in {seconds} s'}: " + " | ".join(output.splitlines()[-8:]))
        path = logs / "log.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        losses = [line["loss"] for line in lines if line["kind"] == "step"]
        return Run(status, output, losses, lines, time.monotonic() - begun, self.folder)

    def start(self, *sets, **options):
        """A run that goes on: its process, whose output is in FOLDER/started."""
        words, logs = self.command(*sets, **options)
        print("$", *words, flush=True)
        with open(self.folder / "started", "w") as output:
            process = subprocess.Popen(words, env=self.place.environment(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        return process, logs


def worker(rank, word):
    """The process with that RANK whose command line has the word."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            if any(word.encode() in argument for argument in words[1:]) and words[0].endswith(b"muster-train"):
                if f"RANK={rank}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    return int(path.name)
    return None


def kill(process):
    os.kill(process, signal.SIGKILL)


def relative(losses, others):
    if not losses or len(losses) != len(others):
        raise RuntimeError(f"{len(losses)} losses beside {len(others)}")
    return max(abs(a - b) / abs(b) for a, b in zip(losses, others))
