"""k8s/clusters/monitoring with the real Prometheus and its promtool (Debian's package): the rules' own tests, the scrape configuration;
then a scrape of a job of two agents, of which the second is lost, with every expression of rules, board and autoscaler.

    MUSTER_BUILD=build python3 tests/k8s/prometheus_test.py [TestClass.test_name ...]

Skipped (exit 77) where promtool is missing, which is an error in CI."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE") or HERE.parent.parent)
sys.path[:0] = [str(HERE), str(SOURCE / "tests" / "e2e")]

os.environ["PATH"] = f"{SOURCE / '.prometheus/usr/bin'}:{os.environ['PATH']}"  # where ./dev test unpacks the package
missing = [name for name in ("prometheus", "promtool") if not shutil.which(name)]
if missing:
    print(f"skipped: no {' and no '.join(missing)} here (Debian's package prometheus)", flush=True)
    sys.exit(1 if os.environ.get("CI") == "true" else 77)

import manifests_test as manifests  # noqa: E402: which finds an interpreter with the packages
import yaml  # noqa: E402
from harness import LIMIT, AgentTest, free_port, wait_until  # noqa: E402

CLUSTERS = manifests.K8S / "clusters"
MONITORING = CLUSTERS / "monitoring"
# Metrics that are not muster's: dcgm-exporter's default counters (k8s/gpu-monitor.yaml) have it.
OTHERS = {"DCGM_FI_DEV_GPU_UTIL"}
NAMES = re.compile(r"\b(?:muster[_:][a-z_:]*|DCGM_[A-Z_]+)")
FIGURES = re.findall(r'X\(FIGURE_\w+, "(\w+)"', (SOURCE / "launcher/policy/figures.h").read_text())
# All figures of the table, in a worker that lives as long as its job.
WORKER = """
import os, time
beat = int(os.environ["MUSTER_HEARTBEAT_FD"])
names = [name for name in "FIGURES".split() if name != "slow_rank"]
open(f"up.{os.environ['RANK']}.{os.environ['TORCHELASTIC_RESTART_COUNT']}", "w").write(f"{os.getpid()}\\n")
step = 0
while not os.path.exists("go"):
    figures = " ".join(f"{name}=50" for name in names)
    os.write(beat, f"{step}\\nfigures/1 {figures} slow_rank=1\\n".encode())
    step += 1
    time.sleep(0.1)
""".replace("FIGURES", " ".join(FIGURES))


def run_tool(*words, cwd=None):
    return subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, cwd=cwd)


def groups_of(path):
    return yaml.safe_load((CLUSTERS / path).read_text())["groups"]


def rules():
    for path in ("monitoring/rules.yml", "elastic-hpa/throughput.yml"):
        for group in groups_of(path):
            yield from group["rules"]


def board_expressions():
    """(panel, expression) of the board, its variables filled in as Grafana does."""
    values = {"namespace": "training", "training_job": "job", "__rate_interval": "1m"}
    fill = lambda text: re.sub(r"\$(\w+)", lambda match: values[match[1]], text)  # noqa: E731
    board = json.loads((MONITORING / "grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], fill(target["expr"])
    for note in board["annotations"]["list"]:
        yield note["name"], fill(note["expr"])
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], fill(re.fullmatch(r"label_values\((.*), \w+\)", variable["definition"])[1])


def adapter_query():
    """What prometheus-adapter asks for a job's namespace."""
    [rule] = yaml.safe_load((CLUSTERS / "elastic-hpa/adapter-values.yaml").read_text())["rules"]["external"]
    series = rule["seriesQuery"].split("{")[0]
    return rule["metricsQuery"].replace("<<.Series>>", series).replace("<<.LabelMatchers>>", 'namespace="training",training_job="elastic-hpa"')


def every_expression():
    yield from ((rule.get("alert") or rule["record"], rule["expr"]) for rule in rules())
    yield from board_expressions()
    yield "prometheus-adapter", adapter_query()


class Tool(unittest.TestCase):
    def accepted(self, *words, **more):
        done = run_tool(*words, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_rules(self):
        out = self.accepted("test", "rules", "rules_test.yml", cwd=MONITORING)
        self.assertIn("SUCCESS", out)

    def test_a_wrong_rule_fails_its_test(self):
        """Each alert with a threshold that is never reached: the tests must notice."""
        text = (MONITORING / "rules.yml").read_text()
        alerts = re.findall(r"- alert: (\w+)\n", text)
        with manifests.tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            shutil.copy(MONITORING / "rules_test.yml", folder)
            document = yaml.safe_load(text)
            for group in document["groups"]:
                for rule in group["rules"]:
                    if "alert" in rule:
                        rule["expr"] = f"({rule['expr']}) and vector(1) == 2"
            (folder / "rules.yml").write_text(yaml.safe_dump(document, sort_keys=False))
            done = run_tool("test", "rules", "rules_test.yml", cwd=folder)
            self.assertNotEqual(done.returncode, 0)
            for alert in alerts:
                self.assertRegex(done.stdout + done.stderr, rf"alertname:\s*{alert}\b")

    def test_throughput(self):
        """The autoscaler's view: wanted / present, nothing without a world."""
        series = 'muster_train_tokens_per_second{namespace="training", training_job="elastic-hpa", pod="%s", rank="0"}'
        test = {
            "rule_files": [str(CLUSTERS / "elastic-hpa/throughput.yml")],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [{"series": series % "a", "values": "50000x20 stale"}, {"series": series % "b", "values": "50000x20 stale"}],
                    "promql_expr_test": [
                        {
                            "expr": adapter_query(),
                            "eval_time": time_,
                            "exp_samples": [{"labels": '{training_job="elastic-hpa"}', "value": 2}] if time_ == "10m" else [],
                        }
                        for time_ in ("10m", "40m")
                    ],
                }
            ],
        }
        with manifests.tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            yaml.safe_dump(test, file)
            file.flush()
            self.accepted("test", "rules", file.name)

    def test_scrape_configuration(self):
        """Debian's Prometheus is built without Kubernetes' discovery, which is looked at here; the rest is promtool's."""
        config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        for each in config["scrape_configs"]:
            [discovery] = each.pop("kubernetes_sd_configs")
            self.assertEqual((set(discovery), discovery["role"], set(discovery["namespaces"])), ({"role", "namespaces"}, "pod", {"names"}))
            each["static_configs"] = [{"targets": ["127.0.0.1:1"]}]
        with manifests.tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            shutil.copy(MONITORING / "rules.yml", folder)
            (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
            self.accepted("check", "config", "prometheus.yml", cwd=folder)

    def test_the_rules_as_an_object_of_the_operator(self):
        """The page's command that makes a PrometheusRule of rules.yml."""
        page = (MONITORING / "README.md").read_text()
        command = re.search(r"^(\{ printf .*; \}) \| kubectl apply -f -$", page, re.M)[1]
        made = subprocess.run(["bash", "-euc", command], cwd=SOURCE, capture_output=True, text=True, check=True).stdout
        [document] = yaml.safe_load_all(made)
        self.assertEqual(manifests.errors_of(document), [])
        self.assertEqual(document["spec"], yaml.safe_load((MONITORING / "rules.yml").read_text()))


class Prometheus(AgentTest):
    """A Prometheus with the repository's relabelling and rules; the pods are agents on loopback addresses."""

    def setUp(self):
        super().setUp()
        self.port, self.metrics = free_port(), free_port()
        self.script("w.py", WORKER)

    def start_agent(self, node, *flags):
        return self.start(
            "--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={self.port}", "--nproc-per-node=2",
            "--max-restarts=3", "--shutdown-timeout=1", f"--metrics-port={self.metrics}", f"--metrics-addr=127.0.8.{node + 1}", *flags, "w.py",
        )  # fmt: skip

    def start_prometheus(self):
        """The scrape configuration with the pods' labels as Kubernetes' discovery would give them. With a rule that it does not take it
        does not start."""
        config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(MONITORING / "rules.yml"), str(CLUSTERS / "elastic-hpa/throughput.yml")]
        [muster] = [each for each in config["scrape_configs"] if each["job_name"] == "muster"]
        discovered = muster.pop("kubernetes_sd_configs")
        self.assertEqual(discovered, [{"role": "pod", "namespaces": {"names": ["training"]}}])
        meta = "__meta_kubernetes_pod_"
        pods = [
            {
                meta + "annotation_prometheus_io_scrape": "true",
                meta + "annotation_prometheus_io_port": str(self.metrics),
                meta + "ip": f"127.0.8.{node + 1}",
                meta + "name": f"job-{node}",
                meta + "node_name": f"machine-{node}",
                meta + "phase": "Running",
                meta + "label_batch_kubernetes_io_job_name": "set-node-0",
                meta + "label_jobset_sigs_k8s_io_jobset_name": "set",
                "__meta_kubernetes_namespace": "training",
            }
            for node in range(2)
        ]
        pods.append({**pods[1], meta + "name": "finished", meta + "phase": "Succeeded"})
        pods.append({**pods[1], meta + "name": "other", meta + "annotation_prometheus_io_scrape": "false"})
        # two ports of a container are two discoveries of one target
        muster["static_configs"] = [{"targets": ["127.0.0.1:1", "127.0.0.1:2"], "labels": pod} for pod in pods]
        config["scrape_configs"] = [muster]
        path = self.folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        self.web = f"127.0.0.1:{free_port()}"
        with open(self.folder / "prometheus.log", "w") as log:
            process = subprocess.Popen(
                ["prometheus", f"--config.file={path}", f"--storage.tsdb.path={self.folder / 'tsdb'}", f"--web.listen-address={self.web}"],
                stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "E2E_FOLDER": str(self.folder)},
            )  # fmt: skip
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        wait_until(self.is_ready, "Prometheus is ready")

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.web}/-/ready", timeout=LIMIT) as reply:
                return reply.status == 200
        except OSError:
            return False

    def query(self, expression):
        """[(labels, value)]; fails where Prometheus does not take it."""
        url = f"http://{self.web}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=LIMIT) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            self.fail(f"{expression}: {error.read().decode()}")
        self.assertEqual(answer["status"], "success", answer)
        data = answer["data"]
        return [(each["metric"], float(each["value"][1])) for each in data["result"]] if data["resultType"] == "vector" else [({}, data["result"])]

    def wait_value(self, expression, value):
        wait_until(lambda: [each for _, each in self.query(expression)] == [value], f"{expression} is {value}")

    def test_a_job_of_two_agents(self):
        agents = [self.start_agent(node) for node in range(2)]
        self.start_prometheus()
        self.wait_value("count(muster_agent_info)", 2)
        labels = {"namespace": "training", "training_job": "set", "job": "muster"}
        found = {each["pod"]: each for each, _ in self.query("muster_agent_info")}
        self.assertEqual(sorted(found), ["job-0", "job-1"])
        for node in range(2):
            self.assertLessEqual({**labels, "node": f"machine-{node}", "instance": f"127.0.8.{node + 1}:{self.metrics}"}.items(), found[f"job-{node}"].items())
        self.wait_value("count(muster_worker_step > 3)", 4)
        self.every_name_is_there()
        self.a_killed_worker_is_no_lost_node()
        self.alerts_on_a_lost_node(agents)

    def every_name_is_there(self):
        """Each expression is valid for Prometheus, and agents serve the metrics that rules, board and autoscaler read, or a rule records,
        or the DCGM exporter has."""
        self.assertGreater(len(list(board_expressions())), 25)
        recorded = {rule["record"] for rule in rules() if "record" in rule}
        served = {each["__name__"] for each, _ in self.query('{__name__=~"muster_.*"}')}
        used = set()
        for name, expression in every_expression():
            with self.subTest(name):
                self.query(expression)
                names = set(NAMES.findall(re.sub(r'"[^"]*"', "", expression)))
                self.assertLessEqual(names, served | recorded | OTHERS)
                used |= names
        self.assertGreater(len(used & served), 25)
        self.assertLessEqual(recorded - {"muster:throughput_shortfall"}, used | recorded)
        page = (SOURCE / "launcher/docs/status.md").read_text()
        documented = set(re.findall(r"muster_[a-z_]+(?=[`{])", page))
        self.assertEqual(served - documented, set())
        self.assertEqual(documented - served, set())

    def alert(self, name):
        return next(rule["expr"] for rule in rules() if rule.get("alert") == name)

    def failures(self, cause, count):
        """Every agent that lives has counted so many rounds with this first cause."""
        values = f'muster_round_failures_total{{cause="{cause}"}}'
        wait_until(lambda: {value for _, value in self.query(values)} == {count}, f"{values} is {count}")

    def a_killed_worker_is_no_lost_node(self):
        os.kill(int((self.folder / "up.3.0").read_text()), signal.SIGKILL)
        self.failures("signal", 1)
        self.failures("lost node", 0)
        self.wait_value("count(muster_worker_up == 1)", 4)
        self.assertEqual(self.query(self.alert("MusterNodeLost")), [])

    def alerts_on_a_lost_node(self, agents):
        missing, lost = self.alert("MusterNodeMissing"), self.alert("MusterNodeLost")
        self.assertEqual(self.query(missing) + self.query(lost), [])
        agents[1].send_signal(signal.SIGKILL)
        self.finish(agents[1], -signal.SIGKILL)
        [(labels, value)] = wait_until(lambda: self.query(missing), "the alert on a missing node")
        self.assertEqual((labels, value), ({"namespace": "training", "training_job": "set"}, 2))
        again = self.start_agent(1)
        self.wait_value('muster_round_failures_total{cause="lost node", pod="job-0"}', 1)
        self.wait_value('muster_restarts_total{pod="job-0"}', 2)
        wait_until(lambda: self.query(lost), "the alert on a lost node")
        self.assertEqual(self.query('sum(muster_round_failures_total{pod="job-0"})'), [({}, 2)])
        wait_until(lambda: not self.query(missing), "the end of the alert on a missing node")
        (self.folder / "go").touch()
        for agent in (agents[0], again):
            self.finish(agent, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
