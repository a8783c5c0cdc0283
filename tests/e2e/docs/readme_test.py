"""Every command of the README at the top and of the pages next to it, in a block of code or in backquotes, is run here or named with the
test that runs it.

    MUSTER_BUILD=build python3 tests/e2e/docs/readme_test.py

A command that has no row in RUN, TESTED or KNOWN fails, and so does a row whose command the pages no longer have."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness import BUILD, LIMIT, AgentTest, environment  # noqa: E402

SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE") or HERE.parents[2])
README = (SOURCE / "README.md").read_text()
PAGES = [
    "README.md", "launcher/docs/install.md", "launcher/docs/failures.md", "launcher/docs/torchrun.md", "launcher/docs/how_it_works.md",
    "launcher/docs/works.md", "runtime/docs/own_model.md", "runtime/docs/torch.md", "runtime/docs/precision.md", "runtime/docs/gpu.md",
    "runtime/docs/works.md", "trainer/docs/works.md", "benchmarks/README.md",
]  # fmt: skip
TEXT = "\n".join((SOURCE / name).read_text() for name in PAGES)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)
PROGRAM = r"(?:\./dev|muster|muster-train|torchrun|build/bin/[\w-]+|docker|cmake|ninja|examples/[\w.]+\.sh)"
COMMAND = re.compile(rf"(?:export \w+=|(?:\w+=\S+ )*{PROGRAM}(?: |$))")

TRAIN = """
import os, sys
print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} args {sys.argv[1:]}\\n", end="", flush=True)
"""
FAIL = """
import os, signal, sys, time
if os.environ["RANK"] == "1":
    print("something is wrong with the data", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""
RANKS = [r"rank 0 of 2", r"rank 1 of 2"]

# command -> (exit codes, texts of its output); run in a folder that looks like a checkout after ./dev build
RUN = {
    "export PATH=$PWD/build/bin:$PWD/.venv/bin:$PATH": ((0,), []),
    "muster local -f k8s/cpu/master-workers.yaml --dry-run": ((0,), [r"PET_NNODES=4", r"torchrun"]),
    "build/bin/muster run --standalone --nproc_per_node=2 train.py --lr 0.1": ((0,), [r"rank 1 of 2 args \['--lr', '0.1'\]"]),
    "build/bin/muster run --standalone --nproc_per_node=4 -- ./anything args": ((0,), [r"anything 3 of 4 args"]),
    "build/bin/muster run --dry-run --nproc_per_node=2 train.py": ((0,), [r"LOCAL_RANK=1"]),
    "build/bin/muster env --nproc_per_node=auto": ((0,), [r"nproc-per-node +auto +--nproc-per-node"]),
    "build/bin/muster doctor": ((0, 1, 3), [r"."]),
    "build/bin/muster-train k8s/configs/gpt-demo.yaml --plan --world-size 16": ((0,), [r"(?i)parameters"]),
    "OMP_NUM_THREADS=1 build/bin/muster run --standalone --nproc_per_node=3 train.py; echo $?": (
        (0,), [r"train\.py FAILED", r"exitcode  : -9 \(pid: \d+\) \(SIGKILL\)", r"something is wrong with the data", r"\n137\n$"],
    ),
    "muster run --standalone --nproc_per_node=2 muster-train run.yaml": ((0,), [r"evaluation after step", r"saved tuned"]),
    "muster-train ds_config.json --data_path corpus --print-config": ((0,), [r'path: "corpus" +# --data_path', r"global_batch: 8 +# ds_config\.json:1:22"]),
    "muster run --nproc-per-node=2 examples/model_parts.py stages": ((0,), [r"step 20 loss"]),
    "muster run --standalone --nproc_per_node=2 examples/own_model.py model.safetensors": ((0,), [r"(?i)loss"]),
    "muster secret": ((0,), [r"^muster-secret-1:\w{64}$"]),
    "muster doctor": ((0, 1, 3), [r"."]),
}  # fmt: skip

# command -> the test that runs it
TESTED = {
    "./dev run": "e2e/demo_test.py",
    "muster local -f k8s/cpu/master-workers.yaml --env \"TRAINING=$PWD/k8s/training\"": "compat/manifests_run_test.py",
    "examples/demo.sh": "e2e/demo_test.py",
    "docker build -f k8s/Dockerfile --target launcher -t registry.example.com/muster:latest .": "e2e/packages/images_test.py",
    "./dev bundle": "e2e/bundle_test.py",
    "./dev package": "e2e/packages/install_test.py::test_what_is_in_it",
    "./dev package aarch64": "e2e/packages/images_test.py",
    "./dev package images": "e2e/packages/images_test.py::test_the_trainer_trains_on_two_ranks",
    "muster run --metrics-port=8080": "e2e/page/page_test.py::test_all_nodes_meet_at_the_server_and_a_kill_is_told",
    "muster run --hosts=a:8,b:8": "e2e/hosts/hosts_test.py::test_a_job_on_three_hosts",
    "build/bin/muster run --standalone --nproc_per_node=3 train.py": "e2e/docs/readme_test.py::test_every_command_that_is_run",
    "muster run --nproc_per_node=gpu": "e2e/launcher_cli_test.py",
    "muster link-torchrun --remove": "e2e/packages/install_test.py::test_torchrun_is_a_link_on_request",
    "./dev bench --report": "lint/lint.py",
    "muster top": "e2e/page/page_test.py::test_a_script_that_logs",
    "muster report": "e2e/page/page_test.py::test_all_nodes_meet_at_the_server_and_a_kill_is_told",
    "muster local": "e2e/local_test.py::test_master_and_two_workers",
    "muster drain": "e2e/worlds/regroup_test.py::test_an_operator_moves_a_node_to_a_spare",
    "muster checkpoint": "e2e/status_test.py::test_a_checkpoint_is_asked_of_a_worker_that_handles_the_signal",
    "muster link-torchrun": "e2e/packages/install_test.py::test_torchrun_is_a_link_on_request",
    "muster launch": "e2e/launcher_cli_test.py::test_launch_is_the_older_module",
    "muster manifest": "e2e/local/manifest_test.py::test_every_kind_runs",
    "muster-train training_config.yaml": "e2e/configs/configs_test.py",
    "muster-train preprocess reviews.yaml": "compat/texts/snippets_torch_test.py",
    "muster-train reviews.yaml --output=json": "compat/texts/reviews_torch_test.py",
    "muster-train eval reviews.yaml": "compat/texts/reviews_torch_test.py",
    "muster-train prepare": "e2e/data/prepare_test.py::test_what_is_kept",
    "muster-train ds_config.json --data_path corpus": "e2e/configs/configs_test.py",
    "muster run --standalone --nproc_per_node=2 train.py": "compat/real_scripts_torch_test.py",
    "muster-train run.yaml": "e2e/train/stages_test.py::test_equal_to_plain_runs_to_the_bit",
    "muster-train eval run.yaml --task arc FILE": "e2e/docs/trainer_pages_test.py",
    "muster-train run.yaml --suggest --world-size 8": "e2e/docs/trainer_pages_test.py",
    "muster-train quantize run.yaml --method gptq --to small": "e2e/train/quantize_test.py::test_losses_and_bytes",
    "muster-train generate run.yaml": "e2e/train/generate_test.py::test_text_of_checkpoints_and_files",
    "muster local -f k8s/cpu/master-workers.yaml": "compat/manifests_run_test.py",
    "muster-train prepare --input_dir data/raw --output_dir data/processed --vocab_size 50000": "e2e/data/prepare_test.py::test_what_is_kept",
    "muster-train quantize run.yaml --model tuned --method int4 --to tuned-int4": "e2e/train/quantize_test.py::test_losses_and_bytes",
}

# Names of programs and of muster run without more, and commands of ./dev that are this run, its build or a measurement: looked up.
KNOWN = {
    "muster", "muster-train", "torchrun", "muster run", "./dev", "./dev test", "./dev build", "cmake --preset release && ninja -C build",
    "./dev bench", "./dev test --full", "./dev bench launch", "./dev bench launch --record", "./dev bench precision", "./dev bench torch-fsdp",
    "./dev bench train-cpu --threads 1 --clock processor",
}  # fmt: skip


def commands():
    """Every command once: lines of blocks without a language, and the texts in backquotes."""
    found = []
    for language, text in BLOCK.findall(TEXT):
        if language in ("", "sh"):
            found += [re.sub(r"\s+# .*$", "", line.removeprefix("$ ")) for line in text.splitlines()]
    found += re.findall(r"`([^`\n]+)`", BLOCK.sub("", TEXT))
    return list(dict.fromkeys(line.strip() for line in found if COMMAND.match(line)))


class Readme(AgentTest):
    def setUp(self):
        super().setUp()
        (self.folder / "build").symlink_to(BUILD)
        for name in ("k8s", "examples"):
            (self.folder / name).symlink_to(SOURCE / name)
        self.script("train.py", TRAIN)
        (self.folder / "anything").write_text('#!/bin/sh\necho "anything $RANK of $WORLD_SIZE $*"\n')
        (self.folder / "anything").chmod(0o755)
        for name in ("texts", "corpus"):
            (self.folder / name).mkdir()
            (self.folder / name / "a.txt").write_text("the quick brown fox jumps over the lazy dog and rests.\n" * 1000)
        (self.folder / "run.yaml").write_text(self.small_run())
        (self.folder / "ds_config.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 3}}')
        (self.folder / "bin").mkdir()
        for name in ("muster", "muster-train"):
            (self.folder / "bin" / name).symlink_to(BUILD / "bin" / name)
        self.variables = environment(PATH=f"{self.folder}/bin:{os.environ['PATH']}", E2E_FOLDER=str(self.folder))

    def small_run(self):
        """The README's own file with a model of no folder and smaller numbers."""
        text = next(text for language, text in BLOCK.findall(README) if language == "yaml")
        for front, small in (
            (r"model: \{path: [\w-]+\}", "model: {architecture: gpt2, layers: 1, channels: 32, heads: 2, vocabulary: 256}"),
            (r"path: texts", "path: texts, tokenizer: bytes"),
            (r"epochs: 2", "epochs: 1"),
            (r"global_batch: 64", "global_batch: 16"),
            (r"sequence_length: 512", "sequence_length: 64"),
            (r"evaluate_every: 200", "evaluate_every: 20"),
            (r"output_format: hf", "output_format: safetensors"),
        ):
            text, count = re.subn(front, small, text)
            self.assertEqual(count, 1, front)
        return text

    def test_every_command_has_its_row(self):
        found, rows = commands(), [*RUN, *TESTED, *KNOWN]
        self.assertGreater(len(found), 40)
        self.assertEqual([line for line in found if line not in rows], [], "commands of the pages that no test runs")
        self.assertEqual([line for line in rows if line not in found], [], "rows whose command no page has")
        self.assertEqual(len(rows), len(set(rows)))

    def test_named_tests_exist(self):
        for line, name in TESTED.items():
            file, _, test = name.partition("::")
            path = SOURCE / "tests" / file
            self.assertTrue(path.is_file(), f"{line}: there is no {name}")
            self.assertTrue(not test or f"def {test}(" in path.read_text(), f"{line}: there is no {name}")
            listed = any(path.name in text.read_text() for text in (SOURCE / "tests").rglob("CMakeLists.txt"))
            self.assertTrue(listed, f"{line}: {name} is in no CMakeLists.txt")

    def test_what_dev_and_muster_know(self):
        known = subprocess.run([SOURCE / "dev", "help"], capture_output=True, text=True, check=True).stdout
        benches = re.search(r"NAME is one of (.*)$", known, re.M)[1].split()
        shown = subprocess.run([BUILD / "bin" / "muster", "--help"], capture_output=True, text=True, check=True).stdout
        subcommands = re.findall(r"^  ([\w-]+) +\S", shown, re.M)
        for line in commands():
            words = line.split()
            if words[:2] == ["./dev", "bench"] and len(words) > 2 and words[2] != "--report":
                self.assertIn(words[2], benches)
            elif words[0] == "./dev" and len(words) > 1:
                about = [row for row in known.splitlines() if row.startswith(f"./dev {words[1]} ")]
                self.assertTrue(about and all(any(word in row for row in about) for word in words[2:]), line)
            elif words[0] in ("muster", "build/bin/muster") and len(words) > 1:
                self.assertIn(words[1], subcommands)
        self.assertIn('"name": "release"', (SOURCE / "CMakePresets.json").read_text())

    def test_every_command_that_is_run(self):
        for line, (codes, expected) in RUN.items():
            with self.subTest(line):
                if "nproc_per_node=3 train.py" in line:
                    self.script("train.py", FAIL)
                done = subprocess.run(
                    ["sh", "-c", line], env=self.variables, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT,
                )  # fmt: skip
                self.assertIn(done.returncode, codes, done.stdout)
                for pattern in expected:
                    self.assertRegex(done.stdout, re.compile(pattern))
                self.script("train.py", TRAIN)


if __name__ == "__main__":
    unittest.main(verbosity=2)
