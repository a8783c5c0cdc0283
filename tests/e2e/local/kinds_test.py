"""muster local with what clusters have besides PyTorchJobs: TrainJobs on their runtimes (held against
tests/data/trainjob_vectors.json), Indexed Jobs, JobSets; volumes that are really mounted; jobs whose pods train apart.

    MUSTER_BUILD=build python3 tests/e2e/local/kinds_test.py [TestClass.test_name ...]"""

import base64
import json
import os
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import MUSTER, AgentTest, environment, free_port  # noqa: E402
from local_test import FORBIDDABLE, NAMESPACES, RANKS, WITHOUT_NAMESPACES, LocalTest  # noqa: E402
import subprocess  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
VECTORS = json.loads((HERE.parent.parent / "data/trainjob_vectors.json").read_text())["vectors"]
TRAINER = "trainer.kubeflow.org/v1alpha1"


def dry_run(*objects, flags=(), code=0):
    """(the pods, its log) of a dry run."""
    text = "\n---\n".join(json.dumps(each) for each in objects)
    run = subprocess.run(
        [MUSTER, "local", "-f", "-", "--dry-run", "--output=json", *flags], input=text, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == code, run.stderr
    return json.loads(run.stdout) if run.stdout else None, run.stderr


# --- TrainJob ---


def runtime(name="torch-distributed", command=None, containers=(), **policy):
    node = {"name": "node", "image": "i", **({"command": command} if command else {})}
    torch = {"envInjection": policy.pop("injection")} if "injection" in policy else {}
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": {"containers": [node, *({"name": each, "image": "i"} for each in containers)]}}},
    }
    return {
        "apiVersion": TRAINER,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": torch, **policy},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}},
        },
    }


def trainjob(name="test-job", runtime_name="torch-distributed", **spec):
    return {
        "apiVersion": TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": runtime_name}, **spec},
    }


TUNE = ["tune", "run", "--rdzv_endpoint=localhost:29500", "full_finetune_distributed", "--config", "x", "dataset.packed=False"]
PATHS = {
    "torchtune-llama3.3-70b": "/workspace/model/llama3_3/70B",
    "torchtune-llama3.2-1b": "/workspace/output",
}


def objects_of(vector):
    """A vector's spec is a digest: the TrainJob and the runtime that it stands for."""
    spec = dict(vector["spec"])
    trainer = dict(spec.get("trainer", {}))
    expected = (vector.get("env") or {}).get("node", {})
    name = expected.get("PET_MASTER_ADDR", "test-job-").split("-node-0-0.")[-1] or "test-job"
    runtime_name = spec.get("runtimeRef", "torch-distributed")
    wanted = trainer.pop("args_contain", None)
    if wanted or vector["id"].startswith("core-torchtune-qlora"):
        runtime_name, trainer["args"] = "torchtune-llama3.2-1b", [wanted]
        trainer["command"] = ["tune", "run"]
    trainer["env"] = [{"name": key, "value": value} for key, value in trainer.pop("env", {}).items()]
    command = None
    if runtime_name.startswith("torchtune"):
        command = TUNE + [
            f"output_dir={PATHS[runtime_name]}",
            "tokenizer.path=/workspace/model/original/tokenizer.model",
            "checkpointer.checkpoint_dir=/workspace/model",
        ]
    policy = dict(spec.get("runtime", {}))
    if "envInjection" in spec:
        policy["injection"] = spec["envInjection"]
    others = [each for target in spec.get("envInjection", {}).get("targets", []) for each in target["containerNames"]]
    present = [each for each in others if each != "non-existent-container"]
    name = "test-job" if name == "test-job-" else name
    return trainjob(name, runtime_name, trainer=trainer), runtime(runtime_name, command, present, **policy)


class TrainJobs(unittest.TestCase):
    def test_every_vector(self):
        checked = 0
        for vector in VECTORS:
            with self.subTest(vector["id"]):
                objects = objects_of(vector)
                if vector.get("refused"):
                    _, err = dry_run(*objects, code=2)
                    self.assertIn("'non-existent-container' of the job node is no other container than node", err)
                    checked += 1
                    continue
                pods, err = dry_run(*objects)
                expected = vector["env"]["node"]
                self.assertEqual(len(pods), int(expected["PET_NNODES"]))
                for index, pod in enumerate(pods):
                    wanted = {key: str(index) if value == "<completion index>" else value for key, value in expected.items()}
                    self.assertEqual(pod["env"], {**wanted, "JOB_COMPLETION_INDEX": str(index)})
                    name = objects[0]["metadata"]["name"]
                    self.assertEqual((pod["hostname"], pod["replica_type"]), (f"{name}-node-0-{index}", "node"))
                if "command" in vector:
                    self.assertEqual(pods[0]["command"][: len(vector["command"])], vector["command"])
                checked += 1
        self.assertEqual(checked, 19)

    def test_without_a_trainer_nothing_is_set(self):
        pods, err = dry_run(trainjob(), runtime(command=["torchrun", "x.py"]))
        self.assertEqual(pods[0]["env"], {"JOB_COMPLETION_INDEX": "0"})
        self.assertIn("without a trainer section Trainer sets no variables", err)

    def test_what_trainer_refuses(self):
        _, err = dry_run(trainjob(trainer={"env": [{"name": "PET_NNODES", "value": "2"}]}), runtime(), code=2)
        self.assertIn("spec.trainer.env[0]: Invalid: PET_NNODES is set by Trainer", err)
        _, err = dry_run(trainjob(runtime_name="mine"), code=2)
        self.assertIn("no ClusterTrainingRuntime mine was given", err)

    def test_env_of_the_trainer_is_over_the_runtimes(self):
        base = runtime()
        container = base["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "A", "value": "runtime"}, {"name": "B", "value": "kept"}]
        container["resources"] = {"limits": {"nvidia.com/gpu": 4}}
        job = trainjob(trainer={"env": [{"name": "A", "value": "job"}, {"name": "PET_MAX_RESTARTS", "value": "3"}]})
        pods, _ = dry_run(job, base)
        self.assertEqual([pods[0]["env"][key] for key in ("A", "B", "PET_MAX_RESTARTS")], ["job", "kept", "3"])
        self.assertEqual(pods[0]["env"]["PET_NPROC_PER_NODE"], "auto")


# --- runs ---


def batch(name="b", count=2, command=("true",), policy="Never", env=None, volumes=(), mounts=(), **spec):
    container = {"name": "t", "image": "i", "command": list(command)}
    container["env"] = [{"name": key, "value": value} for key, value in (env or {}).items()]
    container["volumeMounts"] = list(mounts)
    template = {"restartPolicy": policy, "subdomain": name, "containers": [container], "volumes": list(volumes)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completionMode": "Indexed", "completions": count, "parallelism": count, "template": {"spec": template}, **spec},
    }


def jobset(name, *jobs, **spec):
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": each["metadata"]["name"], "template": {"spec": each["spec"]}, **more} for each, more in jobs], **spec},
    }


class KindTest(LocalTest):
    def write(self, *objects):
        path = self.folder / "objects.json"
        path.write_text("\n---\n".join(json.dumps(each) for each in objects))
        return str(path)

    def place(self, name, nodes=2, master=None):
        return {
            "PET_NNODES": str(nodes),
            "PET_NPROC_PER_NODE": "1",
            "PET_MASTER_ADDR": master or f"{name}-0.{name}",
            "PET_MASTER_PORT": str(free_port()),
        }


class Runs(KindTest):
    def ranks(self, out):
        return sorted(re.findall(r"(?m)^\[(\S+)\] rank (\d+) of (\d+) ", out))

    def test_trainjob(self):
        script = self.script("w.py", RANKS)
        job = trainjob("j", trainer={"numNodes": 2, "numProcPerNode": 2, "command": ["torchrun", script]})
        out, err = self.run_local(self.write(job))
        pods = ["j-node-0-0", "j-node-0-1"]
        self.assertEqual(self.ranks(out), [(pods[rank // 2], str(rank), "4") for rank in range(4)])
        self.assertIn("job j: Complete", err)

    def test_indexed_job_fails_once_and_is_made_again(self):
        script = self.script(
            "w.py",
            "import os, sys\n"
            "if os.environ['RANK'] == '1' and not os.path.exists('failed'):\n"
            "    open('failed', 'w'); sys.exit(7)\n" + RANKS,
        )
        job = batch("b", command=["torchrun", script], env=self.place("b"), backoffLimit=4)
        out, err = self.run_local(self.write(job))
        self.assertEqual(self.ranks(out)[-2:], [("b-0", "0", "2"), ("b-1", "1", "2")])
        self.assertRegex(err, r"pod b-1: recreated \(1\)")

    def test_exit_codes_that_are_not_tried_again(self):
        rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 126]}}]
        command = ["sh", "-c", "[ $JOB_COMPLETION_INDEX = 0 ] || exit 2; exec sleep 60"]
        job = batch("b", command=command, podFailurePolicy={"rules": rules})
        _, err = self.run_local(self.write(job), code=2)
        self.assertIn("b-1 failed with exit code 2 matching FailJob rule (PodFailurePolicy)", err)
        self.assertRegex(err, r"(?m)^b-0 +deleted +143 \(SIGTERM\)")

    def test_jobset_in_order_and_made_anew(self):
        """The second job starts after the first is complete; its failure makes both anew."""
        prepare = batch("prepare", 1, ["sh", "-c", "echo prepared; echo >> prepared"])
        train = batch("train", 2, ["sh", "-c", "[ $JOB_COMPLETION_INDEX = 1 -a $(wc -l < prepared) = 1 ] && exit 9; echo $(hostname)"], backoffLimit=0)
        jobs = ((prepare, {}), (train, {"dependsOn": [{"name": "prepare", "status": "Complete"}]}))
        manifest = self.write(jobset("s", *jobs, failurePolicy={"maxRestarts": 1}))
        out, err = self.run_local(manifest)
        self.assertEqual(out.count("[s-prepare-0-0] prepared\n"), 2)
        self.assertIn("[s-train-0-1] s-train-0-1\n" if NAMESPACES else "[s-train-0-1]", out)
        self.assertIn("all Jobs are made anew (1 of maxRestarts 1)", err)
        self.assertIn("job s: Completed", err)

    @unittest.skipUnless(NAMESPACES, "no namespaces here")
    def test_names_resolve_as_in_a_cluster(self):
        """A pod's name alone is its own; others know it in its service."""
        code = (
            "import socket\n"
            "def known(name):\n"
            "    try: return bool(socket.getaddrinfo(name, 1))\n"
            "    except OSError: return False\n"
            "print([known(name) for name in ('b-0', 'b-1', 'b-1.b', 'b-1.b.default.svc')])"
        )
        out, _ = self.run_local(self.write(batch("b", command=["python3", "-c", code])))
        self.assertIn("[b-0] [True, False, True, True]\n", out)
        self.assertIn("[b-1] [False, True, True, True]\n", out)


@unittest.skipUnless(NAMESPACES, "no namespaces here")
class Volumes(KindTest):
    def mounted(self):
        """A job that mounts a volume of each kind, at places that this machine has and lacks."""
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"train.py": RANKS, "b": "two"}}
        binary = base64.b64encode(b"a\0b").decode()
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"key": binary}}
        volumes = [
            {"name": "code", "configMap": {"name": "c"}},
            {"name": "key", "secret": {"secretName": "s", "defaultMode": 0o400}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
            {"name": "models", "persistentVolumeClaim": {"claimName": "m"}},
            {"name": "pod", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ]
        mounts = [
            {"name": "code", "mountPath": "/etc/training"},
            {"name": "code", "mountPath": "/opt/one/file", "subPath": "b"},
            {"name": "key", "mountPath": "/etc/key"},
            {"name": "scratch", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "models", "mountPath": "/models"},
            {"name": "models", "mountPath": "/models/sub/deep", "subPath": "inner"},
            {"name": "pod", "mountPath": "/pod"},
        ]
        return config, secret, volumes, mounts

    def test_everything_is_mounted_and_nothing_is_left(self):
        config, secret, volumes, mounts = self.mounted()
        way = pathlib.Path(MUSTER).parts  # to the program, which is bound into the pod
        others = f" | grep -vFx '{way[2]}'" if way[1] == "tmp" else ""
        check = (
            "cat /opt/one/file /pod/name; od -An -c /etc/key/key; stat -c %a /etc/key/key; ls -A /tmp | grep -v muster_local" + others + " | wc -l;"
            "df -k --output=size /dev/shm | tail -1; touch /etc/training/x 2>/dev/null || echo locked; touch /tmp/mine;"
            "echo $HOSTNAME > /models/$HOSTNAME; echo deep > /models/sub/deep/$HOSTNAME; ls /etc/passwd; exec torchrun /etc/training/train.py"
        )
        job = batch("b", command=["sh", "-c", check], env=self.place("b"), volumes=volumes, mounts=mounts)
        before = {path for path in ("/models", "/pod", "/etc/training", "/opt/one") if os.path.exists(path)}
        out, err = self.run_local(self.write(job, config, secret), f"--volumes={self.folder}/claims")
        said = "".join(re.findall(r"(?m)^\[b-1\] (.*\n)", out))
        self.assertRegex(said, r"^twob-1\s+a\s+\\0\s+b\n400\n0\n\s*8192\n(locked\n)?/etc/passwd\nrank 1 of 2 ")
        if os.geteuid() == 0:
            self.assertIn("locked", said)
        self.assertEqual((self.folder / "claims/m/b-0").read_text(), "b-0\n")
        self.assertEqual((self.folder / "claims/m/inner/b-1").read_text(), "deep\n")
        self.assertEqual(before, {path for path in ("/models", "/pod", "/etc/training", "/opt/one") if os.path.exists(path)})

    def test_an_empty_folder_outlives_its_container_and_not_its_pod(self):
        command = ["sh", "-c", "ls /scratch; [ -e /scratch/a ] && exit 0; touch /scratch/a; exit 3"]
        volumes, mounts = [{"name": "v", "emptyDir": {}}], [{"name": "v", "mountPath": "/scratch"}]
        out, err = self.run_local(self.write(batch("b", 1, command, "OnFailure", volumes=volumes, mounts=mounts)))
        self.assertIn("[b-0] a\n", out)
        job = batch("b", 1, command, "Never", volumes=volumes, mounts=mounts, backoffLimit=1)
        out, err = self.run_local(self.write(job), code=3)
        self.assertNotIn("[b-0] a\n", out)

    def test_what_is_not_given_is_said(self):
        volumes = [{"name": "c", "configMap": {"name": "none"}}, {"name": "n", "nfs": {"server": "x", "path": "/"}}]
        mounts = [{"name": "c", "mountPath": "/c"}, {"name": "n", "mountPath": "/n"}, {"name": "x", "mountPath": "/x"}]
        pods, err = dry_run(batch("b", 1, volumes=volumes, mounts=mounts), code=2)
        self.assertIn("no ConfigMap none of the namespace default was given", err)
        self.assertIn("the volume n is of a kind that is not mounted here", err)
        self.assertIn("volumeMounts[2].name: Invalid: there is no volume of this name", err)
        self.assertEqual(pods[0]["mounts"], [])
        volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]
        mounts = [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/a/"}, {"name": "b", "mountPath": "/b:ro"}]
        pods, err = dry_run(batch("b", 1, volumes=volumes, mounts=mounts), code=2)
        self.assertIn("volumeMounts[1].mountPath: Invalid: must be unique: another mount has this path", err)
        self.assertIn("volumeMounts[2].mountPath: Invalid: must not contain ':'", err)

    @unittest.skipUnless(FORBIDDABLE, "namespaces cannot be forbidden here")
    def test_without_namespaces_it_is_said(self):
        volumes, mounts = [{"name": "v", "emptyDir": {}}], [{"name": "v", "mountPath": "/scratch"}]
        job = batch("b", 1, ["true"], volumes=volumes, mounts=mounts)
        _, err = self.run_local(self.write(job), before=["unshare", "-Ur", "sh", "-c", WITHOUT_NAMESPACES, "-"])
        self.assertIn("volumes are not mounted (namespaces are not permitted here)", err)


class Apart(KindTest):
    """Four pods of one GPU each, started with --nnodes=1: four models, and a job that a cluster calls Succeeded."""

    def seed(self, command):
        container = {"name": "pytorch", "image": "i", "command": command}
        replica = lambda count: {"replicas": count, "template": {"spec": {"containers": [container]}}}
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "seed"},
            "spec": {"nprocPerNode": "1", "pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(3)}},
        }

    def test_the_dry_run_warns(self):
        for command in (
            ["torchrun", "--nproc_per_node=1", "--nnodes=1", "train.py"],
            ["torchrun", "--nnodes", "1:1", "train.py"],
            ["python3", "-m", "torch.distributed.run", "--standalone", "train.py"],
            ["sh", "-c", "cd /app && exec torchrun --nnodes=1 train.py"],
        ):
            _, err = dry_run(self.seed(command))
            self.assertRegex(err, r"warning: \S+ PyTorchJob seed: each of its 4 pods forms a world of its own \(--")
        for command in (["torchrun", "train.py", "--nnodes=1"], ["torchrun", "--nnodes=4", "x.py"], ["python3", "x.py"]):
            _, err = dry_run(self.seed(command))
            self.assertNotIn("world of its own", err)

    def test_pods_of_a_job_that_are_told_nothing(self):
        _, err = dry_run(batch("b", 4, ["torchrun", "train.py"]))
        self.assertIn("Job b: each of its 4 pods forms a world of its own (neither --nnodes nor PET_NNODES)", err)

    def test_a_rank_from_an_annotation(self):
        """NODE_RANK by an annotation that only Indexed Jobs have, and no service: the rank is read, and a missing one is warned of."""
        job = batch("b", 2, ["torchrun", "--nnodes=2", "--nproc_per_node=1", self.script("w.py", RANKS)], policy="OnFailure")
        container = job["spec"]["template"]["spec"]["containers"][0]
        path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        container["env"] = [{"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": path}}},
                            {"name": "MASTER_ADDR", "value": "b-0"}, {"name": "MASTER_PORT", "value": str(free_port())}]
        pods, err = dry_run(job)
        self.assertEqual([pod["env"]["NODE_RANK"] for pod in pods], ["0", "1"])
        self.assertNotIn("so that the value is empty", err)
        out, _ = self.run_local(self.write(job))
        self.assertEqual(sorted(re.findall(r"rank (\d) of (\d) ", out)), [("0", "2"), ("1", "2")])
        del job["spec"]["completionMode"]
        _, err = dry_run(job)
        self.assertIn("the pod has no batch.kubernetes.io/job-completion-index, so that the value is empty; only pods of a Job with "
                      "completionMode: Indexed have it", err)

    def test_success_is_not_said_without_it(self):
        script = self.script("w.py", RANKS)
        job = self.seed(["torchrun", "--nproc_per_node=1", "--nnodes=1", "--master-port=0", script])
        job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
        job["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
        out, err = self.run_local(self.write(job), "--keep-going")
        self.assertEqual(len(re.findall(r"rank 0 of 1 ", out)), 2, out + err)
        self.assertIn("job seed: Succeeded, but its 2 pods are 2 worlds apart (--nnodes=1): nothing was trained together\n", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
