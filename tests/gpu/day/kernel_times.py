"""Reads ncu's table of kernels: one row a launch with --page raw, or one row a metric without it."""

import collections
import csv

TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
OPTIONS = ("--target-processes", "all", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join((TIME, READ, WRITTEN)))

Launch = collections.namedtuple("Launch", "name nanoseconds bytes")
Kernel = collections.namedtuple("Kernel", "name calls nanoseconds bytes")


def number(text):
    return float((text or "0").replace(",", "") or 0)


def plain(name):
    """Without template's and function's arguments."""
    return name.split("(")[0].split("<")[0].replace("void ", "").strip()


def read(output):
    """The launches of ncu's output, other lines of which are left out."""
    table = [line for line in output.splitlines() if line.startswith('"')]
    launches, parts = [], {}
    for row in csv.DictReader(table):
        if not (row.get("ID") or "").isdigit():
            continue  # the row of units
        if TIME in row:
            launches.append(Launch(plain(row["Kernel Name"]), number(row[TIME]), number(row.get(READ)) + number(row.get(WRITTEN))))
        elif "Metric Name" in row:
            parts.setdefault((row["ID"], row["Kernel Name"]), {})[row["Metric Name"]] = number(row["Metric Value"])
    for (_, name), values in parts.items():
        launches.append(Launch(plain(name), values.get(TIME, 0), values.get(READ, 0) + values.get(WRITTEN, 0)))
    return launches


def by_name(launches):
    """Sums, the longest first."""
    sums = {}
    for launch in launches:
        kernel = sums.get(launch.name, Kernel(launch.name, 0, 0, 0))
        sums[launch.name] = Kernel(launch.name, kernel.calls + 1, kernel.nanoseconds + launch.nanoseconds, kernel.bytes + launch.bytes)
    return sorted(sums.values(), key=lambda kernel: -kernel.nanoseconds)
