#!/usr/bin/env python3
"""The examples outside of the tree, against an installed prefix: the C program built with pkg-config and with find_package(muster), the
Python one by ctypes; each as two ranks of `muster run` and as mpirun and srun start them, with the same losses everywhere."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from harness.ports import free_port

BUILD, SOURCE = pathlib.Path(os.environ["MUSTER_BUILD"]), pathlib.Path(os.environ["MUSTER_SOURCE"])
LINES_LIMIT = 100  # an example's
LAUNCHERS = {
    "mpirun": "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK={rank} OMPI_COMM_WORLD_LOCAL_SIZE=2",
    "srun": "SLURM_PROCID={rank} SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID={rank} SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2",
}


def environment(**more):
    launcher = re.compile(r"PET_|TORCHELASTIC|MASTER_|OMPI_|SLURM_|(LOCAL_)?RANK$|(LOCAL_)?WORLD_SIZE$")
    return {**{k: v for k, v in os.environ.items() if not launcher.match(k)}, "OMP_NUM_THREADS": "1", **more}


def run(*command, **more):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment(**more))
    if done.returncode:
        raise AssertionError(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Installed:
    """muster installed to a folder of its own, and the examples in another one."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.prefix = self.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", self.prefix)
        self.library = next(self.prefix.rglob("libmuster.so"))
        self.muster = self.prefix / "bin" / "muster"
        self.examples = self.folder / "examples"
        shutil.copytree(SOURCE / "examples", self.examples)

    def with_pkg_config(self, example="own_model"):
        where = {"PKG_CONFIG_PATH": str(self.library.parent / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "muster", **where).split()
        out = self.folder / f"{example}_by_pkg_config"
        run("cc", "-Wall", "-Wextra", "-Werror", self.examples / f"{example}.c", "-o", out, *flags, f"-Wl,-rpath,{self.library.parent}")
        return out

    def with_cmake(self):
        out = self.folder / "by_cmake"
        run("cmake", "-S", self.examples, "-B", out, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", out)
        return out / "own_model"

    def python(self, example="own_model"):
        return ["python3", self.examples / f"{example}.py"]

    def export(self, name):
        return self.folder / f"{name}.safetensors"

    def two_ranks(self, name, *program):
        return run(self.muster, "run", "--standalone", "--nproc_per_node=2", "--no-python", *program, self.export(name),
                   MUSTER_LIBRARY=str(self.library))


def two_processes(variables, program, out):
    port = str(free_port())
    ranks = []
    for rank in range(2):
        given = dict(pair.split("=") for pair in variables.format(rank=rank).split())
        ranks.append(subprocess.Popen([str(program), str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **given)))
    done = [rank.communicate(timeout=300) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], done
    return done[0][0]


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="muster-examples-")
        cls.installed = Installed(cls.temporary.name)
        cls.program = cls.installed.with_pkg_config()
        cls.by_cmake = cls.installed.with_cmake()
        cls.expected = cls.installed.two_ranks("by_pkg_config", cls.program)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_the_model_learns(self):
        losses = [float(loss) for loss in re.findall(r"step \d+ loss ([0-9.]+)", self.expected)]
        self.assertEqual(len(losses), 3, self.expected)
        self.assertLess(losses[2], 0.9 * losses[0])
        self.assertRegex(self.expected, r"validation loss [0-9.]+ of 64 targets")

    def test_with_find_package(self):
        self.assertEqual(self.installed.two_ranks("by_cmake", self.by_cmake), self.expected)
        self.assertEqual(self.installed.export("by_cmake").read_bytes(), self.installed.export("by_pkg_config").read_bytes())

    def test_from_python(self):
        self.assertEqual(self.installed.two_ranks("by_ctypes", *self.installed.python()), self.expected)

    def test_a_regression(self):
        c = self.installed.two_ranks("regression_c", self.installed.with_pkg_config("regression"))
        self.assertEqual(self.installed.two_ranks("regression_python", *self.installed.python("regression")), c)
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", c)]
        self.assertEqual(len(losses), 4, c)
        self.assertLess(losses[3], 0.01, "the targets' variance is 0.2")
        self.assertIn("of 16 targets", c)

    def test_pictures_and_shared_parameters(self):
        pictures = self.installed.two_ranks("pictures", self.installed.folder / "by_cmake" / "pictures")
        right, of = re.search(r"validation: (\d+) of (\d+) pictures are right", pictures).groups()
        self.assertEqual(of, "64")
        self.assertGreaterEqual(int(right), 60, pictures)
        losses = re.findall(r"loss ([0-9.]+)", self.installed.two_ranks("shared", self.installed.folder / "by_cmake" / "shared_block"))
        self.assertEqual(len(losses), 3)
        self.assertLess(float(losses[2]), 0.1, losses)
        header = self.installed.export("shared").read_bytes()[8:].split(b"}}")[0]
        self.assertEqual(header.count(b'"shared.q"'), 1)  # one set of parameters for three blocks

    def test_under_mpirun_and_srun(self):
        for name, variables in LAUNCHERS.items():
            with self.subTest(launcher=name):
                self.assertEqual(two_processes(variables, self.program, self.installed.export(name)), self.expected)

    def test_alone(self):
        alone = run(self.program, self.installed.export("alone"))
        first = [re.search(r"step 10 loss ([0-9.]+)", text).group(1) for text in (alone, self.expected)]
        self.assertAlmostEqual(float(first[0]), float(first[1]), delta=1e-3)

    def test_from_cpp(self):
        source = self.installed.folder / "own.cpp"
        source.write_text("#include <muster.h>\nint main() { return muster_version() == nullptr; }\n")
        flags = run("pkg-config", "--cflags", "--libs", "muster", PKG_CONFIG_PATH=str(self.installed.library.parent / "pkgconfig")).split()
        out = self.installed.folder / "own_cpp"
        run("c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", source, "-o", out, *flags, f"-Wl,-rpath,{self.installed.library.parent}")
        run(out)

    def test_an_example_is_short(self):
        for name in ("own_model.c", "own_model.py", "pictures.c", "regression.c", "regression.py", "shared_block.c"):
            self.assertLess(len((SOURCE / "examples" / name).read_text().splitlines()), LINES_LIMIT, name)


if __name__ == "__main__":
    unittest.main()
