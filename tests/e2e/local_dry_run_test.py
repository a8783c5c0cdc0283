"""muster local --dry-run: the environment of every pod, the defaults and the validation of the PyTorchJob operator, held
against tests/data/pytorchjob_vectors.json; and promises of the command line. MUSTER_BUILD names the build tree."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", "build"))
MUSTER = str((BUILD / "bin/muster").resolve())
DATA = json.loads((pathlib.Path(__file__).parent.parent / "data/pytorchjob_vectors.json").read_text())
OPERATOR = re.compile(r"(PYTHONUNBUFFERED|WORLD_SIZE|RANK|(PET_)?MASTER_(ADDR|PORT)|PET_\w+)$")


def muster(*flags, text=None, files=()):
    """Runs muster local with the manifests on stdin or in files; (exit code, stdout, stderr)."""
    run = subprocess.run([MUSTER, "local", *[word for file in files for word in ("-f", str(file))],
                          *(["-f", "-"] if text is not None else []), *flags],
                         input=text, capture_output=True, text=True, timeout=300)
    return run.returncode, run.stdout, run.stderr


def pods_of(manifest, *flags):
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    code, out, err = muster("--dry-run", "--output=json", *flags, text=text)
    return code, json.loads(out) if out else None, err


def pytorchjob(container=None, name="job", workers=1, **spec):
    replica = lambda count: {"replicas": count, "template": {
        "spec": {"containers": [{"name": "pytorch", "image": "img", "command": ["true"], **(container or {})}]}}}
    replicas = {"Master": replica(1), **({"Worker": replica(workers)} if workers else {})}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
            "spec": {"pytorchReplicaSpecs": replicas, **spec}}


class Vectors(unittest.TestCase):
    def test_environment_of_every_pod(self):
        checked = 0
        for job in DATA["jobs"]:
            code, pods, err = pods_of(job["job"])
            self.assertEqual(code, 2 if job.get("webhook_rejects") else 0, job["id"] + err)
            for expected in job["pods"]:
                with self.subTest(job=job["id"], replica=expected["replica"], index=expected["index"]):
                    if expected.get("controller_crashes"):
                        self.assertIsNone(pods)
                        continue
                    pod, = [p for p in pods if (p["replica_type"], p["index"]) ==
                            (expected["replica"], expected["index"])]
                    self.assertEqual(pod["env"], expected["env"])
                    name = f"{job['job']['metadata']['name']}-{expected['replica'].lower()}-{expected['index']}"
                    self.assertEqual((pod["name"], pod["hostname"]), (name, name))
                    checked += 1
        self.assertGreaterEqual(checked, 34)

    def test_webhook(self):
        for row in DATA["webhook"]:
            with self.subTest(row["id"]):
                code, _, err = pods_of(row["job"])
                found = [(m[2], m[1]) for m in
                         re.finditer(r"error: [^:\n]+(?::\d+:\d+)?: (\S+): (Invalid|Required|NotSupported|Forbidden): ", err)]
                expected = sorted((e["type"], e["field"]) for e in row["errors"])
                self.assertEqual(sorted(found), expected, err)
                self.assertEqual(code, 2 if expected else 0)
                deprecated = len(re.findall("warning: .*deprecated", err))
                self.assertEqual(deprecated, row["warnings"], err)

    def test_defaults(self):
        for row in DATA["defaults"]:
            with self.subTest(row["id"]):
                code, pods, err = pods_of(row["job"])
                summary = muster("--dry-run", text=json.dumps(row["job"]))[1].splitlines()[0]
                self.assertIsNotNone(pods, err)
                if "elastic" in row:
                    low, high = row["elastic"]
                    self.assertEqual(pods[-1]["env"]["PET_NNODES"], f"{low}:{high}")
                    self.assertIn(f" elastic {low}:{high},", summary)
                if "nproc" in row:
                    self.assertEqual(pods[-1]["env"]["PET_NPROC_PER_NODE"], row["nproc"])
                if "workers" in row:
                    self.assertEqual(sum(p["replica_type"] == "Worker" for p in pods), row["workers"])
                if "restart_policy" in row:
                    self.assertIn(f"(restart {row['restart_policy']})", summary)
                if "clean_pod_policy" in row:
                    self.assertIn(f"cleanPodPolicy {row['clean_pod_policy']}", summary)
                if "port" in row:
                    self.assertEqual(pods[0]["env"]["MASTER_PORT"], str(row["port"]))

    def test_init_container_is_noted_where_the_operator_adds_one(self):
        for row in DATA["init_containers"]:
            job = pytorchjob(workers=row["replicas"].get("Worker", 0))
            if "Master" not in row["replicas"]:
                del job["spec"]["pytorchReplicaSpecs"]["Master"]
            if row["pod"] == "master-0":
                del job["spec"]["pytorchReplicaSpecs"]["Worker"]
            self.assertEqual("once the master's name resolves" in pods_of(job)[2], bool(row["added"]))


class Environment(unittest.TestCase):
    def user_env(self, env, *more, env_from=None, labels=None, container=None, flags=()):
        """The user's part of master-0's environment."""
        job = pytorchjob({"env": env, **({"envFrom": env_from} if env_from else {}), **(container or {})})
        for replica in job["spec"]["pytorchReplicaSpecs"].values():
            replica["template"]["metadata"] = labels or {}
        code, pods, err = pods_of("\n---\n".join(json.dumps(o) for o in (job, *more)), *flags)
        self.assertEqual(code, 0, err)
        return {k: v for k, v in pods[0]["env"].items() if not OPERATOR.match(k)}, pods

    def test_operator_wins_over_the_user(self):
        _, pods = self.user_env([{"name": "MASTER_ADDR", "value": "mine"}, {"name": "RANK", "value": "77"}])
        self.assertEqual([p["env"]["MASTER_ADDR"] for p in pods], ["job-master-0"] * 2)
        self.assertEqual([p["env"]["RANK"] for p in pods], ["0", "1"])

    def test_expansion(self):
        got, _ = self.user_env([
            {"name": "A", "value": "1"}, {"name": "B", "value": "<$(A)>"}, {"name": "C", "value": "$(D) $$(A) $$$(A) $A $"},
            {"name": "D", "value": "$(A"}, {"name": "E", "value": "$(RANK)"}, {"name": "A", "value": "2"}, {"name": "F"}])
        self.assertEqual(got, {"A": "2", "B": "<1>", "C": "$(D) $(A) $1 $A $", "D": "$(A", "E": "$(RANK)", "F": ""})

    def test_pod_fields(self):
        ref = lambda name, path: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        paths = {"NAME": "metadata.name", "SPACE": "metadata.namespace", "LABEL": "metadata.labels['team/x']",
                 "NONE": "metadata.labels['none']", "NOTE": "metadata.annotations['a']", "IP": "status.podIP",
                 "TYPE": "metadata.labels['training.kubeflow.org/replica-type']",
                 "INDEX": "metadata.labels['training.kubeflow.org/replica-index']",
                 "ROLE": "metadata.labels['training.kubeflow.org/job-role']",
                 "JOB": "metadata.labels['training.kubeflow.org/job-name']",
                 "WHO": "metadata.labels['training.kubeflow.org/operator-name']",
                 "ACCOUNT": "spec.serviceAccountName", "HOST": "status.hostIP", "NODE": "spec.nodeName"}
        got, pods = self.user_env([ref(k, v) for k, v in paths.items()] + [ref("UID_", "metadata.uid")],
                                  labels={"labels": {"team/x": "red"}, "annotations": {"a": "b"}})
        self.assertRegex(got.pop("UID_"), r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$")
        self.assertEqual(got, {"NAME": "job-master-0", "SPACE": "default", "LABEL": "red", "NONE": "", "NOTE": "b",
                               "IP": "127.77.0.1", "TYPE": "master", "INDEX": "0", "ROLE": "master", "JOB": "job",
                               "WHO": "pytorchjob-controller", "ACCOUNT": "default", "HOST": "127.0.0.1",
                               "NODE": os.uname().nodename})
        self.assertEqual([pods[1]["env"][k] for k in ("NAME", "TYPE", "ROLE", "IP")],
                         ["job-worker-0", "worker", "", "127.77.0.2"])

    def test_resources(self):
        ref = lambda name, resource, divisor=None: {"name": name, "valueFrom": {"resourceFieldRef": {
            "resource": resource, **({"divisor": divisor} if divisor else {})}}}
        got, _ = self.user_env(
            [ref("CPU", "limits.cpu"), ref("MILLI", "limits.cpu", "1m"), ref("MEM", "limits.memory", "1Mi"),
             ref("ASKED", "requests.cpu"), ref("SAME", "requests.memory", "1Gi"), ref("GPU", "limits.nvidia.com/gpu")],
            container={"resources": {"limits": {"cpu": "2500m", "memory": "3Gi", "nvidia.com/gpu": 2},
                                     "requests": {"cpu": 1}}})
        self.assertEqual(got, {"CPU": "3", "MILLI": "2500", "MEM": "3072", "ASKED": "1", "SAME": "3", "GPU": "2"})

    def test_config_maps_and_secrets(self):
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"lr": "0.1", "steps": "5"}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
                  "data": {"token": "aHVzaA==", "old": "b2xk"}, "stringData": {"old": "new"}}
        key = lambda kind, name, key, **more: {"valueFrom": {kind + "KeyRef": {"name": name, "key": key, **more}}}
        got, _ = self.user_env(
            [{"name": "LR", **key("configMap", "c", "lr")}, {"name": "T", **key("secret", "s", "token")},
             {"name": "OLD", **key("secret", "s", "old")}, {"name": "GONE", **key("secret", "x", "y", optional=True)},
             {"name": "ALSO", **key("configMap", "c", "y", optional=True)}, {"name": "X", "value": "$(C_steps)"}],
            config, secret, env_from=[{"prefix": "C_", "configMapRef": {"name": "c"}},
                                      {"secretRef": {"name": "none", "optional": True}}])
        self.assertEqual(got, {"C_lr": "0.1", "C_steps": "5", "LR": "0.1", "T": "hush", "OLD": "new", "X": "5"})

    def test_what_cannot_be_had_is_said(self):
        cases = [
            ({"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, "no Secret s of the namespace default was given"),
            ({"valueFrom": {"fieldRef": {"fieldPath": "metadata.nam"}}}, "'metadata.nam' is none of metadata.name"),
            ({"valueFrom": {"resourceFieldRef": {"resource": "cpu"}}}, "neither limits.<resource> nor"),
            ({"valueFrom": {}}, "none of fieldRef"),
            ({"value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, "both value and valueFrom"),
            ({"value": 5}, '5 is an integer where text is expected; quote it: "5"'),
        ]
        for entry, text in cases:
            code, _, err = pods_of(pytorchjob({"env": [{"name": "V", **entry}]}))
            self.assertEqual(code, 2)
            self.assertIn("spec.pytorchReplicaSpecs[Master].template.spec.containers[0].env[0]", err)
            self.assertIn(text, err)

    def test_doubling_variables_are_stopped(self):
        env = [{"name": "V0", "value": "x" * 100}]
        env += [{"name": f"V{i}", "value": f"$(V{i - 1})$(V{i - 1})"} for i in range(1, 60)]
        code, pods, err = pods_of(pytorchjob({"env": env}))
        self.assertEqual((code, pods), (2, None))
        self.assertIn("when its variables are filled in", err)


class Command(unittest.TestCase):
    def command(self, command, *flags, args=None, env=None):
        container = {"command": command, **({"args": args} if args else {}), **({"env": env} if env else {})}
        if command is None:
            del container["command"]
        job = pytorchjob(container, workers=0)
        if command is None:
            job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0].pop("command")
        code, pods, err = pods_of(job, *flags)
        self.assertEqual(code, 0, err)
        return pods[0]["command"], err

    def test_torchrun_is_ours(self):
        run = [MUSTER, "run"]
        for words, expected in (
                (["torchrun", "x.py"], [*run, "x.py"]),
                (["/usr/local/bin/torchrun", "--nnodes=2", "x.py"], [*run, "--nnodes=2", "x.py"]),
                (["python", "-m", "torch.distributed.run", "x.py"], [*run, "x.py"]),
                (["/opt/conda/bin/python3.11", "-u", "-m", "torch.distributed.run", "x.py"], [*run, "x.py"]),
                (["python3", "-mtorch.distributed.run", "x.py"], [*run, "x.py"]),
                (["muster", "run", "x"], [*run, "x"]),
                (["python3", "-m", "torch", "torchrun"], ["python3", "-m", "torch", "torchrun"]),
                (["python3", "torchrun"], ["python3", "torchrun"]),
                (["sh", "-c", "torchrun x.py"], ["sh", "-c", "torchrun x.py"])):
            self.assertEqual(self.command(words)[0], expected)
        self.assertEqual(self.command(["python3", "-u", "-m", "torch.distributed.launch", "--use-env", "x.py"])[0],
                         [MUSTER, "launch", "--use-env", "x.py"])

    def test_args_and_expansion(self):
        self.assertEqual(self.command(["torchrun", "--rank=$(RANK)"], args=["$(LR)", "$(NONE)", "$$(LR)"],
                                      env=[{"name": "LR", "value": "0.1"}])[0],
                         [MUSTER, "run", "--rank=0", "0.1", "$(NONE)", "$(LR)"])

    def test_entrypoint(self):
        known, err = self.command(None, "--entrypoint=torchrun --tee '3' \"a b\" c\\ d", args=["x.py"])
        self.assertEqual(known, [MUSTER, "run", "--tee", "3", "a b", "c d", "x.py"])
        self.assertNotIn("entrypoint", err)
        unknown, err = self.command(None, args=["--epochs=1"])
        self.assertEqual(unknown, ["--epochs=1"])
        self.assertIn("give it by --entrypoint", err)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, text):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(text)
        return path

    def test_places_and_all_errors_at_once(self):
        path = self.write("bad.yaml", """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: 0-test
spec:
  nprocPerNode: 2
  pytorchReplicaSpecs:
    Master:
      replicas: 2
      imagePullPolicy: Always
      template:
        spec:
          containers:
            - name: pytorch
              image: img
              comand: [torchrun, x.py]
""")
        code, _, err = muster("--dry-run", files=[path])
        self.assertEqual(code, 2)
        for line in (f"{path}:4:9: metadata.name: Invalid: '0-test' is not a label",
                     f"{path}:6:17: spec.nprocPerNode: Invalid: 2 is an integer where text is expected; quote it: \"2\"",
                     f"{path}:9:17: spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1, not 2",
                     f"{path}:10:7: spec.pytorchReplicaSpecs[Master].imagePullPolicy: unknown field",
                     f"{path}:16:15: spec.pytorchReplicaSpecs[Master].template.spec.containers[0].comand: unknown field, which a "
                     "cluster drops silently; did you mean command?", "error: 3 errors: the job is not run"):
            self.assertIn(line, err)

    def test_validation_may_be_softened(self):
        job = pytorchjob(name="a.b")
        self.assertEqual(pods_of(job)[0], 2)
        code, pods, err = pods_of(job, "--validate=warn")
        self.assertEqual((code, pods[0]["name"]), (0, "a.b-master-0"))
        self.assertIn("warning: stdin:1:", err)

    def test_several_documents_files_and_folders(self):
        two = "---\n".join(json.dumps(o) + "\n" for o in (
            pytorchjob(name="one"), {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}, pytorchjob(name="two")))
        path = self.write("a.yaml", two)
        code, _, err = muster("--dry-run", files=[path])
        self.assertEqual(code, 2)
        self.assertIn("there are 2 jobs in these files (PyTorchJob one, PyTorchJob two); choose one by --job", err)
        code, out, err = muster("--dry-run", "--output=json", "--job=two", files=[self.folder.name])
        self.assertEqual((code, json.loads(out)[0]["name"]), (0, "two-master-0"))
        self.assertIn("Service s is left aside", err)
        code, _, err = muster("--dry-run", "--job=three", files=[path])
        self.assertEqual(code, 2)
        self.assertIn("with the name three in these files; they hold PyTorchJob one", err)
        listed = {"apiVersion": "v1", "kind": "List", "items": [pytorchjob(name="item")]}
        self.assertEqual(pods_of(listed)[1][0]["name"], "item-master-0")

    def test_yaml_as_kubectl_reads_it(self):
        code, pods, err = pods_of("""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: anchors, labels: {"on": "yes"}}
spec:
  pytorchReplicaSpecs:
    Master: &replica
      replicas: 1
      template:
        spec:
          containers:
          - &box
            name: pytorch
            image: img
            command: [torchrun, train.py]
            env:
            - {name: LONG, value: "multi\\nline \\u00e9"}
            - name: BLOCK
              value: |
                two
                lines
    Worker:
      <<: *replica
      replicas: 0x2
""")
        self.assertEqual(code, 0, err)
        self.assertEqual([p["name"] for p in pods], ["anchors-master-0", "anchors-worker-0", "anchors-worker-1"])
        self.assertEqual(pods[2]["env"]["LONG"], "multi\nline \u00e9")
        self.assertEqual(pods[2]["env"]["BLOCK"], "two\nlines\n")
        emoji = pods_of(pytorchjob({"env": [{"name": "FACE", "value": "\U0001f600"}]}))[1]
        self.assertEqual(emoji[0]["env"]["FACE"], "\U0001f600")

    def test_hostile_files_are_rejected(self):
        laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n" + "".join(
            f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
        for text, why in ((laughs, "more than 200000 values"), ("[" * 1000000, "nested more than 64 deep"),
                          ("x" * 4000000, "larger than"), ("&a [*a]", "is inside of its own anchor"),
                          ("kind: a: b", "not valid YAML"), ("5", "is not a Kubernetes object"),
                          ("kind: Pod", "has no apiVersion"), ("", "they hold no objects at all"),
                          ("apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: t}", "they hold TFJob t")):
            code, out, err = muster("--dry-run", text=text)
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn(why, err)

    def test_warnings_of_traps(self):
        cases = [(pytorchjob(workers=2, elasticPolicy={}), "PET_NNODES=2:2 counts the Workers alone while 3 pods start"),
                 (pytorchjob(workers=2, elasticPolicy={"standalone": True}), "with which torchrun itself cannot start"),
                 (pytorchjob(workers=2, elasticPolicy={"minReplicas": 3, "maxReplicas": 1}), "is above maxReplicas 1"),
                 (pytorchjob(nprocPerNode="many"), "'many' is neither auto, cpu, gpu nor a number above 0"),
                 (pytorchjob(name="n" * 60), "above 63 a cluster creates no service"),
                 (pytorchjob(runPolicy={"cleanPodPolicy": "running"}), "the operator then deletes all pods"),
                 (pytorchjob(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}), "ignores such a job")]
        for job, text in cases:
            code, _, err = pods_of(job)
            self.assertEqual(code, 0, err)
            self.assertIn(text, err)


class CommandLine(unittest.TestCase):
    def test_bad_usage_is_one_line(self):
        for flags, why in (([], "no manifest was given"), (["job.yaml"], "'job.yaml' is not a flag"),
                           (["-f", "/nonexistent.yaml"], "/nonexistent.yaml"), (["--ouput=json"], "did you mean --output?"),
                           (["-f", "x", "--output=json"], "--output is the format of --dry-run"),
                           (["-f", "x", "--dry-run", "--output=markdown"], "--output=markdown is a format of --help"),
                           (["-f", "-", "--validate=never"], "is not one of strict, warn"),
                           (["-f", "-", "--dry-run", "--entrypoint='x"], "unclosed quote")):
            run = subprocess.run([MUSTER, "local", *flags], input=json.dumps(pytorchjob()), capture_output=True, text=True)
            self.assertEqual(run.returncode, 2, run)
            self.assertIn(why, run.stderr)
            self.assertEqual((run.stdout, run.stderr.count("\n")), ("", 1), run)

    def test_help(self):
        code, out, _ = muster("--help")
        self.assertEqual(code, 0)
        for flag in ("--filename", "--entrypoint", "--dry-run", "--validate", "--backoff-scale"):
            self.assertIn(flag, out)

    def test_text_is_for_people(self):
        _, out, _ = muster("--dry-run", text=json.dumps(pytorchjob({"command": ["echo", "a b", "it's", ""]})))
        self.assertIn("  command: echo 'a b' 'it'\\''s' ''\n", out)
        self.assertIn("pod job-worker-0: Worker 0, address 127.77.0.2, 0 GPUs, grace 30 s\n", out)
        self.assertIn("  PET_NODE_RANK=1\n", out)



class Env(unittest.TestCase):
    def test_a_value_of_the_command_line_is_over_the_manifests_and_under_the_operators(self):
        container = {"env": [{"name": "DATA", "value": "/data"}, {"name": "KEEP", "value": "k"}], "command": ["run", "$(DATA)"]}
        code, pods, err = pods_of(pytorchjob(container), "--env=DATA=/here", "-e", "NEW=a=b", "--env", "PET_NNODES=9")
        self.assertEqual(code, 0, err)
        for pod in pods:
            self.assertEqual([pod["env"][name] for name in ("DATA", "KEEP", "NEW", "PET_NNODES")], ["/here", "k", "a=b", "2"])
            self.assertEqual(pod["command"], ["run", "/here"])

    def test_what_is_no_assignment(self):
        for text in ("DATA", "=x"):
            code, pods, err = pods_of(pytorchjob(), f"--env={text}")
            self.assertEqual((code, pods), (2, None))
            self.assertIn(f"'{text}' is not NAME=value", err)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
