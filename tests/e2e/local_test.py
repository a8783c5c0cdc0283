"""muster local end to end: whole jobs of real agents, as a cluster would run them.

    MUSTER_BUILD=build python3 tests/e2e/local_test.py [TestClass.test_name ...]

Pods run torchrun, python or a shell; every test proves at its end that no process of it is left."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

from harness import MUSTER, AgentTest, alive, environment, free_port, wait_until

RANKS = """
import os, socket
get = os.environ.get  # unbuffered: a line is one write, else others may come between its pieces
print(f"rank {get('RANK')} of {get('WORLD_SIZE')} at {get('MASTER_ADDR')} in {get('HOSTNAME')}\\n", end="")
"""
# no namespace may be made any more by anything inside
WITHOUT_NAMESPACES = (
    "echo 0 > /proc/sys/user/max_user_namespaces && echo 0 > /proc/sys/user/max_mnt_namespaces && exec \"$@\""
)


def permits(*command):
    return shutil.which(command[0]) and subprocess.run(command, capture_output=True).returncode == 0


NAMESPACES = permits("unshare", "--mount", "--uts", "true") or permits("unshare", "-Ur", "--mount", "--uts", "true")
FORBIDDABLE = permits("unshare", "-Ur", "sh", "-c", WITHOUT_NAMESPACES, "-", "true")


def replica(count, command, policy="OnFailure", port=None, env=None, gpus=None):
    container = {"name": "pytorch", "image": "none", "command": command}
    if port:
        container["ports"] = [{"name": "pytorchjob-port", "containerPort": port}]
    if env:
        container["env"] = [{"name": name, "value": value} for name, value in env.items()]
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {"replicas": count, "restartPolicy": policy, "template": {"spec": {"containers": [container]}}}


class LocalTest(AgentTest):
    def manifest(self, master=None, worker=None, nproc="2", **spec):
        replicas = {kind: value for kind, value in (("Master", master), ("Worker", worker)) if value}
        spec.setdefault("runPolicy", {}).setdefault("cleanPodPolicy", "Running")
        job = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "j"},
            "spec": {"pytorchReplicaSpecs": replicas, "nprocPerNode": nproc, **spec},
        }
        path = self.folder / "job.json"
        path.write_text(json.dumps(job))
        return str(path)

    def start_local(self, manifest, *flags, before=(), env=None):
        process = subprocess.Popen(
            [*before, MUSTER, "local", "-f", manifest, "--backoff-scale=0", *flags],
            env=environment(E2E_FOLDER=str(self.folder), **(env or {})),
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def run_local(self, manifest, *flags, code=0, **options):
        return self.finish(self.start_local(manifest, *flags, **options), code)

    def same(self, count, command, master_policy="OnFailure", **options):
        """A master and `count` workers that run the same."""
        port = free_port()
        return self.manifest(
            replica(1, command, master_policy, port, **options), replica(count, command, master_policy, port, **options)
        )

    def check_ranks(self, out, world, pods):
        found = sorted(re.findall(r"^\[(\S+)\] rank (\d+) of (\d+) ", out, re.M), key=lambda found: int(found[1]))
        self.assertEqual(found, [(pods[rank // 2], str(rank), str(world)) for rank in range(world)], out)


class Jobs(LocalTest):
    def test_master_and_two_workers(self):
        script = self.script("w.py", RANKS)
        out, err = self.run_local(self.same(2, ["torchrun", script]))
        self.check_ranks(out, 6, ["j-master-0", "j-worker-0", "j-worker-1"])
        self.assertIn("job j: Succeeded", err)
        for pod in "j-master-0", "j-worker-0", "j-worker-1":
            self.assertRegex(err, rf"(?m)^{pod} +(succeeded|deleted) +(0|143 \(SIGTERM\)) +0 +0 ")
        self.assertNotIn("muster: warning", err)

    def test_workers_only(self):
        script = self.script("w.py", RANKS)
        manifest = self.manifest(None, replica(2, ["sh", "-c", f"exec torchrun '{script}'"]))
        out, _ = self.run_local(manifest)
        self.check_ranks(out, 4, ["j-worker-0", "j-worker-1"])

    def test_two_runs_at_once_of_one_manifest(self):
        script = self.script(
            "w.py",
            """import os, time, urllib.request
open(os.path.join(os.environ["E2E_FOLDER"], f"{os.environ['RUN']}-{os.environ['RANK']}"), "w").close()
while len([name for name in os.listdir(os.environ["E2E_FOLDER"]) if name[:3] in ("a-0", "a-1", "b-0", "b-1")]) < 4:
    time.sleep(0.01)  # both jobs are there, each with its two pods on one port
url = f"http://{os.environ['MUSTER_METRICS_ADDR']}:{os.environ['MUSTER_METRICS_PORT']}/healthz"
print("healthz", urllib.request.urlopen(url).read().decode().strip())
""",
        )
        command, port = ["torchrun", script], free_port()
        manifest = self.manifest(replica(1, command, port=port), replica(1, command), nproc="1", runPolicy={"cleanPodPolicy": "None"})
        metrics = f"--env=MUSTER_METRICS_PORT={free_port()}"
        runs = [self.start_local(manifest, "--keep-going", metrics, f"--env=RUN={run}") for run in "ab"]
        for run in runs:
            out, _ = self.finish(run, 0)
            self.assertEqual(len(re.findall(r"(?m)^\[j-\w+-0\] healthz ok$", out)), 2, out)

    def test_python_in_a_shell(self):
        script = self.script("w.py", RANKS)
        line = f"python3 -c 'print(1 + 1)' && python3 -u -m torch.distributed.run '{script}'"
        out, _ = self.run_local(self.same(1, ["sh", "-c", line]))
        self.check_ranks(out, 4, ["j-master-0", "j-worker-0"])
        self.assertIn("[j-master-0] 2\n", out)

    def test_old_launcher_in_a_shell(self):
        script = self.script("w.py", RANKS)
        line = f"python3 -m torch.distributed.launch --use-env '{script}'"
        out, _ = self.run_local(self.same(1, ["sh", "-c", line]))
        self.check_ranks(out, 4, ["j-master-0", "j-worker-0"])

    def test_script_without_a_launcher(self):
        script = self.script("train.py", 'import os; print("node", os.environ["RANK"], os.environ["MASTER_PORT"])')
        port = free_port()
        command = ["python3", script]
        manifest = self.manifest(replica(1, command, port=port), replica(1, command), runPolicy={"cleanPodPolicy": "None"})
        out, _ = self.run_local(manifest)
        self.assertIn(f"[j-master-0] node 0 {port}\n", out)
        self.assertIn(f"[j-worker-0] node 1 {port}\n", out)

    def test_interpreter_of_a_virtual_environment(self):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder / "env"], check=True)
        command = ["python3", "-c", "import sys; print(sys.prefix)"]
        path = f"{self.folder}/env/bin:{os.environ['PATH']}"
        out, _ = self.run_local(self.manifest(replica(1, command, env={"PATH": path})))
        self.assertIn(f"[j-master-0] {self.folder}/env\n", out)

    @unittest.skipUnless(NAMESPACES, "no namespaces here")
    def test_names(self):
        code = (
            "import socket; print(socket.gethostname(), [i[4][0] for i in "
            "socket.getaddrinfo('j-master-0', 1, type=socket.SOCK_STREAM)])"
        )
        command = ["python3", "-c", code]
        manifest = self.manifest(replica(1, command), replica(1, command), runPolicy={"cleanPodPolicy": "None"})
        out, _ = self.run_local(manifest)
        self.assertRegex(out, r"(?m)^\[j-worker-0\] j-worker-0 \['127\.\d+\.0\.1'\]$")
        self.assertRegex(out, r"(?m)^\[j-master-0\] j-master-0 \['127\.\d+\.0\.1'\]$")

    @unittest.skipUnless(FORBIDDABLE, "namespaces cannot be forbidden here")
    def test_without_namespaces(self):
        script = self.script("w.py", RANKS)
        forbid = ["unshare", "-Ur", "sh", "-c", WITHOUT_NAMESPACES, "-"]
        out, err = self.run_local(self.same(1, ["torchrun", script]), before=forbid)
        self.check_ranks(out, 4, ["j-master-0", "j-worker-0"])
        self.assertRegex(out, r" at 127\.\d+\.0\.1 in j-worker-0\n")
        self.assertEqual(err.count("namespaces are not permitted here"), 1)
        manifest = self.manifest(None, replica(2, ["torchrun", script], port=free_port()))
        out, _ = self.run_local(manifest, before=forbid)
        self.check_ranks(out, 4, ["j-worker-0", "j-worker-1"])

    def test_gpus_that_are_not_there(self):
        manifest = self.manifest(replica(1, ["true"], gpus=4), replica(2, ["true"], gpus=2))
        _, err = self.run_local(manifest, "--gpus=", code=2)
        self.assertIn("request 8 GPUs and this machine has 0", err)
        self.run_local(manifest, "--gpus=", "--allow-gpu-shortage")


class Failures(LocalTest):
    def test_a_script_of_the_image_is_missed_before_the_start(self):
        manifest = self.manifest(replica(1, ["python3", "/nowhere/train.py"], port=free_port()), nproc="1", runPolicy={"backoffLimit": 1})
        _, err = self.run_local(manifest, code=2)
        warning = "pod j-master-0, container pytorch: its script /nowhere/train.py does not exist on this machine"
        self.assertIn(warning, err)
        self.assertLess(err.index(warning), err.index("job j: "))
        self.assertNotIn("without end", err)
        script = self.script("w.py", "")
        _, err = self.run_local(self.manifest(replica(1, ["python3", script], port=free_port())))
        self.assertNotIn("does not exist", err)

    def test_one_worker_fails_once_and_all_start_again(self):
        """OnFailure: the verdict ends both agents, each container starts again in place, and they meet again."""
        marker = self.folder / "failed"
        script = self.script(
            "w.py",
            f"""import os, sys
if os.environ["RANK"] == "3" and not os.path.exists({str(marker)!r}):
    open({str(marker)!r}, "w")
    sys.exit(3)
{RANKS}""",
        )
        out, err = self.run_local(self.same(1, ["torchrun", script]))
        self.assertIn("rank 3 of 4", out)
        self.assertIn("pod j-worker-0: exit code 3, its container restarts", err)
        self.assertNotIn("recreated (", err)

    def test_killed_worker_under_exit_code(self):
        marker = self.folder / "failed"
        script = self.script(
            "w.py",
            f"""import os, signal
if os.environ["RANK"] == "2" and not os.path.exists({str(marker)!r}):
    open({str(marker)!r}, "w")
    os.kill(os.getpid(), signal.SIGKILL)
{RANKS}""",
        )
        out, err = self.run_local(self.same(1, ["torchrun", script], "ExitCode"))
        self.assertIn("rank 2 of 4", out)
        self.assertIn("pod j-worker-0 failed with exit code 137", err)
        self.assertIn("pod j-worker-0: recreated (1)", err)
        self.assertIn("job j: Restarting", err)

    def test_permanent_failure_under_exit_code(self):
        script = self.script("w.py", "import sys; sys.exit(9)")
        _, err = self.run_local(self.same(1, ["torchrun", script], "ExitCode"), code=9)
        self.assertIn("job j: Failed", err)
        self.assertNotIn("recreated (", err)

    def test_never(self):
        script = self.script("w.py", "import os, sys; sys.exit(7 if os.environ['RANK'] == '3' else 0)")
        _, err = self.run_local(self.same(1, ["torchrun", script], "Never"), code=7)
        self.assertIn("job j: Failed", err)

    def test_backoff_limit(self):
        script = self.script("w.py", "import sys; sys.exit(5)")
        manifest = self.manifest(
            replica(1, ["torchrun", script], port=free_port()), runPolicy={"backoffLimit": 2}, nproc="1"
        )
        _, err = self.run_local(manifest, code=5)
        self.assertIn("more restarts than backoffLimit 2 allows", err)

    def test_master_done_with_a_worker_running(self):
        worker = "trap 'touch told; exit 0' TERM; touch up; while :; do sleep 0.02; done"
        master = "while [ ! -e up ]; do sleep 0.01; done"
        manifest = self.manifest(replica(1, ["sh", "-c", master]), replica(1, ["sh", "-c", worker]))
        self.run_local(manifest)
        self.assertTrue((self.folder / "told").exists())


class Elastic(LocalTest):
    """Workers that come and go. A script writes its identity, and ends at the test's request."""

    SCRIPT = """
import os, time
print(f"round {os.environ['MUSTER_ROUND']} rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n", end="", flush=True)
open("agent." + os.environ["HOSTNAME"][-1], "w").write(str(os.getppid()) + "\\n")
open("seen." + os.environ["MUSTER_ROUND"] + "." + os.environ["WORLD_SIZE"] + "." + os.environ["RANK"], "w").close()
while not os.path.exists("end"):
    time.sleep(0.01)
"""

    def begin(self, minimum, maximum, workers):
        script = self.script("w.py", self.SCRIPT)
        elastic = {
            "minReplicas": minimum,
            "maxReplicas": maximum,
            "maxRestarts": 9,
            "rdzvConf": [{"key": "last_call_timeout", "value": "1"}],
        }
        worker = replica(workers, ["torchrun", script], port=free_port())
        return self.start_local(self.manifest(None, worker, "1", elasticPolicy=elastic))

    def await_world(self, size):
        """Waits for a round that all of `size` workers are in."""

        def rounds():
            names = [path.name.split(".") for path in self.folder.glob(f"seen.*.{size}.*")]
            return [r for r in {name[1] for name in names} if sum(name[1] == r for name in names) == size]

        wait_until(rounds, f"a world of {size}")

    def forget(self):
        for path in self.folder.glob("seen.*"):
            path.unlink()

    def end(self, process):
        (self.folder / "end").touch()
        return self.finish(process, 0)

    def test_agent_killed(self):
        process = self.begin(1, 2, 2)
        self.await_world(2)
        agent = self.pids("agent", 2)[1]
        self.forget()
        os.kill(agent, signal.SIGKILL)
        self.await_world(2)
        _, err = self.end(process)
        self.assertIn("pod j-worker-1: exit code 137, its container restarts", err)

    def test_serving_agent_killed(self):
        """Rounds may be counted from 0 again: the world that counts has new agents."""
        process = self.begin(1, 2, 2)
        self.await_world(2)
        server = self.pids("agent", 2)[0]
        self.forget()
        os.kill(server, signal.SIGKILL)
        self.await_world(2)
        self.assertNotEqual(self.pids("agent", 2)[0], server)
        _, err = self.end(process)
        self.assertIn("pod j-worker-0: exit code 137, its container restarts", err)

    def test_scaled(self):
        process = self.begin(1, 3, 2)
        self.await_world(2)
        process.send_signal(signal.SIGRTMIN + 1)
        self.await_world(3)
        self.forget()
        process.send_signal(signal.SIGRTMIN + 2)
        self.await_world(2)
        process.send_signal(signal.SIGRTMIN + 2)
        self.await_world(1)
        process.send_signal(signal.SIGRTMIN + 2)
        self.wait_said(process, "job j cannot have 0 workers: its elasticPolicy bounds them")
        _, err = self.end(process)
        self.assertRegex(err, r"(?m)^j-worker-0 +succeeded +0 +0 +0 ")
        self.assertRegex(err, r"(?m)^j-worker-1 +deleted ")
        self.assertRegex(err, r"(?m)^j-worker-2 +deleted ")


class Signals(LocalTest):
    def running(self):
        script = self.script(
            "w.py",
            """import os, signal
open("pid." + os.environ["RANK"], "w").write(str(os.getpid()) + "\\n")
while True:
    signal.pause()
""",
        )
        process = self.start_local(self.same(1, ["sh", "-c", f"exec torchrun '{script}'"]))
        self.pids("pid", 4)
        return process

    def test_interrupt(self):
        process = self.running()
        process.send_signal(signal.SIGINT)
        _, err = self.finish(process, 130)
        self.assertIn("job j: deleted", err)
        self.assertEqual(len(re.findall(r"(?m)^j-(?:master|worker)-0 +deleted +143 ", err)), 2)

    def test_kill(self):
        """Not even the launcher's death by KILL leaves a pod, an agent or a worker."""
        process = self.running()
        workers = self.pids("pid", 4)
        process.kill()
        process.wait()
        wait_until(lambda: not any(map(alive, workers)), "workers are gone")  # not every process 1 waits for exited children


if __name__ == "__main__":
    unittest.main(verbosity=2)
