#!/usr/bin/env python3
"""Builds the wheel: muster, muster-train and libmuster with their libraries, and the Python module.

    packages/wheel.py --build build --bundle build-bundle --output build/packages [--machine aarch64 --sysroot DIR]

The launcher is the bundle's, which needs glibc alone and starts without Python; muster-train, libmuster and their libraries
(OpenBLAS, OpenMP, Fortran's) lie inside of the package and find each other there. The file's tag is the platform's that all of them run
on (glibc.py). No `torchrun` is in it: `muster link-torchrun` makes that link."""

import argparse
import base64
import hashlib
import os
import pathlib
import shutil
import stat
import tempfile
import zipfile

from glibc import PLATFORM
from shipped import SOURCE, Machine, licences, linked_files, own_files, version


def fill(root, machine, build, bundle):
    package, libs = root / "muster", root / "muster" / "libs"
    shutil.copytree(SOURCE / "python" / "muster", package, ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    shutil.copytree(SOURCE / "trainer" / "docs", package / "docs")
    libs.mkdir()
    (libs / "README").write_text("Programs and libraries of the package muster; licences: the package's .dist-info.\n")
    own = own_files(build)
    linked, system = linked_files(machine, own), machine.system(own)
    for name, path in {**own, **linked}.items():
        machine.copy(path.resolve(), libs / name, system, "$ORIGIN")
    scripts = root / f"muster-{version()}.data" / "scripts"
    scripts.mkdir(parents=True)
    machine.copy(bundle / "bin" / "muster", scripts / "muster", system)
    licences(linked, root / f"muster-{version()}.dist-info" / "licenses")


def describe(root, tag):
    information = root / f"muster-{version()}.dist-info"
    (information / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: muster\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n")
    (information / "entry_points.txt").write_text("[console_scripts]\nmuster-train = muster.programs:train\n")
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: muster\nVersion: {version()}\n"
        "Summary: starts, watches and restarts distributed training: torchrun's flags, in C\n"
        "License: Apache-2.0\nRequires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
        + (SOURCE / "README.md").read_text())


def pack(root, target):
    """Every file with its hash in RECORD; names sorted and times fixed, so that the same input gives the same bytes."""
    record_name = f"muster-{version()}.dist-info/RECORD"
    files = sorted(path for path in root.rglob("*") if path.is_file())
    record = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)

        for path in files:
            name, data = path.relative_to(root).as_posix(), path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data, 0o755 if os.access(path, os.X_OK) else 0o644)
        add(record_name, "".join(record) + f"{record_name},,\n", 0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in "build", "bundle", "output":
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--machine")
    parser.add_argument("--sysroot", type=pathlib.Path)
    arguments = parser.parse_args()
    machine = Machine(arguments.machine, arguments.sysroot)
    with tempfile.TemporaryDirectory(prefix="muster wheel ") as folder:
        root = pathlib.Path(folder)
        fill(root, machine, arguments.build, arguments.bundle)
        tag = f"{PLATFORM}_{machine.name}"
        describe(root, tag)
        arguments.output.mkdir(parents=True, exist_ok=True)
        target = arguments.output / f"muster-{version()}-py3-none-{tag}.whl"
        pack(root, target)
    print(target)


main()
