"""The log of a run as its readers see it: TensorBoard's own reader on the event files, Python's json on the lines.

A run of four steps, and a second run that continues from its checkpoint after two steps. For each step TensorBoard shows the values of
the step's last line."""
import glob
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import torch_python  # noqa: E402

torch_python.require(load=False)
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
except ImportError as error:
    torch_python.skip(f"tensorboard is not there: {error}")

CONFIG = """
training: {{steps: 4, micro_batch: 2, global_batch: 4, sequence_length: 16, clip_norm: 1.0, checkpoint_dir: {0}/checkpoints, checkpoint_every: 2}}
model: {{layers: 2, channels: 32, heads: 2, vocabulary: 256}}
data: {{path: {0}/text}}
logging: {{dir: {0}/log, sample_length: 0}}
"""
STEP = {"schema", "kind", "time", "step", "loss", "learning_rate", "grad_norm", "tokens", "tokens_per_s", "mfu", "step_ms", "comm_ms",
        "exposed_ms", "data_wait_ms", "memory", "loss_scale", "skipped"}


def train(folder, *settings):
    command = [torch_python.build() + "/bin/muster-train", folder + "/config.yaml"]
    for setting in settings:
        command += ["--set", setting]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_lines(folder):
    with open(folder + "/log/log.jsonl") as file:
        return [json.loads(line) for line in file]


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/text", "w") as file:
            file.write("the quick brown fox jumps over the lazy dog; " * 200)
        with open(folder + "/config.yaml", "w") as file:
            file.write(CONFIG.format(folder))
        train(folder)
        for name in glob.glob(folder + "/checkpoints/step-*4"):
            subprocess.run(["rm", "-r", name], check=True)
        assert "resumed" in train(folder, "training.steps=5"), "the second run did not go on"
        lines = read_lines(folder)
        events = glob.glob(folder + "/log/tensorboard/events.out.tfevents.*")
        assert len(events) == 2, events
        first = list(EventFileLoader(sorted(events)[0]).Load())
        assert first[0].file_version == "brain.Event:2", first[0]

        steps = [line for line in lines if line["kind"] == "step"]
        assert [line["step"] for line in steps] == [1, 2, 3, 4, 3, 4, 5], steps
        for line in steps:
            assert STEP <= set(line), STEP - set(line)
            assert line["tokens"] == 64 and line["schema"] == 1 and 0 < line["mfu"] <= 1, line
        latest = {line["step"]: line for line in steps}  # the later line of a step counts

        accumulator = EventAccumulator(folder + "/log/tensorboard", size_guidance={"scalars": 0})
        accumulator.Reload()
        tags = accumulator.Tags()
        for name in ("loss", "learning_rate", "grad_norm", "tokens_per_s", "mfu", "step_ms", "exposed_ms"):
            assert "train/" + name in tags["scalars"] + tags["tensors"], tags
            shown = accumulator.Scalars("train/" + name)
            assert [event.step for event in shown] == [1, 2, 3, 4, 5], [event.step for event in shown]
            for event in shown:
                expected = latest[event.step][name]
                assert abs(event.value - expected) <= 1e-6 * abs(expected), (name, event, expected)
                assert abs(event.wall_time - latest[event.step]["time"]) < 0.002, (event, latest[event.step])
        text = accumulator.Tensors("config")[0].tensor_proto.string_val[0].decode()
        assert "    training.steps=" in text and "    data.path=" in text, text
        assert [line["config"] for line in lines if "config" in line][0].startswith("    training.steps=4"), lines[1]
        assert lines[0]["kind"] == "start" and lines[-1]["kind"] == "end" and lines[-1]["finished"], (lines[0], lines[-1])
    print("TensorBoard shows 5 steps of two runs as the JSON lines have them")


if __name__ == "__main__":
    sys.exit(main())
