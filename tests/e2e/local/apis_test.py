"""muster local with manifests as people bring them: templates that were not rendered, fields in old places, Secrets that only a
cluster has, paths that this machine lacks; JobSets, Jobs and TrainJobs of the newest releases; and what muster run would say in a pod.

    MUSTER_BUILD=build python3 tests/e2e/local/apis_test.py [TestClass.test_name ...]"""

import json
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from harness import MUSTER  # noqa: E402
from kinds_test import KindTest, batch, dry_run, jobset, runtime, trainjob  # noqa: E402
from local_test import NAMESPACES  # noqa: E402


def text_run(text, *flags):
    run = subprocess.run([MUSTER, "local", "-f", "-", "--dry-run", "--output=json", *flags], input=text, capture_output=True, text=True, timeout=60)
    return run.returncode, run.stdout, run.stderr


def pytorchjob(container=None, pod=None, workers=1, spec=None, replica=None, **top):
    main = {"name": "pytorch", "image": "i", "command": ["true"], **(container or {})}
    worker = {"replicas": workers, "restartPolicy": "Never", "template": {"spec": {"containers": [main], **(pod or {})}}, **(replica or {})}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}, "spec": {"pytorchReplicaSpecs": {"Worker": worker}, **(spec or {})}, **top}


class Advice(unittest.TestCase):
    """The cause follows the value and the name, not the type."""

    TEXT = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: %(name)s}
spec:
  nprocPerNode: %(nproc)s
  pytorchReplicaSpecs:
    Worker:
      replicas: %(replicas)s
      template: {spec: {containers: [{name: pytorch, image: %(image)s, command: [sh, -c, "echo $HOME ${X}"], resources: {limits: {nvidia.com/gpu: %(gpus)s}}}]}}
"""

    def said(self, code=2, **values):
        text = self.TEXT % {"name": "j", "nproc": '"2"', "replicas": "2", "image": "i", "gpus": "0", **values}
        got, _, err = text_run(text)
        self.assertEqual(got, code, err)
        return err

    def test_values_that_were_not_substituted(self):
        for value, way in (
            ("$NUM_NODES", "envsubst"), ("${NUM_NODES}", "envsubst"), ('"${N:-2}"', "envsubst"), ('"{{ .Values.nodes }}"', "helm template"),
            ('"{{ include \\"x.y\\" . }}"', "helm template"), ('"{{ nodes }}"', "template"), ("<number of nodes>", "write a value in its place"),
            ('"@NODES@"', "write a value in its place"), ('"%NODES%"', "write a value in its place"), ("__NODES__", "write a value in its place"),
            ("$(NODES)", "kustomize"), ("${{ inputs.nodes }}", "template"), ("{nodes}", "template"),
        ):
            with self.subTest(value):
                err = self.said(replicas=value)
                self.assertRegex(err, r"error: stdin:8:17: spec.pytorchReplicaSpecs\[Worker\].replicas: Invalid: .* was not substituted: .*" + way)
                self.assertNotIn("quotes", err)
                self.assertEqual(err.count("\n"), 2, err)  # that line and the count

    def test_one_line_names_them_all(self):
        err = self.said(replicas="$NUM_NODES", image='"${IMAGE}"', gpus="$GPUS")
        self.assertEqual(err.count("substituted"), 1)
        self.assertIn("$NUM_NODES was not substituted (nor ${IMAGE}, $GPUS): set the variable and run envsubst", err)

    def test_names_and_images(self):
        self.assertIn("metadata.name: Invalid: ${NAME} was not substituted", self.said(name='"${NAME}"'))
        err = self.said(code=0, image='"registry/$IMAGE:tag"')  # images are not used here
        self.assertIn("warning: stdin:9:61: spec.pytorchReplicaSpecs[Worker].template.spec.containers[0].image: $IMAGE was not substituted", err)

    def test_quotes_are_advised_where_they_are_the_mistake(self):
        self.assertIn("'2' is text where an integer is expected; write it without quotes", self.said(replicas='"2"'))
        err = self.said(replicas="two")
        self.assertIn("'two' is text where an integer is expected\n", err)

    def test_a_file_that_is_no_yaml_before_it_is_rendered(self):
        for text in ("metadata: {name: {{ .Release.Name }}}", "{{- if .Values.x }}\nkind: Job\n{{- end }}", "# {{ fine }}\nspec:\n  n: {{ include \"a\" . }}"):
            with self.subTest(text):
                code, _, err = text_run("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n" + text)
                self.assertEqual(code, 2)
                self.assertRegex(err, r"stdin:\d: \{\{.*\}\} was not substituted: this is a Helm template; render the chart first \(helm template CHART")
        self.assertIn("{% for x in y %} was not substituted", text_run("kind: Job\n{% for x in y %}\na: {\n")[2])
        self.assertIn("was @N@ to be substituted?", text_run("kind: Job\nspec:\n  replicas: @N@\n")[2])
        code, _, err = text_run("kind: Job\nspec: {command: [sh, -c, \"echo ${X}\"\n")
        self.assertNotIn("substituted:", err)

    def test_fields_in_other_places(self):
        for field, value, place in (
            ("cleanPodPolicy", "None", "spec.runPolicy.cleanPodPolicy"), ("ttlSecondsAfterFinished", 9, "spec.runPolicy.ttlSecondsAfterFinished"),
            ("backoffLimit", 2, "spec.runPolicy.backoffLimit"), ("maxReplicas", 2, "spec.elasticPolicy.maxReplicas"),
            ("restartPolicy", "Never", "spec.pytorchReplicaSpecs[<TYPE>].restartPolicy"), ("queue", "q", "spec.runPolicy.schedulingPolicy.queue"),
            ("nodeSelector", {}, "spec.pytorchReplicaSpecs[<TYPE>].template.spec.nodeSelector"),
        ):
            with self.subTest(field):
                _, err = dry_run(pytorchjob(spec={field: value}))
                self.assertIn(f"spec.{field}: unknown field here, which a cluster drops silently; its place is {place}\n", err)
        _, err = dry_run(pytorchjob(replica={"imagePullPolicy": "Always"}))
        self.assertIn("its place is spec.pytorchReplicaSpecs[Worker].template.spec.containers[].imagePullPolicy", err)
        _, err = dry_run(pytorchjob(container={"nodeSelector": {}}))
        self.assertIn("its place is spec.pytorchReplicaSpecs[Worker].template.spec.nodeSelector", err)
        _, err = dry_run(jobset("s", (batch("a", 1), {"backoffLimit": 3})))
        self.assertIn("its place is spec.replicatedJobs[0].template.spec.backoffLimit", err)

    def test_what_is_newer_is_named_with_the_release(self):
        _, err = dry_run(jobset("s", (batch("a", 1), {}), gangPlan={}))
        self.assertRegex(err, r"spec.gangPlan: unknown field of JobSet \d+\.\d+, which a cluster drops silently unless its release is newer")
        _, err = dry_run(pytorchjob(spec={"quorum": 1}))
        self.assertRegex(err, r"spec.quorum: unknown field of Training Operator \d+\.\d+")


class Overrides(unittest.TestCase):
    """--env is taken before the manifest's value is looked up."""

    def env(self, entries, *flags, code=0, more=()):
        pods, err = dry_run(pytorchjob(container={"env": entries, "envFrom": list(more)}), flags=flags, code=code)
        return pods and pods[0]["env"], err

    def test_sources_that_only_a_cluster_has(self):
        for source in ({"secretKeyRef": {"name": "s", "key": "k"}}, {"configMapKeyRef": {"name": "c", "key": "k"}},
                       {"fieldRef": {"fieldPath": "status.startTime"}}, {"resourceFieldRef": {"resource": "limits"}}):
            with self.subTest(source):
                entry = {"name": "KEY", "valueFrom": source}
                env, err = self.env([entry], "--env", "KEY=mine")
                self.assertEqual((env["KEY"], err), ("mine", ""))
                self.env([entry], code=2)

    def test_it_is_seen_by_other_variables_and_the_command(self):
        entries = [{"name": "URL", "value": "http://$(KEY)/"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
        pods, _ = dry_run(pytorchjob(container={"env": entries, "args": ["$(URL)"]}), flags=("--env", "KEY=mine"))
        self.assertEqual((pods[0]["env"]["URL"], pods[0]["command"]), ("http://mine/", ["true", "http://mine/"]))

    def test_a_whole_object(self):
        more = [{"secretRef": {"name": "s"}}]
        env, err = self.env([], "--env", "KEY=mine", more=more)
        self.assertEqual(env["KEY"], "mine")
        self.assertIn("warning: stdin:1:", err)
        self.assertIn("no Secret s of the namespace default was given; the pods have only its variables that --env sets", err)
        _, err = self.env([], more=more, code=2)
        self.assertIn("give the value by --env NAME=value", err)

    def test_validate_warn_runs_without_it(self):
        env, err = self.env([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}], "--validate=warn")
        self.assertNotIn("KEY", env)
        self.assertIn("warning", err)


class Lists(unittest.TestCase):
    def test_what_kubectl_prints_and_lists_of_one_kind(self):
        job = pytorchjob(status={"conditions": []})
        job["metadata"].update(managedFields=[{"manager": "kubectl"}], resourceVersion="1", uid="u", generation=1, creationTimestamp="2026-01-01T00:00:00Z",
                               labels={"kueue.x-k8s.io/queue-name": "q"}, annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"})
        pods, err = dry_run({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": [job]})
        self.assertEqual((len(pods), err), (1, ""))
        job = pytorchjob()
        del job["kind"], job["apiVersion"]
        pods, _ = dry_run({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJobList", "items": [job]})
        self.assertEqual(pods[0]["name"], "j-worker-0")
        pods, _ = dry_run({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSetList", "items": [jobset("s", (batch("a", 1), {}))]})
        self.assertEqual(pods[0]["name"], "s-a-0-0")

    def test_what_is_beside_the_container_is_named_once_and_scheduling_is_not(self):
        pod = {"schedulerName": "volcano", "tolerations": [{"operator": "Exists"}], "affinity": {}, "priorityClassName": "p", "runtimeClassName": "nvidia",
               "nodeSelector": {"a": "b"}, "hostNetwork": True, "dnsPolicy": "ClusterFirst", "imagePullSecrets": [{"name": "x"}], "hostIPC": True}
        _, err = dry_run(pytorchjob(pod=pod))
        self.assertEqual(err, "")
        volumes = [{"name": "n", "nfs": {"server": "x", "path": "/"}}, {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]
        mounts = [{"name": "n", "mountPath": "/n"}, {"name": "t", "mountPath": "/t"}]
        _, err = dry_run(pytorchjob({"volumeMounts": mounts}, {"volumes": volumes}, workers=2))
        self.assertEqual(err.count("\n"), 2, err)
        pod = {"initContainers": [{"name": "fetch", "image": "i"}, {"name": "proxy", "image": "i", "restartPolicy": "Always"}],
               "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "four"}]}
        command = ["torchrun", "--nproc-per-node=4", "train.py"]
        _, err = dry_run(pytorchjob(pod=pod, container={"command": command, "resources": {"claims": [{"name": "gpu"}]}}))
        self.assertNotIn("visible here", err)  # how many GPUs a claim stands for is not known
        self.assertIn("the container fetch is not run", err)
        self.assertIn("the sidecar proxy is not run", err)
        self.assertIn("the devices of gpu (four) are not counted; --gpus=LIST", err)

    def test_what_an_api_server_refuses_is_refused(self):
        resources = {"limits": {"nvidia.com/gpu": 0.5, "cpu": 2}, "requests": {"cpu": "2500m", "amd.com/gpu": 1, "memory": "1Gi"}}
        _, err = dry_run(pytorchjob({"resources": resources, "ports": [{"containerPort": 70000}]}), code=2)
        for why in ("resources.limits[nvidia.com/gpu]: Invalid: must be an integer", "resources.requests[cpu]: Invalid: must be less than or equal",
                    "resources.requests[amd.com/gpu]: an API server refuses the pod: a device needs a limit", "ports[0].containerPort: Invalid: must be between 1 and 65535"):
            self.assertIn(why, err)
        self.assertEqual(err.count("Invalid"), 3, err)
        resources = {"limits": {"nvidia.com/gpu": 2, "cpu": 2}, "requests": {"nvidia.com/gpu": 1, "cpu": 2}}
        _, err = dry_run(pytorchjob({"resources": resources}), code=2)
        self.assertIn("resources.requests[nvidia.com/gpu]: Invalid: must be equal to the limit", err)

    def test_what_would_end_otherwise_is_refused(self):
        _, err = dry_run(pytorchjob(pod={"activeDeadlineSeconds": 5}), code=2)
        self.assertIn("template.spec.activeDeadlineSeconds: NotSupported: muster local does not emulate it", err)
        dry_run(pytorchjob(pod={"activeDeadlineSeconds": 5}), flags=("--validate=warn",))
        hook = {"exec": {"command": ["true"]}}
        for container in ({"lifecycle": {"postStart": hook}}, {"volumeDevices": [{"name": "d", "devicePath": "/dev/x"}]}):
            self.assertIn("NotSupported: muster local does not emulate it", dry_run(pytorchjob(container), code=2)[1])
        self.assertIn("preStop: the hook is not run", dry_run(pytorchjob({"lifecycle": {"preStop": hook}}))[1])
        for policy in ("jax", "xgboost", "flux"):
            base = runtime("rt", ["x"])
            base["spec"]["mlPolicy"] = {policy: {}}
            _, err = dry_run(trainjob("j", "rt", trainer={}), base, code=2)
            self.assertIn(f"spec.mlPolicy.{policy}: NotSupported", err)

    def test_values_that_an_api_does_not_have(self):
        """A cluster refuses them; read as some default they would change the job."""
        for objects, why in (
            ([{**batch("b", 1), "spec": {**batch("b", 1)["spec"], "completionMode": "indexed"}}], r"spec.completionMode: NotSupported: 'indexed' is no value of it in Kubernetes [0-9.]+: Indexed NonIndexed"),
            ([jobset("s", (batch("a", 1), {}), successPolicy={"operator": "Most"})], r"successPolicy.operator: NotSupported: 'Most' is no value of it in JobSet [0-9.]+: All Any"),
            ([jobset("s", (batch("a", 1), {}), successPolicy={"operator": "All", "targetReplicatedJobs": ["b"]})], "'b' is no replicated job"),
            ([jobset("s", (batch("a", 1), {}), startupPolicy={"startupPolicyOrder": "Ordered"})], "'Ordered' is no value"),
            ([pytorchjob({"restartPolicy": "Never"})], "a container restarts by the pod's policy alone"),
        ):
            self.assertRegex(dry_run(*objects, code=2)[1], why)

    def test_a_job_of_another_version(self):
        for version, kind in (("kubeflow.org/v1beta2", "PyTorchJob"), ("jobset.x-k8s.io/v1", "JobSet"), ("trainer.kubeflow.org/v2", "TrainJob")):
            _, err = dry_run({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": {}}, code=2)
            self.assertRegex(err, rf"stdin: {kind} x has the apiVersion {re.escape(version)}, and muster local reads \S+ \(\w+ ")

    def test_a_kustomization_is_not_silent(self):
        _, err = dry_run(pytorchjob(), {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"})
        self.assertIn("kustomize build FOLDER", err)


def annotation(name, key):
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['jobset.sigs.k8s.io/{key}']"}}}


class JobSets(KindTest):
    def test_labels_of_groups(self):
        names = ("global-replicas", "job-global-index", "group-name", "group-replicas", "job-group-index", "restart-attempt")
        jobs = []
        for name, group, replicas in (("a", "g", 2), ("b", None, 1), ("c", "g", 1)):
            job = batch(name, 1)
            job["spec"]["template"]["spec"]["containers"][0]["env"] = [annotation(each.upper(), each) for each in names]
            jobs.append((job, {"replicas": replicas, **({"groupName": group} if group else {})}))
        pods, err = dry_run(jobset("s", *jobs))
        self.assertNotIn("empty", err)
        seen = [[pod["env"][each.upper()] for each in names] for pod in pods]
        self.assertEqual(seen, [["4", "0", "g", "3", "0", "0"], ["4", "1", "g", "3", "1", "0"], ["4", "2", "default", "1", "0", "0"], ["4", "3", "g", "3", "2", "0"]])

    def test_every_dependency_holds_first(self):
        waits = lambda name, more: batch(name, 1, ["sh", "-c", f"{more}; touch {name}.done"])
        after = {"dependsOn": [{"name": name, "status": "Complete"} for name in ("a", "b")]}
        train = batch("t", 1, ["sh", "-c", "ls a.done b.done"])
        self.run_local(self.write(jobset("s", (waits("a", "true"), {}), (waits("b", "sleep 0.5"), {}), (train, after))))
        _, err = dry_run(jobset("s", (waits("a", ""), {}), (train, {"dependsOn": [{"name": "a", "status": "Ready"}, {"name": "z", "status": "Ready"}]})), code=2)
        self.assertIn("spec.replicatedJobs[1].dependsOn[1]: Invalid: 'z' is no replicated job before this one", err)

    @unittest.skipUnless(NAMESPACES, "no namespaces here")
    def test_claims_of_templates(self):
        mounts = [{"name": "work", "mountPath": "/work-of-set"}]
        write, read = (batch(name, 1, ["sh", "-c", text], mounts=mounts) for name, text in (("w", "echo x > /work-of-set/f"), ("r", "cat /work-of-set/f")))
        policies = [{"templates": [{"metadata": {"name": "work"}, "spec": {}}], "retentionPolicy": {"whenDeleted": "Retain"}}]
        jobs = ((write, {}), (read, {"dependsOn": [{"name": "w", "status": "Complete"}]}))
        out, _ = self.run_local(self.write(jobset("s", *jobs, volumeClaimPolicies=policies)), f"--volumes={self.folder}/claims")
        self.assertIn("[s-r-0-0] x\n", out)
        self.assertEqual((self.folder / "claims/work-s/f").read_text(), "x\n")
        _, err = dry_run(jobset("s", (batch("a", 1), {}), volumeClaimPolicies=policies), code=2)
        self.assertIn("spec.volumeClaimPolicies[0].templates[0]: Invalid: no container mounts a volume of this name", err)

    def test_rules_of_failures(self):
        fails = batch("f", 1, ["sh", "-c", "echo run; exit 3"], backoffLimit=0)
        rule = {"action": "FailJobSet", "targetReplicatedJobs": ["f"], "onJobFailureReasons": ["BackoffLimitExceeded"]}
        out, err = self.run_local(self.write(jobset("s", (fails, {}), failurePolicy={"maxRestarts": 2, "rules": [rule]})), code=3)
        self.assertEqual(out.count("run"), 1)
        self.assertIn("the rule failurePolicyRule0 fits: FailJobSet", err)
        for bad, why in (({"action": "RecreateJob"}, r"'RecreateJob' is no action of JobSet \d"), ({"action": "FailJobSet", "targetReplicatedJobs": ["x"]}, "'x' is no replicated job"),
                         ({"action": "FailJobSet", "onJobFailureReasons": ["Tired"]}, "'Tired' is no reason"),
                         ({"action": "FailJobSet", "onJobFailureMessagePatterns": ["(?i)x"]}, "not an extended regular expression")):
            _, err = dry_run(jobset("s", (fails, {}), failurePolicy={"rules": [bad]}), code=2)
            self.assertRegex(err, why)
        _, err = dry_run(jobset("s", (fails, {}), failurePolicy={"restartStrategy": "InPlaceRestart"}), code=2)
        self.assertIn("Recreate and BlockingRecreate, not 'InPlaceRestart'", err)

    @unittest.skipUnless(NAMESPACES, "no namespaces here")
    def test_the_attempt_is_told(self):
        """In variables, in texts made of them, in the command and in a file."""
        field = {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}
        job = batch("w", 1, ["sh", "-c", "echo at $A $(DIR) $(cat /podinfo/attempt); [ $A = 2 ] || exit 3", "$(DIR)"], backoffLimit=0,
                    volumes=[{"name": "p", "downwardAPI": {"items": [{"path": "attempt", "fieldRef": field}]}}], mounts=[{"name": "p", "mountPath": "/podinfo"}])
        job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "valueFrom": {"fieldRef": field}}, {"name": "DIR", "value": "/runs/$(A)"}]
        out, _ = self.run_local(self.write(jobset("s", (job, {}), failurePolicy={"maxRestarts": 2})))
        self.assertEqual(re.findall("at (.*)", out), [f"{attempt} /runs/{attempt} {attempt}" for attempt in range(3)])

    def test_one_job_of_several_is_made_anew(self):
        stays = batch("a", 1, ["sh", "-c", "echo a; until [ -e done ]; do sleep 0.05; done"])
        again = batch("b", 1, ["sh", "-c", "echo b; mkdir one 2>/dev/null && exit 3; touch done"], backoffLimit=0)
        policy = {"maxRestarts": 1, "rules": [{"name": "only", "action": "RestartJob"}]}
        out, err = self.run_local(self.write(jobset("s", (stays, {}), (again, {}), failurePolicy=policy)))
        self.assertEqual((out.count("] a\n"), out.count("] b\n")), (1, 2))
        self.assertIn("the Job s-b-0 is made anew (1)", err)

    def test_another_controllers_object(self):
        _, err = dry_run(jobset("s", (batch("a", 1), {}), managedBy="kueue.x-k8s.io/multikueue"))
        self.assertIn("its controller leaves such an object to kueue.x-k8s.io/multikueue", err)


class Jobs(KindTest):
    def test_success_policy(self):
        command = ["sh", "-c", "[ $JOB_COMPLETION_INDEX = 0 ] || exec sleep 60"]
        _, err = self.run_local(self.write(batch("b", 2, command, successPolicy={"rules": [{"succeededIndexes": "0"}]})))
        self.assertIn("job b: Complete", err)
        _, err = dry_run(batch("b", 2, successPolicy={"rules": [{"succeededIndexes": "0-x"}]}), code=2)
        self.assertIn("'0-x' is not a list of indexes", err)

    def test_a_job_without_any_variable(self):
        job = batch("b", 1)
        job["spec"].pop("completionMode")
        self.assertEqual(dry_run(job)[0][0]["env"], {})
        code, out, _ = text_run(json.dumps(job), "--output=text")
        self.assertEqual(code, 0)
        self.run_local(self.write(job))

    def test_a_limit_for_each_index(self):
        command = ["sh", "-c", "echo $JOB_COMPLETION_INDEX; [ $JOB_COMPLETION_INDEX = 0 ] && exit 4; true"]
        out, err = self.run_local(self.write(batch("b", 2, command, backoffLimitPerIndex=0)), code=4)
        self.assertEqual((out.count("] 0\n"), out.count("] 1\n")), (1, 1))
        self.assertIn("Job b failed: Job has failed indexes (FailedIndexes)", err)


class Trainer(unittest.TestCase):
    def patched(self, **pod):
        spec = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}
        return [{"manager": "example.org/team", "trainingRuntimeSpec": {"template": {"spec": spec}}}]

    def base(self):
        base = runtime("rt", ["torchrun", "x.py"])
        pod = base["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["volumes"] = [{"name": "d", "emptyDir": {}}, {"name": "kept", "emptyDir": {}}]
        pod["containers"][0].update(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], volumeMounts=[{"name": "kept", "mountPath": "/kept"}])
        return base

    def test_patches_are_merged(self):
        pod = {"containers": [{"name": "node", "env": [{"name": "B", "value": "patched"}, {"name": "C", "value": "$(A)"}], "volumeMounts": [{"name": "d", "mountPath": "/data"}]}],
               "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "claim"}}], "nodeSelector": {"x": "y"}, "terminationGracePeriodSeconds": 77}
        job = trainjob("j", "rt", trainer={"env": [{"name": "C2", "value": "$(B)"}]}, runtimePatches=self.patched(**pod))
        pods, err = dry_run(job, self.base())
        self.assertEqual([pods[0]["env"][key] for key in ("A", "B", "C", "C2")], ["1", "patched", "1", "patched"])
        self.assertEqual(pods[0]["mounts"], [{"volume": "kept", "path": "/kept"}, {"volume": "d", "path": "/data"}])
        self.assertIn("refused by Trainer's webhook for the container node", err)
        code, out, _ = text_run("\n---\n".join(json.dumps(each) for each in (job, self.base())), "--output=text")
        self.assertIn("grace 77 s", out)

    def test_patches_of_what_is_not_there(self):
        _, err = dry_run(trainjob("j", "rt", trainer={}, runtimePatches=self.patched(containers=[{"name": "nodes"}])), self.base(), code=2)
        self.assertIn("the runtime's job node has no such container 'nodes'", err)
        patch = [{"manager": "m", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "nod", "template": {}}]}}}}]
        _, err = dry_run(trainjob("j", "rt", trainer={}, runtimePatches=patch), self.base(), code=2)
        self.assertIn("the runtime has no replicated job 'nod'", err)
        patch = self.patched(hostNetwork=True)
        _, err = dry_run(trainjob("j", "rt", trainer={}, runtimePatches=patch), self.base())
        self.assertIn("hostNetwork: unknown field", err)

    def test_overrides_of_older_releases(self):
        pod = {"containers": [{"name": "node", "volumeMounts": [{"name": "d", "mountPath": "/data"}]}]}
        for name, override in (("podTemplateOverrides", {"spec": pod}), ("podSpecOverrides", pod)):
            pods, err = dry_run(trainjob("j", "rt", trainer={}, **{name: [{"targetJobs": [{"name": "node"}], **override}]}), self.base())
            self.assertIn({"volume": "d", "path": "/data"}, pods[0]["mounts"])
            self.assertIn(f"spec.{name}: applied as by Trainer 2.0 and 2.1", err)

    def test_mpi_has_one_launcher(self):
        for as_node, nodes, expected in ((True, 3, ["node"] * 2), (False, 3, ["node"] * 3), (True, 1, ["node"]), (True, None, ["node"])):
            base = runtime("mpi", ["mpirun", "x"])
            base["spec"]["mlPolicy"] = {"numNodes": 1, "mpi": {"numProcPerNode": 1, "mpiImplementation": "OpenMPI", "runLauncherAsNode": as_node}}
            launcher = base["spec"]["template"]["spec"]["replicatedJobs"][0]
            launcher.update(name="launcher", dependsOn=[{"name": "node", "status": "Ready"}])
            node = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "i", "command": ["sleep", "5"]}]}}}}}
            base["spec"]["template"]["spec"]["replicatedJobs"].insert(0, node)
            pods, err = dry_run(trainjob("j", "mpi", trainer={"command": ["echo", "hi"], **({"numNodes": nodes} if nodes else {})}), base)
            self.assertEqual([(pod["replica_type"], pod["command"][0]) for pod in pods], [(each, "sleep") for each in expected] + [("launcher", "echo")])
            self.assertIn("no ssh keys and no hostfile", err)

    def test_initializers_are_named(self):
        base = self.base()
        fetch = {"name": "dataset-initializer", "template": {"spec": {"template": {"spec": {"containers": [{"name": "dataset-initializer", "image": "i"}]}}}}}
        base["spec"]["template"]["spec"]["replicatedJobs"].insert(0, fetch)
        base["spec"]["template"]["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
        job = trainjob("j", "rt", trainer={}, initializer={"dataset": {"storageUri": "hf://a/b"}})
        pods, err = dry_run(job, base)
        self.assertEqual([pod["replica_type"] for pod in pods], ["node"])
        self.assertIn("initializer.dataset is not run: hf://a/b must be here", err)
        _, err = dry_run(job, self.base(), code=2)
        self.assertIn("the runtime rt has no job dataset-initializer that would fetch it", err)


@unittest.skipUnless(NAMESPACES, "no namespaces here")
class HostPaths(KindTest):
    def job(self, volumes, command, count=1):
        mounts = [{"name": name, "mountPath": f"/mnt-of-test/{name}"} for name in volumes]
        return batch("b", count, ["sh", "-c", command], mounts=mounts, backoffLimit=0, volumes=[{"name": name, **source} for name, source in volumes.items()])

    def host(self, path, kind=None):
        return {"hostPath": {"path": str(path), **({"type": kind} if kind else {})}}

    def test_one_that_is_missing_costs_itself_alone(self):
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"run.sh": "echo script"}}
        volumes = {"code": {"configMap": {"name": "c"}}, "ib": self.host("/dev/surely-not-here"), "tmp": {"emptyDir": {}}}
        out, err = self.run_local(self.write(self.job(volumes, "sh /mnt-of-test/code/run.sh; touch /mnt-of-test/tmp/x && ls /mnt-of-test", 2), config))
        self.assertEqual(sorted(re.findall(r"\] (\w+)", out)), sorted(["script", "code", "tmp"] * 2))
        self.assertEqual(err.count("the volume ib is left out: the hostPath /dev/surely-not-here does not exist on this machine"), 1, err)

    def test_types(self):
        folder, file = self.folder / "there", self.folder / "file"
        folder.mkdir()
        file.write_text("x")
        good = {"d": self.host(folder, "Directory"), "made": self.host(self.folder / "new/deep", "DirectoryOrCreate"), "f": self.host(file, "File"),
                "fmade": self.host(self.folder / "new-file", "FileOrCreate"), "null": self.host("/dev/null", "CharDevice")}
        out, _ = self.run_local(self.write(self.job(good, "touch /mnt-of-test/made/y; ls /mnt-of-test")))
        self.assertEqual(sorted(re.findall(r"\] (\w+)", out)), sorted(good))
        self.assertTrue((self.folder / "new/deep/y").exists() and (self.folder / "new-file").is_file())
        for path, kind, why in ((self.folder / "no", "Directory", "does not exist"), (file, "Directory", "is not a folder"), (folder, "File", "is not a file"),
                                (self.folder / "no", "File", "does not exist"), (file, "Socket", "is not a Unix socket"), (file, "CharDevice", "is not a character device"),
                                (file, "DirectoryOrCreate", "is not a folder")):
            with self.subTest(kind=kind, why=why):
                out, err = self.run_local(self.write(self.job({"v": self.host(path, kind)}, "echo ran")), code=126)
                self.assertNotIn("ran", out)
                self.assertRegex(err, rf"pod b-0 cannot be started: the volume v: the hostPath {re.escape(str(path))} {why}.* its type {kind} needs")
        _, err = dry_run(self.job({"v": self.host(file, "Folder")}, "true"), code=2)
        self.assertIn("'Folder' is none of DirectoryOrCreate", err)

    def test_a_key_that_a_config_map_lacks(self):
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
        job = self.job({"c": {"configMap": {"name": "c"}}, "e": {"emptyDir": {}}}, "ls /mnt-of-test")
        job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = "b"
        out, err = self.run_local(self.write(job, config))
        self.assertIn("] e\n", out)
        self.assertIn("the volume c is left out: it cannot be mounted at /mnt-of-test/c: No such file or directory", err)


@unittest.skipUnless(NAMESPACES, "no namespaces here")
class Pods(KindTest):
    def test_labels_as_a_file_and_aliases(self):
        items = [{"path": each, "fieldRef": {"fieldPath": f"metadata.{each}"}} for each in ("labels", "annotations")]
        job = batch("b", 1, ["sh", "-c", "cat /podinfo/labels; echo; cat /podinfo/annotations; echo; getent hosts db"],
                    volumes=[{"name": "p", "downwardAPI": {"items": items}}], mounts=[{"name": "p", "mountPath": "/podinfo"}])
        job["spec"]["template"]["metadata"] = {"labels": {"app": "x", "b": "two"}, "annotations": {"note": 'say "hi"'}}
        job["spec"]["template"]["spec"]["hostAliases"] = [{"ip": "10.1.2.3", "hostnames": ["db", "db.local"]}]
        out, _ = self.run_local(self.write(job))
        self.assertEqual(re.findall(r"\] (.*)", out)[:-1], [
            'app="x"', 'b="two"', 'batch.kubernetes.io/job-completion-index="0"', 'batch.kubernetes.io/job-name="b"', 'job-name="b"',
            'batch.kubernetes.io/job-completion-index="0"', 'note="say \\"hi\\""'])
        self.assertRegex(out, r"10\.1\.2\.3 +db")


class Launch(unittest.TestCase):
    """The dry run asks what muster run in each pod would say."""

    def warned(self, *objects):
        return dry_run(*objects)[1]

    def test_settings_that_are_refused(self):
        etcd = pytorchjob({"command": ["torchrun", "x.py"]}, workers=2, spec={"elasticPolicy": {"rdzvBackend": "etcd", "rdzvHost": "etcd"}})
        err = self.warned(etcd)
        self.assertIn("warning: pod j-worker-0: muster run would refuse its settings and exit with 2: PET_RDZV_BACKEND: 'etcd' is not supported", err)
        self.assertEqual(err.count("etcd' is not supported"), 1)
        for command in (["torchrun", "--nnodes=x", "y.py"], ["bash", "-c", "cd /app && exec torchrun --nnodes=x y.py"], ["python3", "-m", "torch.distributed.run", "--nnodes=x", "y.py"],
                        ["sh", "-ec", "set -x\ntorchrun \\\n  --nnodes=x \\\n  y.py 2>&1 | tee log"]):
            self.assertIn("'x' is not a number of nodes", self.warned(pytorchjob({"command": command})))
        for command in (["echo", "torchrun", "--nnodes=x"], ["sh", "-c", "torchrun --nnodes=$UNKNOWN y.py"], ["sh", "-c", "echo torchrun --nnodes=x"]):
            self.assertNotIn("number of nodes", self.warned(pytorchjob({"command": command})))

    def test_hosts_and_numbers_that_cannot_be_right(self):
        """The rules are muster run's own: they are asked, not repeated."""
        for endpoint, why in (("$(PET_RDZV_ENDPOINT)", "was not replaced"), ("fd00::2", "brackets"), ("node[1-2]", "list of hosts"), ("<ip>", "angle brackets"),
                              ("localhost:29500", "only nodes on this machine can meet")):
            err = self.warned(pytorchjob({"command": ["torchrun", "--nnodes=2", "--rdzv_backend=c10d", f"--rdzv_endpoint={endpoint}", "x.py"]}, workers=2))
            self.assertIn(why, err)
        job = pytorchjob({"command": ["sh", "-c", "exec torchrun --nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR x.py"]}, spec={"nprocPerNode": "2"})
        replicas = job["spec"]["pytorchReplicaSpecs"]
        replicas["Master"] = replicas["Worker"]
        self.assertIn("WORLD_SIZE counts processes here", self.warned(job))

    def test_what_no_shell_expands(self):
        err = self.warned(pytorchjob({"command": ["torchrun", "x.py", "--lr=$LR", "${STEPS}"], "env": [{"name": "TOKEN", "value": "${TOKEN}"}]}))
        for word in ("--lr=$LR", "${STEPS}"):
            self.assertIn(f"the argument {word} stays as it is: no shell expands it; write $(NAME)", err)
        self.assertRegex(err, r"warning: stdin:1:\d+: \S+env\[0\].value: \$\{TOKEN\} was not substituted")
        err = self.warned(pytorchjob({"command": ["sh", "-c", "x $LR"], "env": [{"name": "A", "value": "-D$X"}, {"name": "LR", "value": "$(A)"}]}))
        self.assertEqual(err, "")

    def set_of(self, address, subdomain=None):
        job = batch("workers", 2, ["sh", "-c", "torchrun --nnodes=2 --node_rank=$JOB_COMPLETION_INDEX --master_addr=$MASTER_ADDR --master_port=1 x.py"], env={"MASTER_ADDR": address})
        return jobset("set", (job, {}), **({"network": {"subdomain": subdomain}} if subdomain else {}))

    def test_an_address_that_names_no_pod(self):
        for address in ("set-workers-0-0.set-workers", "set-workers-0-9.set", "set-workers-0-0", "master"):
            self.assertRegex(self.warned(self.set_of(address)), re.escape(address) + ", which is to lead the nodes, names no pod of this job.* is called set-workers-0-0.set")
        for address in ("set-workers-0-0.set", "set-workers-0-0.set.default.svc.cluster.local", "10.0.0.1"):
            self.assertNotIn("names no pod", self.warned(self.set_of(address)))
        self.assertIn("names no pod", self.warned(self.set_of("set-workers-0-0.set", "net")))
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "master"}}
        self.assertNotIn("names no pod", self.warned(self.set_of("master"), service))

    def test_a_login_shell(self):
        for command in (["bash", "-lc", "torchrun x.py"], ["bash", "-l", "-c", "torchrun x.py"], ["sh", "--login", "-ec", "exec torchrun x.py"]):
            self.assertIn("a login shell (-l) sets PATH anew", self.warned(pytorchjob({"command": command})))
        for command in (["bash", "-c", "torchrun x.py"], ["bash", "-lc", "/opt/muster/bin/torchrun x.py"], ["bash", "-lc", "python3 x.py"]):
            self.assertNotIn("login shell", self.warned(pytorchjob({"command": command})))


if __name__ == "__main__":
    unittest.main(verbosity=2)
