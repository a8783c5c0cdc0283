"""The jobs of k8s/clusters are run here: by `muster local`, as they are, where it knows their kind; Volcano's with what its plugins give
each pod; the sbatch script with a fake srun. Training is muster-train where the job is, else a script in place of train.py.

    MUSTER_BUILD=build python3 tests/k8s/clusters_run_test.py [TestClass.test_name ...]"""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE") or HERE.parent.parent)
sys.path[:0] = [str(HERE), str(SOURCE / "tests" / "e2e"), str(SOURCE / "tests" / "e2e" / "local")]

import manifests_test as manifests  # noqa: E402: which finds an interpreter with the packages
import yaml  # noqa: E402
from harness import BUILD, MUSTER, environment, free_port, wait_until  # noqa: E402
from local_test import NAMESPACES, RANKS, LocalTest  # noqa: E402
from manifest_test import SRUN  # noqa: E402

CLUSTERS = SOURCE / "k8s" / "clusters"
TEXT = "the quick brown fox jumps over the lazy dog\n" * 2000


class ClusterTest(LocalTest):
    def beside(self, script=RANKS):
        """Contents of the namespace: the ConfigMap of k8s/kustomization.yaml, the jobs' secret, the volumes."""
        kustomization = yaml.safe_load((SOURCE / "k8s" / "kustomization.yaml").read_text())
        [generator] = kustomization["configMapGenerator"]
        data = {}
        for entry in generator["files"]:
            name, path = entry.split("=")
            data[name] = script if name == "train.py" else (SOURCE / "k8s" / path).read_text()
        metadata = {"name": generator["name"], "namespace": generator["namespace"]}
        training = self.folder / "training.json"
        training.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
        secret = self.folder / "secret.yaml"
        secret.write_text(subprocess.run([MUSTER, "secret", "--output=kubernetes", "--namespace=training"], capture_output=True, text=True, check=True).stdout)
        volumes = self.folder / "volumes"
        (volumes / "training-data" / "corpus").mkdir(parents=True)
        (volumes / "training-models").mkdir()
        for claim in volumes.iterdir():
            claim.chmod(0o777)
        (volumes / "training-data" / "corpus" / "a.txt").write_text(TEXT)
        return [f"-f{training}", f"-f{secret}", f"--volumes={volumes}", "--allow-gpu-shortage", "--keep-going"]

    def run_job(self, name, *flags, script=RANKS, **options):
        path = f"{BUILD / 'bin'}:{os.environ['PATH']}"
        return self.run_local(str(CLUSTERS / name), *self.beside(script), f"--env=MUSTER_METRICS_PORT={free_port()}", *flags, env={"PATH": path}, **options)


@unittest.skipUnless(NAMESPACES, "no mount namespaces here: ConfigMaps and volumes are not mounted")
class Local(ClusterTest):
    def ranks(self, out):
        return sorted(int(rank) for rank in re.findall(r"rank (\d) of 4 ", out))

    def test_kueue(self):
        out, err = self.run_job("kueue/pytorchjob.yaml")
        self.assertEqual(self.ranks(out), [0, 1, 2, 3], err)
        self.assertIn("job kueue: Succeeded", err)
        self.assertTrue(list(self.folder.glob("volumes/training-models/kueue/logs/*/attempt_0/0/stdout.log")))

    def test_jobset(self):
        out, err = self.run_job("jobset/jobset.yaml")
        self.assertEqual(self.ranks(out), [0, 1, 2, 3], err)
        self.assertIn("at jobset-node-0-0.jobset", out)
        self.assertIn("job jobset: Completed", err)

    def test_a_jobset_that_is_not_tried_again(self):
        _, err = self.run_job("jobset/jobset.yaml", "--env=PET_NNODES=no-number", code=2)
        self.assertIn("job jobset: Failed", err)

    def test_elastic_hpa(self):
        """Trained by muster-train as the manifest has it, for fewer steps, and gone on with at the other end of its range."""
        job = yaml.safe_load((CLUSTERS / "elastic-hpa/pytorchjob.yaml").read_text())
        worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
        models = self.folder / "volumes/training-models/elastic-hpa"
        flags = self.beside()
        for replicas, steps in (2, 3), (4, 6):
            worker["replicas"] = replicas
            [container] = worker["template"]["spec"]["containers"]
            container["command"] += ["--set", f"training.steps={steps}", "--set", "logging.sample_length=0"]
            path = self.folder / "job.json"
            path.write_text(json.dumps(job))
            env = {"PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}"}
            quick = [f"--env=MUSTER_METRICS_PORT={free_port()}", "--env=PET_RDZV_CONF=last_call_timeout=1", "--env=OMP_NUM_THREADS=1"]
            out, err = self.run_local(str(path), *flags, *quick, env=env)
            self.assertIn("job elastic-hpa: Succeeded", err)
            self.assertIn(f"FULL_SHARD over {replicas} ranks", out + err)
            self.assertIn(f"step {steps}/{steps} ", out)
        self.assertIn("resumed from step 3", out)
        self.assertTrue((models / "model.safetensors").is_file())
        self.assertTrue(any((models / "run" / "tensorboard").iterdir()))  # what k8s/tensorboard.yaml shows


def volcano_pods(job):
    """(name, environment) of each pod, as Volcano's plugins svc and pytorch make them."""
    name, spec = job["metadata"]["name"], job["spec"]
    total = sum(task["replicas"] for task in spec["tasks"])
    flags = dict(flag.lstrip("-").split("=") for flag in spec["plugins"]["pytorch"])
    for task in spec["tasks"]:
        for index in range(task["replicas"]):
            given = manifests.environment(task["template"]["spec"]["containers"][0])
            given.update(MASTER_ADDR=f"{name}-{flags['master']}-0.{name}", MASTER_PORT=flags["port"], WORLD_SIZE=str(total))
            given["RANK"] = str(0 if task["name"] == flags["master"] else index + 1)
            given["HOSTNAME"] = f"{name}-{task['name']}-{index}"  # the kubelet's
            yield given["HOSTNAME"], given


class Volcano(ClusterTest):
    HOSTS = 'mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"'

    @unittest.skipUnless(NAMESPACES and os.geteuid() == 0, "pods need host names of their own: root")
    def test_pods_are_one_job(self):
        [job] = [each for each in yaml.safe_load_all((CLUSTERS / "volcano/job.yaml").read_text()) if each]
        pods, secret, script = list(volcano_pods(job)), self.folder / "secret", self.script("w.py", RANKS)
        with open(secret, "w") as file:
            subprocess.run([MUSTER, "secret"], stdout=file, check=True)
        secret.chmod(0o600)
        hosts = self.folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"127.0.7.{k + 1} {name} {name}.volcano\n" for k, (name, _) in enumerate(pods)))
        port = str(free_port())
        started = []
        for k, (name, given) in enumerate(pods):
            given.update(MUSTER_SECRET_FILE=str(secret), PET_LOG_DIR=str(self.folder / "logs"), MUSTER_METRICS_ADDR=f"127.0.7.{k + 1}")
            given.update(MASTER_PORT=port, MUSTER_METRICS_PORT=str(free_port()))
            command = ["unshare", "--mount", "--uts", "sh", "-c", self.HOSTS, "-", str(hosts), name, MUSTER, "run", script]
            process = subprocess.Popen(
                command, env=environment(E2E_FOLDER=str(self.folder), **given), cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            self.started.append(process)
            started.append(process)
        said = [self.finish(process, 0) for process in started]
        for k, (out, err) in enumerate(said):
            self.assertRegex(out, rf"rank {k} of 4 at volcano-master-0.volcano in {pods[k][0]}\n", err)
            self.assertIn("RANK and WORLD_SIZE, pods by the host name " + pods[k][0], err)


class Slurm(ClusterTest):
    """Two nodes with four tasks each, of which the step gets one: the flags that srun is called with make it so."""

    def sbatch(self, *words, **more):
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        (tools / "srun").write_text(SRUN.replace("command = sys.argv[1:]\n", 'command = sys.argv[1:]\nopen("srun.flags", "w").write(" ".join(command))\n'))
        (tools / "srun").chmod(0o755)
        if not (tools / "muster").exists():
            (tools / "muster").symlink_to(MUSTER)
        requested = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)", (CLUSTERS / "slurm/train.sbatch").read_text(), re.M))
        variables = {
            "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": str(os.getpid()), "SLURM_SUBMIT_DIR": str(self.folder),
            "SLURM_JOB_NUM_NODES": requested["nodes"], "SLURM_NTASKS_PER_NODE": requested["ntasks-per-node"],
            "SLURM_CPUS_PER_TASK": requested["cpus-per-task"], "SLURM_NTASKS": str(int(requested["nodes"]) * int(requested["ntasks-per-node"])),
            "MUSTER_METRICS_PORT": str(free_port()), "E2E_FOLDER": str(self.folder),
        }  # fmt: skip
        process = subprocess.Popen(
            ["bash", str(CLUSTERS / "slurm/train.sbatch"), *words], cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**environment(), **variables, **more},
        )  # fmt: skip
        self.started.append(process)
        return process

    def test_it_runs(self):
        script = self.script("w.py", RANKS + "import sys; assert sys.argv[1:] == ['a b']\n")
        out, err = self.finish(self.sbatch(script, "a b"), 0)
        self.assertEqual(sorted(re.findall(r"rank (\d) of 8 at 127.0.0.1 ", out)), [str(rank) for rank in range(8)], err)
        self.assertEqual(list(self.folder.glob(".muster-secret-*")), [])
        flags = (self.folder / "srun.flags").read_text()
        self.assertRegex(flags, "^--nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=32 .* muster run -- ")
        self.assertNotIn("independent jobs", err)
        self.assertEqual(len(list(self.folder.glob(f"logs/{os.getpid()}/*/attempt_0/*"))), 8)

    def test_a_failure_is_its_exit_code(self):
        script = self.script("w.py", "import os, sys; sys.exit(7 if os.environ['RANK'] == '6' else 0)")
        self.finish(self.sbatch(script, PET_MAX_RESTARTS="0"), 7)
        self.assertEqual(list(self.folder.glob(".muster-secret-*")), [])

    def test_without_a_program(self):
        _, err = self.finish(self.sbatch(), 2)
        self.assertIn("usage: sbatch", err)


@unittest.skipUnless(importlib.util.find_spec("tensorboard"), "no tensorboard in this interpreter")
class TensorBoard(ClusterTest):
    """For the slow tier, by name: k8s/tensorboard.yaml's command over the models' volume, after a run of muster-train on it."""

    def test_it_shows_a_run(self):
        models = self.folder / "volumes" / "training-models"
        self.beside()
        run = [
            str(BUILD / "bin" / "muster-train"), str(SOURCE / "k8s/configs/gpt-demo.yaml"), "--set", "training.steps=3", "--set",
            f"logging.dir={models / 'a-job' / 'run'}", "--set", f"data.path={self.folder / 'volumes/training-data/corpus'}", "--set", "training.output=",
            "--set", "logging.sample_length=0",
        ]  # fmt: skip
        subprocess.run(run, check=True, capture_output=True, cwd=self.folder, env=environment())
        deployment = next(each for each in yaml.safe_load_all((SOURCE / "k8s/tensorboard.yaml").read_text()) if each["kind"] == "Deployment")
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        [mount], [port] = container["volumeMounts"], container["ports"]
        here = free_port()
        program, *flags = container["command"]
        self.assertEqual((program, f"--logdir={mount['mountPath']}" in flags, f"--port={port['containerPort']}" in flags), ("tensorboard", True, True))
        flags = [flag.replace(mount["mountPath"], str(models)).replace(str(port["containerPort"]), str(here)) for flag in flags]
        with open(self.folder / "tensorboard.log", "w") as log:
            process = subprocess.Popen([sys.executable, "-m", "tensorboard.main", *flags], stdout=log, stderr=subprocess.STDOUT)
        self.started.append(process)

        def tags():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{here}/data/plugin/scalars/tags") as reply:
                    return json.load(reply)
            except OSError:
                return None

        [(name, found)] = wait_until(tags, "TensorBoard's answer").items()
        self.assertTrue(name.startswith("a-job/run/tensorboard"), name)
        self.assertIn("train/loss", found)


QUICK = ("Local", "Volcano", "Slurm")

if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv if len(sys.argv) > 1 else [*sys.argv, *QUICK])
