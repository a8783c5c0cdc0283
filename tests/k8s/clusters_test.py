"""What k8s/clusters says beyond the fields of its objects (those are manifests_test.py's): names that refer to each other, quotas that a
job fits into, one autoscaler's chain of names, the Grafana board, the pages, the GitHub workflow.

    MUSTER_BUILD=build python3 tests/k8s/clusters_test.py [TestClass.test_name ...]"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import manifests_test as manifests
import yaml

CLUSTERS = manifests.K8S / "clusters"
SOURCE = manifests.SOURCE
PAGES = ("kueue", "volcano", "jobset", "slurm", "elastic-hpa", "monitoring", "pipeline")
SUFFIX = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def documents(name):
    return [each for each in yaml.safe_load_all((CLUSTERS / name).read_text()) if each]


def by_kind(name):
    """{kind: {name: document}} of a file."""
    found = {}
    for each in documents(name):
        found.setdefault(each["kind"], {})[each["metadata"]["name"]] = each
    return found


def quantity(text):
    number, suffix = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    return float(number) * SUFFIX[suffix]


def total_of(replicas):
    """{resource: sum of the requests of these (template, count)}; limits where there are no requests, as the API server fills in."""
    total = {}
    for template, count in replicas:
        for container in template["spec"]["containers"]:
            given = container["resources"]
            for name, value in {**given.get("limits", {}), **given.get("requests", {})}.items():
                total[name] = total.get(name, 0) + count * quantity(value)
    return total


def replicas_of(job):
    return [(each["template"], each["replicas"]) for each in job["spec"]["pytorchReplicaSpecs"].values()]


class Kueue(unittest.TestCase):
    def setUp(self):
        self.queues = by_kind("kueue/queues.yaml")

    def test_names(self):
        queue = self.queues["ClusterQueue"]["training"]["spec"]
        for group in queue["resourceGroups"]:
            for flavor in group["flavors"]:
                self.assertIn(flavor["name"], self.queues["ResourceFlavor"])
                self.assertEqual([each["name"] for each in flavor["resources"]], group["coveredResources"])
        [local] = self.queues["LocalQueue"].values()
        self.assertIn(local["spec"]["clusterQueue"], self.queues["ClusterQueue"])
        self.assertEqual(queue["namespaceSelector"]["matchLabels"], {"kubernetes.io/metadata.name": local["metadata"]["namespace"]})

    def test_the_job_fits_into_each_flavor(self):
        [job] = documents("kueue/pytorchjob.yaml")
        labels, namespace = job["metadata"]["labels"], job["metadata"]["namespace"]
        local = self.queues["LocalQueue"][labels["kueue.x-k8s.io/queue-name"]]
        self.assertEqual(local["metadata"]["namespace"], namespace)
        self.assertIn(labels["kueue.x-k8s.io/priority-class"], self.queues["WorkloadPriorityClass"])
        wanted = total_of(replicas_of(job))
        self.assertEqual(wanted["nvidia.com/gpu"], 4)
        [group] = self.queues["ClusterQueue"][local["spec"]["clusterQueue"]]["spec"]["resourceGroups"]
        self.assertLessEqual(set(wanted), set(group["coveredResources"]))  # else Kueue never admits it
        for flavor in group["flavors"]:
            quota = {each["name"]: quantity(each["nominalQuota"]) for each in flavor["resources"]}
            for name, value in wanted.items():
                self.assertLessEqual(value, quota[name], (flavor["name"], name))

    def test_flavors_can_be_reached(self):
        [job] = documents("kueue/pytorchjob.yaml")
        for template, _ in replicas_of(job):
            # a selector of the pod's own would exclude flavors
            self.assertNotIn("nodeSelector", template["spec"])


class Volcano(unittest.TestCase):
    def test_names(self):
        [job], queues = documents("volcano/job.yaml"), by_kind("volcano/queue.yaml")["Queue"]
        spec = job["spec"]
        self.assertIn(spec["queue"], queues)
        self.assertEqual(spec["minAvailable"], sum(task["replicas"] for task in spec["tasks"]))
        flags = dict(flag.lstrip("-").split("=") for flag in spec["plugins"]["pytorch"])
        self.assertEqual([flags["master"], flags["worker"]], [task["name"] for task in spec["tasks"]])
        wanted = total_of([(task["template"], task["replicas"]) for task in spec["tasks"]])
        for name, value in wanted.items():
            self.assertLessEqual(value, quantity(queues[spec["queue"]]["spec"]["capability"][name]), name)
        for task in spec["tasks"]:
            self.assertEqual(task["template"]["spec"]["schedulerName"], spec["schedulerName"])


class JobSet(unittest.TestCase):
    def test_the_master_is_the_first_pod(self):
        [jobset] = documents("jobset/jobset.yaml")
        [job] = jobset["spec"]["replicatedJobs"]
        [container] = job["template"]["spec"]["template"]["spec"]["containers"]
        name, env = jobset["metadata"]["name"], manifests.environment(container)
        self.assertEqual(env["PET_MASTER_ADDR"], f"{name}-{job['name']}-0-0.{name}")
        self.assertEqual(env["PET_NNODES"], str(job["template"]["spec"]["completions"]))
        self.assertEqual(job["template"]["spec"]["completions"], job["template"]["spec"]["parallelism"])


class Elastic(unittest.TestCase):
    """From the job's own figure to the autoscaler of the job: each name is that of the next."""

    def test_the_chain_of_names(self):
        [job], [hpa] = documents("elastic-hpa/pytorchjob.yaml"), documents("elastic-hpa/hpa.yaml")
        target, elastic = hpa["spec"]["scaleTargetRef"], job["spec"]["elasticPolicy"]
        self.assertEqual((target["apiVersion"], target["kind"], target["name"]), (job["apiVersion"], job["kind"], job["metadata"]["name"]))
        self.assertEqual((hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]), (elastic["minReplicas"], elastic["maxReplicas"]))
        self.assertNotIn("metrics", elastic)  # else the operator makes a second autoscaler
        self.assertEqual(hpa["metadata"]["namespace"], job["metadata"]["namespace"])
        [metric] = hpa["spec"]["metrics"]
        metric = metric["external"]["metric"]
        [rule] = yaml.safe_load((CLUSTERS / "elastic-hpa/adapter-values.yaml").read_text())["rules"]["external"]
        self.assertEqual(rule["name"]["as"], metric["name"])
        series = re.match(r"[a-z_:]+", rule["seriesQuery"]).group()
        self.assertRegex(series, rule["name"]["matches"])
        [group] = yaml.safe_load((CLUSTERS / "elastic-hpa/throughput.yml").read_text())["groups"]
        wanted, shortfall = group["rules"]
        self.assertEqual(shortfall["record"], series)
        labels = {"namespace": job["metadata"]["namespace"], "training_job": job["metadata"]["name"]}
        self.assertEqual(wanted["labels"], labels)
        self.assertEqual(metric["selector"]["matchLabels"], {"training_job": job["metadata"]["name"]})
        self.assertIn("by (training_job)", rule["metricsQuery"])


class Board(unittest.TestCase):
    def setUp(self):
        self.board = json.loads((CLUSTERS / "monitoring/grafana.json").read_text())
        self.panels = self.board["panels"]

    def test_structure(self):
        for key in ("title", "uid", "schemaVersion", "templating", "panels", "time"):
            self.assertIn(key, self.board)
        self.assertEqual(len({panel["id"] for panel in self.panels}), len(self.panels))
        variables = {each["name"] for each in self.board["templating"]["list"]} | {"__rate_interval"}
        for panel in self.panels:
            if panel["type"] == "row":
                continue
            with self.subTest(panel["title"]):
                self.assertIn(panel["type"], ("stat", "timeseries"))
                self.assertTrue(panel["targets"])
                letters = [target["refId"] for target in panel["targets"]]
                self.assertEqual(len(set(letters)), len(letters))
                for target in panel["targets"]:
                    self.assertEqual(target["datasource"]["uid"], "${datasource}")
                    self.assertLessEqual(set(re.findall(r"\$\{?(\w+)", target["expr"])), variables)

    def test_panels_do_not_overlap(self):
        taken = set()
        for panel in self.panels:
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24)
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells

    def test_what_people_look_for_is_on_it(self):
        shown = " ".join(target["expr"] for panel in self.panels for target in panel.get("targets", []))
        for metric in ("nodes", "worker_step", "restarts_total", "train_loss", "train_tokens_per_second", "train_exposed_comm_seconds", "train_slow_rank"):
            self.assertIn("muster_" + metric, shown)


class Monitoring(unittest.TestCase):
    def test_the_operators_targets_get_the_same_labels(self):
        """podmonitor.yaml against prometheus.yml: the same rules; the operator makes the address itself, of the port's name."""
        monitors = by_kind("monitoring/podmonitor.yaml")["PodMonitor"]
        config = yaml.safe_load((CLUSTERS / "monitoring/prometheus.yml").read_text())
        plain = {each["job_name"]: each["relabel_configs"] for each in config["scrape_configs"]}
        camel = {"source_labels": "sourceLabels", "target_label": "targetLabel"}
        expected = [
            {camel.get(key, key): value for key, value in rule.items()} for rule in plain["muster"] if rule.get("target_label") != "__address__"
        ]
        [endpoint] = monitors["muster"]["spec"]["podMetricsEndpoints"]
        self.assertEqual(endpoint["relabelings"], expected)
        for _, document in manifests.manifests():
            for template in manifests.templates(document):
                annotations = template.get("metadata", {}).get("annotations", {})
                for container in template["spec"]["containers"] if annotations.get("prometheus.io/scrape") else []:
                    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
                    self.assertEqual(str(ports[endpoint["port"]]), annotations["prometheus.io/port"])
        gpu = next(each for each in config["scrape_configs"] if each["job_name"] == "gpu-monitor")
        self.assertEqual(gpu["honor_labels"], monitors["gpu-monitor"]["spec"]["podMetricsEndpoints"][0]["honorLabels"])

    def test_the_network_policy_lets_it_in(self):
        policy = next(document for path, document in manifests.manifests() if document["kind"] == "NetworkPolicy")
        namespace = by_kind("monitoring/prometheus.yaml")["Deployment"]["prometheus"]["metadata"]["namespace"]
        sources = [peer for rule in policy["spec"]["ingress"] for peer in rule["from"] if "namespaceSelector" in peer]
        self.assertIn({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}, sources)

    def test_the_network_policies_keep_jobs_apart(self):
        """The one for all jobs opens no pod to another; each job of several pods has one for itself, by its controller's label."""
        labels = {"PyTorchJob": "training.kubeflow.org/job-name", "Job": "batch.kubernetes.io/job-name", "TrainJob": "jobset.sigs.k8s.io/jobset-name",
                  "JobSet": "jobset.sigs.k8s.io/jobset-name"}
        policies = [document for _, document in manifests.manifests() if document["kind"] == "NetworkPolicy"]
        peers = {policy["metadata"]["name"]: [peer["podSelector"]["matchLabels"] for direction in (("ingress", "from"), ("egress", "to"))
                                              for rule in policy["spec"][direction[0]] for peer in rule[direction[1]] if "podSelector" in peer]
                 for policy in policies}
        self.assertEqual(peers.pop("training-jobs"), [])
        wanted = {}
        for path, document in manifests.manifests():
            label = labels.get(document["kind"]) if "volcano" not in document.get("apiVersion", "") else "volcano.sh/job-name"
            if label and document["metadata"].get("namespace") == "training" and not document["metadata"]["name"].startswith("one-node"):
                name = document["metadata"]["name"]
                wanted[f"training-job-{name}"] = [{label: name}] * 2
        self.assertGreater(len(wanted), 8)
        self.assertEqual(peers, wanted)

    def test_every_alert_is_tested_both_ways(self):
        groups = yaml.safe_load((CLUSTERS / "monitoring/rules.yml").read_text())["groups"]
        alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
        fires, silent = set(), set()
        for case in yaml.safe_load((CLUSTERS / "monitoring/rules_test.yml").read_text())["tests"]:
            for each in case["alert_rule_test"]:
                (fires if each["exp_alerts"] else silent).add(each["alertname"])
        self.assertGreater(len(alerts), 9)
        self.assertEqual((fires, silent), (alerts, alerts))


class Pages(unittest.TestCase):
    def test_each_folder_has_one(self):
        self.assertEqual({path.name for path in CLUSTERS.iterdir() if path.is_dir()}, set(PAGES))
        for name in PAGES:
            with self.subTest(name):
                text = (CLUSTERS / name / "README.md").read_text()
                self.assertIn(len(text.splitlines()), range(10, 51))
                self.assertIn("No real cluster", text)
                for file in (CLUSTERS / name).iterdir():
                    self.assertTrue(file.name == "README.md" or file.name in text, file)

    def test_files_in_commands_exist(self):
        for name in PAGES:
            text = (CLUSTERS / name / "README.md").read_text()
            for path in re.findall(r"(?<![\w/])k8s/[\w./-]+\w", text):
                self.assertTrue((SOURCE / path).exists(), f"{name}: {path}")


class Workflow(unittest.TestCase):
    """The structure that GitHub documents for a workflow, and steps that this repository can run."""

    def setUp(self):
        self.text = (SOURCE / ".github/workflows/image.yml").read_text()
        self.workflow = yaml.safe_load(self.text)
        self.triggers = self.workflow[True]  # `on` is a boolean in YAML 1.1

    def test_structure(self):
        self.assertLessEqual(set(self.workflow), {"name", True, "permissions", "concurrency", "env", "jobs"})
        self.assertLessEqual(set(self.triggers), {"push", "pull_request", "workflow_dispatch"})
        jobs = self.workflow["jobs"]
        for name, job in jobs.items():
            with self.subTest(name):
                self.assertLessEqual(set(job), {"name", "runs-on", "needs", "if", "permissions", "container", "timeout-minutes", "steps", "env"})
                self.assertIn(job.get("needs", name), jobs)
                for step in job["steps"]:
                    self.assertEqual(("uses" in step) + ("run" in step), 1, step)
                    self.assertLessEqual(set(step), {"name", "uses", "run", "with", "env", "if", "id", "shell"})
                    if "uses" in step:
                        self.assertRegex(step["uses"], r"^actions/[a-z-]+@v\d+$")

    def test_steps_are_commands_of_this_repository(self):
        dev = (SOURCE / "dev").read_text()
        called = re.findall(r"(?<![\w/])\./(dev|packages/\S+) ?(.*)", "\n".join(step.get("run", "") for job in self.workflow["jobs"].values() for step in job["steps"]))
        self.assertIn(("dev", "test"), called)
        self.assertIn(("dev", "package images"), called)
        for program, words in called:
            self.assertTrue(os.access(SOURCE / program, os.X_OK))
            self.assertIn(f"\ndev_{words.split()[0]}() {{", dev)

    def test_it_pushes_only_where_it_may(self):
        pushes = [name for name, job in self.workflow["jobs"].items() if job.get("permissions", {}).get("packages") == "write"]
        self.assertEqual(pushes, ["push"])
        job = self.workflow["jobs"]["push"]
        self.assertIn("github.event_name != 'pull_request'", job["if"])
        self.assertEqual(self.workflow["permissions"], {"contents": "read"})
        registries = set(re.findall(r"[\w.-]+\.(?:io|com|org)\b(?!\w)", self.text))
        self.assertEqual(registries, {"ghcr.io"})
        self.assertIn("${{ github.repository }}", self.text)
        self.assertNotRegex(self.text, r"secrets\.(?!GITHUB_TOKEN)")

    def pushed(self, reference, *archives):
        """The push step's arguments for skopeo."""
        step = next(step for step in self.workflow["jobs"]["push"]["steps"] if step.get("name") == "push")
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "images").mkdir()
            for name in archives:
                (folder / "images" / name).touch()
            (folder / "skopeo").write_text('#!/bin/sh\n[ "$1" = login ] && cat >/dev/null\necho "$@" >>calls\n')
            (folder / "skopeo").chmod(0o755)
            given = {"REPOSITORY": "Some-One/Muster", "TOKEN": "t", "ACTOR": "someone", "COMMIT": "c0ffee", "REF": reference}
            self.assertEqual(set(step["env"]), set(given))
            env = {**given, "PATH": f"{folder}:{os.environ['PATH']}"}
            run = subprocess.run(["bash", "-c", step["run"]], cwd=folder, env=env, capture_output=True, text=True)
            return run.returncode, (folder / "calls").read_text().splitlines()

    def test_the_push_step(self):
        names = [f"muster-{target}-0.1.0-linux-x86_64.oci.tar" for target in ("launcher", "trainer")]
        for reference, tag in ("main", "latest"), ("v0.1.0", "v0.1.0"), ("a/b", "a-b"):
            code, calls = self.pushed(reference, *names)
            self.assertEqual(code, 0)
            self.assertEqual(calls[0], "login --username someone --password-stdin ghcr.io")
            self.assertEqual(
                calls[1:],
                [f"copy oci-archive:images/{name} docker://ghcr.io/some-one/muster/{target}:{each}"
                 for name, target in zip(names, ("launcher", "trainer")) for each in ("c0ffee", tag)],
            )  # fmt: skip
        self.assertNotEqual(self.pushed("main")[0], 0)  # nothing was built


if __name__ == "__main__":
    unittest.main(verbosity=2)
