#!/usr/bin/env python3
"""deb_depends.py BUILD MACHINE SYSROOT: the packages that the programs of a cross build link, with the least versions: the ones that
they were linked with (SYSROOT/.owners, by cmake/aarch64_sysroot.sh), and of glibc the newest that any of them asks for."""

import pathlib
import re
import sys

from shipped import GLIBC, Machine, own_files


def main():
    build, machine = pathlib.Path(sys.argv[1]), Machine(sys.argv[2], sys.argv[3])
    owners = dict(line.split(" ", 1) for line in (machine.sysroot / ".owners").read_text().splitlines())
    files = [build / "bin/muster", *own_files(build).values()]
    wanted = {"libc6": ".".join(map(str, max(map(machine.glibc_of, files))))}
    for name in {name for path in files for name in machine.needed(path.resolve())[0]} - GLIBC:
        if name not in owners:
            sys.exit(f"{name} is in no package of {machine.sysroot}")
        package, version = owners[name].split()
        wanted[package] = re.sub(r"^\d+:|-[^-]*$", "", version)
    print(", ".join(f"{package} (>= {version})" for package, version in sorted(wanted.items()) if package != "libopenblas0-openmp"))


main()
