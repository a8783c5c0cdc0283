"""The shipped files: muster-train, libmuster and every library that they link and that a bare system lacks, for this machine or for
the target of a cross build."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from glibc import System, exports, make_old

SOURCE = pathlib.Path(__file__).resolve().parents[1]
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
OF_THE_SYSTEM = GLIBC | {"libstdc++.so.6", "libgcc_s.so.1", "linux-vdso.so.1"}  # what every wheel of this kind may ask for
# where they are needed: products on a CPU, prepare's NFC, expressions of a tokenizer.json
OPENED_BY_NAME = ("libopenblas.so.0", "libunistring.so.2", "libpcre2-8.so.0")


def output(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout


def version():
    return re.search(r"project\(muster VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]


class Machine:
    """The machine whose programs are packed. Another machine (aarch64) has its libraries in a sysroot, and tools of its own."""

    def __init__(self, name=None, sysroot=None):
        self.name = name or os.uname().machine
        self.triplet = f"{self.name}-linux-gnu"
        self.tools = "" if self.name == os.uname().machine else f"{self.triplet}-"
        self.sysroot = pathlib.Path(sysroot or "/")

    def folders(self):
        for parent in "usr/lib", "lib":
            yield self.sysroot / parent / self.triplet
        yield self.sysroot / "usr/lib" / self.triplet / "openblas-openmp"

    def tool(self, name):
        return self.tools + name

    def needed(self, path):
        """The libraries that a file names, and where it looks for them first."""
        entries = output(self.tool("readelf"), "-dW", path)
        paths = [folder for line in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", entries) for folder in line.split(":")]
        own = [pathlib.Path(folder.replace("$ORIGIN", str(path.parent))) for folder in paths]
        return re.findall(r"\(NEEDED\).*\[(.*)\]", entries), own

    def searched(self, path):
        """The folders in which a file looks for libraries first, on this machine; of another machine in its sysroot."""
        return [self.sysroot / folder.relative_to("/") for folder in self.needed(path)[1] if folder.is_absolute()]

    def libraries_of(self, path):
        """{name: file} of every library that path links, at any depth; the system's own are left out."""
        found, open_files = {}, [path.resolve()]
        while open_files:
            user = open_files.pop()
            names, own = self.needed(user)
            for name in names:
                if name in OF_THE_SYSTEM or name in found:
                    continue
                places = [folder / name for folder in (*own, *self.folders()) if (folder / name).exists()]
                if not places:
                    sys.exit(f"packages: {user} links {name}, which is in none of {', '.join(map(str, self.folders()))}")
                found[name] = places[0]
                open_files.append(places[0].resolve())
        return found

    def system(self, own):
        """The symbols that the packed files find after installation: of the system's libraries, and ours for Debian's libraries."""
        exported = dict.fromkeys(exports(own["libmuster_sentencepiece.so"]) if "libmuster_sentencepiece.so" in own else ())
        exported |= dict.fromkeys(exports(own["libmuster_glibc.so"]), "libmuster_glibc.so")
        return System(self.folders(), exported)

    def copy(self, source, target, system, search=None):
        """Without debug information, for an old glibc; search: the folder of its libraries, also for modules that it loads (an RPATH, not a RUNPATH)."""
        shutil.copyfile(source, target)
        target.chmod(0o755)
        subprocess.run([self.tool("strip"), "--strip-unneeded", str(target)], check=True)
        if search:
            subprocess.run(["patchelf", "--force-rpath", "--set-rpath", search, str(target)], check=True)
        make_old(target, system)


def own_files(build):
    """{name: file} of ours, as the build made them."""
    own = {"muster-train": build / "bin" / "muster-train", "libmuster.so": (build / "lib" / "libmuster.so").resolve(),
           "libmuster_glibc.so": build / "lib" / "libmuster_glibc.so"}
    if (build / "lib" / "libmuster_sentencepiece.so").exists():
        own["libmuster_sentencepiece.so"] = build / "lib" / "libmuster_sentencepiece.so"
    return own


def linked_files(machine, own):
    linked = {}
    for path in own.values():
        linked |= machine.libraries_of(path)
    searched = [*machine.searched(own["muster-train"]), *machine.folders()]
    for name in OPENED_BY_NAME:
        places = [folder / name for folder in searched if (folder / name).exists()]
        if not places:
            sys.exit(f"packages: {name} is in none of {', '.join(map(str, searched))}")
        linked |= {name: places[0], **machine.libraries_of(places[0])}
    return linked


def licences(libraries, folder):
    """The copyright file of each package that a library comes from; of a library for another machine this one's package has it."""
    folder.mkdir(parents=True)
    shutil.copyfile(SOURCE / "LICENSE", folder / "LICENSE")
    for path in libraries.values():
        name = pathlib.Path(os.path.realpath(path)).name
        owner = subprocess.run(["dpkg-query", "-S", f"*/{name}"], capture_output=True, text=True).stdout
        package = owner.split(":")[0] if owner else ""
        copyright_file = pathlib.Path("/usr/share/doc", package, "copyright")
        if package and copyright_file.exists():
            shutil.copyfile(copyright_file, folder / package)
