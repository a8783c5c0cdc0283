"""Runs a benchmark that is a program in C, and writes its figures as the others do.

    python3 benchmarks/support/run_bench.py NAME --build BUILD_DIR [--record] [WORDS OF THE PROGRAM ...]"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support import results  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("name")
    parser.add_argument("--build", default="build")
    results.add_argument(parser)
    options, words = parser.parse_known_args()
    run = results.Run(options.name)
    with tempfile.NamedTemporaryFile("r", suffix=".figures") as figures:
        program = pathlib.Path(options.build) / "benchmarks" / f"{options.name}_bench"
        code = subprocess.run([str(program), *words], env={**os.environ, "MUSTER_BENCH_FIGURES": figures.name}).returncode
        for line in figures.read().splitlines():
            figure, unit, muster, limit, value, rates = line.split("\t")
            run.add(figure, unit, float(muster), limit=(limit, float(value)) if limit else None, more_is_better=rates == "1")
    if code == 0:
        run.write(options)
    sys.exit(code)


if __name__ == "__main__":
    main()
