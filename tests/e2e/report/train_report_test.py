#!/usr/bin/env python3
"""Reports of a run of muster-train: figures in muster status and in the metrics, a slow rank by its number, a log on a full disk.

    MUSTER_BUILD=build python3 tests/e2e/report/train_report_test.py [TestClass.test_name ...]
"""
import ctypes.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import free_port, repeated_beside  # noqa: E402

BUILD = pathlib.Path(os.environ["MUSTER_BUILD"]).resolve()
MUSTER, TRAIN = str(BUILD / "bin" / "muster"), str(BUILD / "bin" / "muster-train")
HAVE_HTTP = bool(ctypes.util.find_library("microhttpd"))
LIMIT = 120

CONFIG = """\
training: {{steps: 1000000, micro_batch: 1, global_batch: 3, sequence_length: 64, threads: 1}}
model: {{layers: 4, channels: 128, heads: 4}}
data: {{path: "{0}/text"}}
logging: {{dir: "{0}/log", sample_length: 0, straggler_steps: 10, z_limit: 0}}
"""


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster report ")
        self.path = pathlib.Path(self.folder.name)
        (self.path / "text").write_text("the quick brown fox jumps over the lazy dog; " * 200)
        (self.path / "config.yaml").write_text(CONFIG.format(self.path))
        self.errors, self.output = self.path / "errors", self.path / "output"
        self.run = None

    def tearDown(self):
        if self.run and self.run.poll() is None:
            self.run.kill()
            self.run.wait()
        self.folder.cleanup()

    def start(self, ranks, *words):
        """--metrics-port where there is a library for it."""
        self.port = free_port()
        http = [f"--metrics-port={self.port}", "--metrics-addr=127.0.0.1"] if HAVE_HTTP else []
        driver = {"MUSTER_NVML_LIBRARY": str(BUILD / "tests" / "fake_nvml.so"), "FAKE_NVML": "GPU-a GPU-b",
                  "FAKE_NVML_FACTS": "0.busy=83 0.memory=81920 0.used=61440 1.busy=41"}
        with self.errors.open("w") as errors, self.output.open("w") as output:
            self.run = subprocess.Popen([MUSTER, "run", "--standalone", f"--nproc_per_node={ranks}", *http, TRAIN, str(self.path / "config.yaml"), *words],
                                        stdout=output, stderr=errors, cwd=self.path, env={**os.environ, **driver})

    def wait_for(self, what, message):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            found = what()
            if found:
                return found
            self.assertIsNone(self.run.poll(), self.errors.read_text())
            time.sleep(0.05)
        self.fail(f"{message}: {self.errors.read_text()}")

    def lines(self, kind="step"):
        try:
            whole = (self.path / "log" / "log.jsonl").read_text().rpartition("\n")[0]
        except FileNotFoundError:
            return []
        return [line for line in map(json.loads, whole.splitlines()) if line["kind"] == kind]

    def size(self):
        return (self.path / "log" / "log.jsonl").stat().st_size

    def status(self, *words):
        done = subprocess.run([MUSTER, "status", "--pid", str(self.run.pid), *words], capture_output=True, text=True, timeout=LIMIT)
        return done.stdout if done.returncode == 0 else ""

    def workers(self):
        return json.loads(self.status("--output=json") or '{"workers": []}')["workers"]

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=LIMIT) as answer:
            return dict(re.findall(r"^(muster_train_\w+\{rank=\"\d+\").*\} (\S+)$", answer.read().decode(), re.M))

    def stop_for_a_moment(self, pid):
        """200 ms of a step: until its line is there, the next one is not begun."""
        size = self.size()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.2)
        os.kill(pid, signal.SIGCONT)
        end = time.monotonic() + 1
        while self.size() == size and time.monotonic() < end:
            time.sleep(0.001)

    def stopped_again_and_again(self, pid):
        """In each step, also while another program is asked how the ranks are: on a busy machine that takes more steps than it is slow for."""
        return repeated_beside(lambda: self.stop_for_a_moment(pid))

    def test_a_slow_rank_is_named(self):
        self.start(3)
        workers = self.wait_for(lambda: [w for w in self.workers() if "figures" in w][2:] and self.workers(), "figures of three ranks")
        for worker in workers:
            figures = worker["figures"]
            self.assertTrue(0 < figures["loss"] < 10 and figures["step_ms"] >= figures["exposed_ms"] >= 0 and figures["tokens_per_s"] > 0, figures)
            self.assertEqual(figures["slow_rank"], -1)
        self.assertRegex(self.status(), r"training  loss \d\.\d{4}, \d+ tokens/s, [\d.]+ ms a step, [\d.]+ ms of it exposed communication, ")
        self.assertNotIn("slow", self.status())
        if HAVE_HTTP:
            metrics = self.metrics()
            for rank in range(3):
                self.assertGreater(float(metrics[f'muster_train_step_seconds{{rank="{rank}"']), 0)
                self.assertIn(f'muster_train_exposed_comm_seconds{{rank="{rank}"', metrics)
            self.wait_for(lambda: len([n for n in self.metrics() if "gpu_utilization" in n]) == 2, "the GPUs of ranks 0 and 1")
            metrics = self.metrics()  # rank 2 has none, and the memory of rank 1's is not known
            self.assertEqual([float(metrics[f'muster_train_gpu_utilization_ratio{{rank="{rank}"']) for rank in (0, 1)], [0.83, 0.41])
            self.assertAlmostEqual(float(metrics['muster_train_gpu_memory_bytes{rank="0"']) / 2**30, 60, 5)
            self.assertAlmostEqual(float(metrics['muster_train_gpu_memory_total_bytes{rank="0"']) / 2**30, 80, 5)
            self.assertNotIn('muster_train_gpu_memory_bytes{rank="1"', metrics)
        self.wait_for(lambda: [l for l in self.lines() if l.get("gpu_utilization") == 0.83 and l["gpu_memory"] == 60 << 30], "rank 0's in the log")
        self.wait_for(lambda: ", 60.0 GB of 80.0 GB  eta " in self.output.read_text() and "  gpu 83%" in self.output.read_text(), "the progress line")
        self.assertEqual(self.lines("warning"), [])
        pid = workers[1]["pid"]
        with self.stopped_again_and_again(pid):
            warning = self.wait_for(lambda: self.lines("warning"), "no rank was named")[0]["text"]
        named = re.search(r"rank (\d) on \S+ is slow: over the last 10 steps the other ranks waited for it ([\d.]+) ms a step, (\d+)% of its time", warning)
        self.assertTrue(named, warning)
        self.assertEqual(named.group(1), "1")
        self.assertTrue(100 < float(named.group(2)) < 1000 and int(named.group(3)) > 20, warning)  # 200 are planned; steps are slow on a busy machine
        self.wait_for(lambda: "muster-train: warning: " + warning in self.errors.read_text(), "the agent has not shown it")
        with self.stopped_again_and_again(pid):
            self.wait_for(lambda: "slow      rank 1: the other ranks wait for it " in self.status(), "it is not in muster status")
        self.assertEqual({line["slow_rank"] for line in self.lines()} - {-1}, {1})  # while it was stopped; it runs freely in the meantime
        self.run.send_signal(signal.SIGTERM)
        self.assertEqual(self.run.wait(LIMIT), 143)

    def test_a_rank_shows_its_place(self):
        """On SIGUSR1 it goes on; after a time-out it is in the failure report, of every rank."""
        self.start(3, "--set", "training.timeout=4")
        workers = self.wait_for(lambda: len(self.lines()) > 3 and [w for w in self.workers() if w.get("step", -1) >= 0][2:] and self.workers(), "steps")
        os.kill(workers[1]["pid"], signal.SIGUSR1)
        place = r"in step \d+(: compute has begun operation \d+ of \d+ last, \w+.*)?|between steps.*"
        comm = r"comm of axis shard, gather: issued #\d+ \(all_gather of \d+ f32\) last, finished #\d+ \(all_gather of \d+ f32\) last"
        self.wait_for(lambda: re.search(rf"^muster-train: rank 1: {comm}.*\n(muster-train: rank 1: comm .*\n)*muster-train: rank 1: ({place})$", self.errors.read_text(), re.M),
                      "rank 1 does not show its place")
        steps = len(self.lines())
        self.wait_for(lambda: len(self.lines()) > steps + 3, "the run does not go on")
        os.kill(workers[1]["pid"], signal.SIGSTOP)
        self.assertNotEqual(self.run.wait(LIMIT), 0)
        errors = self.errors.read_text()
        report = errors[errors.index("ChildFailedError"):]
        for rank in (0, 2):
            entry = re.search(rf"  rank      : {rank} \(local_rank: {rank}\)\n.*?(?=\n\[|\n[-=]{{9}})", report, re.S)
            self.assertTrue(entry, report)
            self.assertRegex(entry.group(), r"in step \d+: compute has begun operation \d+ of \d+ last, ")
            self.assertRegex(entry.group(), r"comm of axis shard, (gather|reduce): issued #\d+ ")

    def test_replicas_are_compared(self):
        """Where they agree the run is as without; a difference is planted in train_replicas_test."""
        self.start(3, "--set", "training.strategy=NO_SHARD", "--set", "training.check_replicas_every=2", "--set", "training.steps=6")
        self.assertEqual(self.run.wait(LIMIT), 0, self.errors.read_text())
        self.assertEqual([line["step"] for line in self.lines()], [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.lines("warning"), [])

    def test_a_full_disk_costs_the_log_alone(self):
        if os.geteuid():
            self.skipTest("a small file system can be mounted by root alone")
        for size, expected in (("size=16k", "No space left on device; training goes on without these entries"),
                               ("size=1m,nr_inodes=1", "No space left on device; training goes on without it")):
            (self.path / "log").mkdir(exist_ok=True)
            shell = (f'mount -t tmpfs -o {size} tmpfs "$1/log" || exit 99\n'
                     f'"{TRAIN}" "$1/config.yaml" --set training.steps=60 --set model.layers=1 --set model.channels=32 --set "logging.json=$1/log/steps" --set logging.tensorboard=false || exit 98\n'
                     '[ "$(tail -c 1 "$1/log/steps" 2>/dev/null)" = "" ] || exit 97\n')  # whole lines
            done = subprocess.run(["unshare", "--mount", "sh", "-c", shell, "sh", str(self.path)], capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(expected, done.stderr)
            self.assertIn("step 60/60 ", done.stdout)


if __name__ == "__main__":
    unittest.main()
