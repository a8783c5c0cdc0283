"""Reads the records of step_worker (tests/support/step_worker.c) while it runs: which worlds trained when, and that no two trained at
once.

A world trained from the first step that all its ranks took to the last one; the time of a step is when the first rank had received
of it from every other, since at that moment each of them was at work in this world. Later work of a single rank is
not training: a rank that was frozen, for example, reads earlier messages."""

import dataclasses
import pathlib


@dataclasses.dataclass
class Record:
    """For one worker; times in nanoseconds on the machine's monotonic clock."""

    offset: int = 0
    rest: bytes = b""
    begin: int = 0  # 0: it never met its world
    about: dict = dataclasses.field(default_factory=dict)
    steps: list = dataclasses.field(default_factory=list)
    end: int = 0
    mixed: bool = False

    def take(self, line):
        word, time, *rest = line.split()
        if word == "begin":
            self.begin = int(time)
            self.about = dict(entry.split("=", 1) for entry in rest)
        elif word == "step":
            self.steps.append(int(time))
        elif word == "end":
            self.end = int(time)
        else:
            self.mixed = True

    def read(self, path):
        with open(path, "rb") as file:
            file.seek(self.offset)
            text = file.read()
        self.offset += len(text)
        *lines, self.rest = (self.rest + text).split(b"\n")
        for line in lines:
            self.take(line.decode())


class World:
    def __init__(self, records):
        self.records = records
        about = records[0].about
        self.id = about["world"]
        self.size, self.round, self.restarts = (int(about[name]) for name in ("size", "round", "restarts"))
        self.ranks = sorted(int(record.about["rank"]) for record in records)
        self.hosts = sorted({record.about["host"] for record in records})
        whole = self.ranks == list(range(self.size))
        self.steps = min(len(record.steps) for record in records) if whole else 0  # that all took
        self.first = min(record.steps[0] for record in records) if self.steps else None
        self.last = min(record.steps[self.steps - 1] for record in records) if self.steps else None
        self.ended = whole and all(record.end for record in records)

    def __str__(self):
        return f"round {self.round}, {self.size} ranks on {'+'.join(self.hosts)}, {self.restarts} restarts, {self.steps} steps"


class Observer:
    def __init__(self, folder):
        self.folder, self.records = pathlib.Path(folder), {}

    def worlds(self):
        """All that there were until now, trained ones in the order of their first steps, then the others."""
        for path in self.folder.glob("record.*"):
            self.records.setdefault(path, Record()).read(path)
        found = {}
        for record in self.records.values():
            if record.begin:
                found.setdefault(record.about["world"], []).append(record)
        return sorted(map(World, found.values()), key=lambda world: (world.first is None, world.first))

    def breaches(self):
        """Texts of impossible states."""
        found = ["a worker heard from another world" for record in self.records.values() if record.mixed]
        trained = [world for world in self.worlds() if world.steps]
        for world in self.worlds():
            if len(set(world.ranks)) < len(world.ranks):
                found.append(f"a rank is held twice in {world}: {world.ranks}")
        latest = None  # the world so far whose training ended last
        for world in trained:
            if latest and world.first < latest.last:
                seconds = (min(world.last, latest.last) - world.first) / 1e9
                found.append(f"two worlds train at once, for {seconds:.3f} s: {latest}; {world}")
            if not latest or world.last > latest.last:
                latest = world
        return found
