"""The writer of benchmarks' results, and the table that is made of them.

    python3 tests/unit/support/bench_results_test.py"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import types
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(SOURCE / "benchmarks"))

from support import report, results  # noqa: E402


class Results(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.build = pathlib.Path(self.folder.name)
        self.options = types.SimpleNamespace(build=self.build, record=False)

    def tearDown(self):
        self.folder.cleanup()

    def written(self):
        return json.loads((self.build / "benchmarks/results/demo.json").read_text())

    def test_ratios_of_times_and_of_rates(self):
        run = results.Run("demo")
        run.add("time", "ms", [2.0, 4.0, 3.0], {"peer": [9.0, 9.0], "lost": None}, ("limit", 1.5))
        run.add("rate", "MB/s", 300.0, {"peer": 100.0}, ("limit", 600.0), more_is_better=True)
        run.add("ratio", "times", None, {"peer": None}, ratios={"peer": 1.3})
        run.write(self.options)
        time, rate, ratio = self.written()["runs"][0]["figures"]
        self.assertEqual((time["muster"], time["least"], time["most"]), (3.0, 2.0, 4.0))
        self.assertEqual((time["peers"]["peer"]["ratio"], time["peers"]["lost"]["ratio"], time["limit"]["ratio"]), (3.0, None, 2.0))
        self.assertEqual((rate["peers"]["peer"]["ratio"], rate["limit"]["ratio"]), (3.0, 2.0))
        self.assertEqual(ratio["peers"]["peer"], {"median": None, "ratio": 1.3})

    def test_runs_are_kept_and_old_ones_go(self):
        target = self.build / "benchmarks/results/demo.json"
        target.parent.mkdir(parents=True)
        target.write_text(json.dumps({"runs": [{"source": "recorded", "figures": []}]}))
        for value in range(results.KEPT_RUNS + 2):
            run = results.Run("demo")
            run.about["beside"] = "nothing"
            run.add("time", "ms", float(value + 1))
            run.write(self.options)
        runs = self.written()["runs"]
        self.assertEqual([run["source"] for run in runs], ["recorded"] + ["measured"] * results.KEPT_RUNS)
        self.assertEqual(runs[1]["figures"][0]["muster"], 3.0)

    def test_the_last_run_of_a_figure_on_a_processor_stays(self):
        def run(processor, beside, figure):
            return {"processor": processor, "beside": beside, "source": "measured", "figures": [{"figure": figure}]}

        alone = [run("Xeon", "nothing", "a"), run("EPYC", "nothing", "b"), run("EPYC", "nothing", "a")]
        runs = [*alone, *[run("EPYC", "other work", "a") for _ in range(results.KEPT_RUNS)]]
        results.drop_old(runs)
        self.assertEqual((len(runs), runs[:3]), (results.KEPT_RUNS, alone))
        runs = [run(f"EPYC {k}", "nothing", "a") for k in range(results.KEPT_RUNS + 2)]
        results.drop_old(runs)
        self.assertEqual(len(runs), results.KEPT_RUNS + 2)

    def test_a_quiet_run_is_shown_before_a_newer_busy_one(self):
        def run(date, beside, value):
            return {"date": date, "processor": "AMD EPYC", "beside": beside, "figures": [{"figure": "f", "peers": {"p": {"ratio": value}}}]}

        runs = [run("2026-01-01 10:00", "nothing", 2.0), run("2026-01-02 10:00", "nothing", 3.0), run("2026-01-03 10:00", "other work", 9.0)]
        self.assertEqual(report.newest({"runs": runs}, "f")[1]["peers"]["p"]["ratio"], 3.0)
        self.assertIsNone(report.newest({"runs": runs}, "f", "Xeon"))

    def test_every_result_of_the_tree_has_the_schema(self):
        found = results.read_all()
        self.assertGreater(len(found), 15)
        for name, result in found.items():
            self.assertEqual((result["benchmark"], result["command"]), (name, f"./dev bench {name.replace('_', '-')}"))
            for run in result["runs"]:
                self.assertEqual({"date", "processor", "cores", "beside", "source", "figures"} - set(run), set(), name)
                self.assertIn(run["source"], ("measured", "recorded"))
                for figure in run["figures"]:
                    self.assertEqual({"figure", "unit", "muster", "peers"} - set(figure), set(), name)
                    self.assertLess(len(figure["figure"]), 100)


class Ended(unittest.TestCase):
    PROGRAM = """
import argparse, os, signal, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
from support import results
results.add_argument(argparse.ArgumentParser())
class Slow(tempfile.TemporaryDirectory):
    def cleanup(self):
        print("cleans", flush=True)
        sys.stdin.read(1)
        super().cleanup()
with Slow() as folder:
    print(folder, flush=True)
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    os.wait()
    print(os.path.exists(folder), flush=True)
    while True:
        time.sleep(0.01)
"""

    def test_a_benchmark_that_is_asked_to_end_takes_its_folder_along_and_its_forks_do_not(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            command = [sys.executable, "-c", self.PROGRAM, SOURCE / "benchmarks"]
            program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            folder, kept = program.stdout.readline().strip(), program.stdout.readline().strip()
            program.send_signal(number)
            self.assertEqual(program.stdout.readline(), "cleans\n")
            program.send_signal(number)  # timeout(1) sends it twice
            program.stdin.close()
            self.assertEqual(program.wait(), 128 + number)
            program.stdout.close()
            self.assertEqual((kept, pathlib.Path(folder).exists()), ("True", False))


class Options(unittest.TestCase):
    def test_goodput_names_the_wrong_one_before_it_runs(self):
        for words, why in ((["--every=50,0"], "--every: '0' is not a number of steps"), (["--models=foo"], "--models: 'foo' is not one of demo"),
                           (["--modes=x"], "--modes: no row's name has 'x'"), (["--limit=nan"], "--limit: nan is not")):
            run = subprocess.run([sys.executable, SOURCE / "benchmarks/goodput.py", *words], capture_output=True, text=True)
            self.assertEqual((run.returncode, why in run.stderr), (2, True), run.stderr)


if __name__ == "__main__":
    unittest.main()
