"""Everything of the CUDA back end that a machine with a GPU can show, in phases, with results that can be kept as they are.

    day.py --packed FOLDER | --built | --rehearse [--build BUILD] [--output FOLDER] [--seconds 480] [--phases NAME,NAME] [--list]

--packed: programs of pack.py, on a machine with a driver, Python and a PyTorch of CUDA 13 (its cuBLASLt and NCCL are used;
MUSTER_GPU_LIBRARIES names folders of others). --built: the programs of `./dev build` and `./dev build cuda`. --rehearse: the same phases over the
fakes and the emulator, of small models: nothing that it prints is a speed. runner.py describes FOLDER. The exit status is 1 if a
phase failed or was late."""

import argparse
import datetime
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import phases  # noqa: E402
import runner  # noqa: E402
from place import SOURCE, Place  # noqa: E402

EMULATED = 5  # times a phase's limit, where kernels run on this machine's processors


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--packed", metavar="FOLDER")
    parser.add_argument("--built", action="store_true", help="programs of ./dev build and ./dev build cuda")
    parser.add_argument("--rehearse", action="store_true", help="over the fakes and the emulator; no figure is a speed")
    parser.add_argument("--build", default=str(SOURCE / "build"), help="of a rehearsal; %(default)s")
    parser.add_argument("--output", default=None, help="folder of the results; gpu-DATE-TIME")
    parser.add_argument("--seconds", type=float, default=None, help=f"for everything; {phases.WHOLE}, and {EMULATED} times that in a rehearsal")
    parser.add_argument("--phases", default=None, help="some of them, in the order of --list")
    parser.add_argument("--list", action="store_true", help="names, limits and contents")
    parser.add_argument("--phase", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.list and [bool(options.packed), options.built, options.rehearse].count(True) != 1:
        parser.error("one of --packed FOLDER, --built and --rehearse is needed")
    return options


def place_of(options):
    if options.packed:
        return Place("packed", options.packed)
    return Place("rehearsal", options.build) if options.rehearse else Place("built", SOURCE)


def source():
    done = subprocess.run(["git", "-C", str(SOURCE), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def wanted(options, table):
    if options.phases is None:
        return table
    names = options.phases.split(",")
    unknown = set(names) - {name for name, _, _ in table}
    if unknown:
        sys.exit(f"no phase {', '.join(sorted(unknown))}; --list has {', '.join(name for name, _, _ in table)}")
    return [row for row in table if row[0] in names]


def main():
    options = arguments()
    table = [*phases.PHASES, phases.FURTHER]
    if options.list:
        for name, limit, function in table:
            print(f"{name:12} {limit:4} s  {function.__doc__.splitlines()[0]}")
        return 0
    place = place_of(options)
    if options.phase:
        name, path = options.phase
        return runner.phase_main(name, next(function for row, _, function in table if row == name), path, place)
    if not place.module().exists():
        sys.exit(f"{place.module()} is not there: " + ("pack.py makes it" if options.packed else "./dev build makes it" if options.rehearse else "./dev build cuda makes it"))
    if place.fits():
        sys.exit(place.fits())
    output = pathlib.Path(options.output or f"gpu-{datetime.datetime.now():%Y%m%d-%H%M}").resolve()
    where = ["--packed", str(pathlib.Path(options.packed).resolve())] if options.packed else ["--rehearse", "--build", options.build] if options.rehearse else ["--built"]
    command = lambda name, path: [sys.executable, __file__, *where, "--phase", name, str(path)]
    day = runner.Runner(output, place.about, source(), place.rehearsal, options.seconds or phases.WHOLE * (EMULATED if place.rehearsal else 1), command)
    day.say(f"muster {day.about['source']}, {day.about['device']['name']}" + (", a rehearsal: no figure is a speed" if place.rehearsal else ""))
    chosen = wanted(options, table)
    for number, (name, limit, function) in enumerate(table, 1):
        if (name, limit, function) in chosen:
            day.run(number, name, limit * (EMULATED if place.rehearsal else 1))
    day.say(f"{'failed: ' + ', '.join(day.failed) if day.failed else 'nothing failed'}; results are in {output}")
    return 1 if day.failed else 0


if __name__ == "__main__":
    sys.exit(main())
