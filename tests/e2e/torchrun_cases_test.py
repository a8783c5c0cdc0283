"""What PyTorch's own tests of its launcher and agent ask for, as cases against a program.

    MUSTER_BUILD=build python3 tests/e2e/torchrun_cases_test.py [TestClass.test_name ...]

The behaviour is that of torch 2.13's test_run.py, launch_test.py, local_elastic_agent_test.py and multiprocessing tests; each
class names its source. Where torchrun raises an exception of Python, muster prints one line and exits 2 (bad usage)."""

import json
import os
import re
import signal
import socket
import subprocess
import unittest

from harness import LIMIT, MUSTER, AgentTest, alive, environment, free_port, wait_until

WANTED = """RANK LOCAL_RANK GROUP_RANK ROLE_RANK ROLE_NAME LOCAL_WORLD_SIZE WORLD_SIZE ROLE_WORLD_SIZE GROUP_WORLD_SIZE MASTER_ADDR
MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID OMP_NUM_THREADS TORCHELASTIC_ERROR_FILE"""
TOUCH = f"""import os, sys
missing = [name for name in {WANTED.split()!r} + ["TEST_SENTINEL_PARENT"] if name not in os.environ]
assert not missing, missing
if "--fail" in sys.argv:
    raise RuntimeError("raising an exception since --fail was given")
open(os.path.join(os.environ["E2E_FOLDER"], "touched." + os.environ["RANK"]), "x").close()
"""
TOUCH_SHELL = f"""#!/bin/sh
for name in {' '.join(WANTED.split())} TEST_SENTINEL_PARENT; do
  eval "[ -n \\"\\${{$name+set}}\\" ]" || {{ echo "$name is not set" >&2; exit 1; }}
done
touch "$E2E_FOLDER/touched.$RANK"
"""
SHOW = """import json, os, sys
with open(os.path.join(os.environ["E2E_FOLDER"], "shown." + os.environ.get("SHOW_BY", "") + os.environ["RANK"]), "w") as f:
    json.dump({"argv": sys.argv[1:], "env": dict(os.environ)}, f)
"""
SENTINEL = {"TEST_SENTINEL_PARENT": "FOOBAR"}


class Case(AgentTest):
    def touched(self):
        return sorted(int(path.name.split(".")[1]) for path in self.folder.glob("touched.*"))

    def shown(self, by=""):
        found = [json.loads(path.read_text()) for path in self.folder.glob(f"shown.{by}[0-9]*")]
        return sorted(found, key=lambda each: int(each["env"]["RANK"]))

    def touch(self):
        return self.script("touch.py", TOUCH)

    def show(self):
        return self.script("show.py", SHOW)

    def shell(self, name, text):
        path = self.script(name, text)
        os.chmod(path, 0o755)
        return path

    def nodes(self, *each, env=None):
        """Starts one static world: a list of flags for each node. Returns the processes."""
        port = free_port()
        common = [f"--nnodes={len(each)}", "--master-addr=127.0.0.1", f"--master-port={port}", "--rdzv-id=cases"]
        return [self.start(*common, f"--node-rank={rank}", *flags, env=env) for rank, flags in enumerate(each)]

    def usage_error(self, *arguments, says, **options):
        _, err = self.run_muster(*arguments, code=2, **options)
        self.assertRegex(err, r"(?m)^(muster run|muster launch): error: ")
        self.assertRegex(err, says)


class Launch(Case):
    """test/distributed/launcher/test_run.py"""

    def test_a_python_script(self):
        self.run_muster("--nnodes=1", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=a",
                        "--monitor-interval=1", "--start-method=spawn", self.touch(), env=SENTINEL)
        self.assertEqual(self.touched(), [0, 1, 2, 3])

    def test_the_old_way_with_an_address(self):
        self.run_muster("--nnodes=1", "--nproc-per-node=4", "--monitor-interval=1", "--start-method=spawn", "--master-addr=localhost",
                        f"--master-port={free_port()}", "--node-rank=0", self.touch(), env=SENTINEL)
        self.assertEqual(self.touched(), [0, 1, 2, 3])

    def test_a_shell_script(self):
        script = self.shell("touch.sh", TOUCH_SHELL)
        self.run_muster("--nproc-per-node=4", "--rdzv-backend=c10d", "--no-python", script, env=SENTINEL)
        self.assertEqual(self.touched(), [0, 1, 2, 3])
        self.usage_error("--no-python", "--module", script, says="no-python.*module|module.*no-python")

    def test_one_process_by_default(self):
        self.run_muster("--nnodes=1", self.touch(), env=SENTINEL)
        self.assertEqual(self.touched(), [0])

    def test_everything_from_the_environment(self):
        script = self.shell("touch.sh", TOUCH_SHELL)
        pet = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4", "PET_RDZV_ID": "b", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT":
               "localhost:0", "PET_MONITOR_INTERVAL": "1", "PET_NO_PYTHON": "1", **SENTINEL}
        self.run_muster(script, env=pet)
        self.assertEqual(self.touched(), [0, 1, 2, 3])
        self.usage_error(script, env={**pet, "PET_MODULE": "1"}, says="(?i)no.python.*module|module.*no.python")

    def test_a_switch_of_the_environment_may_be_off(self):
        script = self.shell("touch.sh", TOUCH_SHELL)
        self.run_muster(script, env={"PET_NPROC_PER_NODE": "2", "PET_NO_PYTHON": "1", "PET_MODULE": "0", **SENTINEL})
        self.assertEqual(self.touched(), [0, 1])

    def test_nproc_words(self):
        cores = len(os.sched_getaffinity(0))
        self.run_muster("--nproc-per-node=cpu", self.touch(), env=SENTINEL)
        count = len(self.touched())
        self.assertTrue(1 <= count <= cores, count)
        self.usage_error("--nproc-per-node=junk", "true", says="junk")
        self.usage_error("--nproc-per-node=0", "true", says="'?0'?")
        self.usage_error("--nproc-per-node=xpu", "true", says="xpu")

    def test_auto_counts_the_visible_gpus_or_the_cores(self):
        self.run_muster("--nproc-per-node=auto", self.touch(), env={**SENTINEL, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(self.touched(), list(range(len(self.touched()))))
        self.assertGreaterEqual(len(self.touched()), 1)

    def test_elastic_with_one_node_starts_after_the_last_call(self):
        self.run_muster("--nnodes=1:2", "--nproc-per-node=4", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}",
                        "--rdzv-id=c", "--rdzv-conf='join_timeout=30,last_call_timeout=1,timeout=30'", "--monitor-interval=1",
                        "--start-method=spawn", self.touch(), env=SENTINEL)
        self.assertEqual(self.touched(), [0, 1, 2, 3])

    def test_elastic_where_a_worker_raises(self):
        _, err = self.run_muster("--nnodes=1:2", "--nproc-per-node=4", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}",
                                 "--rdzv-id=d", "--rdzv-conf=last_call_timeout=1", "--max-restarts=0", self.touch(), "--fail",
                                 env=SENTINEL, code=1)
        self.assertIn("ChildFailedError", err)
        self.assertIn("raising an exception since --fail was given", err)
        self.assertEqual(self.touched(), [])

    def test_standalone(self):
        self.run_muster("--standalone", "--nproc-per-node=4", self.touch(), env=SENTINEL)
        self.assertEqual(self.touched(), [0, 1, 2, 3])

    def test_what_needs_python_in_the_agent_is_rejected(self):
        self.usage_error("--run-path", self.touch(), says="--run-path.*Python")
        self.usage_error("--logs-specs=mine", self.touch(), says="--logs-specs.*Python")
        self.usage_error("--rdzv-backend=etcd-v2", self.touch(), says="etcd")

    def test_two_agents_on_one_host(self):
        port = free_port()
        agents = [
            self.start("--nnodes=2", "--nproc-per-node=4", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}",
                       "--rdzv-id=e", "--monitor-interval=1", self.touch(), env=SENTINEL)
            for _ in range(2)
        ]
        for agent in agents:
            self.finish(agent, 0)
        self.assertEqual(self.touched(), list(range(8)))

    def test_numbers_of_nodes(self):
        for text, says in (("5:10:20", "5:10:20"), ("0", "0"), ("3:2", "3:2"), ("x", "x"), (":2", ":2")):
            with self.subTest(text):
                self.usage_error(f"--nnodes={text}", "true", says=re.escape(text))

    def test_scripts_can_tell_who_launched_them(self):
        self.run_muster("--standalone", self.show())
        self.assertTrue(self.shown()[0]["env"]["TORCHELASTIC_RUN_ID"])

    def test_captured_lines_have_the_prefix_of_the_template(self):
        script = self.script("say.py", "import os\nprint('creating ' + os.environ['RANK'] + '\\n', end='')\n")
        logs = self.folder / "logs"
        out, _ = self.run_muster("--nnodes=1", "--nproc-per-node=4", "--rdzv-id=f", f"--log-dir={logs}", "--redirect=3", "--tee=3",
                                 script, env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: "})
        self.assertEqual(sorted(out.splitlines()), [f"[rank{rank}]: creating {rank}" for rank in range(4)])
        self.assertEqual([path.name[:2] for path in logs.iterdir()], ["f_"])
        for rank in range(4):
            files = list(logs.glob(f"f_*/attempt_0/{rank}/stdout.log"))
            self.assertEqual([path.read_text() for path in files], [f"creating {rank}\n"])

    def test_virtual_local_rank(self):
        self.run_muster("--nproc-per-node=2", "--virtual-local-rank", self.show(), env={"CUDA_VISIBLE_DEVICES": "4, 6"})
        seen = [each["env"] for each in self.shown()]
        self.assertEqual([env["LOCAL_RANK"] for env in seen], ["0", "0"])
        self.assertEqual([env["RANK"] for env in seen], ["0", "1"])
        self.assertEqual([env["CUDA_VISIBLE_DEVICES"] for env in seen], ["4", "6"])
        self.usage_error("--nproc-per-node=3", "--virtual-local-rank", self.show(), env={"CUDA_VISIBLE_DEVICES": "4,6"}, says="CUDA_VISIBLE_DEVICES")

    def test_a_script_that_is_not_there(self):
        _, err = self.run_muster("--standalone", "no_such_script.py", code=127)
        self.assertIn("no_such_script.py", err)


class CommandLine(Case):
    """test/distributed/test_run.py, argparse's ways, and the complaints about them"""

    def test_nothing_behind_the_script_is_parsed(self):
        given = ["--n", "3", "--lo", "x", "--d", "--nnodes", "7", "-t", "--", "-h", "--standalone=1"]
        self.run_muster("--nproc-per-node=1", self.show(), *given)
        self.assertEqual(self.shown()[0]["argv"], given)

    def test_both_spellings_prefixes_and_letters(self):
        for flags in (["--nproc_per_node=2"], ["--nproc-per-node", "2"], ["--nproc", "2"], ["--nproc-per_node=2"]):
            out, _ = self.run_muster(*flags, "--dry-run", "--", "true")
            self.assertEqual(out.count("LOCAL_WORLD_SIZE=2"), 2, flags)
        self.run_muster("-r3", "-t", "1:2", f"--log-dir={self.folder}/l", "--nproc_per_node=2", "--", "true")
        self.usage_error("--n=2", "true", says="--nnodes, ")
        self.usage_error("--bogus", "true", says="--bogus")
        self.usage_error("--standalone=1", "true", says="standalone.*'1'")
        self.usage_error("--nproc-per-node=2", says="(?i)no program|program")

    def test_the_last_one_counts(self):
        out, _ = self.run_muster("--nproc-per-node=3", "--nproc_per_node=2", "--dry-run", "--", "true")
        self.assertEqual(out.count("LOCAL_WORLD_SIZE=2"), 2)

    def test_signals_to_handle_are_told_to_workers(self):
        self.run_muster("--standalone", self.show())
        self.assertEqual(self.shown()[0]["env"]["TORCHELASTIC_SIGNALS_TO_HANDLE"], "SIGTERM,SIGINT,SIGHUP,SIGQUIT")
        self.run_muster("--standalone", "--signals-to-handle=SIGTERM,SIGUSR1", self.show())
        self.assertEqual(self.shown()[0]["env"]["TORCHELASTIC_SIGNALS_TO_HANDLE"], "SIGTERM,SIGUSR1")

    def test_the_shutdown_timeout(self):
        """shutdown_timeout_test.py: default, environment, flag over environment, 0 allowed, negative refused."""
        def value(*flags, **env):
            out, _ = self.run_env(*flags, env=env)
            return [each["value"] for each in json.loads(out)["settings"] if each["name"] == "shutdown-timeout"][0]

        self.assertEqual(float(value()), 30)
        self.assertEqual(float(value(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="7")), 7)
        self.assertEqual(float(value("--shutdown-timeout=3", TORCH_ELASTIC_SHUTDOWN_TIMEOUT="7")), 3)
        self.assertEqual(float(value("--shutdown-timeout=0")), 0)
        self.usage_error("--shutdown-timeout=-1", "true", says="-1")

    def run_env(self, *flags, env):
        done = subprocess.run([MUSTER, "env", "--output=json", *flags], env=environment(**env), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def test_arguments_are_templates(self):
        self.run_muster("--nproc-per-node=2", self.show(), "${local_rank}", "x$local_rank", "$$HOME", "$other", "a${local_rank}b")
        for rank, each in enumerate(self.shown()):
            self.assertEqual(each["argv"], [str(rank), f"x{rank}", "$HOME", "$other", f"a{rank}b"])


class OldLaunch(Case):
    """launch_test.py: python -m torch.distributed.launch is `muster launch`"""

    def start(self, *arguments, env=None, **options):
        launch = [MUSTER, "launch", *map(str, arguments)]
        process = subprocess.Popen(launch, env=environment(E2E_FOLDER=str(self.folder), **(env or {})), cwd=self.folder, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.started.append(process)
        return process

    def test_the_local_rank_is_an_argument(self):
        self.run_muster("--nproc-per-node=2", self.show(), "--mine")
        self.assertEqual([each["argv"] for each in self.shown()], [["--local-rank=0", "--mine"], ["--local-rank=1", "--mine"]])

    def test_use_env_leaves_it_out(self):
        self.run_muster("--nproc-per-node=2", "--use-env", self.show(), "--mine")
        self.assertEqual([each["argv"] for each in self.shown()], [["--mine"], ["--mine"]])

    def test_no_python_needs_use_env(self):
        self.usage_error("--no-python", "true", says="use-env")


class Agent(Case):
    """elastic/agent/server/test/local_elastic_agent_test.py: several agents, as processes"""

    def ranks(self, seen):
        names = ("RANK", "ROLE_RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "ROLE_WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")
        return [tuple(int(each["env"][name]) for name in names) for each in seen]

    def test_equal_nodes(self):
        for agent in self.nodes(["--nproc-per-node=4", self.show()], ["--nproc-per-node=4", self.show()]):
            self.finish(agent, 0)
        self.assertEqual(self.ranks(self.shown()), [(r, r, r % 4, r // 4, 8, 8, 4, 2) for r in range(8)])

    def test_nodes_of_different_sizes(self):
        for agent in self.nodes(*([f"--nproc-per-node={n}", self.show()] for n in (1, 2, 3))):
            self.finish(agent, 0)
        places = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]  # (node, local rank) of each rank
        self.assertEqual(self.ranks(self.shown()), [(r, r, local, node, 6, 6, node + 1, 3) for r, (node, local) in enumerate(places)])

    def test_roles(self):
        flags = [["--nproc-per-node=1", "--role=ps"], ["--nproc-per-node=2", "--role=trainer"], ["--nproc-per-node=1", "--role=ps"],
                 ["--nproc-per-node=3", "--role=trainer"]]
        for agent in self.nodes(*([*each, self.show()] for each in flags)):
            self.finish(agent, 0)
        seen = [(each["env"]["ROLE_NAME"], int(each["env"]["ROLE_RANK"]), int(each["env"]["ROLE_WORLD_SIZE"])) for each in self.shown()]
        self.assertEqual(seen, [("ps", 0, 2), ("trainer", 0, 5), ("trainer", 1, 5), ("ps", 1, 2)] + [("trainer", r, 5) for r in (2, 3, 4)])

    def test_restarts_are_counted_and_end(self):
        script = self.script("fail.py", "import os, sys\nopen(os.environ['E2E_FOLDER'] + '/tries', 'a').write(os.environ['TORCHELASTIC_RESTART_COUNT'])\nsys.exit(1)\n")
        _, err = self.run_muster("--standalone", "--max-restarts=2", "--restart-backoff=0", script, code=1)
        self.assertEqual((self.folder / "tries").read_text(), "012")
        self.assertIn("ChildFailedError", err)

    def test_a_rank_fails_once(self):
        script = self.script("once.py", SHOW + "import time\nif os.environ['RANK'] == '1' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': sys.exit(3)\n")
        self.run_muster("--standalone", "--nproc-per-node=3", "--max-restarts=1", script)
        self.assertEqual([each["env"]["TORCHELASTIC_RESTART_COUNT"] for each in self.shown()], ["1"] * 3)

    def test_failing_agents_do_not_wait_for_each_other(self):
        """no_exit_barrier_on_failure"""
        for agent in self.nodes(["sh", "-c", "exit 5"], ["sh", "-c", "exit 5"]):
            self.finish(agent, 5)

    def test_agents_that_finish_apart_all_succeed(self):
        """workers_drift_success: the early one waits at the exit barrier"""
        gate = self.folder / "gate"
        slow = self.shell("slow.sh", f"#!/bin/sh\nwhile [ ! -e '{gate}' ]; do sleep 0.05; done\n")
        early, late = self.nodes(["true"], ["--no-python", slow])
        self.assertIsNone(early.poll())
        gate.touch()
        self.finish(late, 0)
        self.finish(early, 0)

    def test_an_exit_barrier_of_nothing_fails_nobody(self):
        """workers_drift_fail: where no agent waits for the others to leave, all still leave with 0"""
        gate = self.folder / "gate"
        slow = self.shell("slow.sh", f"#!/bin/sh\nwhile [ ! -e '{gate}' ]; do sleep 0.05; done\n")
        late, early = self.nodes(["--no-python", slow], ["true"], env={"TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT": "0"})
        gate.touch()
        self.finish(late, 0)
        self.finish(early, 0)

    def test_the_error_file_is_copied_to_the_parents(self):
        script = self.script("error.py", "import json, os, sys\n"
                             "json.dump({'message': {'message': 'ValueError: the lake', 'extraInfo': {'py_callstack': 'Traceback: here', 'timestamp': '1700000000'}}}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\n"
                             "sys.exit(7)\n")
        parents = self.folder / "parent.json"
        _, err = self.run_muster("--standalone", script, code=7, env={"TORCHELASTIC_ERROR_FILE": str(parents)})
        self.assertIn("Traceback: here", err)
        copied = json.loads(parents.read_text())
        self.assertEqual((copied["message"]["message"], copied["message"]["errorCode"]), ("ValueError: the lake", 7))

    def test_nccl_errors_are_asynchronous_unless_told_otherwise(self):
        self.run_muster("--standalone", self.show())
        self.assertEqual(self.shown()[0]["env"]["TORCH_NCCL_ASYNC_ERROR_HANDLING"], "1")
        self.run_muster("--standalone", self.show(), env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"})
        self.assertEqual(self.shown()[0]["env"]["TORCH_NCCL_ASYNC_ERROR_HANDLING"], "0")

    ELASTIC_WORKER = (
        "import os, sys, time\n"
        "folder, rank = os.environ['E2E_FOLDER'], os.environ['RANK']\n"
        "open(f'{folder}/up.{os.environ[\"WORLD_SIZE\"]}.{os.getpid()}', 'w').close()\n"
        "while not os.path.exists(f'{folder}/gate'): time.sleep(0.02)\n"
    )

    def elastic(self, script, port, nnodes="1:2"):
        return self.start(f"--nnodes={nnodes}", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}",
                          "--rdzv-id=g", "--rdzv-conf=last_call_timeout=1", "--max-restarts=2", script)

    @staticmethod
    def serves(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def up(self, world, count):
        found = [path for path in self.folder.glob(f"up.{world}.*") if alive(int(path.name.split(".")[2]))]
        return found if len(found) == count else None

    def test_an_agent_is_killed_and_started_again(self):
        """double_agent_fault_tolerance"""
        script, port = self.script("wait.py", self.ELASTIC_WORKER), free_port()
        first = self.elastic(script, port, "2")
        wait_until(lambda: self.serves(port), "the first agent serves")
        second = self.elastic(script, port, "2")
        before = wait_until(lambda: self.up(4, 4), "four workers")
        second.send_signal(signal.SIGKILL)
        second.wait()
        third = self.elastic(script, port, "2")
        wait_until(lambda: (now := self.up(4, 4)) and not set(now) & set(before), "four others")
        (self.folder / "gate").touch()
        self.finish(first, 0)
        self.finish(third, 0)

    def test_an_agent_is_killed_and_the_other_goes_on_alone(self):
        """double_agent_elastic"""
        script, port = self.script("wait.py", self.ELASTIC_WORKER), free_port()
        first = self.elastic(script, port)
        wait_until(lambda: self.serves(port), "the first agent serves")
        second = self.elastic(script, port)
        wait_until(lambda: self.up(4, 4), "four workers")
        second.send_signal(signal.SIGKILL)
        second.wait()
        wait_until(lambda: self.up(2, 2), "two workers")
        (self.folder / "gate").touch()
        self.finish(first, 0)


class Processes(Case):
    """elastic/multiprocessing/api_test.py: streams, ends, nothing left"""

    def test_maps_of_streams(self):
        for value in ("4", "0:4", "0:1,", "a", "0:1;1:2", ":1", "0:", "-1"):
            with self.subTest(value):
                self.usage_error(f"--redirects={value}", "true", says=re.escape(value))

    def test_redirect_and_tee_by_rank(self):
        script = self.script("say.py", "import os\nr = os.environ['RANK']\nos.write(1, f'out {r}\\n'.encode())\nos.write(2, f'err {r}\\n'.encode())\n")
        logs = self.folder / "logs"
        out, err = self.run_muster("--nproc-per-node=4", f"--log-dir={logs}", "--redirects=0:1,1:2,2:3", "--tee=3:3", script)
        text = {(path.parent.name, path.name): path.read_text() for path in logs.glob("*/attempt_0/*/std*.log")}
        self.assertEqual(text[("0", "stdout.log")], "out 0\n")
        self.assertEqual(text[("1", "stderr.log")], "err 1\n")
        self.assertEqual((text[("2", "stdout.log")], text[("2", "stderr.log")]), ("out 2\n", "err 2\n"))
        self.assertEqual((text[("3", "stdout.log")], text[("3", "stderr.log")]), ("out 3\n", "err 3\n"))
        self.assertEqual(sorted(line for line in out.splitlines()), ["[default3]:out 3", "out 1"])
        self.assertLessEqual({"[default3]:err 3", "err 0"}, set(err.splitlines()))
        self.assertFalse({"err 1", "err 2", "out 0", "out 2"} & set((out + err).splitlines()))

    def test_lines_are_filtered_into_one_file(self):
        script = self.script("say.py", "import os\nr = os.environ['RANK']\nos.write(1, f'loss,total {r}\\nnoise {r}\\n'.encode())\n")
        logs = self.folder / "logs"
        self.run_muster("--nproc-per-node=2", f"--log-dir={logs}", "--tee=3", "--duplicate-stdout-filters=loss,,total,never", script)
        files = list(logs.glob("*/attempt_0/filtered_stdout.log"))
        self.assertEqual(len(files), 1)
        kept = files[0].read_text().splitlines()
        self.assertEqual(len(kept), 2)
        self.assertTrue(all("loss,total" in line for line in kept), kept)

    def test_only_some_ranks_are_shown(self):
        script = self.script("say.py", "import os\nos.write(1, f\"rank {os.environ['RANK']}\\n\".encode())\n")
        out, _ = self.run_muster("--nproc-per-node=4", "--local-ranks-filter=1,3", script)
        self.assertEqual(sorted(line.split(":")[-1].strip() for line in out.splitlines()), ["rank 1", "rank 3"])

    def test_ends(self):
        for body, code, says in (("exit 138", 138, "exitcode  : 138"), ("kill -SEGV $$", 139, "SIGSEGV"), ("exit 1", 1, "exitcode  : 1 ")):
            with self.subTest(body):
                _, err = self.run_muster("--standalone", "--no-python", self.shell("end.sh", f"#!/bin/sh\n{body}\n"), code=code)
                self.assertIn(says, err)
                self.assertIn("Root Cause (first observed failure):", err)

    def test_a_log_directory_that_is_a_file(self):
        file = self.folder / "file"
        file.touch()
        _, err = self.run_muster("--standalone", f"--log-dir={file}", "--tee=3", "true", code=None)
        self.assertIn(str(file), err)

    def finish(self, process, code):
        if code is not None:
            return super().finish(process, code)
        out, err = process.communicate(timeout=LIMIT)
        self.assertNotIn(process.returncode, (0, None))
        return out, err

    def test_no_log_files_in_dev_null(self):
        out, _ = self.run_muster("--standalone", "--log-dir=/dev/null", "--", "sh", "-c", 'echo "seen<$TORCHELASTIC_ERROR_FILE>"')
        self.assertIn("seen<>", out)

    def test_closing_kills_what_ignores_it(self):
        script = self.shell("deaf.sh", "#!/bin/sh\ntrap '' TERM\necho $$ > \"$E2E_FOLDER/pid.$RANK\"\nwhile :; do sleep 1; done\n")
        process = self.start("--standalone", "--nproc-per-node=2", "--shutdown-timeout=0.2", "--no-python", script)
        pids = self.pids("pid", 2)
        process.send_signal(signal.SIGTERM)
        self.finish(process, 128 + signal.SIGTERM)
        self.assertFalse(any(alive(pid) for pid in pids))


if __name__ == "__main__":
    unittest.main()
