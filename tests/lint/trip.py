#!/usr/bin/env python3
"""How many files a reader opens to follow a restart: those with lines that run only where a worker is killed.

trip.py --source DIR --build DIR [--list]
--build is a folder of its own: the program `muster` is configured and built there with --coverage (minutes at first, seconds after
a change). Two nodes on this machine run a job of two workers twice: once all workers end well, once one of them is killed and all
restart. gcov names the lines that ran; a file counts where the second run has a line that the first one lacks. A line can run by
chance (a full pipe, a late timer), so the first kind of run is done CALM times and the second KILLED times, which have to agree. The
limit is LIMIT; --list prints the files with their lines and functions. Slow tier."""
import argparse
import collections
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

LIMIT = 40
CALM, KILLED = 4, 3
WORKER = 'sleep 0.5; [ "$1" = kill ] && [ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && kill -9 $$$$; sleep 0.5'


def build(source, folder):
    if not (folder / "build.ninja").exists():
        subprocess.run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS=--coverage -O0",
                        "-DCMAKE_EXE_LINKER_FLAGS=--coverage"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "--quiet", "-C", folder, "muster"], check=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_job(folder, kill):
    """One job of two nodes; both agents have to end with 0."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="trip-") as scratch:
        agents = []
        for node in ("0", "1"):
            home = pathlib.Path(scratch) / node
            home.mkdir()
            agents.append(subprocess.Popen(
                [folder / "bin/muster", "run", "--nnodes=2", f"--node_rank={node}", "--nproc_per_node=1", "--master_addr=127.0.0.1",
                 f"--master_port={port}", "--max_restarts=3", "--", "sh", "-c", WORKER, "worker", "kill" if kill else "calm"],
                cwd=home, env={**os.environ, "TMPDIR": str(home)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True))
        said = [agent.communicate(timeout=60)[0] for agent in agents]
        if any(agent.returncode for agent in agents):
            raise RuntimeError(f"the agents ended with {[agent.returncode for agent in agents]}:\n" + "\n".join(said))
        if kill != any("restart" in text for text in said):
            raise RuntimeError(f"a restart was {'' if kill else 'not '}expected:\n" + "\n".join(said))


def lines_that_ran(source, folder):
    """{file of the product: {line: function}} of what has run since the counters were removed."""
    counters = [str(path) for path in folder.rglob("*.gcda")]
    found = collections.defaultdict(dict)
    run = subprocess.run(["gcov", "--json-format", "--stdout", *counters], cwd=folder, check=True, capture_output=True, text=True)
    for text in run.stdout.splitlines():
        for entry in json.loads(text)["files"]:
            path = (folder / entry["file"]).resolve()
            if path.is_relative_to(source) and path.suffix in (".c", ".h") and not path.is_relative_to(folder):
                for line in entry["lines"]:
                    if line["count"]:
                        found[path.relative_to(source).as_posix()][line["line_number"]] = line.get("function_name", "?")
    return found


def measure(source, folder, kill):
    for path in folder.rglob("*.gcda"):
        path.unlink()
    run_job(folder, kill)
    return lines_that_ran(source, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--list", action="store_true", help="the files, with the functions that only a restart enters")
    options = parser.parse_args()
    source, folder = options.source.resolve(), options.build.resolve()
    if not shutil.which("gcov"):
        raise SystemExit("trip: gcov is missing: it belongs to gcc")
    build(source, folder)
    calm = collections.defaultdict(set)
    for _ in range(CALM):
        for name, lines in measure(source, folder, False).items():
            calm[name] |= set(lines)
    trips = []
    for _ in range(KILLED):
        trips.append({name: {line: function for line, function in lines.items() if line not in calm[name]}
                      for name, lines in measure(source, folder, True).items()})
    files = {name: {line: function for line, function in lines.items() if all(line in trip.get(name, {}) for trip in trips)}
             for name, lines in trips[0].items()}
    files = {name: lines for name, lines in sorted(files.items()) if lines}
    if options.list:
        for name, lines in files.items():
            print(f"{name}: {len(lines)} lines from {min(lines)} on: {' '.join(dict.fromkeys(lines.values()))}")
    folders = {name.rpartition("/")[0] for name in files}
    functions = {(name, function) for name, lines in files.items() for function in lines.values()}
    print(f"a restart on two nodes: {len(files)} files in {len(folders)} folders, {len(functions)} functions; at most {LIMIT} files")
    return 1 if len(files) > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
