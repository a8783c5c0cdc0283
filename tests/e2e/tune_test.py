"""muster run and NCCL's environment: what workers get on a machine, what is said of it, what a policy does.

    MUSTER_BUILD=build python3 tests/e2e/tune_test.py [TestClass.test_name ...]

Machines come from tests/data/machines through MUSTER_DESCRIPTION, so that no GPU is needed."""

import json
import os
import pathlib
import subprocess
import unittest

from harness import MUSTER, AgentTest, environment

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
        self.assertIn("an error of NCCL says what it was", err)
        self.assertIn("docker: --shm-size=1g", err)

    def test_nothing_is_said_where_nothing_can_matter(self):
        if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg"):
            self.skipTest("this machine has GPUs")
        out, err = self.run_muster("--standalone", *SHOW, env={"NCCL_IB_DISABLE": "true"})
        self.assertEqual((out, err), ("NCCL_IB_DISABLE=true\n", ""))

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
        # the dumps of one attempt do not overwrite those of the one before
        self.assertEqual(out.splitlines(), [f"{run}/attempt_{n}/nccl_trace_rank_" for n in (0, 1)])


class Policy(AgentTest):
    def policy(self, text):
        return "--nccl-policy=" + self.script("policy.yaml", "version: 1\nrules:\n" + text)

    def test_forbidden_jobs_do_not_start(self):
        policy = self.policy("  - forbid: [NCCL_IB_DISABLE]\n    reason: the fabric is fast\n")
        out, err = self.run_muster("--standalone", policy, "echo", "ran", env={"NCCL_IB_DISABLE": "1"}, code=2)
        self.assertEqual(out, "")
        self.assertIn(f"{self.folder}/policy.yaml:3 forbids it (the fabric is fast), and environment sets it", err)
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

    def test_a_policy_that_cannot_be_read_refuses_the_start(self):
        _, err = self.run_muster("--standalone", self.policy("  - ad: {A: b}\n"), "true", code=2)
        self.assertIn("policy.yaml:3:5: unknown key 'ad'; did you mean add", err)
        _, err = self.run_muster("--standalone", "true", env={"MUSTER_NCCL_POLICY": "/nonexistent"}, code=2)
        self.assertIn("cannot open /nonexistent", err)


class Shown(AgentTest):
    def muster(self, *arguments, env=None):
        done = subprocess.run(
            [MUSTER, *arguments], env=environment(**(env or {})), capture_output=True, text=True, timeout=60
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_dry_run_shows_the_variables(self):
        out = self.muster("run", *NODE_1_OF_2, "--dry-run", "true", env=machine("host-network-bridges"))
        for line in ("GLOO_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME==eth0", "TP_SOCKET_IFNAME=eth0"):
            self.assertIn(f"    {line}\n", out)

    def test_muster_env_has_the_table(self):
        out = self.muster("env", *NODE_1_OF_2, env=machine("host-network-bridges"))
        self.assertRegex(out, r"(?m)^set +NCCL_SOCKET_IFNAME==eth0 +eth0 is the way to 10\.0\.0\.3; by itself")
        out = self.muster("env", *NODE_1_OF_2, "--output=json", env=machine("host-network-bridges"))
        rows = {row["variable"]: row for row in json.loads(out)["nccl"]}
        self.assertEqual(rows["NCCL_SOCKET_IFNAME"]["kind"], "set")
        self.assertEqual(rows["NCCL_SOCKET_IFNAME"]["rule"], "socket-interface")


if __name__ == "__main__":
    unittest.main()
