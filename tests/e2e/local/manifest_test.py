"""What muster manifest writes is run: pods by muster local, the script for Slurm by a fake sbatch and srun.

    MUSTER_BUILD=build python3 tests/e2e/local/manifest_test.py [TestClass.test_name ...]"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import MUSTER, environment, free_port  # noqa: E402
from local_test import RANKS, LocalTest  # noqa: E402

SUCCESS = {"pytorchjob": "Succeeded", "trainjob": "Complete", "job": "Complete", "jobset": "Completed"}
# What srun does for one task a node: Slurm's variables, and the worst exit code. Loopback addresses are the nodes.
SRUN = """#!/usr/bin/env python3
import os, signal, subprocess, sys
command = sys.argv[1:]
while command[0].startswith("-"):
    command.pop(0)
nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
def variables(node):
    return dict(os.environ, SLURM_STEP_NUM_NODES=str(nodes), SLURM_STEP_NUM_TASKS=str(nodes), SLURM_STEP_ID="0",
                SLURM_STEP_TASKS_PER_NODE=f"1(x{nodes})", SLURM_NODEID=str(node), SLURM_PROCID=str(node), SLURM_LOCALID="0",
                SLURM_STEP_NODELIST=f"127.0.0.[1-{nodes}]", SLURMD_NODENAME=f"127.0.0.{node + 1}",
                MUSTER_HOSTNAME=f"127.0.0.{node + 1}", MUSTER_METRICS_ADDR=f"127.0.0.{node + 1}")
tasks = [subprocess.Popen(command, env=variables(node)) for node in range(nodes)]
signal.signal(signal.SIGTERM, lambda *_: [task.terminate() for task in tasks])
sys.exit(max(task.wait() for task in tasks))
"""


class WrittenTest(LocalTest):
    def write(self, kind, *flags, program):
        run = subprocess.run(
            [MUSTER, "manifest", f"--kind={kind}", *flags, "--", *program], capture_output=True, text=True, env=environment()
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        path = self.folder / f"{kind}.yaml"
        path.write_text(run.stdout)
        return path


class Manifests(WrittenTest):
    def test_every_kind_runs(self):
        script = self.script("w.py", RANKS + "import sys; assert sys.argv[1:] == ['a b', '\"']")
        for kind, success in SUCCESS.items():
            with self.subTest(kind):
                flags = ["--nodes=2", "--nproc-per-node=2", "--image=none", f"--metrics-port={free_port()}"]
                out, err = self.run_local(str(self.write(kind, *flags, program=[script, "a b", '"'])))
                self.assertEqual(sorted(re.findall(r"rank (\d) of 4 ", out)), ["0", "1", "2", "3"], err)
                self.assertIn(f"job train: {success}", err)
                self.assertNotIn("anyone who reaches", err)  # the pods have the secret

    def test_one_node_has_no_secret(self):
        script = self.script("w.py", RANKS)
        for kind in SUCCESS:
            path = self.write(kind, "--image=none", "--metrics-port=0", program=[script])
            self.assertNotIn("secret", path.read_text().replace("# its group can read the secret", "").lower())
        out, _ = self.run_local(str(path))
        self.assertIn("rank 0 of 1 ", out)


class Slurm(WrittenTest):
    def sbatch(self, *flags, program):
        path = self.write("slurm", "--nodes=2", "--nproc-per-node=2", "--metrics-port=0", *flags, program=[program])
        self.assertIn("#SBATCH --nodes=2\n", path.read_text())
        tools = self.folder / "bin"
        tools.mkdir()
        (tools / "srun").write_text(SRUN)
        (tools / "srun").chmod(0o755)
        (tools / "muster").symlink_to(MUSTER)
        variables = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NUM_NODES": "2"}
        process = subprocess.Popen(
            ["bash", str(path)], cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(SLURM_SUBMIT_DIR=str(self.folder), **variables),
        )
        self.started.append(process)
        return process

    def test_the_script_runs(self):
        script = self.script("w.py", RANKS)
        out, err = self.finish(self.sbatch(program=script), 0)
        self.assertEqual(sorted(re.findall(r"rank (\d) of 4 at 127.0.0.1 ", out)), ["0", "1", "2", "3"], err)
        self.assertEqual(list(self.folder.glob(".muster-secret-*")), [])

    def test_a_failure_is_its_exit_code_and_the_secret_is_removed(self):
        script = self.script("w.py", "import os, sys; sys.exit(7 if os.environ['RANK'] == '3' else 0)")
        self.finish(self.sbatch("--max-restarts=0", program=script), 7)
        self.assertEqual(list(self.folder.glob(".muster-secret-*")), [])


class Flags(unittest.TestCase):
    def test_bad_usage_is_one_line(self):
        for words, why in (
            (["--image=i"], "which program?"),
            (["--", "train.py"], "--image is needed"),
            (["--image=i", "--name=Train", "--", "x"], "'Train' is not a name"),
            (["--image=i y", "--", "x"], "a character that does not belong there"),
            (["--image=i", "--env=1=2", "--", "x"], "is not NAME=value"),
            (["--image=i", "--claim=data=rel", "--", "x"], "is not CLAIM=PATH"),
            (["--image=", "--", "x"], "--image is empty"),
            (["--image=i", "--memory=64GB", "--", "x"], "--memory: '64GB' is not a quantity of Kubernetes"),
            (["--image=i", "--memory=64", "--", "x"], "--memory: '64' is less than 1Mi"),
            (["--image=i", "--shm=0", "--", "x"], "--shm: '0' is less than 1Mi"),
            (["--kind=slurm", "--memory=64Gi", "--", "x"], "'64Gi' is not a size of Slurm's"),
            (["--image=i", "--env=A=1", "--env=B=1", "--env=A=", "--", "x"], "'A=1' and 'A=' are for the same variable"),
            (["--image=i", "--claim=a=/d", "--claim=b=/d", "--", "x"], "'a=/d' and 'b=/d' are for the same path"),
            (["--image=i", "--claim=a=/dev/shm", "--", "x"], "no claim can be at /dev/shm"),
            (["--image=i", "--claim=a=/d:ro", "--", "x"], "a path of a pod has no ':'"),
            (["--kind=pod", "--", "x"], "is not one of pytorchjob, trainjob, job, jobset, slurm"),
            (["--kind=slurm", "--claim=a=/b", "--", "x"], "--claim is for pods"),
        ):
            run = subprocess.run([MUSTER, "manifest", *words], capture_output=True, text=True, env=environment())
            self.assertEqual((run.returncode, run.stdout, run.stderr.count("\n")), (2, "", 1), run)
            self.assertIn(why, run.stderr)

    def test_help_and_pages(self):
        shown = subprocess.run([MUSTER, "manifest", "--help"], capture_output=True, text=True).stdout
        self.assertIn("usage: muster manifest [flags] [--] program [arguments]", shown)
        page = subprocess.run([MUSTER, "man", "manifest"], capture_output=True, text=True).stdout
        self.assertIn("launcher", page)
        self.assertIn("--launcher-image", subprocess.run([MUSTER, "completion", "bash"], capture_output=True, text=True).stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
