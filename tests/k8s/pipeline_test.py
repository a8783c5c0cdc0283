"""k8s/clusters/pipeline: the compiled pipelines are taken apart and run here, their containers' commands one after the other with what
Kubeflow Pipelines would fill in; in the slow tier they are compiled again by the SDK (MUSTER_KFP_PYTHON, made by `./dev test --full`).

    MUSTER_BUILD=build python3 tests/k8s/pipeline_test.py [TestClass.test_name ...]"""

import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import manifests_test as manifests
import yaml

PIPELINE = manifests.K8S / "clusters" / "pipeline"
BUILD = pathlib.Path(os.environ.get("MUSTER_BUILD", manifests.SOURCE / "build")).resolve()
PLACEHOLDER = re.compile(r"\{\{\$\.(inputs|outputs)\.(parameters|artifacts)\['(\w+)'\](?:\.(path|output_file))?\}\}")


NAMES = ("pipeline", "reviews")


def compiled(name):
    """(the pipeline, its requests to Kubernetes)"""
    return list(yaml.safe_load_all((PIPELINE / f"{name}.yaml").read_text()))


class Structure(unittest.TestCase):
    def test_every_name_refers_to_something(self):
        for name in NAMES:
            with self.subTest(name):
                self.check_names(*compiled(name))

    def check_names(self, pipeline, platform):
        self.assertEqual(pipeline["schemaVersion"], "2.1.0")
        executors, components, dag = pipeline["deploymentSpec"]["executors"], pipeline["components"], pipeline["root"]["dag"]
        tasks = dag["tasks"]
        self.assertEqual(set(tasks), {"preprocess", "train-model", "evaluate"})
        for name, task in tasks.items():
            component = components[task["componentRef"]["name"]]
            container = executors[component["executorLabel"]]["container"]
            given, wanted = task["inputs"], component["inputDefinitions"]
            for kind in ("parameters", "artifacts"):
                self.assertEqual(set(given.get(kind, {})), set(wanted.get(kind, {})), name)
            for source in given.get("artifacts", {}).values():
                made = source["taskOutputArtifact"]
                self.assertIn(made["producerTask"], task["dependentTasks"])
                producer = components[tasks[made["producerTask"]]["componentRef"]["name"]]
                self.assertIn(made["outputArtifactKey"], producer["outputDefinitions"]["artifacts"])
            for source in given.get("parameters", {}).values():
                self.assertIn(source["componentInputParameter"], pipeline["root"]["inputDefinitions"]["parameters"])
            for argument in container["args"]:
                way, kind, key, _ = PLACEHOLDER.fullmatch(argument).groups()
                self.assertIn(key, component["inputDefinitions" if way == "inputs" else "outputDefinitions"][kind], name)
        mounts = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        self.assertLessEqual(set(mounts), set(executors))
        there = {(each["kind"], each["metadata"]["name"]) for _, each in manifests.manifests()}
        self.assertIn(("PersistentVolumeClaim", mounts["exec-preprocess"]["pvcMount"][0]["constant"]), there)
        for mount in mounts.values():
            for each in mount.get("configMapAsVolume", []):
                self.assertIn(("ConfigMap", each["configMapName"]), there)

    def test_it_was_compiled_from_its_source(self):
        """The scripts of pipeline.py equal pipeline.yaml's, also where there is no SDK to compile it again."""
        for name in NAMES:
            text = (PIPELINE / f"{name}.py").read_text()
            scripts = {each.strip() for each in re.findall(r'^[A-Z]+ = r"""\n(.*?)"""', text, re.S | re.M)}
            executors = compiled(name)[0]["deploymentSpec"]["executors"].values()
            self.assertEqual({each["container"]["command"][2] for each in executors}, scripts)
            self.assertEqual({each["container"]["image"] for each in executors}, {re.search(r'^IMAGE = "(.*)"', text, re.M)[1]})


class Backend(unittest.TestCase):
    """The backend's work, with folders in place of an object store."""

    name = "pipeline"

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster pipeline ")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_pipeline(self, code=0, **parameters):
        pipeline = compiled(self.name)[0]
        values = {name: each["defaultValue"] for name, each in pipeline["root"]["inputDefinitions"]["parameters"].items()}
        values.update(parameters)
        left, done, said = dict(pipeline["root"]["dag"]["tasks"]), set(), {}
        while left:
            name = next(name for name, task in left.items() if set(task.get("dependentTasks", [])) <= done)
            said[name] = self.run_task(pipeline, name, left.pop(name), values, code)
            done.add(name)
            if code:
                break
        return said

    def place(self, task, key):
        return self.folder / "store" / task / key

    def fill(self, name, task, values, argument):
        way, kind, key, _ = PLACEHOLDER.fullmatch(argument).groups()
        if way == "outputs":
            return str(self.place(name, key))
        source = task["inputs"][kind][key]
        if kind == "parameters":
            value = values[source["componentInputParameter"]]
            return str(int(value)) if isinstance(value, float) else str(value)
        made = source["taskOutputArtifact"]
        return str(self.place(made["producerTask"], made["outputArtifactKey"]))

    def run_task(self, pipeline, name, task, values, code):
        executor = pipeline["components"][task["componentRef"]["name"]]["executorLabel"]
        container = pipeline["deploymentSpec"]["executors"][executor]["container"]
        command = container["command"] + [self.fill(name, task, values, argument) for argument in container["args"]]
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        env = {"PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=self.folder, env=env, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr


class Run(Backend):
    def setUp(self):
        super().setUp()
        self.corpus = self.folder / "corpus"
        self.corpus.mkdir()
        self.lines = [f"line {n}: the quick brown fox jumps over the lazy dog" for n in range(1000)]
        (self.corpus / "a.txt").write_text("\n".join(self.lines[:700]) + "\n\n")
        (self.corpus / "b.txt").write_text("\n".join(self.lines[500:]) + "\n")  # 200 of them again

    def test_the_whole(self):
        said = self.run_pipeline(corpus=self.corpus, steps=12, workers=2)
        train = (self.place("preprocess", "train")).read_text().splitlines()
        held_out = (self.place("preprocess", "held_out")).read_text().splitlines()
        self.assertEqual((len(train), len(held_out)), (950, 50))
        self.assertEqual(sorted(train + held_out), sorted(self.lines))  # each once, no empty one
        self.assertIn("over 2 ranks", said["train-model"])
        model = self.place("train-model", "model")
        self.assertTrue((model / "config.json").is_file() and (model / "model.safetensors").is_file())
        at_the_end = float(re.findall(r"evaluation after step 12: loss ([0-9.]+)", said["train-model"])[-1])
        loss = float(self.place("evaluate", "loss").read_text())
        self.assertAlmostEqual(loss, at_the_end, places=3)  # the exported model is the trained one
        self.assertLess(loss, 5)
        self.assertAlmostEqual(float(self.place("evaluate", "perplexity").read_text()), math.exp(loss), delta=0.01 * math.exp(loss))

    def test_a_corpus_that_is_too_small(self):
        (self.corpus / "a.txt").write_text("one line\n" * 100)
        (self.corpus / "b.txt").unlink()
        self.assertIn("the corpus has 1 different lines, fewer than 20", self.run_pipeline(code=1, corpus=self.corpus)["preprocess"])


class RunReviews(Backend):
    name = "reviews"

    def run_reviews(self, code=0):
        settings = self.folder / "config.json"
        config_map = yaml.safe_load((PIPELINE / "training-config.yaml").read_text())
        settings.write_text(config_map["data"]["config.json"])
        return self.run_pipeline(code, reviews=self.folder / "reviews.csv", tokenizer="bytes", vocabulary=256, cache=self.folder / "cache",
                                 settings=settings, workers=2)

    def figures(self, task, key):
        return json.loads(self.place(task, key).read_text())

    def test_the_whole(self):
        words = {"good": ("quiet", "quick", "bright"), "bad": ("zigzag", "fuzzy", "dizzy")}
        rows = [(f"the film was {words[label][n % 3]} and {words[label][n // 3 % 3]}", label) for n in range(400) for label in words]
        (self.folder / "reviews.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
        said = self.run_reviews()
        self.assertEqual(self.figures("preprocess", "info"), {"train_size": 640, "val_size": 160, "num_classes": 2,
                                                              "classes": ["bad", "good"], "cut": 0, "cached": False})
        trained = self.figures("train-model", "result")
        # the ConfigMap's: five epochs of 640 texts, a micro-batch of 128 on each of two workers
        self.assertEqual((trained["steps"], trained["finished"], trained["ranks"]), (13, True, 2))
        self.assertIn("tokens of the cache", said["train-model"])
        found = self.figures("evaluate", "result")
        self.assertEqual(found["texts"], 160)
        for key in ("loss", "accuracy", "precision", "recall", "f1"):  # the exported model is the trained one
            self.assertAlmostEqual(found[key], trained["evaluation"][key], places=5)
        self.assertEqual(float(self.place("evaluate", "accuracy").read_text()), found["accuracy"])
        self.assertEqual(float(self.place("evaluate", "f1").read_text()), found["f1"])

    def test_reviews_without_a_label(self):
        (self.folder / "reviews.csv").write_text("text,stars\nfine,1\n")
        self.assertIn("no column 'label' (data.label_key); the first row has text, stars", self.run_reviews(code=2)["preprocess"])


class Compiled(unittest.TestCase):
    """For the slow tier: Compiled.test_again by name."""

    def test_again(self):
        python = os.environ.get("MUSTER_KFP_PYTHON")
        if not python:
            self.skipTest("MUSTER_KFP_PYTHON is not set: no SDK of Kubeflow Pipelines (./dev test --full makes one)")
        for name in NAMES:
            with tempfile.TemporaryDirectory() as folder:
                copy = pathlib.Path(folder) / f"{name}.py"
                copy.write_text((PIPELINE / f"{name}.py").read_text())
                subprocess.run([python, str(copy)], check=True, capture_output=True)
                self.assertEqual((copy.parent / f"{name}.yaml").read_text(), (PIPELINE / f"{name}.yaml").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv if len(sys.argv) > 1 else [*sys.argv, "Structure", "Run", "RunReviews"])
