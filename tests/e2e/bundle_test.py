"""The bundle: its contents, its needs, and that it runs where nothing else is installed.

    MUSTER_BUILD=build python3 tests/e2e/bundle_test.py [TestClass.test_name ...]

Makes its own in <build>/bundle. Root, or the right to make namespaces, is needed for the roots that it runs in:
  FewFiles    a folder with libc, a shell and nothing else
  CleanDebian a minimal Debian by debootstrap (needs Debian's package server; slow)
  OldDebian   the same of Debian 11, whose glibc is 2.31
"""

import ctypes.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

from harness import BUILD, LIMIT, environment, free_port
from packages.objects import same_objects

SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE", pathlib.Path(__file__).resolve().parents[2])).resolve()
GLIBC_LIMIT = (2, 28)  # manylinux_2_28: RHEL 8, Debian 10
SIZE_LIMIT = 15 << 20
OF_GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def run(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def make_bundle():
    """As ./dev bundle does, with the objects of this build where both compile the same."""
    folder = BUILD / "bundle"
    reused = folder / "reused"
    launcher = ["/bin/sh", SOURCE / "tests/e2e/packages/reuse.sh", reused, BUILD]
    launcher += os.environ.get("CMAKE_C_COMPILER_LAUNCHER", "").split(";")
    options = ["-DMUSTER_BUNDLE=ON", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    options += [f"-DCMAKE_C_COMPILER_LAUNCHER={';'.join(str(word) for word in launcher if word)}"]
    run(["cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", *options])
    same = same_objects(folder, BUILD, "MUSTER_BUNDLE")
    reused.write_text("".join(f"{name}\n" for name in same))
    print(f"{len(same)} objects are those of {BUILD.name}", flush=True)
    run(["cmake", "--build", folder, "--target", "package"])
    (archive,) = folder.glob("muster-*-linux-*.tar.gz")
    return archive


def run_out(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout


def symbol_versions(program, library="GLIBC"):
    text = run_out("objdump", "-T", program)
    return {tuple(map(int, version.split("."))) for version in re.findall(rf"\b{library}_([0-9.]+)", text)}


def without_version(program):
    """The symbols that a program asks its libraries for by name alone, and needs."""
    rows = [line.split("*UND*") for line in run_out("objdump", "-T", program).splitlines() if "*UND*" in line]
    return {columns.split()[-1] for flags, columns in rows if " w " not in flags and (len(columns.split()) == 2 or columns.split()[1] == "Base")}


def versions_of_symbols():
    """symbol -> the versions of it in this machine's glibc."""
    found = {}
    for library in "libc.so.6", "libm.so.6":
        path = run_out("gcc", f"-print-file-name={library}").strip()
        for version, name in re.findall(r"GLIBC_([0-9.]+)\)? +(\w+)$", run_out("objdump", "-T", path), re.M):
            found.setdefault(name, set()).add(tuple(map(int, version.split("."))))
    return found


def newer_than_the_limit(program, known):
    """Symbols without a version of which this machine's glibc has newer versions alone."""
    return sorted(name for name in without_version(program) if name in known and min(known[name]) > GLIBC_LIMIT)


def needed(program):
    text = subprocess.run(["readelf", "-d", str(program)], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))


class Archive(unittest.TestCase):
    def test_what_is_in_it(self):
        self.assertRegex(ARCHIVE.name, r"^muster-\d+\.\d+\.\d+-linux-(x86_64|aarch64)\.tar\.gz$")
        top = ARCHIVE.name[: -len(".tar.gz")]
        with tarfile.open(ARCHIVE) as archive:
            members = {member.name: member for member in archive.getmembers()}
        self.assertEqual(members[f"{top}/bin/torchrun"].linkname, "muster")
        self.assertEqual(members[f"{top}/bin/muster"].mode & 0o777, 0o755)
        self.assertIn(f"{top}/share/doc/muster/LICENSE", members)
        self.assertEqual({name for name in members if not name.startswith(f"{top}/share")} - {top},
                         {f"{top}/bin", f"{top}/bin/muster", f"{top}/bin/torchrun"})
        self.assertLess(ARCHIVE.stat().st_size, SIZE_LIMIT)
        self.assertLess(sum(member.size for member in members.values()), SIZE_LIMIT)

    def test_it_asks_for_no_newer_glibc(self):
        versions = symbol_versions(UNPACKED / "bin" / "muster")
        print(f"highest glibc symbol: {max(versions)}")
        self.assertLessEqual(max(versions), GLIBC_LIMIT)
        self.assertGreaterEqual(max(versions), (2, 17))  # something was read
        known = versions_of_symbols()
        self.assertLessEqual({"dlopen", "pthread_create"}, without_version(UNPACKED / "bin" / "muster"))
        self.assertIn((2, 34), known["dlopen"])  # that is read too
        self.assertEqual(newer_than_the_limit(UNPACKED / "bin" / "muster", known), [])
        self.assertLessEqual({"libpthread.so.0", "libdl.so.2"}, needed(UNPACKED / "bin" / "muster"))  # where these were

    def test_it_needs_glibc_and_nothing_else(self):
        self.assertLessEqual(needed(UNPACKED / "bin" / "muster"), OF_GLIBC)


class Dockerfile(unittest.TestCase):
    """Checks against the tree without docker: stages and sources of every COPY exist."""

    def test_copies_from_what_is_there(self):
        text = re.sub(r"\\\n", " ", (SOURCE / "k8s" / "Dockerfile").read_text())
        stages, copies = set(), 0
        for line in text.splitlines():
            words = [word for word in line.split() if not word.startswith("--platform=")]
            if words[:1] == ["FROM"]:
                self.assertEqual(words[2], "AS", line)
                stages.add(words[3])
            elif words[:1] == ["COPY"]:
                copies += 1
                if words[1].startswith("--from="):
                    self.assertIn(words[1][len("--from="):], stages, line)
                else:
                    self.assertTrue((SOURCE / words[1]).exists(), line)
        self.assertLessEqual({"bundle", "launcher", "trainer", "cuda", "pytorch"}, stages)
        self.assertGreaterEqual(copies, 6)

    def test_a_login_shell_finds_the_launcher_in_every_image(self):
        stages = re.split(r"(?m)^FROM ", (SOURCE / "k8s" / "Dockerfile").read_text())
        images = [stage for stage in stages if "\nENV PATH=/opt/muster/bin" in stage]
        self.assertEqual(len(images), 4)
        for stage in images:
            self.assertRegex(stage, r"\nCOPY --from=\S+ /links/ /\n")
        self.assertEqual(sum("ln -s /opt/muster/bin/muster /opt/muster/bin/torchrun /links/usr/local/bin/" in stage for stage in stages), 2)


# Runs inside a root: $1 is the bundle, $2 and $3 are free ports. Everything is a builtin of the shell.
INSIDE = r"""
muster=$1/bin/muster
"$muster" --version || exit 1
for node in 0 1; do
  "$muster" run --nnodes=2 --node-rank=$node --master-addr=127.0.0.1 --master-port=$2 --nproc-per-node=2 --rdzv-id=two -- \
    /bin/sh -c 'echo "rank $RANK of $WORLD_SIZE"' &
  eval agent$node=\$!
done
wait "$agent0" || exit 2
wait "$agent1" || exit 3
"$1/bin/torchrun" --standalone --no-python /bin/sh -c 'echo "torchrun rank $RANK"' || exit 4
"$muster" run --standalone --rdzv-id=one-$2 --metrics-port=$3 -- /bin/sh -c "'$muster' status --job one-$2" || exit 5
"$muster" run --standalone -- /bin/sh -c 'exit 9'
[ $? = 9 ] || exit 6
"""


class Root(unittest.TestCase):
    """A root folder with the bundle at a path with blanks; subclasses fill the rest."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="muster-root-")  # debootstrap takes no blanks
        self.addCleanup(self.scratch.cleanup)
        self.root = pathlib.Path(self.scratch.name) / "root"
        self.root.mkdir()
        self.fill()
        shutil.copytree(UNPACKED, self.root / "opt" / "any where" / "muster", symlinks=True)
        (self.root / "inside.sh").write_text(INSIDE)

    def run_inside(self):
        """chroot in a mount namespace of its own, so that nothing stays mounted whatever happens."""
        ports = free_port(), free_port()
        enter = (
            'mount --bind "$1" "$1" && mkdir -p "$1/proc" "$1/dev" && mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&'
            ' exec chroot "$1" /bin/sh /inside.sh "/opt/any where/muster" "$2" "$3"'
        )
        command = ["unshare", *NAMESPACES, "sh", "-c", enter, "sh", str(self.root), *map(str, ports)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10 * LIMIT, env=environment(PATH=os.environ["PATH"]))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for rank in range(4):
            self.assertIn(f"rank {rank} of 4\n", done.stdout)
        self.assertIn("torchrun rank 0\n", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^state     RUNNING")
        self.assertIn("exitcode: 9", done.stderr)


class FewFiles(Root):
    def fill(self):
        """The shell, its libraries, and the libraries of glibc that the bundle names."""
        shell = os.path.realpath("/bin/sh")
        text = subprocess.run(["ldd", shell, str(UNPACKED / "bin" / "muster")], capture_output=True, text=True, check=True).stdout
        for path in set(re.findall(r"(/\S+)(?= \()", text)):
            target = self.root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        (self.root / "bin").mkdir(exist_ok=True)
        shutil.copy(shell, self.root / "bin" / "sh")

    def test_runs(self):
        self.run_inside()


class CleanDebian(Root):
    suite = "bookworm"

    def fill(self):
        if os.geteuid() != 0 or not shutil.which("debootstrap"):
            self.skipTest("debootstrap needs root and the package debootstrap")
        kept = os.environ.get("MUSTER_DEBIAN_ROOT")  # a root made before, for repeated runs
        if kept:
            shutil.copytree(kept, self.root, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("dev", "proc"))
            return
        # it mounts /proc in the root: in mounts of its own, so that nothing stays mounted if this test is killed
        command = ["unshare", *NAMESPACES, "debootstrap", "--variant=minbase", self.suite, str(self.root)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            self.skipTest("debootstrap failed: " + (done.stdout + done.stderr)[-300:])

    def test_runs(self):
        for library in ("zmq", "sodium", "protobuf-c", "microhttpd", "yaml", "jansson"):
            self.assertEqual(list(self.root.glob(f"usr/lib/*/lib{library}.so*")), [], "not a clean root")
        self.run_inside()


class OldDebian(CleanDebian):
    suite = "bullseye"


def namespaces():
    """unshare's flags for a mount namespace with a root of our own, or None."""
    own = ["--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]
    for flags in (own, ["--map-root-user", *own]):
        probe = ["unshare", *flags, "sh", "-c", "mount -t proc proc /proc"]
        if subprocess.run(probe, capture_output=True).returncode == 0:
            return flags
    return None


if __name__ == "__main__":
    if os.environ.get("MUSTER_SANITIZED"):
        skip("the bundle is the release build's")
    if not shutil.which("objdump") or not ctypes.util.find_library("stdc++"):
        skip("binutils or g++ is not installed")
    NAMESPACES = namespaces()
    if not NAMESPACES:
        skip("this user may make no mount namespace")
    ARCHIVE = make_bundle()
    with tempfile.TemporaryDirectory(prefix="muster bundle ") as scratch:
        with tarfile.open(ARCHIVE) as packed:
            packed.extractall(scratch)
        UNPACKED = pathlib.Path(scratch) / ARCHIVE.name[: -len(".tar.gz")]
        ran = unittest.main(verbosity=2, exit=False).result
    if ran.wasSuccessful() and len(ran.skipped) == ran.testsRun:
        skip(ran.skipped[0][1])
    sys.exit(not ran.wasSuccessful())
