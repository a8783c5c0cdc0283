#!/usr/bin/env python3
"""Has programs and libraries that Debian 12 linked run with glibc 2.28 and the libstdc++ of GCC 8: the platform manylinux_2_28.

    packages/glibc.py [--machine aarch64 --sysroot DIR] FILE...      changes the files in place
    packages/glibc.py --check [--machine ... --sysroot ...] FILE...  prints the changes it would make, and fails if there are any

The linker binds each symbol to its newest version. Most of the new versions are old functions that moved: dlopen and
pthread_create into libc (2.34), log and pow without the error handling of SVID (2.29). Where this machine's library has an old
version too, a file asks for the symbol without a version: every loader then takes the old one or the only one there is. The
libraries of before the move are named as needed. For symbols without an old version there are substitutes (proto/glibc,
trainer/tokens/earlier_libstdcxx.cc), linked into our programs and exported for Debian's libraries. Anything else ends this program."""

import argparse
import functools
import pathlib
import re
import struct
import subprocess
import sys

# Newest versions that the platform's standard allows.
LIMITS = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
PLATFORM = "manylinux_2_28"
SYSTEM = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libstdc++.so.6", "libgcc_s.so.1")
# The library of a symbol before it moved into libc. Other symbols were always there.
MOVED = (("libdl.so.2", r"dl[a-z]"), ("libpthread.so.0", r"_*(pthread|sem|thrd|mtx|cnd|tss)_|call_once"), ("librt.so.1", r"(timer|mq|aio|lio|shm)_"))
SYMBOL, NEED, NEED_VERSION = struct.Struct("<IBBHQQ"), struct.Struct("<HHIII"), struct.Struct("<IHHII")
UNVERSIONED = 1


def is_newer(version):
    """Whether the version is above the limit of its library. GLIBC_PRIVATE is nobody's promise. An older build lacks the library's name
    as the version of all its symbols (libjansson.so.4, since 2.14)."""
    family, _, number = version.partition("_")
    if family not in LIMITS:
        return version.startswith("lib") and ".so." in version
    return not re.fullmatch(r"[0-9.]+", number) or tuple(map(int, number.split("."))) > LIMITS[family]


class Elf:
    """A 64-bit little-endian ELF file's dynamic symbols and their versions."""

    def __init__(self, path):
        self.path, self.bytes = pathlib.Path(path), bytearray(pathlib.Path(path).read_bytes())
        if self.bytes[:6] != b"\x7fELF\x02\x01":
            sys.exit(f"packages: {path} is no 64-bit ELF file")
        start, entry, count = struct.unpack_from("<Q", self.bytes, 40)[0], *struct.unpack_from("<HH", self.bytes, 58)
        self.headers = [start + i * entry for i in range(count)]
        sections = {struct.unpack_from("<I", self.bytes, at + 4)[0]: at for at in self.headers}  # by type
        self.symbols, self.versions = self.extent(sections.get(11)), self.extent(sections.get(0x6FFFFFFF))
        self.needs, self.dynamic = self.extent(sections.get(0x6FFFFFFE)), self.extent(sections[6])
        self.needs_header, self.defines = sections.get(0x6FFFFFFE), self.extent(sections.get(0x6FFFFFFD))
        link = struct.unpack_from("<I", self.bytes, sections[11] + 40)[0]
        self.strings = self.extent(self.headers[link])[0]

    def extent(self, header):
        return struct.unpack_from("<QQ", self.bytes, header + 24) if header is not None else None

    def text(self, offset):
        at = self.strings + offset
        return self.bytes[at:self.bytes.index(0, at)].decode()

    def needed_versions(self):
        """(offset of the library's entry, offset of the version's entry, index, name)"""
        at, size = self.needs or (0, 0)
        while size:
            _, count, _, first, following = NEED.unpack_from(self.bytes, at)
            entry = at + first
            for _ in range(count):
                _, _, index, name, step = NEED_VERSION.unpack_from(self.bytes, entry)
                yield at, entry, index, self.text(name)
                entry += step
            if not following:
                return
            at += following

    def defined_versions(self):
        """index -> name"""
        found, (at, size) = {}, self.defines or (0, 0)
        while size:
            _, _, index, _, _, first, following = struct.unpack_from("<HHHHIII", self.bytes, at)
            found[index] = self.text(struct.unpack_from("<I", self.bytes, at + first)[0])
            if not following:
                break
            at += following
        return found

    def each_symbol(self):
        """(offset of its version's index, index, name, whether it is defined here, whether it may be missing)"""
        start, size = self.symbols
        for i in range(1, size // SYMBOL.size):
            name, information, _, section, _, _ = SYMBOL.unpack_from(self.bytes, start + i * SYMBOL.size)
            at = self.versions[0] + 2 * i if self.versions else None
            index = struct.unpack_from("<H", self.bytes, at)[0] & 0x7FFF if at is not None else UNVERSIONED
            yield at, index, self.text(name), section != 0, information >> 4 == 2

    def drop_needed(self, is_dropped):
        """Writes the table again, without the versions for whose name is_dropped is true and the libraries that have no other."""
        tables = {}
        for at, entry, _, name in self.needed_versions():
            if not is_dropped(name):
                tables.setdefault(at, []).append(NEED_VERSION.unpack_from(self.bytes, entry)[:4])
        if not tables:
            sys.exit(f"packages: {self.path} would ask no library for a version, and loaders expect one")
        written = b""
        for number, (at, entries) in enumerate(tables.items(), 1):
            version, _, file, _, _ = NEED.unpack_from(self.bytes, at)
            size = NEED.size + len(entries) * NEED_VERSION.size
            written += NEED.pack(version, len(entries), file, NEED.size, size if number < len(tables) else 0)
            for i, fields in enumerate(entries, 1):
                written += NEED_VERSION.pack(*fields, NEED_VERSION.size if i < len(entries) else 0)
        start, size = self.needs
        self.bytes[start:start + size] = written.ljust(size, b"\0")
        for at in range(self.dynamic[0], sum(self.dynamic), 16):
            if struct.unpack_from("<Q", self.bytes, at)[0] == 0x6FFFFFFF:  # DT_VERNEEDNUM
                struct.pack_into("<Q", self.bytes, at + 8, len(tables))
        struct.pack_into("<I", self.bytes, self.needs_header + 44, len(tables))


class System:
    """Symbols of the target machine's libraries: symbol -> versions. exported: symbols that our libraries define for others, symbol ->
    library, or None if that library is loaded anyway."""

    def __init__(self, folders, exported=()):
        self.folders, self.exported = list(folders), dict(exported)

    @functools.cached_property
    def symbols(self):
        found = {}
        for name in SYSTEM:
            for path in [folder / name for folder in self.folders if (folder / name).exists()][:1]:
                library = Elf(path)
                versions = library.defined_versions()
                for _, index, symbol, is_defined, _ in library.each_symbol():
                    if is_defined and index in versions:
                        found.setdefault(symbol, set()).add(versions[index])
        if "printf" not in found:
            sys.exit(f"packages: there is no libc.so.6 in {', '.join(map(str, self.folders))}")
        return found

    def has_old(self, symbol, family):
        return any(v.startswith(family + "_") and not is_newer(v) for v in self.symbols.get(symbol, ()))

    def library_of(self, symbol):
        """The library that has to be loaded, too, or None."""
        if symbol in self.exported:
            return self.exported[symbol]
        return next((library for library, pattern in MOVED if re.match(pattern, symbol)), None)


def exports(path):
    return {name for _, _, name, is_defined, _ in Elf(path).each_symbol() if is_defined}


def lower(path, system):
    """Takes the newer versions out of a file. Returns the libraries that it needs besides."""
    file = Elf(path)
    names = {index: name for _, _, index, name in file.needed_versions()}
    besides, lacking = set(), [name for name in names.values() if re.fullmatch("GLIBC_[A-Z_]+", name)]  # versions without a symbol: a loader must know them
    for at, index, symbol, is_defined, _ in file.each_symbol():
        if is_defined or not is_newer(names.get(index, "")):
            continue
        if names[index].startswith("lib"):
            struct.pack_into("<H", file.bytes, at, UNVERSIONED)
            continue
        if symbol not in system.exported and not system.has_old(symbol, names[index].partition("_")[0]):
            lacking.append(f"{symbol} ({names[index]})")
            continue
        struct.pack_into("<H", file.bytes, at, UNVERSIONED)
        besides.add(system.library_of(symbol))
    if lacking:
        sys.exit(f"packages: {path} asks for {', '.join(sorted(lacking))}, newer than {PLATFORM}, and there is no old version: "
                 "call something older, or add a function of ours to proto/glibc/earlier.c")
    if any(map(is_newer, names.values())):
        file.drop_needed(is_newer)
    file.path.write_bytes(file.bytes)
    return besides - {None}


def check(path, system):
    """What keeps a file from running on the platform: versions that are newer, and symbols without a version that only newer libraries have."""
    file = Elf(path)
    found = sorted({name for _, _, _, name in file.needed_versions() if is_newer(name)})
    for _, index, symbol, is_defined, may_miss in file.each_symbol():
        if is_defined or may_miss or index != UNVERSIONED or symbol in system.exported or symbol not in system.symbols:
            continue
        if not any(system.has_old(symbol, family) for family in LIMITS):
            found.append(symbol)
    return found


def add_needed(path, libraries):
    """Apart from other changes: patchelf 0.14 mixes up the names where it also sets a search path."""
    known = subprocess.run(["patchelf", "--print-needed", str(path)], capture_output=True, text=True, check=True).stdout.split()
    words = [word for library in sorted(libraries - set(known)) for word in ("--add-needed", library)]
    if words:
        subprocess.run(["patchelf", *words, str(path)], check=True)


def make_old(path, system):
    """lower(), with the libraries named; the last that changes a file."""
    add_needed(path, lower(path, system))
    wrong = check(path, system)
    if wrong:
        sys.exit(f"packages: {path} would not run on {PLATFORM}: {', '.join(wrong)}")


def main():
    from shipped import Machine
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--machine")
    parser.add_argument("--sysroot", type=pathlib.Path)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    system = System(Machine(arguments.machine, arguments.sysroot).folders())
    status = 0
    for path in arguments.files:
        if arguments.check:
            for name in check(path, system):
                print(f"{path}: {name}")
                status = 1
        else:
            make_old(path, system)
    sys.exit(status)


if __name__ == "__main__":
    main()
