#!/usr/bin/env python3
"""The trial on a GPU as far as it can be tried without one.

    day_test.py Runner      phases that fail, that do not end and that leave processes; results as they are kept
    day_test.py Short       some phases over the fakes
    day_test.py Rehearsal   all of them
    day_test.py Pack        the folder for a machine: its size, and that it needs no library but the system's and NVIDIA's"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import kernel_times  # noqa: E402
import phases  # noqa: E402

SOURCE, BUILD = pathlib.Path(os.environ["MUSTER_SOURCE"]), pathlib.Path(os.environ["MUSTER_BUILD"])
# A day of three phases, in a process of its own as the real one is: the runner ends all processes below it.
DAY = f"""
import subprocess, sys, time
sys.path.insert(0, {str(HERE)!r})
import runner
def good(lines):
    lines.figure("speed", 12.3456789, "ms", least=1)
    with lines.trying("part"):
        raise runner.Skip("no such thing here")
    lines.check("right", True)
def bad(lines):
    with lines.trying("first"):
        raise ValueError("the first part is wrong")
    lines.check("second", True)
def stuck(lines):
    lines.figure("before", 1, "s")
    subprocess.Popen(["setsid", "sh", "-c", "sleep 1000 & wait"])
    time.sleep(1000)
def absent(lines):
    raise runner.Skip("no device")
def dies(lines):
    import os
    os.kill(os.getpid(), 11)
functions = dict(good=good, bad=bad, stuck=stuck, absent=absent, dies=dies)
if len(sys.argv) == 3:
    sys.exit(runner.phase_main(sys.argv[1], functions[sys.argv[1]], sys.argv[2]))
day = runner.Runner(sys.argv[1], {{"name": "some GPU"}}, "abc", False, float(sys.argv[2]), lambda name, path: [sys.executable, __file__, name, str(path)])
for number, name in enumerate(sys.argv[3:], 1):
    day.run(number, name, 3)
print(day.failed)
"""


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Folder(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory(prefix="day test ")
        self.path = pathlib.Path(self.holder.name)
        self.output = self.path / "output"

    def tearDown(self):
        self.holder.cleanup()


class Runner(Folder):
    def day(self, seconds, *names):
        program = self.path / "day.py"
        program.write_text(DAY)
        done = subprocess.run([sys.executable, program, self.output, str(seconds), *names, "--"][:-1], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_phase_that_is_not_passed_does_not_stop_the_next(self):
        printed = self.day(60, "bad", "stuck", "absent", "dies", "good")
        ends = [line for line in lines_of(self.output / "results.jsonl") if line["kind"] == "end"]
        self.assertEqual([end["status"] for end in ends], ["failed", "late", "skipped", "failed", "passed"])
        self.assertIn("['01-bad', '02-stuck', '04-dies']", printed)
        self.assertIn("FAILED first: the first part is wrong", printed)
        self.assertEqual(ends[0]["reason"], "first")
        self.assertEqual(ends[2]["reason"], "no device")
        self.assertIn("-11", ends[3]["reason"])
        late = lines_of(self.output / "02-stuck.jsonl")
        self.assertEqual([line["kind"] for line in late], ["head", "figure", "end"])  # its figures are kept
        self.assertLess(late[-1]["seconds"], 3)
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                self.assertNotEqual(path.read_bytes(), b"sleep\x001000\x00")
            except OSError:
                pass

    def test_every_file_says_when_and_where(self):
        self.day(60, "good")
        head, figure, skipped, check, end = lines_of(self.output / "01-good.jsonl")
        self.assertEqual((head["phase"], head["device"], head["source"], head["rehearsal"]), ("good", {"name": "some GPU"}, "abc", False))
        self.assertRegex(head["date"], r"^20\d\d-\d\d-\d\d \d\d:\d\d UTC$")
        self.assertEqual(figure, {"kind": "figure", "figure": "speed", "value": 12.3457, "unit": "ms", "least": 1})
        self.assertEqual(skipped["reason"], "no such thing here")
        self.assertEqual((check["ok"], end["status"]), (True, "passed"))
        self.assertEqual(lines_of(self.output / "results.jsonl"), [head, figure, skipped, check, end])

    def test_the_whole_has_an_end(self):
        begun = time.monotonic()
        self.day(2.5, "stuck", "good")
        self.assertLess(time.monotonic() - begun, 6)
        ends = [line for line in lines_of(self.output / "results.jsonl") if line["kind"] == "end"]
        self.assertEqual([(end["status"], end["reason"]) for end in ends][1], ("skipped", "no time was left"))

    def test_limits_are_within_the_whole(self):
        self.assertLessEqual(sum(limit for _, limit, _ in phases.PHASES), phases.WHOLE)
        self.assertLessEqual(phases.WHOLE, 480)
        names = [name for name, _, _ in (*phases.PHASES, phases.FURTHER)]
        self.assertEqual(len(names), len(set(names)))

    def test_both_tables_of_ncu_are_read(self):
        raw = '==PROF== x\n"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum"\n"","","byte","byte","ns"\n' \
            '"0","void a<float>(int)","1,000","24","2,048"\n"1","b(float *)","0","8","10"\n"2","void a<float>(int)","0","0","2"\n'
        found = kernel_times.by_name(kernel_times.read(raw))
        self.assertEqual(found, [("a", 2, 2050.0, 1024.0), ("b", 1, 10.0, 8.0)])
        rows = '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n' \
            '"0","a(int)","","dram__bytes_read.sum","byte","16"\n"0","a(int)","","gpu__time_duration.sum","ns","2,048"\n'
        self.assertEqual(kernel_times.read(rows), [("a", 2048.0, 16.0)])
        self.assertEqual(kernel_times.read("==ERROR== no permission"), [])


class Over(Folder):
    """Over the fakes; statuses by phase."""

    def rehearse(self, *arguments):
        done = subprocess.run([SOURCE / "tests/gpu/on_a_gpu.sh", "--rehearse", "--build", BUILD, "--output", self.output, *arguments], capture_output=True, text=True)
        lines = lines_of(self.output / "results.jsonl")
        names = [line["phase"] for line in lines if line["kind"] == "head"]
        for line in lines:
            if line["kind"] == "head":
                self.assertTrue(line["rehearsal"] and line["device"]["name"].startswith("none"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return dict(zip(names, (line["status"] for line in lines if line["kind"] == "end"))), lines


class Short(Over):
    def test_some_phases(self):
        statuses, lines = self.rehearse("--phases", "facts,profile,kill_one")
        self.assertEqual(statuses, {"facts": "passed", "profile": "passed", "kill_one": "passed"})
        self.assertEqual(len([line for line in lines if line.get("figure", "").startswith("products in ")]), 4)

    def test_what_is_not_known_is_refused(self):
        (self.path / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA T4, 580.1, 15360, 7.5'\n")
        (self.path / "nvidia-smi").chmod(0o755)
        (self.path / "pack/lib").mkdir(parents=True)
        rehearsal, packed = ("--rehearse", "--build", BUILD), ("--packed", self.path / "pack")

        def refused(words, *arguments):
            done = subprocess.run([SOURCE / "tests/gpu/on_a_gpu.sh", *arguments, "--output", self.output], capture_output=True, text=True,
                                  env={**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}"})
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)

        refused("no phase fact; --list has facts, ", *rehearsal, "--phases", "fact")
        refused("is not there: pack.py makes it", *packed)
        (self.path / "pack/lib/libmuster_cuda.so").write_text("")
        (self.path / "pack/ARCHITECTURE").write_text("90\n")
        refused("was packed for sm_90, but the NVIDIA T4 is sm_75: pack.py --architecture 75", *packed)


class Rehearsal(Over):
    def test_all_phases(self):
        statuses, lines = self.rehearse()
        self.assertEqual(list(statuses), [name for name, _, _ in (*phases.PHASES, phases.FURTHER)])
        skipped = {name for name, status in statuses.items() if status == "skipped"}
        self.assertLessEqual(skipped, {"sanitizers"})
        self.assertGreater(len([line for line in lines if line["kind"] == "check"]), 40)
        self.assertEqual([line for line in lines if line["kind"] == "check" and not line["ok"]], [])


class Pack(Folder):
    OF_A_MACHINE = re.compile(r"linux-vdso|ld-linux|lib(c|m|dl|pthread|rt)\.so|libstdc\+\+\.so\.6|libgcc_s\.so\.1")

    def test_it_is_small_and_whole(self):
        pack = self.path / "pack"
        done = subprocess.run([sys.executable, SOURCE / "tests/gpu/pack.py", pack, "--build", BUILD, "--nvcc-build", os.environ["MUSTER_NVCC_PACK"]], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        files = [path for path in pack.rglob("*") if path.is_file()]
        self.assertLess(sum(path.stat().st_size for path in files), 40 << 20)
        self.assertLess((pack / "lib/libopenblas.so.0").stat().st_size, 1 << 20)
        for path in files:
            resolved = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
            for name, place in re.findall(r"^\s+(\S+) => (not found|.*?)(?: \(0x|$)", resolved, re.MULTILINE):
                self.assertTrue(self.OF_A_MACHINE.search(name) or pathlib.Path(place).resolve().is_relative_to(pack.resolve()), f"{path}: {name} => {place}")
        self.it_trains(pack)
        self.every_program_is_there(pack)

    def it_trains(self, pack):
        """By the small stand-in for OpenBLAS, as the build does."""
        (self.path / "text").write_text("the quick fox jumps over the hill and then it rests.\n" * 50)
        (self.path / "config.yaml").write_text(f"training: {{steps: 3, micro_batch: 1, global_batch: 2, sequence_length: 16}}\nmodel: {{layers: 2, channels: 32, heads: 2}}\n"
                                               f'data: {{path: "{self.path / "text"}"}}\nlogging: {{interval: 1, sample_length: 0}}\n')
        losses = []
        for number, folder in enumerate((pack, BUILD)):
            logs = self.path / f"logs-{number}"
            subprocess.run([folder / "bin/muster-train", self.path / "config.yaml", "--device=cpu", "--set", f"logging.dir={logs}"], check=True, capture_output=True)
            losses.append([line["loss"] for line in lines_of(logs / "log.jsonl") if line["kind"] == "step"])
        for a, b in zip(*losses, strict=True):
            self.assertLess(abs(a - b), 1e-5 * abs(b))

    def every_program_is_there(self, pack):
        named = re.findall(r'"((?:tests|benchmarks|bin)/[\w.-]+)"', (HERE / "phases.py").read_text() + (HERE / "training.py").read_text())
        named += [f"tests/{name}" for name in re.findall(r'"((?:gpu|kernels)_\w+)"', (HERE / "phases.py").read_text())]
        self.assertGreater(len(named), 12)
        for name in set(named) | {"tests/model_dump", "lib/libmuster_cuda.so"}:
            if not name.endswith((".py", ".sh")):
                self.assertTrue((pack / name).is_file(), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
