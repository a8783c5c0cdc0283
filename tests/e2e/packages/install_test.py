"""The wheel and the Debian package: made, installed where nothing else is, and used.

    MUSTER_BUILD=build python3 tests/e2e/packages/install_test.py [TestClass.test_name ...]

  Wheel        a virtual environment without any other package
  DebianFiles  (--full) contents of the package, and lintian where it is installed
  CleanDebian  (--full) Debian 12 by debootstrap: apt installs the package; pip the wheel, in a bare Python
  OldDebian    (--full) the same in Debian 11: glibc 2.31, GCC 10's libstdc++, Python 3.9
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from bundle_test import GLIBC_LIMIT, make_bundle, needed, newer_than_the_limit, symbol_versions, versions_of_symbols
from harness import BUILD

SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE", pathlib.Path(__file__).resolve().parents[3])).resolve()
PACKAGES = BUILD / "packages"
WHEEL_LIMIT, DEB_LIMIT = 25 << 20, 5 << 20
CONFIG = """model: {layers: 1, heads: 2, channels: 16}
data: {path: text}
training: {steps: 3, global_batch: 4, sequence_length: 16}
"""
TRAIN = """import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
weight, inputs = torch.zeros(4), torch.randn(64, 4)
for _ in range(50):
    wrong = inputs @ weight - inputs.sum(1)
    gradient = inputs.T @ wrong / 64
    dist.all_reduce(gradient)
    weight -= 0.2 * gradient
print(sys.prefix, "loss %.6f" % (wrong ** 2).mean())
dist.destroy_process_group()
"""


def run(*command, code=0, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", timeout=900, **options)
    if done.returncode != code:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def only(pattern):
    (found,) = PACKAGES.glob(pattern)
    return found


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for old in PACKAGES.glob("*.whl"):
            old.unlink()
        run(sys.executable, SOURCE / "packages" / "wheel.py", "--build", BUILD, "--bundle", make_bundle().parent, "--output", PACKAGES)
        cls.wheel = only("*.whl")
        cls.folder = tempfile.TemporaryDirectory(prefix="muster wheel ")
        cls.root = pathlib.Path(cls.folder.name)
        run(sys.executable, "-m", "venv", cls.root / "env")
        run(cls.root / "env/bin/pip", "install", "--no-index", cls.wheel)
        # nothing of this build is found by accident
        cls.environment = {"PATH": f"{cls.root}/env/bin:/usr/bin:/bin", "HOME": str(cls.root)}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def here(self, *command, **options):
        return run(*command, cwd=self.root, env=self.environment, **options)

    def test_what_is_in_it(self):
        self.assertRegex(self.wheel.name, r"^muster-[0-9.]+-py3-none-manylinux_2_28_(x86_64|aarch64)\.whl$")
        self.assertLess(self.wheel.stat().st_size, WHEEL_LIMIT)
        names = zipfile.ZipFile(self.wheel).namelist()
        self.assertFalse([name for name in names if "torchrun" in name])
        self.assertIn("muster/docs/SETTINGS.md", names)
        self.assertTrue([name for name in names if "licenses/libopenblas" in name], names)
        self.assertEqual(zipfile.ZipFile(self.wheel).testzip(), None)

    def test_nothing_in_it_asks_for_a_newer_glibc(self):
        """Nor libstdc++: as the name of the file promises."""
        with tempfile.TemporaryDirectory() as folder:
            zipfile.ZipFile(self.wheel).extractall(folder)
            programs = [path for path in pathlib.Path(folder).rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
            newest = {path.name: max(symbol_versions(path), default=(0,)) for path in programs}
            known = versions_of_symbols()
            for program in programs:
                for name, limit in (("GLIBCXX", (3, 4, 24)), ("CXXABI", (1, 3, 11)), ("GCC", (7, 0, 0))):
                    self.assertLessEqual(max(symbol_versions(program, name), default=(0,)), limit, program)
                lacking = set(newer_than_the_limit(program, known))
                self.assertLessEqual(lacking, {"stat", "lstat", "fstat", "__libc_single_threaded"}, program)  # from libmuster_glibc.so
                self.assertEqual("libmuster_glibc.so" in needed(program), bool(lacking), program)
                if program.parent.name == "libs":
                    self.assertEqual(run("patchelf", "--print-rpath", program), "$ORIGIN\n", program)
        self.assertGreater(len(newest), 4, newest)
        self.assertLessEqual(max(newest.values()), GLIBC_LIMIT, newest)
        self.assertGreaterEqual(newest["muster"], (2, 17))

    def test_two_workers_run(self):
        out = self.here("muster", "run", "--standalone", "--nproc_per_node=2", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
        self.assertEqual(sorted(re.findall("rank . of .", out)), ["rank 0 of 2", "rank 1 of 2"])

    def test_two_ranks_train_with_the_libraries_of_the_package(self):
        (self.root / "text").write_text("to be or not to be, that is the question\n" * 200)
        (self.root / "run.yaml").write_text(CONFIG)
        out = self.here("muster", "run", "--standalone", "--nproc_per_node=2", "muster-train", "run.yaml")
        self.assertRegex(out, r"step 3/3  loss [0-9.]+")
        traced = run(self.root / "env/bin/muster-train", "run.yaml", cwd=self.root, env={**self.environment, "LD_DEBUG": "libs"})
        opened = re.findall(r"calling init: (.*/libopenblas.*)", traced)
        self.assertTrue(opened and all("site-packages/muster/libs/" in path for path in opened), opened)

    def test_not_activated_it_runs_under_the_environments_python(self):
        """As a pod's command, a unit of systemd or ssh start it."""
        outside = {"PATH": "/usr/bin:/bin", "HOME": str(self.root)}
        (self.root / "where.py").write_text("import sys; from muster import library; print(sys.prefix, library.load().muster_version().decode())\n")
        program = self.root / "env/bin/muster"
        for command in ([program, "run"], ["./env/bin/muster", "run"], [self.root / "env/bin/python", "-m", "muster", "run"]):
            out = run(*command, "--standalone", "--nproc_per_node=2", "where.py", env=outside, cwd=self.root)
            self.assertEqual(out.count(f"{self.root}/env 0."), 2, out)
        (self.root / "text").write_text("to be or not to be, that is the question\n" * 200)
        (self.root / "run.yaml").write_text(CONFIG)
        out = run(program, "run", "--standalone", "--nproc_per_node=2", self.root / "env/bin/muster-train", "run.yaml", env=outside, cwd=self.root)
        self.assertRegex(out, r"step 3/3  loss [0-9.]+")

    def test_not_activated_a_torch_script_trains(self):
        torch = os.environ.get("MUSTER_TORCH_PYTHON")
        if not torch:
            self.skipTest("MUSTER_TORCH_PYTHON is not set")
        paths = run(torch, "-c", "import site, sys; print(sys.version_info[:2], site.getsitepackages()[0], sep=chr(10))").splitlines()
        if paths[0] != str(sys.version_info[:2]):
            self.skipTest("PyTorch is another Python's")
        (packages,) = (self.root / "env/lib").glob("python*/site-packages")
        (packages / "torch_of_the_tests.pth").write_text(paths[1] + "\n")
        self.addCleanup((packages / "torch_of_the_tests.pth").unlink)
        (self.root / "train.py").write_text(TRAIN)
        out = run(self.root / "env/bin/muster", "run", "--standalone", "--nproc_per_node=2", "train.py", cwd=self.root,
                  env={"PATH": "/usr/bin:/bin", "HOME": str(self.root)})
        self.assertEqual(out.count(f"{self.root}/env"), 3, out)  # both ranks and the launcher's line
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", out)]
        self.assertEqual(len(losses), 2)
        self.assertLess(max(losses), 0.1, out)

    def test_the_python_module_finds_the_library(self):
        out = self.here("python", "-c", "from muster import library; print(library.load().muster_version().decode())")
        self.assertRegex(out, r"^[0-9.]+\n$")

    def test_torchrun_is_a_link_on_request(self):
        link = self.root / "env/bin/torchrun"
        self.assertFalse(link.exists())
        self.here("muster", "link-torchrun")
        self.assertIn("rank 0", self.here("torchrun", "--nproc_per_node=1", "--no-python", "sh", "-c", "echo rank $RANK"))
        self.assertIn("already", self.here("muster", "link-torchrun"))
        self.here("muster", "link-torchrun", "--remove")
        self.assertFalse(link.exists())
        link.write_text("another's\n")
        self.assertIn("--replace", self.here("muster", "link-torchrun", code=1))
        self.here("muster", "link-torchrun", "--replace")
        self.here("muster", "link-torchrun", "--remove")
        self.assertEqual(link.read_text(), "another's\n")
        link.unlink()


class DebianFiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for old in PACKAGES.glob("*.deb"):
            old.unlink()
        run("cpack", cwd=BUILD)
        cls.deb = only("*.deb")

    def test_what_is_in_it(self):
        self.assertLess(self.deb.stat().st_size, DEB_LIMIT)
        files = run("dpkg-deb", "-c", self.deb)
        for name in ("usr/bin/muster", "usr/bin/muster-train", "usr/include/muster.h", "usr/share/man/man1/muster-run.1.gz",
                     "usr/share/man/man1/muster-train.1.gz", "usr/share/bash-completion/completions/muster",
                     "usr/share/zsh/vendor-completions/_muster", "usr/share/doc/muster/copyright",
                     "usr/share/doc/muster/SETTINGS.md", "usr/share/doc/muster/KEYS.md"):
            self.assertIn(f"./{name}\n", files)
        control = run("dpkg-deb", "-f", self.deb, "Depends")
        for package in "libzmq5", "libsodium23", "libopenblas0-openmp", "libc6 (>= 2.28)":
            self.assertIn(package, control)
        self.assertIn("libsentencepiece0", run("dpkg-deb", "-f", self.deb, "Recommends"))

    def test_its_programs_run_where_they_are_unpacked(self):
        with tempfile.TemporaryDirectory() as folder:
            run("dpkg-deb", "-x", self.deb, folder)
            usr = pathlib.Path(folder) / "usr"
            self.assertFalse(list(usr.rglob("torchrun*")))
            environment = {"PATH": f"{usr}/bin:/usr/bin:/bin", "HOME": folder}
            out = run("muster", "run", "--standalone", "--nproc_per_node=2", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE", env=environment)
            self.assertEqual(sorted(re.findall("rank . of .", out)), ["rank 0 of 2", "rank 1 of 2"])
            self.assertRegex(run("muster-train", "--version", env=environment), r"muster-train [0-9.]+")
            known = versions_of_symbols()
            for program in (*usr.glob("bin/*"), *usr.glob("lib/*.so.0"), *usr.glob("lib/muster/*.so")):
                self.assertLessEqual(max(symbol_versions(program)), GLIBC_LIMIT, program)
                self.assertEqual(newer_than_the_limit(program, known), [], program)
                self.assertNotIn("libjansson.so.4)", run("objdump", "-T", program))  # a version that jansson 2.13 lacks
            for page in (usr / "share/man/man1").glob("*.gz"):
                self.assertEqual(run("sh", "-c", f"zcat {page} | groff -man -Tutf8 -ww >/dev/null"), "", page)
            for name in "muster", "muster-train":
                run("bash", "-n", usr / "share/bash-completion/completions" / name)

    def test_lintian(self):
        try:
            done = subprocess.run(["lintian", "--fail-on", "error,warning", str(self.deb)], capture_output=True, text=True, timeout=300)
        except FileNotFoundError:
            self.skipTest("lintian is not installed")
        self.assertEqual(done.returncode, 0, done.stdout)


class CleanDebian(unittest.TestCase):
    """Roots that hold a Debian's minimum, and nothing else."""

    suite = "bookworm"

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="muster-debian-")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.base = pathlib.Path(cls.scratch.name) / "base"
        run("debootstrap", "--variant=minbase", cls.suite, cls.base)
        for name in pathlib.Path("/etc/apt").rglob("*"):  # this machine's way to the packages
            if name.is_file() and (cls.suite == "bookworm" or "sources" not in str(name)):
                target = cls.base / name.relative_to("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(name.read_bytes())

    def inside(self, package, script):
        """Output of a shell in a fresh root, in /root, next to the package and a run's text and configuration."""
        root = pathlib.Path(self.scratch.name) / self._testMethodName
        run("cp", "-a", self.base, root)
        (root / "root" / package.name).write_bytes(package.read_bytes())
        (root / "root/text").write_text("to be or not to be, that is the question\n" * 200)
        (root / "root/run.yaml").write_text(CONFIG)
        return run("unshare", "--mount", "--pid", "--fork", "--mount-proc", "chroot", root, "/usr/bin/env", "-i",
                   "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "sh", "-ec",
                   "mount -t proc proc /proc; cd /root; apt-get -qq update; " + script)

    def check(self, out):
        self.assertEqual(sorted(re.findall("rank . of 2", out)), ["rank 0 of 2", "rank 1 of 2"])
        self.assertRegex(out, r"step 3/3  loss [0-9.]+")

    WORK = ("muster run --standalone --nproc_per_node=2 -- sh -c 'echo rank $RANK of $WORLD_SIZE'; "
            "muster run --standalone --nproc_per_node=2 muster-train run.yaml")

    def test_apt_installs_the_package_and_two_ranks_train(self):
        DebianFiles.setUpClass()
        deb = DebianFiles.deb
        self.check(self.inside(deb, f"apt-get -qq install -y --no-install-recommends ./{deb.name} >/dev/null; {self.WORK}"))

    def test_the_wheel_in_a_bare_python_and_two_ranks_train(self):
        Wheel.setUpClass()
        self.addCleanup(Wheel.tearDownClass)
        wheel = Wheel.wheel
        out = self.inside(wheel, "apt-get -qq install -y --no-install-recommends python3-venv >/dev/null; python3 -m venv env; . env/bin/activate; "
                                 f"pip --quiet install --no-index ./{wheel.name}; {self.WORK}; test ! -e env/bin/torchrun; muster link-torchrun; "
                                 "torchrun --standalone --no-python sh -c 'echo torchrun $RANK'; "
                                 "python -c 'from muster import library; print(\"library\", library.load().muster_version().decode())'; "
                                 "mkdir raw; for name in Artistic GPL-2 GPL-3 LGPL-2.1; do cp /usr/share/common-licenses/$name raw/$name.txt; done; "
                                 "muster-train prepare --input_dir raw --output_dir shards --vocab_size 500; "
                                 "echo others: $(find / -xdev -name 'lib*' | grep -E 'lib(zmq|openblas|sodium|yaml|jansson|gomp)' | grep -v ^/root/env/)")
        self.check(out)
        self.assertIn("tokenizer: sentencepiece, 500 tokens", out)
        self.assertRegex(out, r"library [0-9.]+\n")
        self.assertIn("torchrun 0\n", out)
        self.assertIn("others:\n", out)  # this root has no library that it brings


class OldDebian(CleanDebian):
    suite = "bullseye"


if __name__ == "__main__":
    unittest.main(verbosity=2)
