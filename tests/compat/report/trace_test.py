"""A trace of two ranks, read with Perfetto's own messages: compute's waits in it equal the exposed time in the log of the same steps.

Each rank's file is a trace, and so are both one after the other. Slices of a track nest; every operation has a name, a group where it
has one, and its bytes; of rank 0 the waits of a step add up to exposed_ms of the step's line within 2%."""
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
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto
except ImportError as error:
    torch_python.skip(f"perfetto is not there: {error}")

CONFIG = """
training: {{steps: 9, micro_batch: 2, global_batch: 8, sequence_length: 64, clip_norm: 1.0, strategy: FULL_SHARD, recompute: all}}
model: {{layers: 3, channels: 64, heads: 2, vocabulary: 256}}
data: {{path: {0}/text}}
logging: {{dir: {0}/log, sample_length: 0}}
"""
BEGIN, END = perfetto.TrackEvent.TYPE_SLICE_BEGIN, perfetto.TrackEvent.TYPE_SLICE_END


class Slice:
    def __init__(self, rank, track, packet):
        event = packet.track_event
        self.rank, self.track, self.category, self.name = rank, track, event.categories[0], event.name
        self.begin, self.end = packet.timestamp, None
        self.notes = {note.name: note.string_value or note.int_value for note in event.debug_annotations}


def read_slices(data):
    trace = perfetto.Trace()
    trace.ParseFromString(data)
    tracks, open_slices, slices = {}, {}, []
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks, f"two tracks are {track.uuid}"
            tracks[track.uuid] = track
        if packet.HasField("clock_snapshot"):
            clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
            assert set(clocks) == {perfetto.BUILTIN_CLOCK_MONOTONIC, perfetto.BUILTIN_CLOCK_REALTIME}, clocks
        if not packet.HasField("track_event"):
            continue
        assert packet.timestamp_clock_id == perfetto.BUILTIN_CLOCK_MONOTONIC
        track = tracks[packet.track_event.track_uuid]
        stack = open_slices.setdefault(track.uuid, [])
        if packet.track_event.type == BEGIN:
            process = tracks[track.parent_uuid].process.process_name
            stack.append(Slice(int(process.split()[1]), track.name, packet))
            slices.append(stack[-1])
        else:
            assert packet.track_event.type == END
            stack.pop().end = packet.timestamp
    assert not any(open_slices.values()), "a slice has no end"
    return slices


def check_tracks(slices):
    """On each track of each rank: in order, without overlap."""
    last = {}
    for slice in sorted(slices, key=lambda s: (s.begin, s.end)):
        assert slice.begin <= slice.end, vars(slice)
        before = last.get((slice.rank, slice.track))
        assert before is None or before.end <= slice.begin, (vars(before), vars(slice))
        last[slice.rank, slice.track] = slice


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/text", "w") as file:
            file.write("the quick brown fox jumps over the lazy dog; " * 200)
        with open(folder + "/config.yaml", "w") as file:
            file.write(CONFIG.format(folder))
        program = torch_python.build() + "/bin/"
        subprocess.run([program + "muster", "run", "--standalone", "--nproc_per_node=2", program + "muster-train", folder + "/config.yaml",
                        "--trace=4-6"], check=True, capture_output=True, stdin=subprocess.DEVNULL)
        with open(folder + "/log/log.jsonl") as file:
            lines = {line["step"]: line for line in map(json.loads, file) if line["kind"] == "step"}
        files = sorted(glob.glob(folder + "/log/trace/*"))
        assert [os.path.basename(name) for name in files] == ["rank-0.perfetto-trace", "rank-1.perfetto-trace"], files
        data = [open(name, "rb").read() for name in files]
    slices = read_slices(b"".join(data))
    assert len(slices) == sum(len(read_slices(part)) for part in data)
    check_tracks(slices)
    names = {slice.name for slice in slices}
    for name in ("forward h.0", "forward h.0 (again)", "backward h.2", "step 5"):
        assert name in names, sorted(names)
    gathers = [s for s in slices if s.name.startswith("all_gather")]
    assert gathers and all(s.category == "comm" and s.notes["bytes"] > 0 and s.notes["group"] and s.notes["axis"] == "shard" for s in gathers)
    steps = [s for s in slices if s.category == "step"]
    assert sorted((s.rank, s.notes["step"]) for s in steps) == [(r, n) for r in (0, 1) for n in (4, 5, 6)]
    for step in steps:
        waits = sum(s.end - s.begin for s in slices if s.category == "wait" and s.rank == step.rank and s.notes["step"] == step.notes["step"])
        # The time beyond all collectives is the waking of threads, and not shown as communication.
        exposed = min(waits, step.notes["comm_ns"]) / 1e6
        expected = lines[step.notes["step"]]["exposed_ms"] if step.rank == 0 else step.notes["exposed_ns"] / 1e6
        assert abs(exposed - expected) <= 0.02 * expected, (step.name, step.rank, exposed, expected)
        comm = sum(s.end - s.begin for s in slices if s.category == "comm" and s.rank == step.rank and s.notes["step"] == step.notes["step"])
        assert comm > 0.5 * step.notes["comm_ns"], (comm, step.notes)  # gathers for the next step are at its edge
    print(f"{len(slices)} slices of two ranks; exposed communication of 3 steps as in the log")


if __name__ == "__main__":
    sys.exit(main())
