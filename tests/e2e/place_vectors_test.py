"""Every pod of every static PyTorchJob in tests/data, as the operator's releases since 1.3 set it up, finds its place: the
number of pods, its rank, and the one master that all pods of the job name. Nothing is started: muster env prints it."""

import json
import os
import pathlib
import re
import subprocess
import unittest

BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", "build")).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
JOBS = json.loads((SOURCE / "tests" / "data" / "pytorchjob_vectors.json").read_text())["jobs"]
# a driver with one GPU, for the jobs that say gpu
DRIVER = {"MUSTER_NVML_LIBRARY": str(BUILD / "tests" / "fake_nvml.so"), "FAKE_NVML": "GPU-a"}


def clean_environment():
    drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|MASTER_|RANK$|WORLD_SIZE$|CUDA_VISIBLE|SLURM|JOB_COMPLETION")
    return {name: value for name, value in os.environ.items() if not drop.match(name)}


def settings(host, environment, *flags):
    done = subprocess.run(
        [str(BUILD / "bin" / "muster"), "env", "--output=json", *flags],
        env={**clean_environment(), **DRIVER, "MUSTER_HOSTNAME": host, **environment},
        capture_output=True, text=True, timeout=300,
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    shown = json.loads(done.stdout)
    values = {row["name"]: row["value"] for row in shown["settings"]}
    return {
        "nodes": shown["node"]["max_nodes"], "rank": values["node-rank"], "master": values["master-addr"],
        "port": values["master-port"],
    }


def replicas(job):
    specs = job["spec"]["pytorchReplicaSpecs"]
    return {name.lower(): spec.get("replicas", 1) for name, spec in specs.items()}


class Placement(unittest.TestCase):
    def each_pod(self):
        for row in JOBS:
            if row["id"].startswith("elastic") or row["id"] == "static-nproc-0":
                continue
            counts = replicas(row["job"])
            for pod in row["pods"]:
                role = pod["replica"].lower()
                rank = pod["index"] + (role == "worker" and "master" in counts)
                host = f"{row['job']['metadata']['name']}-{role}-{pod['index']}"
                for release, environment in [("v1.9.4", pod.get("env")), *pod.get("older", {}).items()]:
                    if environment and "controller_crashes" not in environment:
                        yield row["id"], release, host, environment, rank, counts, row["job"]["metadata"]["name"]

    def test_every_pod_knows_its_place(self):
        looked = 0
        for job_id, release, host, environment, rank, counts, name in self.each_pod():
            with self.subTest(job=job_id, release=release, host=host):
                told = "PET_NNODES" in environment or "WORLD_SIZE" in environment
                # before 1.8 jobs of workers only get nothing at all: their users give the number
                flags = [] if told else [f"--nnodes={sum(counts.values())}"]
                if environment.get("PET_NPROC_PER_NODE", "1") not in ("auto", "gpu", "cpu") and not environment.get(
                    "PET_NPROC_PER_NODE", "1"
                ).isdigit():
                    flags.append("--nproc-per-node=1")  # a word that no launcher knows
                found = settings(host, environment, *flags)
                role = "master" if "master" in counts else "worker"
                nodes = sum(counts.values())
                self.assertEqual((found["nodes"], found["rank"]), (nodes, rank))
                if nodes > 1:
                    self.assertEqual(found["master"], f"{name}-{role}-0")
                    self.assertEqual(found["port"], int(environment.get("MASTER_PORT", 23456)))
                looked += 1
        self.assertGreater(looked, 60)

    def test_an_elastic_job_with_a_master_is_warned_of(self):
        row = next(row for row in JOBS if row["id"] == "elastic-with-master")
        pod = row["pods"][0]
        # --rdzv-backend=static: the test reads the warning, in a world whose size is settled
        done = subprocess.run(
            [str(BUILD / "bin" / "muster"), "env", "--output=json", "--rdzv-backend=static", "--node-rank=0"],
            env={**clean_environment(), **pod["env"], "PET_NNODES": "1:1"}, capture_output=True, text=True, timeout=300,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("PET_NNODES=1:1 counts workers only", " ".join(json.loads(done.stdout)["warnings"]))


if __name__ == "__main__":
    unittest.main()
