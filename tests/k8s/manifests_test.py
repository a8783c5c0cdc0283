"""Every manifest of k8s/ against the API server's checks: the CRDs' schemas, the built-in kinds' schemas, and a few rules of
our own (grace period against shutdown time-out, names that refer to something, flags that exist).

Runs under MUSTER_TORCH_PYTHON or .venv/bin/python, which `./dev test` gives the packages; skipped (exit 77) where they are
missing, which is an error in CI."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE") or HERE.parent.parent)
K8S = SOURCE / "k8s"
NEEDED = ("yaml", "jsonschema", "kubernetes_validate", "kubeflow_trainer_api")
KUBERNETES = "1.33"


def require_packages():
    wanted = os.environ.get("MUSTER_TORCH_PYTHON") or str(SOURCE / ".venv" / "bin" / "python")
    if not os.environ.get("MUSTER_MANIFESTS_PYTHON") and os.access(wanted, os.X_OK):
        os.environ["MUSTER_MANIFESTS_PYTHON"] = wanted
        os.execv(wanted, [wanted, *sys.argv])
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {sys.executable} has no {', '.join(missing)}", flush=True)
        sys.exit(1 if os.environ.get("CI") == "true" else 77)


require_packages()

import jsonschema
import kubernetes_validate
import yaml
from kubeflow_trainer_api.models import JobsetV1alpha2JobSetSpec, TrainerV1alpha1ClusterTrainingRuntime, TrainerV1alpha1TrainingRuntime

sys.path.insert(0, str(HERE))
import small_schemas


def strict(schema):
    """The schema with unknown fields refused: the API server would drop them without a word."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {name: strict(value) for name, value in schema.items()}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema and not open_ended:
        copy["additionalProperties"] = False
    return copy


def crd(name):
    schema = strict(json.loads((HERE / "schema" / name).read_text()))
    schema["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft202012Validator(schema)


CRDS = {"PyTorchJob": crd("pytorchjob.json"), "TrainJob": crd("trainjob.json")}


OTHER_YAML = ("kustomization.yaml", "adapter-values.yaml", "pipeline.yaml", "reviews.yaml")  # and *.yml: no object of a cluster, tested elsewhere


def manifests():
    """(path, document) of every document of k8s/, kustomizations and program configurations left aside."""
    for path in sorted(K8S.rglob("*.yaml")):
        if path.name in OTHER_YAML or path.parent.name == "configs":
            continue
        for document in yaml.safe_load_all(path.read_text()):
            if document:
                yield path, document


def kustomizations():
    for path in sorted(K8S.rglob("kustomization.yaml")):
        yield path, yaml.safe_load(path.read_text())


def templates(document):
    """Every pod template inside a document."""
    if isinstance(document, dict):
        if "containers" in document.get("spec", {}) and document.get("kind") != "Pod":
            yield document
        for value in document.values():
            yield from templates(value)
    elif isinstance(document, list):
        for value in document:
            yield from templates(value)


def environment(container):
    return {entry["name"]: entry.get("value") for entry in container.get("env", [])}


def launches(template):
    """The container of a pod that starts muster, None where it does not."""
    for container in template["spec"]["containers"]:
        if re.search("torchrun|muster run", " ".join(container.get("command", []))):
            return container
    return None


TYPED = {"ClusterTrainingRuntime": TrainerV1alpha1ClusterTrainingRuntime, "TrainingRuntime": TrainerV1alpha1TrainingRuntime}


def errors_of(document):
    """The API server's objections to a document."""
    kind = document["kind"]
    if small_schemas.schema_of(document):
        pods = [{"apiVersion": "v1", "kind": "PodTemplate", "template": template} for template in templates(document)]
        for pod in pods:
            kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        return small_schemas.errors_of(document)
    if kind in CRDS:
        return [f"{error.json_path}: {error.message}" for error in sorted(CRDS[kind].iter_errors(document), key=str)]
    if kind in TYPED:
        return lost(document, TYPED[kind].from_dict(document).to_dict())
    if kind == "JobSet":
        pods = document["spec"]["replicatedJobs"]
        for job in pods:
            kubernetes_validate.validate({"apiVersion": "batch/v1", "kind": "Job", "spec": job["template"]["spec"]}, KUBERNETES, strict=True)
        return lost(document["spec"], JobsetV1alpha2JobSetSpec.from_dict(document["spec"]).to_dict())
    kubernetes_validate.validate(document, KUBERNETES, strict=True)
    return []


class Written(unittest.TestCase):
    """What muster manifest writes."""

    def test_schemas(self):
        muster = pathlib.Path(os.environ["MUSTER_BUILD"]) / "bin" / "muster"
        kinds = set()
        for kind in ("pytorchjob", "trainjob", "job", "jobset"):
            for nodes in "1", "4":
                flags = ["--gpus=8", "--cpus=16", "--memory=64Gi", "--claim=models=/models", "--env=A=b: c", "--queue=q", "--namespace=n"]
                command = [muster, "manifest", f"--kind={kind}", f"--nodes={nodes}", *flags, "--image=i:1", "--", "train.py", "--lr=1"]
                text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                for document in yaml.safe_load_all(text):
                    with self.subTest(kind=document["kind"], nodes=nodes):
                        kinds.add(document["kind"])
                        self.assertEqual(errors_of(document), [])
                        for template in templates(document):
                            container = template["spec"]["containers"][0]
                            self.assertGreater(template["spec"]["terminationGracePeriodSeconds"], float(environment(container)["PET_SHUTDOWN_TIMEOUT"]))
                            self.assertEqual(environment(container)["A"], "b: c")
                            self.assertEqual("MUSTER_SECRET_FILE" in environment(container), nodes == "4")
                            self.assertIn("/dev/shm", [mount["mountPath"] for mount in container["volumeMounts"]])
        self.assertEqual(kinds, {"PyTorchJob", "TrainJob", "TrainingRuntime", "Job", "JobSet", "Service", "Secret"})


class Manifests(unittest.TestCase):
    def each(self, check):
        """Calls check for every document, each a case of its own."""
        found = list(manifests())
        self.assertGreater(len(found), 15)
        for path, document in found:
            with self.subTest(file=str(path.relative_to(SOURCE)), kind=document["kind"]):
                check(document)

    def each_template(self, check):
        self.each(lambda document: [check(template) for template in templates(document)])

    def test_schemas(self):
        kinds = set()

        def check(document):
            kinds.add(document["kind"])
            self.assertEqual(errors_of(document), [])

        self.each(check)
        self.assertLessEqual(
            {"PyTorchJob", "TrainJob", "ClusterTrainingRuntime", "Job", "Service", "Namespace", "ResourceQuota"}
            | {"PersistentVolumeClaim", "Secret", "Deployment", "DaemonSet", "NetworkPolicy"}
            | {"JobSet", "ClusterQueue", "LocalQueue", "ResourceFlavor", "Queue", "HorizontalPodAutoscaler", "PodMonitor", "RoleBinding"},
            kinds,
        )

    def test_the_check_finds_errors(self):
        job = next(document for path, document in manifests() if path.name == "pytorchjob-one-node.yaml")
        job["spec"]["nprocPerNode"] = 4  # a number where the schema has a string
        job["spec"]["pytorchReplicaSpecs"]["Master"]["imagePullPolicy"] = "Always"  # in the wrong place
        messages = " ".join(error.message for error in CRDS["PyTorchJob"].iter_errors(job))
        self.assertIn("4 is not of type 'string'", messages)
        self.assertIn("imagePullPolicy", messages)
        job = next(document for path, document in manifests() if path.parent.name == "volcano" and document["kind"] == "Job")
        job["spec"]["minavailable"] = job["spec"].pop("minAvailable")
        self.assertIn("minavailable", " ".join(errors_of(job)))
        job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["comand"] = ["x"]
        self.assertRaisesRegex(kubernetes_validate.ValidationError, "comand", errors_of, job)

    def test_kustomizations_list_files_that_exist(self):
        found = list(kustomizations())
        self.assertEqual({path.parent.name for path, _ in found}, {"k8s", "monitoring"})
        for path, kustomization in found:
            names = list(kustomization["resources"])
            for generator in kustomization["configMapGenerator"]:
                names += [entry.split("=", 1)[-1] for entry in generator["files"]]
            self.assertEqual([name for name in names if not (path.parent / name).is_file()], [])

    def test_grace_is_longer_than_the_shutdown_timeout(self):
        checked = []

        def check(template):
            container = launches(template)
            if container:
                checked.append(container)
                grace = template["spec"].get("terminationGracePeriodSeconds", 30)
                self.assertGreater(grace, float(environment(container).get("PET_SHUTDOWN_TIMEOUT", 30)))

        self.each_template(check)
        self.assertGreater(len(checked), 13)

    def test_names_refer_to_something(self):
        made = {("ConfigMap", generator["name"]) for _, each in kustomizations() for generator in each["configMapGenerator"]}
        made |= {(document["kind"], document["metadata"]["name"]) for _, document in manifests()}

        def check(template):
            volumes = {volume["name"]: volume for volume in template["spec"].get("volumes", [])}
            for volume in volumes.values():
                if "configMap" in volume:
                    self.assertIn(("ConfigMap", volume["configMap"]["name"]), made)
                if "secret" in volume:
                    self.assertIn(("Secret", volume["secret"]["secretName"]), made)
                if "persistentVolumeClaim" in volume:
                    self.assertIn(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]), made)
            for container in template["spec"]["containers"] + template["spec"].get("initContainers", []):
                for mount in container.get("volumeMounts", []):
                    self.assertIn(mount["name"], volumes)
                for entry in container.get("env", []):
                    secret = entry.get("valueFrom", {}).get("secretKeyRef")
                    self.assertTrue(secret is None or ("Secret", secret["name"]) in made, entry)

        self.each_template(check)

    def test_variables_are_settings_of_muster(self):
        muster = pathlib.Path(os.environ["MUSTER_BUILD"]) / "bin" / "muster"
        known = subprocess.run([muster, "run", "--help"], capture_output=True, text=True, check=True).stdout

        def check(template):
            for container in template["spec"]["containers"]:
                for name in environment(container):
                    self.assertTrue(not re.match("PET_|MUSTER_", name) or re.search(rf"\b{name}\b", known), name)

        self.each_template(check)


class JobSecret(unittest.TestCase):
    """Pods of several nodes have the job's secret as a file that only they can read, and no other pod does."""

    ONE_POD = ("pytorchjob-one-node.yaml",)

    def pods(self):
        """(file, template, container) of what starts muster; the CPU variants are for one machine."""
        for path, document in manifests():
            for template in templates(document):
                container = launches(template)
                if container and path.parent.name != "cpu":
                    yield str(path.relative_to(K8S)).removeprefix("clusters/"), template, container

    def test_nodes_of_a_job_have_it(self):
        names = set()
        secrets = {each["metadata"]["name"]: each for _, each in manifests() if each["kind"] == "Secret"}
        for name, template, container in self.pods():
            path = environment(container).get("MUSTER_SECRET_FILE")
            with self.subTest(file=name):
                if name in self.ONE_POD:
                    self.assertIsNone(path)
                    continue
                names.add(name)
                folder, key = path.rsplit("/", 1)
                mount = next(mount for mount in container["volumeMounts"] if mount["mountPath"] == folder)
                self.assertTrue(mount["readOnly"])
                volume = next(volume for volume in template["spec"]["volumes"] if volume["name"] == mount["name"])
                self.assertEqual(volume["secret"]["defaultMode"], 0o400)
                self.assertIn(key, secrets[volume["secret"]["secretName"]]["stringData"])
                # without the group a user that is not root could not read it
                self.assertIn("fsGroup", template["spec"]["securityContext"])
                others = template["spec"]["containers"] + template["spec"].get("initContainers", [])
                holders = [each["name"] for each in others for each_mount in each.get("volumeMounts", []) if each_mount["name"] == mount["name"]]
                self.assertEqual(holders, [container["name"]])
        self.assertEqual(
            names,
            {"pytorchjob-elastic.yaml", "pytorchjob-master-workers.yaml", "indexed-job.yaml", "trainjob.yaml", "jobset/jobset.yaml"}
            | {"kueue/pytorchjob.yaml", "volcano/job.yaml", "elastic-hpa/pytorchjob.yaml"},
        )

    def test_muster_secret_makes_what_stands_there(self):
        muster = pathlib.Path(os.environ["MUSTER_BUILD"]) / "bin" / "muster"
        path = K8S / "02-secrets.yaml"
        command = re.search(r"muster (secret --output=kubernetes .*?) \|", path.read_text()).group(1)
        made = yaml.safe_load(subprocess.run([muster, *command.split()], capture_output=True, text=True, check=True).stdout)
        kubernetes_validate.validate(made, KUBERNETES, strict=True)
        placeholder = next(each for each in yaml.safe_load_all(path.read_text()) if each["metadata"]["name"] == made["metadata"]["name"])
        self.assertTrue(made["stringData"]["secret"].startswith("muster-secret-1:"))
        self.assertEqual(placeholder["stringData"], {"secret": "replace-me"})  # never a real one
        made["stringData"] = placeholder["stringData"]
        self.assertEqual(made, placeholder)


class Policy(unittest.TestCase):
    def test_muster_reads_it(self):
        muster = pathlib.Path(os.environ["MUSTER_BUILD"]) / "bin" / "muster"
        document = next(document for path, document in manifests() if path.name == "nccl-policy.yaml")
        [(name, text)] = document["data"].items()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.write_text(text)
            for forbidden in (False, True):
                done = subprocess.run(
                    [muster, "run", f"--nccl-policy={path}", "--standalone", "--dry-run", "true"],
                    capture_output=True,
                    text=True,
                    env={"PATH": os.environ["PATH"], **({"NCCL_IB_DISABLE": "1"} if forbidden else {})},
                )
                self.assertEqual(done.returncode, 2 if forbidden else 0, done.stderr)
                self.assertEqual("nccl-policy.yaml:4 forbids it" in done.stderr, forbidden, done.stderr)

    def test_the_job_that_names_it_mounts_it(self):
        document = next(document for path, document in manifests() if path.name == "pytorchjob-master-workers.yaml")
        policy = next(document for path, document in manifests() if path.name == "nccl-policy.yaml")
        for template in templates(document):
            container = launches(template)
            folder, name = environment(container)["MUSTER_NCCL_POLICY"].rsplit("/", 1)
            self.assertIn(name, policy["data"])
            self.assertIn({"name": "nccl-policy", "mountPath": folder, "readOnly": True}, container["volumeMounts"])


def lost(given, read, path=""):
    """Losses of a typed reader: fields that the kind does not have."""
    if isinstance(given, dict) and isinstance(read, dict):
        missing = [f"{path}.{name}" for name in given if name not in read]
        return missing + [each for name in given if name in read for each in lost(given[name], read[name], f"{path}.{name}")]
    if isinstance(given, list) and isinstance(read, list):
        return [each for i, (a, b) in enumerate(zip(given, read)) for each in lost(a, b, f"{path}[{i}]")]
    return []


if __name__ == "__main__":
    unittest.main(verbosity=2)
