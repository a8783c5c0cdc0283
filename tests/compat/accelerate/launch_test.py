"""The variables that workers get by `muster run --accelerate-config=FILE` and by `accelerate launch --config_file FILE`, which is the
peer: the same but for the rows of EXPLAINED.

    MUSTER_BUILD=build python3 tests/compat/accelerate/launch_test.py

accelerate's launcher runs in forks of this process, so that torch is imported once. It wants DeepSpeed and a package for FP8 to be
there and only looks whether they are: they are pretended. mpirun and ssh are scripts that start their command here."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import torch_python  # noqa: E402

torch_python.require(load=False)
if importlib.util.find_spec("accelerate") is None:
    torch_python.skip(f"{sys.executable} has no accelerate")

MUSTER = pathlib.Path(torch_python.build()).resolve() / "bin" / "muster"
PROBE = HERE / "probe.py"
MPIRUN = """#!/bin/sh
[ "$1" = --version ] && { echo "mpirun (Open MPI) 5.0"; exit; }
while [ "${1#-}" != "$1" ]; do shift 2; done
for rank in 0 1; do OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$rank "$@" & done
wait
"""
SSH = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'

WORLD = r"RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT"
ELASTIC = r"(?:GROUP|ROLE|TORCHELASTIC|TORCH_NCCL)_\w+"
# (names, files, why a worker's value here is another, or only on one side)
EXPLAINED = (
    (r"MUSTER_\w+|PYTHONUNBUFFERED|PYTHONFAULTHANDLER", r".*", "ours alone: see the table of variables in launcher/docs"),
    (r"TORCHELASTIC_RUN_ID|TORCHELASTIC_ERROR_FILE", r".*", "a job's own"),
    (r"MASTER_PORT", r"(?!two).*", "on one node any free port, and 29500 there"),
    (r"MASTER_PORT|TORCHELASTIC_USE_AGENT_STORE", r"two.*", "the workers' store is the agent's own, behind the rendezvous"),
    (r"OMP_NUM_THREADS", r".*", "the cores are divided among the workers, and 1 there"),
    (rf"{WORLD}|{ELASTIC}", r"one|cpu", "workers of mpirun, or one alone, have no torchrun above them there"),
    (r"OMPI_COMM_WORLD_\w+", r"cpu", "mpirun's own"),
    (r"ACCELERATE_CPU_AFFINITY", r"two.*", "enable_cpu_affinity: their launcher reads the flag alone, and forgets the file"),
    (r"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH", r"deepspeed", "their workers read it, but their launcher forgets it"),
    (r"PET_\w+", r"cpu", "the place of a host's agent in the job, over ssh"),
)


def environment(folder):
    drop = re.compile(r"PET_|MUSTER_|TORCH|OMP_|KMP_|MASTER_|ACCELERATE_|FSDP_|PYTHON|CUDA|RANK$|WORLD_SIZE$|LOGLEVEL|CI$")
    kept = {name: value for name, value in os.environ.items() if not drop.match(name)}
    kept.update(PYTHON_EXEC=sys.executable, PATH=f"{folder / 'bin'}:{os.environ['PATH']}", MUSTER_SSH="fake_ssh", HF_HUB_OFFLINE="1")
    return kept


def pretend():
    """DeepSpeed and Transformer Engine, as far as the launcher looks."""
    import accelerate.commands.launch as launch
    import accelerate.utils.launch as utils

    launch.is_deepspeed_available = utils.is_fp8_available = lambda *_: True
    for name in ("deepspeed", "deepspeed.launcher", "deepspeed.launcher.runner"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["deepspeed.launcher.runner"].DEEPSPEED_ENVIRONMENT_NAME = ".deepspeed_env"


def accelerate_launch(variables, folder, log, *arguments):
    """A fork of this process that is `accelerate launch`; its pid."""
    import accelerate.commands.launch as launch
    import torch.distributed.run  # noqa: F401

    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with open(log, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(folder)
        pretend()
        launch.launch_command(launch.launch_command_parser().parse_args([str(each) for each in arguments]))
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Launch(unittest.TestCase):
    used = set()  # indices of EXPLAINED

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster accelerate ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        (self.folder / "bin").mkdir()
        for name, text in (("mpirun", MPIRUN), ("fake_ssh", SSH)):
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)
        (self.folder / "hosts").write_text("127.0.0.1 slots=2\n")
        self.variables = environment(self.folder)

    def file(self, name, **changes):
        text = (HERE / f"{name}.yaml").read_text()
        for key, value in changes.items():
            text, count = re.subn(rf"^{key}: .*$", f"{key}: {value}", text, flags=re.M)
            self.assertEqual(count, 1)
        path = self.folder / f"{name}.yaml"
        path.write_text(text)
        return path

    def results(self, folder, count):
        return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(count)]

    def theirs(self, path, count, machines=1):
        out = self.folder / "theirs"
        out.mkdir()
        logs = [self.folder / f"accelerate-{rank}.log" for rank in range(machines)]
        pids = [
            accelerate_launch(self.variables, self.folder, logs[rank], "--config_file", path, "--machine_rank", rank, PROBE, out)
            for rank in range(machines)
        ]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        self.assertEqual(codes, [0] * machines, "".join(log.read_text() for log in logs))
        return self.results(out, count)

    def ours(self, path, count, machines=1):
        out = self.folder / "ours"
        out.mkdir()
        flags = [["--node-rank", str(rank)] if machines > 1 else [] for rank in range(machines)]
        agents = [
            subprocess.Popen(
                [MUSTER, "run", "--accelerate-config", path, *each, PROBE, out], env=self.variables, cwd=self.folder, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            for each in flags
        ]
        texts = [agent.communicate(timeout=240)[0] for agent in agents]
        self.assertEqual([agent.returncode for agent in agents], [0] * machines, texts)
        return self.results(out, count)

    def compare(self, name, ours, theirs):
        for rank, (mine, peer) in enumerate(zip(ours, theirs, strict=True)):
            for variable in sorted(mine.keys() | peer.keys()):
                if mine.get(variable) == peer.get(variable):
                    continue
                rows = [i for i, row in enumerate(EXPLAINED) if re.fullmatch(row[0], variable) and re.fullmatch(row[1], name)]
                self.assertTrue(rows, f"{name}: rank {rank}: {variable} is {mine.get(variable)!r}, theirs {peer.get(variable)!r}")
                self.used.add(rows[0])

    def check(self, name, count, machines=1, **changes):
        path = self.file(name, **changes)
        ours, theirs = self.ours(path, count, machines), self.theirs(path, count, machines)
        self.compare(name, ours, theirs)
        return ours

    def test_a_one_process(self):
        (only,) = self.check("one", 1)
        self.assertEqual(only["ACCELERATE_USE_CPU"], "False")

    def test_a_processors_by_mpirun(self):
        for worker in self.check("cpu", 2):
            self.assertEqual((worker["ACCELERATE_USE_CPU"], worker["ACCELERATE_DYNAMO_BACKEND"]), ("True", "INDUCTOR"))
            self.assertEqual(worker["WORLD_SIZE"], "2")

    def test_a_old_names(self):
        for worker in self.check("fp16", 2):
            self.assertEqual((worker["ACCELERATE_MIXED_PRECISION"], worker["CUDA_VISIBLE_DEVICES"]), ("fp16", "0,1"))

    def test_a_fsdp(self):
        for worker in self.check("fsdp", 2):
            self.assertEqual((worker["ACCELERATE_USE_FSDP"], worker["FSDP_SHARDING_STRATEGY"]), ("true", "HYBRID_SHARD"))

    def test_a_fsdp2_with_fp8_and_context_parallelism(self):
        for worker in self.check("fsdp2", 2):
            self.assertEqual((worker["FSDP_VERSION"], worker["PARALLELISM_CONFIG_CP_SIZE"]), ("2", "2"))
            self.assertEqual((worker["ACCELERATE_FP8_MARGIN"], worker["ACCELERATE_FP8_OVERRIDE_FPROP"]), ("2", "True"))

    def test_a_deepspeed(self):
        for worker in self.check("deepspeed", 2):
            self.assertEqual(worker["ACCELERATE_DEEPSPEED_ZERO_STAGE"], "3")
            self.assertEqual(worker["PYTHONPATH"], str(self.folder))

    def test_a_deepspeed_with_a_file_of_its_own(self):
        for worker in self.check("deepspeed_file", 2):
            self.assertEqual(worker["ACCELERATE_DEEPSPEED_CONFIG_FILE"], "/etc/ds_config.json")

    def test_a_megatron(self):
        for worker in self.check("megatron", 2):
            self.assertEqual(worker["MEGATRON_LM_PP_DEGREE"], "2")

    def test_a_two_machines(self):
        ours = self.check("two_machines", 2, machines=2, main_process_port=torch_python.free_port())
        self.assertEqual([(worker["GROUP_RANK"], worker["LOCAL_WORLD_SIZE"]) for worker in ours], [("0", "1"), ("1", "1")])

    def test_machines_that_rank_themselves(self):
        """Here alone: their launcher reads the flag --rdzv_backend and not the file's key."""
        path = self.file("two_machines", main_process_port=torch_python.free_port(), rdzv_backend="c10d")
        ours = self.ours(path, 2, machines=2)
        self.assertEqual([(worker["GROUP_RANK"], worker["WORLD_SIZE"]) for worker in ours], [("0", "2"), ("1", "2")])
        shown = json.loads(subprocess.run([MUSTER, "env", "--accelerate-config", path, "--output=json"], capture_output=True, check=True).stdout)
        rows = {row["name"]: row for row in shown["settings"]}
        self.assertEqual((rows["rdzv-backend"]["value"], rows["rdzv-endpoint"]["source"]), ("c10d", "file"))

    def test_b_each_explanation_explains_something(self):
        unused = [EXPLAINED[i] for i in range(len(EXPLAINED)) if i not in self.used]
        machine = r"OMP_NUM_THREADS|TORCHELASTIC_USE_AGENT_STORE"  # equal on some machines
        self.assertEqual([row for row in unused if not re.search(machine, row[0])], [])

    def env(self, text, status=0):
        path = self.folder / "any.yaml"
        path.write_text(text)
        done = subprocess.run([MUSTER, "env", "--accelerate-config", path, "--output=json"], env=self.variables, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout) if status == 0 else done.stderr

    def test_the_file_that_accelerate_writes(self):
        """For this machine, and the same through `muster env`, which shows where each value comes from."""
        from accelerate.commands.config.default import write_basic_config

        path = pathlib.Path(write_basic_config(mixed_precision="bf16", save_location=str(self.folder / "basic.json")))
        shown = self.env(path.read_text())
        sources = {row["name"]: (row["value"], row["source"]) for row in shown["settings"]}
        self.assertEqual(sources["nproc-per-node"][1], "file")
        variables = {row["name"]: (row["value"], row["from"]) for row in shown["variables"]}
        self.assertEqual(variables["ACCELERATE_MIXED_PRECISION"][0], "bf16")
        self.assertRegex(variables["ACCELERATE_MIXED_PRECISION"][1], r"any\.yaml:\d+$")
        self.assertEqual(variables["ACCELERATE_DYNAMO_MODE"], ("default", "accelerate's default"))

    def test_a_dry_run_shows_what_the_file_gives_the_workers(self):
        variables = dict(self.variables, ACCELERATE_MIXED_PRECISION="fp16")
        command = [MUSTER, "run", "--accelerate-config", self.file("fsdp"), "--dry-run", "--output=json", PROBE]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        workers = json.loads(done.stdout)
        self.assertEqual([worker["env"]["FSDP_SHARDING_STRATEGY"] for worker in workers], ["HYBRID_SHARD"] * 2)
        self.assertNotIn("ACCELERATE_MIXED_PRECISION", workers[0]["env"])  # inherited, and stronger than the file
        self.assertRegex(done.stderr, r"the environment's value stays: ACCELERATE_MIXED_PRECISION=fp16 \(.*/fsdp\.yaml:\d+: bf16\)")

    def test_every_key_of_this_accelerate_is_known(self):
        """Keys that a newer version adds show here."""
        import accelerate.commands.launch as launch
        from accelerate.commands.config.config_args import ClusterConfig

        keys = [name for name in ClusterConfig.__dataclass_fields__ if name != "distributed_type"]
        arguments = [action.dest for action in launch.launch_command_parser()._actions]
        sections = {
            "fsdp_config": "fsdp_", "megatron_lm_config": "megatron_lm_", "fp8_config": "fp8_", "dynamo_config": "dynamo_",
            "parallelism_config": "parallelism_config_", "mpirun_config": "mpirun_",
        }  # fmt: skip
        nested = {section: [name for name in arguments if name.startswith(prefix)] for section, prefix in sections.items()}
        group = next(group for group in launch.launch_command_parser()._action_groups if group.title == "DeepSpeed Arguments")
        nested["deepspeed_config"] = [action.dest for action in group._group_actions]
        self.assertGreater(min(map(len, nested.values())), 0)
        lines = ["distributed_type: FSDP", "num_processes: 2"]
        lines += [f"{key}: null" for key in keys if key not in nested and key != "num_processes"]
        for section, names in nested.items():
            lines += [f"{section}:", *(f"  {name}: null" for name in names)]
        self.assertNotIn("is not a key of", str(self.env("\n".join(lines) + "\n")["warnings"]))
        wrong = self.env("distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_versoin: 2}\n")
        self.assertIn("'fsdp_versoin' is not a key of fsdp_config and has no effect; did you mean fsdp_version?", wrong["warnings"][0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
