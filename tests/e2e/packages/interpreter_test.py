"""Which Python runs a program: that of the environment in which muster lies or is called, activated or not.

    MUSTER_BUILD=build python3 tests/e2e/packages/interpreter_test.py

The environments' interpreters are scripts that say their names."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import LIMIT, MUSTER

SAYS = '#!/bin/sh\necho "python $0 $*"\n'
POD = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: where}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      restartPolicy: Never
      template: {spec: {containers: [{name: pytorch, image: none, command: [COMMAND]}]}}
"""


class Interpreter(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster python ")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        (self.root / "train.py").write_text("")
        self.path = self.environment("in path")  # the first in PATH

    def environment(self, name, *files, muster=None):
        """The bin folder of an environment with an interpreter; files above it; muster: "copy" or "link"."""
        folder = self.root / name / "bin"
        folder.mkdir(parents=True)
        for python in "python3", "python":
            (folder / python).write_text(SAYS)
            (folder / python).chmod(0o755)
        for file in files:
            (self.root / name / file).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name / file).write_text("")
        if muster == "copy":
            shutil.copy(MUSTER, folder / "muster")
            (folder / "torchrun").symlink_to("muster")
        elif muster == "link":
            for program in "muster", "torchrun":
                (folder / program).symlink_to(MUSTER)
        return folder

    def run_it(self, *command, code=0, cwd=None, **variables):
        variables = {"PATH": f"{self.path}:/usr/bin:/bin", "HOME": str(self.root), "LANG": "C.UTF-8", **variables}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT, cwd=cwd or self.root, env=variables)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.told = done.stderr
        return done.stdout

    def test_the_environment_in_which_it_lies_or_is_called(self):
        for kind, file in (("venv", "pyvenv.cfg"), ("conda", "conda-meta/history"), ("pyenv", "lib/python3.11/os.py")):
            for muster in "copy", "link":
                with self.subTest(kind=kind, muster=muster):
                    folder = self.environment(f"{kind} {muster}", file, muster=muster)
                    expected = f"python {folder}/python3 -u train.py --lr 1\n"
                    self.assertEqual(self.run_it(folder / "torchrun", "train.py", "--lr", "1"), expected)
                    self.assertIn(f"the workers' Python is {folder}/python3", self.told)
                    self.assertEqual(self.run_it(folder / "muster", "run", "--standalone", "train.py", "--lr", "1"), expected)
                    self.assertEqual(self.run_it("./torchrun", self.root / "train.py", cwd=folder),
                                     f"python {folder}/python3 -u {self.root}/train.py\n")
                    self.assertEqual(self.run_it(folder / "torchrun", "-m", "train"), f"python {folder}/python3 -u -m train\n")

    def test_every_link_on_the_way_counts(self):
        folder = self.environment("venv", "pyvenv.cfg", muster="link")
        (self.root / "commands").mkdir()
        (self.root / "commands/torchrun").symlink_to(folder / "torchrun")
        (self.root / "torchrun").symlink_to("commands/torchrun")
        for link in "commands/torchrun", "torchrun":
            self.assertEqual(self.run_it(self.root / link, "train.py"), f"python {folder}/python3 -u train.py\n")

    def test_activated_the_command_is_as_ever(self):
        folder = self.environment("venv", "pyvenv.cfg", muster="copy")
        out = self.run_it("torchrun", "train.py", PATH=f"{folder}:/usr/bin:/bin", VIRTUAL_ENV=str(folder.parent))
        self.assertEqual(out, f"python {folder}/python3 -u train.py\n")
        self.assertNotIn("the workers' Python", self.told)
        self.assertIn(" python3 -u train.py\n", self.run_it("torchrun", "--dry-run", "train.py", PATH=f"{folder}:/usr/bin:/bin"))

    def test_a_muster_of_no_environment_takes_that_of_path(self):
        folder = self.environment("commands", muster="copy")  # a python3 among links, as in ~/.local/bin
        for program in MUSTER, folder / "muster":
            self.assertEqual(self.run_it(program, "run", "train.py"), f"python {self.path}/python3 -u train.py\n")

    def test_the_wheel_says_whose_it_is(self):
        folder = self.environment("user", "lib/python3.9/site-packages/muster/libs/README", muster="copy")
        (self.path / "python3.9").write_text(SAYS)
        (self.path / "python3.9").chmod(0o755)
        self.assertEqual(self.run_it(folder / "torchrun", "train.py"), f"python {self.path}/python3.9 -u train.py\n")
        self.assertEqual(self.run_it(folder / "torchrun", "train.py", VIRTUAL_ENV="/venv"), f"python {self.path}/python3 -u train.py\n")

    def test_python_exec_comes_first(self):
        folder = self.environment("venv", "pyvenv.cfg", muster="copy")
        out = self.run_it(folder / "torchrun", "train.py", PYTHON_EXEC=str(self.path / "python"))
        self.assertEqual(out, f"python {self.path}/python -u train.py\n")
        self.assertEqual(self.run_it(folder / "torchrun", "train.py", PYTHON_EXEC=""), f"python {folder}/python3 -u train.py\n")

    def test_agents_on_hosts(self):
        """An ssh that leaves nothing of the environment, as another host's. The choice by a link goes along."""
        ssh = self.path / "ssh"
        ssh.write_text('#!/bin/sh\nfor command; do :; done\nexec env -i PATH=/usr/bin:/bin HOME=/ sh -c "$command"\n')
        ssh.chmod(0o755)
        for muster in "copy", "link":
            with self.subTest(muster=muster):
                folder = self.environment(f"venv {muster}", "pyvenv.cfg", muster=muster)
                out = self.run_it(folder / "torchrun", "--hosts=127.0.0.1", "train.py")
                self.assertIn(f"python {folder}/python3 -u train.py\n", out)

    def test_a_program_next_to_it_is_named(self):
        folder = self.environment("venv", "pyvenv.cfg", muster="copy")
        (folder / "muster-train").write_text(SAYS)
        (folder / "muster-train").chmod(0o755)
        self.run_it(folder / "muster", "run", "muster-train", "run.yaml", code=127)
        self.assertIn(f"'muster-train' was not found in PATH; for the one next to this program write {folder}/muster-train\n", self.told)

    def test_env_shows_it(self):
        folder = self.environment("venv", "pyvenv.cfg", muster="copy")
        for variables, shown in (({}, f"{folder}/python3"), ({"PYTHON_EXEC": "/opt/python"}, "/opt/python"), ({"PATH": str(folder)}, "python3")):
            self.assertRegex(self.run_it(folder / "muster", "env", **variables), rf"(?m)^python +{re.escape(shown)}$")

    def test_an_interpreter_that_is_gone_is_an_error(self):
        folder = self.environment("venv", "pyvenv.cfg", muster="copy")
        (folder / "python3").unlink()
        (folder / "python3").symlink_to("/opt/gone/python3.12")
        self.assertEqual(self.run_it(folder / "torchrun", "train.py", code=127), "")
        self.assertIn(f"'{folder}/python3' does not exist", self.told)
        self.assertIn("PYTHON_EXEC", self.told)
        self.assertEqual(self.run_it(folder / "torchrun", "--no-python", "/bin/echo", "no matter"), "no matter\n")

    def test_pods_of_a_manifest(self):
        for muster in "copy", "link":
            folder = self.environment(f"venv {muster}", "pyvenv.cfg", muster=muster)
            for command, shown in (('torchrun, train.py', f"{folder}/python3 -u train.py"), ('python3, train.py', f"{folder}/python3 train.py"),
                                   ('python3, -m, torch.distributed.run, train.py', f"{folder}/python3 -u train.py")):
                with self.subTest(muster=muster, command=command):
                    (self.root / "job.yaml").write_text(POD.replace("COMMAND", command))
                    self.assertIn(f"python {shown}\n", self.run_it(folder / "muster", "local", "-f", "job.yaml"))

    def test_a_template_is_of_the_same_python(self):
        folder = self.environment("venv", "pyvenv.cfg", muster="copy")
        (folder / "python3").unlink()
        (folder / "python3").symlink_to(os.path.realpath(sys.executable))
        (self.root / "train.py").write_text("import sys; print(sys.executable)\n")
        self.assertEqual(self.run_it(folder / "torchrun", "--warm=json", "train.py"), f"{folder}/python3\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
