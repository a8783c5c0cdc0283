"""Images of k8s/Dockerfile, built by `./dev package images` and run, also those for aarch64; packages for aarch64, run under qemu-user.

    MUSTER_BUILD=build python3 tests/e2e/packages/images_test.py [TestClass.test_name ...]

Root is needed (debootstrap, buildah's chroots). Nothing is fetched but Debian's packages."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE", pathlib.Path(__file__).resolve().parents[3])).resolve()
LAUNCHER_LIMIT = 10 << 20  # on top of the base
CONFIG = """model: {layers: 1, heads: 2, channels: 16}
data: {path: text}
training: {steps: 3, global_batch: 4, sequence_length: 16}
"""
ECHO = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE as $(id -u)"]


def run(*command, code=0, timeout=1500, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", timeout=timeout, **options)
    if done.returncode != code:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout + done.stderr


def blob(image, digest):
    return image.extractfile("blobs/" + digest.replace(":", "/"))


def manifest_of(image):
    return json.load(blob(image, json.load(image.extractfile("index.json"))["manifests"][0]["digest"]))


def config_of(archive):
    with tarfile.open(archive) as image:
        return json.load(blob(image, manifest_of(image)["config"]["digest"]))


def layers_of(archive):
    """The bytes of each layer of an OCI archive, unpacked, from the base upwards."""
    sizes = []
    with tarfile.open(archive) as image:
        for layer in manifest_of(image)["layers"]:
            with tarfile.open(fileobj=blob(image, layer["digest"]), mode="r:*") as files:
                sizes.append(sum(entry.size for entry in files))
    return sizes


def write_run(folder):
    (folder / "text").write_text("to be or not to be, that is the question\n" * 200)
    (folder / "run.yaml").write_text(CONFIG)
    folder.chmod(0o777)


class Images(unittest.TestCase):
    machine = os.uname().machine
    platform = {"x86_64": "amd64", "aarch64": "arm64"}[machine]

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="muster-images-", dir="/var/tmp")
        cls.root = pathlib.Path(cls.folder.name)
        cls.store = cls.root / "store"
        run(SOURCE / "packages/images.sh", "--machine", cls.machine, "--output", cls.root, "--keep", cls.store, timeout=3000)

    @classmethod
    def tearDownClass(cls):
        subprocess.run(["buildah", *cls.places(), "rm", "--all"], capture_output=True)
        subprocess.run(["umount", cls.store / "root/overlay"], capture_output=True)
        cls.folder.cleanup()

    @classmethod
    def places(cls):
        return "--root", str(cls.store / "root"), "--runroot", str(cls.store / "run")

    def inside(self, target, *command, folder=None):
        """The output of a command in a fresh container of an image."""
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        (name,) = [image["names"][0] for image in json.loads(run("buildah", *self.places(), "images", "--json"))
                   if image.get("names") and f"muster-{target}:" in image["names"][0]]
        container = run("buildah", *self.places(), "from", name).split()[-1]
        mounts = ["--volume", f"{folder}:/work", "--workingdir", "/work"] if folder else []
        try:
            return run("buildah", *self.places(), "run", *mounts, container, "--", *command, env=environment)
        finally:
            run("buildah", *self.places(), "rm", container)

    def archive(self, target):
        (found,) = self.root.glob(f"muster-{target}-*-linux-{self.machine}.oci.tar")
        return found

    def test_the_archives_say_what_machine_they_are_for(self):
        for target in "launcher", "trainer":
            self.assertEqual(config_of(self.archive(target))["architecture"], self.platform)

    def test_the_launcher_is_small_and_runs_two_workers(self):
        above = layers_of(self.archive("launcher"))[1:]
        print(f"the launcher's image: {sum(above) / 1e6:.1f} MB on top of its base")
        self.assertLess(sum(above), LAUNCHER_LIMIT)
        out = self.inside("launcher", "muster", "run", "--standalone", "--nproc_per_node=2", "--", *ECHO)
        self.assertEqual(sorted(re.findall("rank . of 2 as [0-9]+", out)), ["rank 0 of 2 as 65532", "rank 1 of 2 as 65532"])
        out = self.inside("launcher", "torchrun", "--standalone", "--nproc_per_node=1", "--no-python", *ECHO)
        self.assertIn("rank 0 of 1 as 65532", out)

    def test_a_login_shell_finds_the_launcher(self):
        for target in "launcher", "trainer":
            out = self.inside(target, "sh", "-lc", "command -v torchrun && torchrun --standalone --nproc_per_node=1 --no-python echo started")
            self.assertRegex(out, r"/usr/local/bin/torchrun\n(?s:.*)started")

    def test_the_trainer_trains_on_two_ranks(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            write_run(pathlib.Path(folder))
            out = self.inside("trainer", "muster", "run", "--standalone", "--nproc_per_node=2", "muster-train", "run.yaml", folder=folder)
        self.assertRegex(out, r"step 3/3  loss [0-9.]+")
        above = layers_of(self.archive("trainer"))[1:]
        print(f"the trainer's image: {sum(above) / 1e6:.1f} MB on top of its base")


class ImagesForAarch64(Images):
    """Cross-built, and run in their own root under an emulator: by the user of the image, without its container."""
    machine, platform = "aarch64", "arm64"

    def inside(self, target, *command, folder=None):
        (name,) = [image["names"][0] for image in json.loads(run("buildah", *self.places(), "images", "--json"))
                   if image.get("names") and f"muster-{target}:" in image["names"][0]]
        user = config_of(self.archive(target))["config"]["User"].split(":")[0]
        container = run("buildah", *self.places(), "from", "--pull-never", "--platform", f"linux/{self.platform}", name).split()[-1]
        try:
            root = pathlib.Path(run("buildah", *self.places(), "mount", container).strip())
            if folder:
                shutil.copytree(folder, root / "work")
                (root / "work").chmod(0o777)
            return run(SOURCE / "packages/emulated_root.sh", root, "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
                       "sh", "-c", 'cd "$0" && exec "$@"', "/work" if folder else "/", *command)
        finally:
            run("buildah", *self.places(), "rm", container)


class Aarch64(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        run(SOURCE / "dev", "package", "aarch64")
        cls.build = SOURCE / "build-package-aarch64"
        cls.emulated = ["qemu-aarch64", "-L", str(cls.build / "sysroot")]

    def only(self, pattern):
        (found,) = (self.build / "packages").glob(pattern)
        return found

    def test_the_wheel_trains_on_two_ranks(self):
        wheel = self.only("*.whl")
        self.assertRegex(wheel.name, r"manylinux_2_28_aarch64\.whl$")
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            zipfile.ZipFile(wheel).extractall(root)
            (scripts,) = root.glob("*.data/scripts")
            train = root / "muster/libs/muster-train"
            for program in (scripts / "muster", train):
                program.chmod(0o755)
            write_run(root)
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            out = run(*self.emulated, scripts / "muster", "run", "--standalone", "--nproc_per_node=2", "--no-python", *self.emulated, train,
                      "run.yaml", cwd=root, env=environment)
            self.assertRegex(out, r"step 3/3  loss [0-9.]+")
            # OpenBLAS is the wheel's own
            traced = run(*self.emulated, "-E", "LD_DEBUG=libs", train, "run.yaml", cwd=root, env=environment)
            opened = re.findall(r"calling init: (.*/libopenblas.*)", traced)
            self.assertTrue(opened and all(path.startswith(str(root)) for path in opened), opened)

    def test_the_debian_package_names_what_it_links(self):
        deb = self.only("*.deb")
        self.assertEqual(run("dpkg-deb", "-f", deb, "Architecture").strip(), "arm64")
        depends = run("dpkg-deb", "-f", deb, "Depends")
        for package in "libc6 (>= 2.28)", "libjansson4", "libopenblas0-openmp", "libzmq5":
            self.assertIn(package, depends)
        files = run("dpkg-deb", "-c", deb)
        for name in "usr/bin/muster", "usr/lib/libmuster.so", "usr/share/man/man1/muster-run.1.gz", "usr/lib/muster/libmuster_sentencepiece.so":
            self.assertIn(f"./{name}", files)

    def test_the_archive_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            run("tar", "-xzf", self.only("*.tar.gz"), "-C", folder, "--strip-components=1")
            self.assertRegex(run(*self.emulated, pathlib.Path(folder) / "bin/muster", "--version"), r"muster [0-9.]+")


if __name__ == "__main__":
    unittest.main(verbosity=2)
