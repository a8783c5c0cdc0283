#!/usr/bin/env python3
"""Lays out a folder that needs nothing but glibc 2.28 and libstdc++: the content of /opt/muster in the trainer's image.

    packages/folder.py --build build --bundle build-bundle --output DIR [--machine aarch64 --sysroot DIR]

    bin/muster, bin/torchrun -> muster, bin/muster-train
    lib/                        libmuster.so and the libraries of both
    lib/muster/python           the Python module
    share/                      licences, muster-train's manual and a configuration to begin with"""

import argparse
import pathlib
import shutil

from shipped import SOURCE, Machine, licences, linked_files, own_files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in "build", "bundle", "output":
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--machine")
    parser.add_argument("--sysroot", type=pathlib.Path)
    arguments = parser.parse_args()
    machine, root = Machine(arguments.machine, arguments.sysroot), arguments.output
    if root.exists():
        shutil.rmtree(root)
    for folder in "bin", "lib/muster", "share/doc", "share/configs":
        (root / folder).mkdir(parents=True)
    own = own_files(arguments.build)
    linked, system = linked_files(machine, own), machine.system(own)
    machine.copy(arguments.bundle / "bin" / "muster", root / "bin/muster", system)
    (root / "bin/torchrun").symlink_to("muster")
    machine.copy(own.pop("muster-train"), root / "bin/muster-train", system, "$ORIGIN/../lib")
    for name, path in {**own, **linked}.items():
        machine.copy(path.resolve(), root / "lib" / name, system, "$ORIGIN")
    shutil.copytree(SOURCE / "python" / "muster", root / "lib/muster/python/muster", ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    shutil.copyfile(SOURCE / "k8s/configs/gpt-demo.yaml", root / "share/configs/gpt-demo.yaml")
    licences(linked, root / "share/doc/muster")
    shutil.copytree(SOURCE / "trainer" / "docs", root / "share/doc/muster", dirs_exist_ok=True)


main()
