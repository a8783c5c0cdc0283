"""A run in W&B's and MLflow's folders as their own programs read them: `wandb sync` uploads it to a server of this test, MLflow's file
store lists it. Two processes: the second one goes on from the checkpoint after two steps, in the same runs. The packages are in
.venv/sources/trackers (`dev`); without them the test is skipped, never in CI."""

import gzip
import http.server
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import torch_python  # noqa: E402

torch_python.require(load=False)
PACKAGES = pathlib.Path(sys.prefix, "sources", "trackers")
if not (PACKAGES / "wandb").is_dir():
    if os.environ.get("CI") == "true":
        sys.exit(f"no wandb in {PACKAGES}, and in CI it must read what is written")
    torch_python.skip(f"no wandb in {PACKAGES}: ./dev test fetches it")

CONFIG = """
training: {{steps: 4, micro_batch: 2, global_batch: 4, sequence_length: 16, clip_norm: 1.0, checkpoint_dir: {0}/checkpoints, checkpoint_every: 2,
           evaluate_every: 2}}
model: {{layers: 2, channels: 32, heads: 2, vocabulary: 256}}
data: {{path: {0}/text, validation_share: 0.1}}
logging: {{dir: {0}/log, sample_length: 0{1}}}
"""
TRAINER = {"output_dir": "out", "max_steps": 2, "per_device_train_batch_size": 2, "report_to": ["wandb", "mlflow"], "save_strategy": "no",
           "run_name": "by the Trainer's file"}


class Server(http.server.BaseHTTPRequestHandler):
    """As much of W&B's server as `wandb sync` asks for."""

    upserts, streams, lock = [], [], threading.Lock()

    def log_message(self, *unused):
        pass

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def do_PUT(self):
        self.body()
        self.answer({})

    do_GET = do_PUT

    def do_POST(self):
        data = json.loads(self.body())
        if self.path != "/graphql":
            with self.lock:
                self.streams.append(data)
            return self.answer({"limits": {}})
        query, variables = data["query"], data.get("variables") or {}
        if "UpsertBucket" in query:
            with self.lock:
                self.upserts.append(variables)
            bucket = {"id": "cnVu", "name": variables.get("name"), "displayName": "", "sweepName": None, "historyLineCount": 0, "config": None,
                      "project": {"id": "p", "name": variables.get("project"), "entity": {"id": "e", "name": variables.get("entity") or "team"}}}
            return self.answer({"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}})
        if "CreateRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.server.address}/put/{name}"} for name in variables["files"]]
            return self.answer({"data": {"createRunFiles": {"runID": "cnVu", "uploadHeaders": [], "files": files}}})
        return self.answer({"data": {"viewer": {"id": "v", "entity": "team", "username": "me", "flags": "{}", "teams": {"edges": []}},
                                     "serverInfo": {"features": []}}})


def train(folder, config, *settings, code=0, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "MLFLOW_"))}
    command = [torch_python.build() + "/bin/muster-train", str(config), *(x for s in settings for x in ("--set", s))]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=folder, env={**environment, **variables})
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stdout + done.stderr


def uploaded(folder, run):
    """What `wandb sync` sends for a run's folder: (the run, rows, summary, the stream's end)."""
    Server.upserts, Server.streams = [], []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = dict(os.environ, PYTHONPATH=str(PACKAGES), WANDB_BASE_URL=server.address, WANDB_API_KEY="a" * 40, HOME=str(folder),
                       WANDB_ERROR_REPORTING="false")
    done = subprocess.run([sys.executable, "-m", "wandb", "sync", str(run)], capture_output=True, text=True, env=environment, cwd=folder, timeout=100)
    server.shutdown()
    assert done.returncode == 0, done.stdout + done.stderr
    lines, summary, end = {}, {}, None
    for stream in Server.streams:
        file = stream.get("files", {}).get("wandb-history.jsonl", {"offset": 0, "content": []})
        lines.update((file["offset"] + i, json.loads(text)) for i, text in enumerate(file["content"]))
        for text in stream.get("files", {}).get("wandb-summary.json", {"content": []})["content"]:
            summary = json.loads(text)
        end = stream if "complete" in stream or "exitcode" in stream else end
    upsert = {}
    for variables in Server.upserts:
        upsert.update((name, value) for name, value in variables.items() if value is not None)
    return upsert, [lines[i] for i in sorted(lines)], summary, end


READER = """
import json, sys
from mlflow.store.tracking.file_store import FileStore
store, out = FileStore(sys.argv[1]), []
for experiment in store.search_experiments():
    for run in store.search_runs([experiment.experiment_id], "", 1):
        history = {name: [(m.step, m.value, m.timestamp) for m in store.get_metric_history(run.info.run_id, name)] for name in run.data.metrics}
        out.append({"experiment": experiment.name, "name": run.info.run_name, "status": run.info.status, "params": run.data.params,
                    "tags": run.data.tags, "history": history, "id": run.info.run_id, "end": run.info.end_time, "start": run.info.start_time})
print(json.dumps(out))
"""


def listed(store):
    environment = dict(os.environ, PYTHONPATH=str(PACKAGES), MLFLOW_ALLOW_FILE_STORE="true", HOME=str(store.parent))
    done = subprocess.run([sys.executable, "-c", READER, str(store)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def meta(store):
    """What MLflow's file of a run has, of the one run in a store."""
    return dict(line.split(": ", 1) for line in only(pathlib.Path(store).glob("*/*/meta.yaml")).read_text().splitlines())


def only(paths):
    found = list(paths)
    assert len(found) == 1, found
    return found[0]


def of_lines(folder):
    """The last line of each step of the run's own log, which the others have to agree with."""
    lines = [json.loads(line) for line in (folder / "log" / "log.jsonl").read_text().splitlines()]
    return {(line["kind"], line["step"]): line for line in lines if line["kind"] in ("step", "evaluation")}


def goes_on_in_the_same_runs(folder):
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(folder, ', wandb: offline, mlflow: auto, run_name: "first: \'one\'"'))
    variables = {"WANDB_PROJECT": "a project", "WANDB_TAGS": "small, fast", "WANDB_ENTITY": "team", "MLFLOW_EXPERIMENT_NAME": "experiment: 'x'",
                 "MLFLOW_TRACKING_URI": (folder / "a store").as_uri()}
    driver = {"MUSTER_NVML_LIBRARY": torch_python.build() + "/tests/fake_nvml.so", "FAKE_NVML": "GPU-a",
              "FAKE_NVML_FACTS": "0.busy=83 0.memory=81920 0.used=61440"}
    said = train(folder, config, **variables, **driver)
    run = only((folder / "log" / "wandb").glob("offline-run-*"))
    assert f"wandb sync {run}" in said and "mlflow: " in said, said
    before = meta(folder / "a store")
    for name in (folder / "checkpoints").glob("step-*4"):
        shutil.rmtree(name)
    assert "resumed" in train(folder, config, "training.steps=6", **variables)
    assert only((folder / "log" / "wandb").glob("offline-run-*")) == run and (folder / "log" / "wandb" / "latest-run").resolve() == run
    steps = of_lines(folder)

    upsert, rows, summary, end = uploaded(folder, run)
    settings = json.loads(upsert["config"])
    assert upsert["project"] == "a project" and upsert["displayName"] == "first: 'one'" and upsert["entity"] == "team", upsert
    assert upsert["tags"] == ["small", "fast"] and upsert["name"] == run.name.rsplit("-", 1)[1], upsert
    assert settings["training"]["value"]["steps"] == 6 and settings["model"]["value"]["channels"] == 32, settings
    assert settings["data"]["value"]["path"] == f"{folder}/text", settings
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    trained = [row for row in rows if "train/loss" in row]
    assert [row["train/global_step"] for row in trained] == [1, 2, 3, 4, 5, 6], trained
    assert [row["train/global_step"] for row in rows if "eval/loss" in row] == [2, 4, 6]
    for row in rows:
        kind, prefix = ("step", "train/") if "train/loss" in row else ("evaluation", "eval/") if "eval/loss" in row else (None, None)
        line = steps.get((kind, row["train/global_step"]), {})
        for name, value in row.items():
            name = name.removeprefix(prefix) if prefix else name
            if name in ("loss", "learning_rate", "grad_norm", "tokens", "perplexity", "step_ms"):
                assert value == line[name], (name, value, line)
    assert summary["train/loss"] == steps["step", 6]["loss"] and summary["eval/best_step"] == steps["evaluation", 6]["best_step"], summary
    assert end and end.get("exitcode") == 0, end
    machine = [json.loads(text) for stream in Server.streams for text in stream.get("files", {}).get("wandb-events.jsonl", {"content": []})["content"]]
    assert machine and all("system.proc.memory.rssMB" in line for line in machine), machine

    after, = listed(folder / "a store")
    assert f"'{after['id']}'" == before["run_id"] and after["start"] == int(before["start_time"]) and after["end"] > int(before["end_time"])
    assert (before["status"], after["status"], after["experiment"], after["name"]) == ("3", "FINISHED", "experiment: 'x'", "first: 'one'"), after
    assert after["params"]["training.steps"] == "6" and after["params"]["data.path"] == f"{folder}/text", after["params"]
    assert after["tags"]["mlflow.runName"] == "first: 'one'" and after["tags"]["mlflow.source.name"] == "muster-train"
    for kind, prefix, names in (("step", "train/", ("loss", "learning_rate", "grad_norm")), ("evaluation", "eval/", ("loss", "perplexity"))):
        for name in names:
            history = after["history"][prefix + name]
            assert [step for step, _, _ in history] == sorted(step for k, step in steps if k == kind), history
            for step, value, _ in history:
                assert math.isclose(value, steps[kind, step][name], rel_tol=1e-15), (name, step, value)


def records(log):
    """The whole records of a transaction log: a chunk is CRC, length, type (1 whole, 2 first, 3 middle, 4 last) and its bytes, in blocks of 32 KiB."""
    data, at, found, record = log.read_bytes(), 7, [], b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
        if at + 7 + length > len(data):
            break
        record += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            found.append(record)
            record = b""
    return found


def steps_of(found):
    """A step has a record of its row and, after it, the summary's record."""
    return (sum(b"train/loss" in record and b"_timestamp" in record for record in found) + 1) // 2


def a_kill_in_a_write(folder):
    """The process ends with half of an entry in the file. `wandb sync` uploads the rows before that, and the next process goes on after them."""
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(folder, ", wandb: offline"))
    library = shutil.copy(torch_python.build() + "/tests/failing_files.so", folder.parent / f"{os.getpid()}.failing_files.so")
    killed = {"LD_PRELOAD": library, "FAILING_FILES": "write:.wandb:-2"}
    try:
        train(folder, config, "training.steps=2")
        train(folder, config, "training.steps=6", code=-9, FAILING_AFTER="2", **killed)
        run = only((folder / "log" / "wandb").glob("offline-run-*"))
        log = only(run.glob("*.wandb"))
        whole, size = records(log), log.stat().st_size
        _, rows, _, _ = uploaded(folder, run)
        trained = steps_of(whole)
        assert trained >= 2 and [row["train/global_step"] for row in rows if "train/loss" in row] == list(range(1, trained + 1)), rows
        assert "resumed from step" in train(folder, config, "training.steps=6")
        assert only((folder / "log" / "wandb").glob("offline-run-*")) == run and log.stat().st_size > size
        assert records(log)[:3] == whole[:3] and steps_of(records(log)) == 6
        # killed in its first write: there is no run in the file, or not even its beginning, and the log begins again under the same id
        for steps, length in ((8, 20), (10, 3)):
            shutil.rmtree(folder / "log")
            train(folder, config, f"training.steps={steps}", code=-9, **killed)
            torn = only((folder / "log" / "wandb").glob("offline-run-*/*.wandb"))
            os.truncate(torn, length)
            assert "resumed from step" in train(folder, config, f"training.steps={steps}")
            log = only((folder / "log" / "wandb").glob("offline-run-*/*.wandb"))
            assert log.name == torn.name and steps_of(records(log)) == 2, steps_of(records(log))
    finally:
        os.unlink(library)


def failure_is_told(folder):
    """A run that ends before its last step."""
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(folder, ", wandb: offline, mlflow: mlruns").replace("clip_norm: 1.0", "dtype: fp16, loss_scale: 1e30, on_nonfinite: stop"))
    train(folder, config, code=1)
    _, rows, _, end = uploaded(folder, only((folder / "log" / "wandb").glob("offline-run-*")))
    assert not rows and end.get("exitcode") == 1, end
    assert meta(folder / "mlruns")["status"] == "4"  # FAILED


def who_asks_and_who_refuses(folder):
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(folder, ", wandb_project: x").replace(f"checkpoint_dir: {folder}/checkpoints, checkpoint_every: 2,", ""))
    train(folder, config, "training.steps=1", "logging.dir=", WANDB_DISABLED="true")
    train(folder, config, "training.steps=1", "logging.dir=", WANDB_MODE="disabled")
    assert not (folder / "wandb").exists()
    said = train(folder, config, "training.steps=1", "logging.dir=", WANDB_MODE="online", WANDB_DIR=str(folder / "there"))
    assert "WANDB_MODE is online: muster-train sends nothing" in said and only((folder / "there" / "wandb").glob("offline-run-*")), said
    said = train(folder, config, "training.steps=1", "logging.wandb=off", "logging.mlflow=auto", "logging.dir=",
                 MLFLOW_TRACKING_URI="http://tracking:5000")
    assert "MLFLOW_TRACKING_URI is http://tracking:5000: muster-train sends nothing" in said and (folder / "mlruns").is_dir(), said
    (folder / "file").write_text("")
    said = train(folder, config, "training.steps=1", "logging.dir=", "logging.mlflow=file/mlruns", WANDB_DIR=str(folder / "file"))
    assert "training goes on without W&B's and MLflow's files" in said, said
    assert "must be auto, offline or off" in train(folder, config, "logging.wandb=sometimes", code=2)
    assert "`wandb sync`" in train(folder, config, "logging.wandb=online", code=2)
    for uri in ("http://tracking:5000", "https://x", "sqlite:///mlflow.db", "databricks", "postgresql://x/y", "file://host/x"):
        said = train(folder, config, f"logging.mlflow={uri}", code=2)
        assert f"logging.mlflow is {uri}" in said and "migrate-filestore" in said, said
    (folder / "trainer.json").write_text(json.dumps(TRAINER))
    said = train(folder, "trainer.json", "data.path=text", "training.sequence_length=16", "model.layers=1", "model.channels=32", "model.heads=2",
                 "model.vocabulary=256")
    assert "wandb: " in said and "mlflow: " in said, said
    names = [path.read_text() for path in (folder / "mlruns").glob("0/*/tags/mlflow.runName")]
    assert len(names) == 2 and "by the Trainer's file" in names, names
    (folder / "ds.json").write_text(json.dumps({"train_batch_size": 2, "wandb": {"enabled": True, "project": "by DeepSpeed's file", "team": "t"}}))
    train(folder, "ds.json", "training.steps=1", "data.path=text", "training.sequence_length=16", "model.layers=1", "model.channels=32",
          "model.heads=2", "model.vocabulary=256", WANDB_DIR=str(folder / "ds"))
    assert b"\x12\x01t\x1a\x13by DeepSpeed's file" in only((folder / "ds" / "wandb").glob("offline-run-*/run-*.wandb")).read_bytes()


def main():
    for case in (goes_on_in_the_same_runs, a_kill_in_a_write, failure_is_told, who_asks_and_who_refuses):
        with tempfile.TemporaryDirectory(prefix="trackers ") as folder:
            folder = pathlib.Path(folder).resolve()
            (folder / "text").write_text("the quick brown fox jumps over the lazy dog; " * 200)
            case(folder)
    print("wandb sync uploads the runs, and MLflow lists them, as the JSON lines have them")


if __name__ == "__main__":
    sys.exit(main())
