#!/usr/bin/env python3
"""Every incomplete set of the variables of torchrun, Open MPI, MPICH (PMI) and Slurm: each program ends with an error that names a variable,
or runs alone, and none of them by a signal or with a sanitizer's report.

The programs: muster-train and its subcommands, muster run, muster env, muster local, and a program of libmuster (examples/own_model.c)."""
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BUILD, LIMIT, MUSTER, environment  # noqa: E402: after the path

SOURCE = pathlib.Path(__file__).resolve().parents[3]
EXAMPLE = SOURCE / "examples" / "own_model.c"
TRAIN = BUILD / "bin" / "muster-train"
FAMILIES = {
    "torchrun": ("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=9"),
    "PET": ("PET_NNODES=2", "PET_NPROC_PER_NODE=2", "PET_NODE_RANK=1", "MASTER_ADDR=127.0.0.1"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1", "PMIX_NAMESPACE=x"),
    "MPICH": ("PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"),
    "Slurm": ("SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=1", "SLURM_NTASKS=2"),
    "Job": ("JOB_COMPLETION_INDEX=1", "PET_NPROC_PER_NODE=auto"),
}


def incomplete():
    """Every set but the sets that make a world (all of torchrun's, rank and size of srun)."""
    for family, variables in FAMILIES.items():
        for count in range(1, len(variables) + 1):
            for some in itertools.combinations(variables, count):
                whole = len(some) == 4 if family == "torchrun" else family == "Slurm" and set(variables[:2]) <= set(some)
                if not whole:
                    yield some


class PartOfALauncher(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster part ")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.config = self.path / "config.yaml"
        self.config.write_text("training: {steps: 1}\nmodel: {layers: 1, channels: 32, heads: 2}\ndata: {path: absent}\n")

    def start(self, words, variables):
        given = {name: value for name, value in environment().items() if not name.startswith(("SLURM_", "OMPI_", "PMI"))}
        given.update(variable.split("=", 1) for variable in variables)
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT, cwd=self.path, env=given, stdin=subprocess.DEVNULL)

    def own_model(self):
        """The example, built as the rest is."""
        program = self.path / "own_model"
        sanitize = os.environ.get("MUSTER_SANITIZED")
        subprocess.run(["cc", EXAMPLE, "-o", program, f"-I{SOURCE / 'runtime/include'}", f"-I{SOURCE}", f"-L{BUILD / 'lib'}", "-lmuster",
                        f"-Wl,-rpath,{BUILD / 'lib'}", *([f"-fsanitize={sanitize}"] if sanitize else [])], check=True, timeout=LIMIT)
        return program

    def check_end(self, words, variables, codes):
        run = self.start(words, variables)
        what = f"{' '.join(variables)} {' '.join(map(str, words[:2]))}: exit code {run.returncode}\n{run.stderr}"
        self.assertIn(run.returncode, codes, what)
        for sign in ("Sanitizer", "runtime error:", "free():", "invalid pointer", "Aborted"):
            self.assertNotIn(sign, run.stderr, what)
        return run.stderr

    def test_each_set_names_a_variable_or_runs_alone(self):
        verbs = itertools.cycle([[], ["eval"], ["generate"], ["quantize", "--method", "int8", "--to", "small"], ["preprocess"]])
        for some in incomplete():
            with self.subTest(variables=some):
                said = self.check_end([TRAIN, *next(verbs), self.config], some, (2,))
                named = any(variable.split("=")[0] in said for variable in some)
                self.assertTrue(named or re.search("absent|training.checkpoint_dir|--model", said), said)

    def test_plans_and_settings_are_printed_all_the_same(self):
        for some in (("RANK=1",), ("PET_NNODES=2",), ("PMI_RANK=0", "PMI_SIZE=2"), ("OMPI_COMM_WORLD_SIZE=2",)):
            said = self.check_end([TRAIN, "--plan", self.config], some, (0,))
            self.assertIn("what follows is for 1 rank\n", said)
            self.assertIn(some[0].split("=")[0], said)

    def test_other_programs(self):
        manifest = self.path / "absent.yaml"
        programs = [([MUSTER, "run", "--dry-run", "true"], (0, 2)), ([MUSTER, "env"], (0, 2)), ([MUSTER, "local", "-f", manifest], (1, 2)),
                    ([TRAIN, "prepare", "--input_dir", "absent", "--output_dir", "out"], (1, 2)), ([TRAIN, "--version"], (0,))]
        programs.append(([self.own_model(), "model.safetensors"], (0, 1)))
        for number, (words, codes) in enumerate(programs):
            for some in itertools.islice(incomplete(), number % 3, None, 9 if "own_model" in str(words[0]) else 3):
                with self.subTest(program=words[:2], variables=some):
                    self.check_end(words, some, codes)

    def test_a_pods_own_command_does_not_train_alone(self):
        said = self.check_end([TRAIN, self.config], ("PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=host"), (2,))
        self.assertIn("PET_NNODES is '2'", said)
        self.assertIn("`muster run muster-train CONFIG`", said)
        for some, says in ((("SLURM_NTASKS=4",), "`srun muster-train CONFIG`"), (("JOB_COMPLETION_INDEX=0",), "`muster run --nnodes=PODS muster-train CONFIG`"),
                           (("PET_NPROC_PER_NODE=gpu",), "starts one for each GPU")):
            self.assertIn(says, self.check_end([TRAIN, self.config], some, (2,)))  # a note: data are absent


if __name__ == "__main__":
    unittest.main()
