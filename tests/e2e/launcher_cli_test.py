"""The command line of muster, from outside: bad usage is one clear line and a documented exit code, --dry-run and --help
keep their promises, and none of it starts anything. MUSTER_BUILD names the build tree."""

import json
import os
import pathlib
import re
import stat
import subprocess
import tempfile
import unittest

BUILD = os.path.abspath(os.environ.get("MUSTER_BUILD", "build"))
MUSTER = os.path.join(BUILD, "bin", "muster")
FAKE_NVML = os.path.join(BUILD, "tests", "fake_nvml.so")
USAGE = "usage: muster run [flags] [--] program [arguments]\n"


def clean_environment(**more):
    """The environment without anything that muster reads."""
    drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|TORCH_|OMP_|PYTHON|LOGLEVEL|MASTER_|RANK$|WORLD_SIZE$|CUDA_VISIBLE|SLURM|JOB_COMPLETION")
    kept = {name: value for name, value in os.environ.items() if not drop.match(name)}
    kept.update(more)
    return kept


def muster(*arguments, program=MUSTER, cwd=None, **environment):
    return subprocess.run(
        [os.path.abspath(program), *arguments],
        env=clean_environment(**environment),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster cli ")
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def refused(self, exit_code, message, *arguments, usage=True, **environment):
        done = muster(*arguments, cwd=self.path, **environment)
        self.assertEqual(done.stderr, (USAGE if usage else "") + f"muster run: error: {message}\n")
        self.assertEqual(done.returncode, exit_code)
        self.assertEqual(done.stdout, "")

    def test_bad_usage_exits_2(self):
        rows = [
            ("no program was given; put the script, module or executable after the flags", ["run"]),
            ("--nproc-per-node: '0' is outside 1 to 4096 workers", ["run", "--nproc-per-node=0", "x.py"]),
            ("unknown flag --nprocs-per-node; did you mean --nproc-per-node?", ["run", "--nprocs-per-node=2", "x.py"]),
            ("--standalone takes no value, but '1' was given", ["run", "--standalone=1", "x.py"]),
            ("--run-path: it needs Python in the agent; leave it out, or use -m for a module", ["run", "--run-path", "x.py"]),
            (
                "--logs-specs: a Python plug-in, which needs Python in the agent; use --log-dir, --redirects and --tee",
                ["run", "--logs-specs=mine", "x.py"],
            ),
            (
                "--rdzv-conf: store_type=file is not supported; leave it out and give a host in --rdzv-endpoint or --master-addr",
                ["run", "--rdzv-conf=store_type=file", "x.py"],
            ),
        ]
        for message, arguments in rows:
            with self.subTest(arguments=arguments):
                self.refused(2, message, *arguments)

    def test_bad_variable_is_named(self):
        self.refused(2, "PET_MAX_RESTARTS: 'x' is not a whole number", "run", "x.py", PET_MAX_RESTARTS="x")

    def test_missing_programs_exit_127(self):
        rows = [
            (f"the script 'missing.py' does not exist below {self.path}", ["run", "--standalone", "missing.py"]),
            (f"'./missing' does not exist below {self.path}", ["run", "--", "./missing"]),
            ("the script '/nonexistent/missing.py' does not exist", ["run", "/nonexistent/missing.py"]),
            ("'muster-no-such-program' was not found in PATH", ["run", "muster-no-such-program"]),
            ("'missing.py' was not found in PATH", ["run", "--no-python", "missing.py"]),
        ]
        for message, arguments in rows:
            with self.subTest(arguments=arguments):
                self.refused(127, message, *arguments, usage=False)

    def test_the_nearest_file_is_named(self):
        (self.path / "scripts").mkdir()
        for name in ("train_ddp.py", "notes.txt", "scripts/preprocess.py", ".train_dpp.py"):
            (self.path / name).write_text("")
        rows = [
            ("the script 'train_dpp.py' does not exist; did you mean 'train_ddp.py'?", "train_dpp.py"),
            ("the script 'scripts/proprocess.py' does not exist; did you mean 'scripts/preprocess.py'?", "scripts/proprocess.py"),
            ("'./train_ddp' does not exist; did you mean './train_ddp.py'?", "./train_ddp"),
            ("'train_ddp' was not found in PATH; did you mean './train_ddp.py'?", "train_ddp"),
            (f"the script 'other.py' does not exist below {self.path}", "other.py"),
        ]
        for message, program in rows:
            with self.subTest(program=program):
                self.refused(127, message, "run", program, usage=False)

    def test_missing_interpreter_exits_127(self):
        (self.path / "x.py").write_text("pass\n")
        self.refused(
            127,
            "the interpreter: '/nonexistent/python' does not exist",
            "run",
            "x.py",
            usage=False,
            PYTHON_EXEC="/nonexistent/python",
        )

    def test_what_cannot_be_executed_exits_126(self):
        (self.path / "script").write_text("#!/bin/sh\ntrue\n")
        (self.path / "text").write_text("hello\n")
        self.refused(
            126, "'./script' is not executable; make it so with chmod +x", "run", "./script", usage=False
        )
        self.refused(
            126,
            "'./text' is not executable; a Python script's name ends in .py, anything else needs chmod +x",
            "run",
            "--no-python",
            "./text",
            usage=False,
        )
        (self.path / "text").chmod(stat.S_IRWXU)
        formats = set(os.listdir("/proc/sys/fs/binfmt_misc")) if os.path.isdir("/proc/sys/fs/binfmt_misc") else set()
        if not formats - {"register", "status"}:  # else the kernel may know what to do with it
            self.refused(
                126,
                "'./text' cannot be executed: it is neither ELF nor a script whose first line is #! and an interpreter",
                "run",
                "--no-python",
                "./text",
                usage=False,
            )
        self.refused(126, "'./' is a folder, not a program", "run", "--", "./", usage=False)

    def test_scripts_without_a_suffix_run_as_under_torchrun(self):
        (self.path / "train").write_text("import sys; print('plain', sys.argv[1:])\n")
        (self.path / "tool").write_text("#!/usr/bin/env python3\nprint('not executable')\n")
        (self.path / "new\nline.py").write_text("print('odd name')\n")
        (self.path / "package").mkdir()
        (self.path / "package" / "__main__.py").write_text("print('folder')\n")
        rows = [
            (["train", "--n", "3"], "plain ['--n', '3']"), (["./train"], "plain []"), (["./tool"], "not executable"),
            (["tool"], "not executable"), (["package"], "folder"), (["./package/"], "folder"),
            (["new\nline.py"], "odd name"),
        ]
        for command, printed in rows:
            with self.subTest(command=command):
                done = muster("run", "--standalone", *command, cwd=self.path)
                self.assertEqual((done.returncode, done.stdout), (0, printed + "\n"), done.stderr)

    def test_help_and_version_are_words_too(self):
        for words, same in ((["help"], ["--help"]), (["version"], ["--version"]), (["help", "run"], ["run", "--help"]), (["help", "local"], ["local", "--help"])):
            self.assertEqual((muster(*words).returncode, muster(*words).stdout), (0, muster(*same).stdout))
        self.assertEqual(muster("help", "rum").stderr, "muster: error: unknown subcommand 'rum'; did you mean muster run\n")

    def test_subcommands(self):
        done = muster("rum")
        self.assertEqual(done.stderr, "muster: error: unknown subcommand 'rum'; did you mean muster run\n")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(muster().returncode, 2)
        self.assertRegex(muster("--version").stdout, r"^muster \d+\.\d+\.\d+\n$")
        self.assertIn("  127         the program was not found\n", muster("--help").stdout)

    def test_help_lists_every_flag_of_torchrun(self):
        done = muster("run", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        flags = """standalone nnodes node-rank nproc-per-node max-restarts no-python module log-dir redirects tee role
            master-addr master-port rdzv-id dry-run shutdown-timeout join-timeout restart-grace help rdzv-backend
            rdzv-endpoint rdzv-conf monitor-interval start-method run-path event-log-handler local-ranks-filter
            duplicate-stdout-filters duplicate-stderr-filters local-addr logs-specs numa-binding signals-to-handle
            virtual-local-rank use-env output"""
        for flag in flags.split():
            self.assertRegex(done.stdout, rf"(?m)^  (-., )?--{flag}\b", flag)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 110)

    def test_a_link_named_torchrun_is_muster_run(self):
        link = self.path / "torchrun"
        link.symlink_to(os.path.abspath(MUSTER))
        done = muster("--nproc-per-node=0", "x.py", program=str(link))
        self.assertEqual(done.returncode, 2)
        self.assertIn("torchrun: error: --nproc-per-node: '0'", done.stderr)

    def test_dry_run_prints_and_starts_nothing(self):
        (self.path / "train.py").write_text("open('started', 'w')\n")
        done = muster(
            "run", "--standalone", "--nproc_per_node=2", "--max-restarts=3", "--dry-run", "--log-dir=logs", "--tee=3",
            "train.py", "--n", "$local_rank", "it's", cwd=self.path,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("worker 1 (local rank 1)\n  python3 -u train.py --n 1 'it'\\''s'\n", done.stdout)
        for line in ("RANK=1", "WORLD_SIZE=2", "TORCHELASTIC_MAX_RESTARTS=3", "TORCHELASTIC_USE_AGENT_STORE=True"):
            self.assertIn(f"    {line}\n", done.stdout)
        self.assertEqual(sorted(os.listdir(self.path)), ["train.py"])

    def executable(self, name, text):
        path = self.path / name
        path.write_text(text)
        path.chmod(stat.S_IRWXU)
        return f"./{name}"

    def dry(self, *arguments, **environment):
        """The workers that a dry run prints, and the lines next to them."""
        program = self.executable("train", "#!/bin/sh\n")
        done = muster("run", "--dry-run", "--output=json", *arguments, program, cwd=self.path, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_prefixes_underscores_and_what_is_behind_the_script(self):
        workers, _ = self.dry("--nproc_per-node", "2", "--max-r=3", "-r3", "-t", "0:1,1:2", "--standalone")
        self.assertEqual([w["env"]["TORCHELASTIC_MAX_RESTARTS"] for w in workers], ["3", "3"])
        program = self.executable("train", "#!/bin/sh\n")
        done = muster("run", "--dry-run", "--output=json", program, "--n", "3", "--", "$$x", "${local_rank}", cwd=self.path)
        self.assertEqual(json.loads(done.stdout)[0]["argv"], ["./train", "--n", "3", "--", "$x", "0"])

    def test_pods_find_their_place(self):
        rows = [
            # a job of workers only: the operator gives the number of nodes and nothing else
            ({"MUSTER_HOSTNAME": "pt-worker-2", "PET_NNODES": "3"}, "2", "3", "pt-worker-0", "23456"),
            # operators before 1.7, the master's address is localhost
            (
                {"MUSTER_HOSTNAME": "pt-master-0", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "23456"},
                "0", "2", "pt-master-0", "23456",
            ),
            # an Indexed Job whose host name has its domain
            ({"MUSTER_HOSTNAME": "j-1.svc", "PET_NNODES": "2", "JOB_COMPLETION_INDEX": "1"}, "1", "2", "j-0.svc", "29500"),
            # srun with a task on each node
            (
                {"SLURM_NODEID": "3", "SLURM_STEP_NUM_NODES": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "5",
                 "SLURM_STEP_NODELIST": "gpu[007-010]"},
                "3", "4", "gpu007", "20010",
            ),
            # a batch script of the same job is no step
            ({"SLURM_NODEID": "0", "SLURM_NNODES": "4", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "gpu[007-010]"},
             "0", "1", "127.0.0.1", "0"),
        ]
        for environment, rank, nodes, master, port in rows:
            with self.subTest(environment=environment):
                workers, said = self.dry(**environment)
                env = workers[0]["env"]
                # the operator's right settings are not shown as different
                env = {**environment, **env}
                self.assertEqual(
                    (env["RANK"], env["GROUP_WORLD_SIZE"], env["MASTER_ADDR"], env["MASTER_PORT"]), (rank, nodes, master, port)
                )
                if nodes != "1":
                    self.assertIn(f"--node-rank={rank}", said)

    def test_an_index_without_a_service_is_explained(self):
        done = muster("run", "--nnodes=2", "true", cwd=self.path, MUSTER_HOSTNAME="j-1", JOB_COMPLETION_INDEX="1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("the address of node 0 is unknown: 'j-1' is not <job>-1.<service>", done.stderr)

    def test_pods_that_each_start_a_job_of_their_own_are_warned_of(self):
        _, said = self.dry("--nnodes=1", "--nproc_per_node=4", PET_NNODES="2", PET_NODE_RANK="1", PET_MASTER_ADDR="pt-master-0")
        self.assertIn("muster: warning: this is one of 2 pods by PET_NNODES, but --nnodes=1 makes it a separate job", said)

    def test_an_empty_standalone_is_the_operators_true(self):
        workers, _ = self.dry(PET_STANDALONE="", PET_NNODES="3", PET_NODE_RANK="2", PET_MASTER_ADDR="far")
        self.assertEqual((workers[0]["env"]["RANK"], workers[0]["env"]["WORLD_SIZE"]), ("0", "1"))

    def test_gpus_are_counted_by_the_driver(self):
        driver = {"MUSTER_NVML_LIBRARY": FAKE_NVML}
        eight = {**driver, "FAKE_NVML": " ".join(f"GPU-{i}{i}" for i in range(8))}
        rows = [
            ("gpu", {**eight}, 8),
            ("auto", {**eight, "CUDA_VISIBLE_DEVICES": "GPU-3,7"}, 2),
            ("gpu", {**eight, "CUDA_VISIBLE_DEVICES": "0,1,9,2"}, 2),
            ("gpu", {**driver, "FAKE_NVML": "GPU-a+MIG-1+MIG-2 GPU-b", "CUDA_VISIBLE_DEVICES": "MIG-2"}, 1),
        ]
        for word, environment, count in rows:
            with self.subTest(environment=environment):
                workers, _ = self.dry(f"--nproc-per-node={word}", **environment)
                self.assertEqual(len(workers), count)
        done = muster("run", "--nproc-per-node=gpu", "true", **driver, FAKE_NVML="")
        self.assertEqual(done.returncode, 2)
        self.assertIn("gpu, but no NVIDIA GPU is visible here", done.stderr)
        done = muster("run", "--nproc-per-node=gpu", "true", **driver, FAKE_NVML="fail")
        self.assertIn("gpu, but no NVIDIA GPU is visible here: NVML does not start: Driver Not Loaded (9)", done.stderr)

    def test_the_driver_is_not_asked_where_nobody_needs_it(self):
        hung = {"MUSTER_NVML_LIBRARY": FAKE_NVML, "FAKE_NVML": "hang"}  # an answer would take 20 s, and a warning
        _, said = self.dry("--nproc-per-node=2", "--standalone", **hung)
        self.assertNotIn("NVML", said)

    def test_virtual_local_rank(self):
        workers, _ = self.dry("--nproc-per-node=2", "--virtual-local-rank", CUDA_VISIBLE_DEVICES="4, 6")
        self.assertEqual([(w["env"]["LOCAL_RANK"], w["env"]["CUDA_VISIBLE_DEVICES"]) for w in workers], [("0", "4"), ("0", "6")])
        self.refused(
            2, "--virtual-local-rank: 3 workers, but CUDA_VISIBLE_DEVICES='4, 6' has 2 entries",
            "run", "--nproc-per-node=3", "--virtual-local-rank", "x.py", CUDA_VISIBLE_DEVICES="4, 6",
        )

    def test_numa_binding_reaches_the_workers(self):
        (self.path / "train.py").write_text("import os\nos.write(1, f\"{os.environ['RANK']} {sorted(os.sched_getaffinity(0))}\\n\".encode())\n")
        cpu = max(os.sched_getaffinity(0))
        command = ["taskset", "-c", str(cpu), os.path.abspath(MUSTER), "run", "--standalone", "--nproc-per-node=2"]
        done = subprocess.run([*command, "--numa-binding=node", "train.py"], env=clean_environment(), cwd=self.path,
                              capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"0 [{cpu}]", f"1 [{cpu}]"])
        self.assertIn("no GPU is visible: the workers are bound to 1 NUMA node in turn", done.stderr)
        done = subprocess.run([*command, "--numa-binding=exclusive", "train.py"], env=clean_environment(), cwd=self.path,
                              capture_output=True, text=True, timeout=240)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"--numa-binding: local rank 0: exclusive: NUMA node \d+ has 1 physical cores")

    def test_launch_is_the_older_module(self):
        (self.path / "train.py").write_text("import os, sys\nos.write(1, f\"{os.environ['LOCAL_RANK']} {sys.argv[1:]}\\n\".encode())\n")
        done = muster("launch", "--nproc_per_node=2", "--standalone", "train.py", "--lr", "1", cwd=self.path)
        self.assertEqual(sorted(done.stdout.splitlines()), ["0 ['--local-rank=0', '--lr', '1']", "1 ['--local-rank=1', '--lr', '1']"])
        done = muster("launch", "--use-env", "--standalone", "train.py", cwd=self.path)
        self.assertEqual(done.stdout, "0 []\n")
        done = muster("launch", "--no_python", "train.py", cwd=self.path)
        self.assertEqual(done.returncode, 2)
        self.assertIn("muster launch: error: --no-python needs --use-env", done.stderr)
        self.refused(
            2, "--use-env is a flag of muster launch; muster run never adds --local-rank, leave it out", "run", "--use-env", "x.py"
        )

    def test_env_shows_every_setting_and_its_source(self):
        done = muster("env", "--output=json", "--tee=3", PET_NNODES="3", PET_MAX_RESTARTS="2", MUSTER_HOSTNAME="pt-worker-1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        shown = json.loads(done.stdout)
        settings = {row["name"]: (row["value"], row["source"], row["from"]) for row in shown["settings"]}
        self.assertEqual(settings["tee"], ("3", "flag", "--tee"))
        self.assertEqual(settings["max-restarts"], (2, "environment", "PET_MAX_RESTARTS"))
        self.assertEqual(settings["node-rank"], (1, "rule", "the host name pt-worker-1"))
        self.assertEqual(settings["master-addr"], ("pt-worker-0", "rule", "the host name pt-worker-1"))
        self.assertEqual(settings["shutdown-timeout"], (30, "default", "default"))
        self.assertEqual((shown["node"]["max_nodes"], shown["node"]["host_name"]), (3, "pt-worker-1"))
        flags = set(re.findall(r"(?m)^  (?:-., )?--([\w-]+)", muster("run", "--help").stdout))
        self.assertEqual(set(settings) - flags, set())
        done = muster("env", "--nnodes=junk")
        self.assertEqual(done.returncode, 2)
        text = muster("env", PET_ROLE="trainer")
        self.assertRegex(text.stdout, r"(?m)^role +trainer +PET_ROLE$")

    def test_a_pytorchjob_needs_no_flags(self):
        (self.path / "train").write_text("#!/bin/sh\n")
        (self.path / "train").chmod(stat.S_IRWXU)
        done = muster(
            "run", "--dry-run", "./train", cwd=self.path,
            PET_NNODES="2", PET_NODE_RANK="1", PET_NPROC_PER_NODE="1", PET_MASTER_ADDR="job-master-0",
            PET_MASTER_PORT="23456",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("worker 1 (local rank 0)\n  ./train\n", done.stdout)
        self.assertIn("    MASTER_ADDR=job-master-0\n", done.stdout)
        self.assertIn("muster: from the environment: PET_NNODES=2 PET_NODE_RANK=1", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
