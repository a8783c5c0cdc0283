#!/usr/bin/env python3
"""deb_depends.py BUILD MACHINE SYSROOT (of another machine): prints the dependencies of the Debian package, and on a second line its
recommendations. One table for every machine: Debian 12's tools would name Debian 12's versions, and the programs run with older ones."""

import pathlib
import sys

from glibc import LIMITS
from shipped import GLIBC, Machine, own_files

PACKAGES = {"libc.so.6": "libc6 (>= {}.{})".format(*LIMITS["GLIBC"]), "libgcc_s.so.1": "libgcc-s1 | libgcc1", "libgomp.so.1": "libgomp1 (>= 8)",
            "libjansson.so.4": "libjansson4 (>= 2.11)",
            "libstdc++.so.6": "libstdc++6 (>= 8)", "libsentencepiece.so.0": "libsentencepiece0", "libsentencepiece_train.so.0": "libsentencepiece0"}
OPENED = ["libzmq5", "libsodium23", "libopenblas0-openmp"]  # by name, where they are needed; the OpenBLAS that has no threads of its own
OPENED_BY_FEW = ["libmicrohttpd12", "libgnutls30", "libncursesw6", "libunistring2", "libpcre2-8-0", "libsnappy1v5", "libturbojpeg0"]


def packages_of(machine, paths):
    names = {name for path in paths for name in machine.needed(path.resolve())[0]} - (GLIBC - {"libc.so.6"})
    unknown = sorted(names - set(PACKAGES))
    if unknown:
        sys.exit(f"packages: {', '.join(unknown)} is linked, and packages/deb_depends.py names no package for it")
    return {PACKAGES[name] for name in names}


def main():
    build, machine = pathlib.Path(sys.argv[1]), Machine(*sys.argv[2:])
    own = own_files(build)
    module = own.pop("libmuster_sentencepiece.so", None)  # a tokenizer's library, which Ubuntu 20.04 lacks
    own.pop("libmuster_glibc.so")  # goes with libraries that are the system's here
    depends = packages_of(machine, [build / "bin/muster", *own.values()]) | set(OPENED)
    recommends = (packages_of(machine, [module]) if module else set()) | set(OPENED_BY_FEW)
    print(", ".join(sorted(depends)))
    print(", ".join(sorted(recommends - depends)))


main()
