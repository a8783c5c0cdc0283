"""The shape of the vector files: a misspelt key or a lost row would otherwise make a test that reads them pass emptily."""
import json
import pathlib
import re
import unittest

HERE = pathlib.Path(__file__).parent
NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def read(name):
    return json.loads((HERE / name).read_text())


class Shape(unittest.TestCase):
    def row(self, row, needed, allowed=()):
        self.assertLessEqual(set(needed), set(row), row.get("id", row))
        self.assertLessEqual(set(row), set(needed) | set(allowed), row.get("id", row))

    def env(self, env):
        for name, value in env.items():
            self.assertRegex(name, NAME)
            self.assertIsInstance(value, str)

    def unique(self, rows):
        ids = [row["id"] for row in rows]
        self.assertEqual(len(ids), len(set(ids)))


class PyTorchJob(Shape):
    file = read("pytorchjob_vectors.json")

    def test_pods(self):
        self.unique(self.file["jobs"])
        pods = 0
        for job in self.file["jobs"]:
            self.row(job, ["id", "about", "job", "pods"], ["webhook_rejects"])
            self.assertEqual(job["job"]["kind"], "PyTorchJob")
            for pod in job["pods"]:
                self.row(pod, ["replica", "index"],
                         ["env", "older", "env_list", "same_in_containers", "controller_crashes"])
                self.assertIn(pod["replica"], ("Master", "Worker"))
                self.assertNotEqual("env" in pod, pod.get("controller_crashes", False))
                self.env(pod.get("env", {}))
                if "env_list" in pod:
                    self.assertEqual(dict(pod["env_list"]), pod["env"])
                for release, env in pod.get("older", {}).items():
                    self.assertRegex(release, r"^v1\.[3-7]\.0$")
                    if "controller_crashes" not in env:
                        self.env(env)
                pods += 1
        self.assertGreaterEqual(pods, 35)

    def test_other_tables(self):
        for name in ("defaults", "webhook", "lifecycle"):
            self.unique(self.file[name])
        for row in self.file["webhook"]:
            self.row(row, ["id", "job", "errors", "warnings"], ["tested_upstream"])
            for error in row["errors"]:
                self.row(error, ["type", "field"])
                self.assertIn(error["type"], ("Invalid", "Required", "NotSupported", "Forbidden"))
        for row in self.file["defaults"]:
            self.row(row, ["id", "job"],
                     ["tested_upstream", "elastic", "nproc", "workers", "restart_policy", "clean_pod_policy", "port"])
            self.assertGreater(len(set(row) - {"id", "job", "tested_upstream"}), 0)
        for row in self.file["clean_pod_policy"]:
            self.row(row, ["job", "policy", "pods", "deleted"], ["tested_upstream"])
            self.assertLessEqual(set(row["deleted"]), set(row["pods"]))
        for row in self.file["lifecycle"]:
            self.row(row, ["id", "replicas", "policy", "elastic", "events", "job"], ["pods", "since", "backoff_limit"])
            self.assertIn(row["job"], ("Running", "Restarting", "Succeeded", "Failed", "Suspended"))
            for event in row["events"]:
                self.assertIn(tuple(event), (("pod", "exit"), ("pod", "evicted"), ("scale",), ("suspend",)))
        self.assertEqual(self.file["exit_codes"]["retryable"], [[128, 255]])


class TrainJob(Shape):
    def test_vectors(self):
        vectors = read("trainjob_vectors.json")["vectors"]
        self.unique(vectors)
        self.assertGreaterEqual(len(vectors), 19)
        for row in vectors:
            self.row(row, ["id", "about", "tested_upstream", "spec"], ["env", "refused", "command", "older"])
            for env in row.get("env", {}).values():
                self.env(env)


if __name__ == "__main__":
    unittest.main(verbosity=1)
