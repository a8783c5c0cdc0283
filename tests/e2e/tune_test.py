"""muster run and NCCL's environment: workers' variables on a machine, the report, a policy's effects.

    MUSTER_BUILD=build python3 tests/e2e/tune_test.py [TestClass.test_name ...]

Machines come from tests/data/machines through MUSTER_DESCRIPTION, so that no GPU is needed."""

import json
import os
import pathlib
import subprocess
import unittest

from harness import BUILD, LIMIT, MUSTER, AgentTest, environment, free_port, wait_until

MACHINES = pathlib.Path(__file__).resolve().parents[1] / "data" / "machines"
SHOW = ["sh", "-c", "env | grep -E '^(NCCL|GLOO|TP_|TORCH_FR)' | sort"]
NODE_1_OF_2 = ["--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.3", "--master-port=29500"]


def machine(name, **more):
    return {"MUSTER_DESCRIPTION": str(MACHINES / f"{name}.json"), **more}


class Workers(AgentTest):
    def test_they_get_what_is_set_and_a_line_says_so(self):
        out, err = self.run_muster("--standalone", *SHOW, env=machine("t4-x4-pcie-pod"))
        self.assertEqual(out.split(), ["NCCL_DEBUG=WARN"])
        self.assertRegex(err, r"NCCL: 1 set \(NCCL_DEBUG=WARN\)")

    def test_what_the_user_set_stays(self):
        out, err = self.run_muster("--standalone", *SHOW, env=machine("t4-x4-pcie-pod", NCCL_DEBUG="INFO"))
        self.assertEqual(out.split(), ["NCCL_DEBUG=INFO"])
        self.assertNotIn("NCCL:", err)  # nothing was set, nothing is wrong

    def test_off_sets_nothing_and_says_nothing(self):
        out, err = self.run_muster("--standalone", "--nccl-tune=off", *SHOW, env=machine("t4-x4-pcie-pod"))
        self.assertEqual((out, err), ("", ""))

    def test_explain_says_why(self):
        _, err = self.run_muster(
            "--standalone", "--nproc-per-node=4", "--nccl-tune=explain", "true", env=machine("t4-x4-pcie-pod")
        )
        self.assertIn("1 warning (/dev/shm)", err)
        self.assertIn("NCCL prints the cause of an error", err)
        self.assertIn("docker: --shm-size=1g", err)

    def test_a_level_that_is_none_is_warned_of_with_its_reason(self):
        _, err = self.run_muster("--standalone", "true", env=machine("h200-one", NCCL_DEBUG="ERROR"))
        self.assertRegex(err, r"warning: NCCL: .*; NCCL_DEBUG=ERROR: it is not a level of NCCL, which prints nothing then, not even errors: use WARN")

    def test_nothing_is_said_where_nothing_can_matter(self):
        if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg"):
            self.skipTest("this machine has GPUs")
        out, err = self.run_muster("--standalone", *SHOW, env={"NCCL_IB_DISABLE": "true"})
        self.assertEqual((out, err), ("NCCL_IB_DISABLE=true\n", ""))

    def test_a_driver_that_hangs_costs_its_time_limit_and_is_named(self):
        out, err = self.run_muster(
            "--standalone", "--nproc-per-node=2", "echo", "ran",
            env={"MUSTER_NVML_LIBRARY": str(BUILD / "tests" / "fake_nvml.so"), "FAKE_NVML": "hang"},
        )  # fmt: skip
        self.assertEqual(out, "ran\nran\n")
        self.assertRegex(err, r"warning: NCCL: .*1 warning \(nvml\)")

    def test_decisions_and_machine_are_kept_with_the_logs(self):
        logs = self.folder / "logs"
        out, _ = self.run_muster(
            "--standalone", f"--log-dir={logs}", "--max-restarts=1", "sh", "-c",
            'echo "$TORCH_FR_DUMP_TEMP_FILE"; exit $((1 - TORCHELASTIC_RESTART_COUNT))',
            env=machine("t4-x4-pcie-pod"),
        )  # fmt: skip
        [run] = logs.iterdir()
        kept = json.loads((run / "nccl.json").read_text())
        self.assertIn("NCCL_DEBUG", [row["variable"] for row in kept["decisions"] if row["kind"] == "set"])
        self.assertEqual(kept["description"]["host"], "one-node-master-0")
        # the dumps of one attempt do not overwrite the earlier attempt's
        self.assertEqual(out.splitlines(), [f"{run}/attempt_{n}/nccl_trace_rank_" for n in (0, 1)])


class Policy(AgentTest):
    def policy(self, text):
        return "--nccl-policy=" + self.script("policy.yaml", "version: 1\nrules:\n" + text)

    def test_forbidden_jobs_do_not_start(self):
        policy = self.policy("  - forbid: [NCCL_IB_DISABLE]\n    reason: the fabric is fast\n")
        out, err = self.run_muster("--standalone", policy, "echo", "ran", env={"NCCL_IB_DISABLE": "1"}, code=2)
        self.assertEqual(out, "")
        self.assertIn(f"{self.folder}/policy.yaml:3 forbids it (the fabric is fast), but it is set in environment: remove it there", err)
        self.run_muster("--standalone", policy, "true")

    def test_pins_and_additions_come_also_without_rules(self):
        policy = self.policy('  - pin: {NCCL_DEBUG: WARN}\n  - add: {NCCL_IB_TC: "106"}\n')
        for mode in ("off", "on"):
            out, _ = self.run_muster(
                "--standalone", f"--nccl-tune={mode}", policy, *SHOW, env={"NCCL_DEBUG": "INFO"}
            )
            self.assertEqual(out.split(), ["NCCL_DEBUG=WARN", "NCCL_IB_TC=106"])

    def test_a_node_pool_has_its_own(self):
        policy = self.policy('  - add: {NCCL_IB_TC: "106"}\n    when: {pool: "a3-*"}\n')
        out, _ = self.run_muster("--standalone", policy, *SHOW, env={"MUSTER_NODE_POOL": "a3-mega"})
        self.assertEqual(out.split(), ["NCCL_IB_TC=106"])
        out, _ = self.run_muster("--standalone", policy, *SHOW, env={"MUSTER_NODE_POOL": "g2"})
        self.assertEqual(out, "")

    def test_an_unreadable_policy_prevents_the_start(self):
        _, err = self.run_muster("--standalone", self.policy("  - ad: {A: b}\n"), "true", code=2)
        self.assertIn("policy.yaml:3:5: unknown key 'ad'; did you mean add", err)
        _, err = self.run_muster("--standalone", "true", env={"MUSTER_NCCL_POLICY": "/nonexistent"}, code=2)
        self.assertIn("cannot open /nonexistent", err)


class Shown(AgentTest):
    def muster(self, *arguments, env=None):
        done = subprocess.run(
            [MUSTER, *arguments], env=environment(**(env or {})), capture_output=True, text=True, timeout=LIMIT
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_dry_run_shows_the_variables(self):
        out = self.muster("run", *NODE_1_OF_2, "--dry-run", "true", env=machine("host-network-bridges"))
        for line in ("GLOO_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME==eth0", "TP_SOCKET_IFNAME=eth0"):
            self.assertIn(f"    {line}\n", out)

    def test_muster_env_has_the_table(self):
        out = self.muster("env", *NODE_1_OF_2, env=machine("host-network-bridges"))
        self.assertRegex(out, r"(?m)^set +NCCL_SOCKET_IFNAME==eth0 +eth0 is on the route to 10\.0\.0\.3; by default")
        out = self.muster("env", *NODE_1_OF_2, "--output=json", env=machine("host-network-bridges"))
        rows = {row["variable"]: row for row in json.loads(out)["nccl"]}
        self.assertEqual(rows["NCCL_SOCKET_IFNAME"]["kind"], "set")
        self.assertEqual(rows["NCCL_SOCKET_IFNAME"]["rule"], "socket-interface")


class Nodes(AgentTest):
    """Two agents of one job on two machines."""

    def begin(self, rank, port, description, *command):
        path = self.folder / f"machine.{rank}.json"
        path.write_text(json.dumps(description))
        with open(self.folder / f"stderr.{rank}", "w") as log:
            return self.start(
                "--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}",
                "sh", "-c", 'while [ ! -e "$E2E_FOLDER/go" ]; do sleep 0.02; done; exec "$@"', "sh", *command,
                env={"MUSTER_DESCRIPTION": str(path), "MUSTER_HOSTNAME": f"node-{rank}"}, stderr=log,
            )  # fmt: skip

    def log(self, rank):
        return (self.folder / f"stderr.{rank}").read_text()

    def differ(self, *command):
        """Runs the command on both nodes after the first has named the differences; their output."""
        description = json.loads((MACHINES / "dgx-h100.json").read_text())
        port = free_port()
        agents = [self.begin(0, port, description, *command)]
        description.update(nccl="2.21.5", rdma=[])
        description["gpus"].pop()
        agents.append(self.begin(1, port, description, *command))
        wait_until(lambda: "RDMA" in self.log(0), "the differences")
        (self.folder / "go").touch()
        return [self.finish(agent, 0)[0] for agent in agents]

    def test_differences_are_named_once_by_the_first(self):
        self.differ("true")
        lines = [line for line in self.log(0).splitlines() if "the nodes differ" in line]
        self.assertEqual(len(lines), 3, self.log(0))
        self.assertIn("NCCL 2.27.5 on node-0; 2.21.5 on node-1", lines[0])
        self.assertIn("GPUs 8 on node-0; 7 on node-1", lines[1])
        self.assertIn("RDMA ready on node-0; missing on node-1", lines[2])
        self.assertNotIn("the nodes differ", self.log(1))

    def test_the_store_is_the_workers_own_after_that(self):
        count = self.script(
            "count.py",
            "import os, socket, struct\n"
            "store = socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
            "store.sendall(bytes([0]) + struct.pack('<I', 0x3C85F7CE) + bytes([7]))  # VALIDATE, GETNUMKEYS\n"
            "print(*struct.unpack('<q', store.recv(8, socket.MSG_WAITALL)))\n",
        )
        self.assertEqual(self.differ("python3", count), ["0\n", "0\n"])


class PreFlight(AgentTest):
    def changed(self, name, change):
        description = json.loads((MACHINES / f"{name}.json").read_text())
        change(description)
        path = self.folder / "machine.json"
        path.write_text(json.dumps(description))
        return {"MUSTER_DESCRIPTION": str(path)}

    def without_a_gpu(self):
        return self.changed("dgx-h100", lambda description: description["gpus"].pop())

    def test_an_unfit_node_says_why_and_does_not_start(self):
        log = self.folder / "termination-log"
        out, err = self.run_muster(
            "--standalone", "--nproc-per-node=8", "--pre-flight=0", f"--termination-log={log}", "echo", "ran",
            env=self.without_a_gpu(), code=138,
        )  # fmt: skip
        self.assertEqual(out, "")
        self.assertRegex(err, r"error: pre-flight: gpu-count: 7 GPUs.*, 8 (are )?requested")
        self.assertIn("this node is unfit: gpu-count", err)
        self.assertIn("unfit", log.read_text())
        out, _ = self.run_muster(  # unrequested parts are not read
            "--standalone", "--nproc-per-node=8", "echo", "ran", env=self.without_a_gpu()
        )
        self.assertEqual(out, "ran\n" * 8)

    def test_warnings_are_said_once_and_stop_nothing(self):
        out, err = self.run_muster(
            "--standalone", "--nproc-per-node=4", "--pre-flight=0", "--max-restarts=1", "sh", "-c",
            "echo $RANK; exit $((1 - TORCHELASTIC_RESTART_COUNT))",
            env=self.changed("t4-x4-pcie-pod", lambda description: description.update(shm_bytes=512 << 20)),
        )  # fmt: skip
        self.assertEqual(err.count("warning: pre-flight: shm:"), 1, err)
        self.assertGreaterEqual(len(out.split()), 5)

    def test_this_machine_is_examined(self):
        out, err = self.run_muster("--standalone", "--pre-flight=0", "echo", "ran")
        self.assertEqual(out, "ran\n", err)
        logs = self.folder / "file"
        logs.write_text("")  # where a folder should be
        _, err = self.run_muster("--standalone", "--pre-flight=0", f"--log-dir={logs}/x", "true", code=138)
        self.assertRegex(err, "error: pre-flight: disk: ")

    def test_off_examines_nothing_and_there_is_one_level(self):
        _, err = self.run_muster("--standalone", "--nproc-per-node=8", "--pre-flight=off", "echo", "ran")
        self.assertNotIn("pre-flight", err)
        _, err = self.run_muster("--standalone", "--pre-flight=1", "true", code=2)
        self.assertIn("--pre-flight: '1' is not one of off, 0", err)

    def test_a_spare_takes_the_place(self):
        port = free_port()
        arguments = [
            "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=spare", "--pre-flight=0",
            "--nproc-per-node=8", "sh", "-c", "echo $MUSTER_HOSTNAME",
        ]  # fmt: skip
        first = self.start(*arguments, env=machine("dgx-h100", MUSTER_HOSTNAME="first"))
        unfit = self.start(*arguments, env={**self.without_a_gpu(), "MUSTER_HOSTNAME": "unfit"})
        out, _ = self.finish(unfit, 138)
        self.assertEqual(out, "")
        spare = self.start(*arguments, env=machine("dgx-h100", MUSTER_HOSTNAME="spare"))
        self.assertEqual(self.finish(first, 0)[0].split(), ["first"] * 8)
        self.assertEqual(self.finish(spare, 0)[0].split(), ["spare"] * 8)


if __name__ == "__main__":
    unittest.main(verbosity=2)
