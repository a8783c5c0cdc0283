"""muster-train on one node whose ranks are killed at random, under pipelines and compressed gradients: every other rank
ends or waits for the next round within seconds of the kill, the round goes on from a checkpoint or a replica, and the result at the end is, to
the last bit, an undisturbed run's.

    MUSTER_BUILD=build python3 tests/e2e/worlds/mesh_kills_test.py [--kills N] [--seed N] [--what NAME[,NAME...]]"""

import argparse
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness import BUILD, lineage

MUSTER, TRAIN = (str(BUILD / "bin" / name) for name in ("muster", "muster-train"))
CONFIG = """\
training: {{micro_batch: 1, global_batch: {batch}, sequence_length: 32, learning_rate: 1.0e-3, schedule: constant, warmup_steps: 5, threads: 1,
           timeout: 60, checkpoint_dir: "{name}.checkpoints", output: "{name}.model", output_format: safetensors, {training}}}
model: {{layers: 4, channels: 32, heads: 2}}
mesh: {{{mesh}}}
data: {{path: "{folder}/text"}}
logging: {{sample_length: 0, interval: 1, samples: "{name}.samples"}}
"""
BATCH, PROSE = 8, "the quick fox jumps over the hill and then it rests. " * 200
WORLDS = {  # ranks, stages, mesh, training
    "pipeline": (4, 2, "pipeline: 2", "strategy: FULL_SHARD"),
    "interleaved": (2, 2, "pipeline: 2, schedule: interleaved", "strategy: NO_SHARD"),
    "topk": (3, 1, "", "strategy: NO_SHARD, compression: topk, compression_least: 64"),
    "powersgd": (3, 1, "", "strategy: NO_SHARD, compression: powersgd, compression_least: 64"),
}
ENDS_S, WAIT_S = 5, 120  # from a kill to the start of a rank in its place; for a step


def environment_of(pid):
    with contextlib.suppress(OSError):
        return dict(word.split(b"=", 1) for word in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in word)
    return {}


class Job:
    def __init__(self, folder, what, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.ranks, self.stages, self.mesh, self.training = WORLDS[what]
        self.batch = BATCH * self.ranks // self.stages
        (folder / "text").write_text(PROSE)

    def start(self, name, steps, every):
        path = self.folder / f"{name}.yaml"
        training = f"steps: {steps}, checkpoint_every: {every}, {self.training}"
        path.write_text(CONFIG.format(folder=self.folder, name=self.folder / name, training=training, mesh=self.mesh, batch=self.batch))
        foreign = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|MASTER_|RANK$|LOCAL_RANK$|WORLD_SIZE$")
        clean = {word: value for word, value in os.environ.items() if not foreign.match(word)}
        self.log = self.folder / f"{name}.log"
        with open(self.log, "ab") as log:
            self.agent = subprocess.Popen([MUSTER, "run", "--standalone", f"--nproc-per-node={self.ranks}", "--max-restarts=100000", "--restart-backoff=0",
                                          "--termination-log=", "--", TRAIN, path], stdout=log, stderr=subprocess.STDOUT, env=clean | {"OMP_NUM_THREADS": "1"})
        return self.agent

    def close(self):
        """After a failure: no rank outlives the test."""
        self.agent.kill()
        self.agent.wait()

    def said(self):
        return self.log.read_text(errors="replace")

    def until(self, condition, what, agent):
        end = time.monotonic() + WAIT_S
        while not (found := condition()):
            assert agent.poll() is None, f"the job ended: {what}\n{self.said()[-4000:]}"
            assert time.monotonic() < end, f"not in {WAIT_S} s: {what}\n{self.said()[-4000:]}"
            time.sleep(0.01)
        return found

    def workers(self, agent):
        """{rank: process} of the round that runs."""
        children = subprocess.run(["ps", "--ppid", str(agent.pid), "-o", "pid="], capture_output=True, text=True, check=False).stdout.split()
        found = {environment_of(pid).get(b"RANK"): int(pid) for pid in children}
        return {int(rank): pid for rank, pid in found.items() if rank is not None}

    def play(self, kills):
        """The last step, and how long each killed rank's place was empty."""
        agent, times, before = self.start("disturbed", 10**6, 2), [], 0
        for _ in range(kills):
            before = self.until(lambda: (run := lineage.latest(self.folder / "disturbed.samples"))[0] > before and run[2] >= 3 and run[0], "a round goes on", agent)
            workers = self.until(lambda: len(found := self.workers(agent)) == self.ranks and found, "all ranks run", agent)
            time.sleep(self.random.random() * 0.1)
            rank, killed = self.random.choice(list(workers.items()))
            os.kill(killed, signal.SIGKILL)
            begun = time.monotonic()
            self.until(lambda: self.workers(agent).get(rank, killed) != killed, f"rank {rank} is started again", agent)
            times.append(time.monotonic() - begun)
        self.until(lambda: (run := lineage.latest(self.folder / "disturbed.samples"))[0] > before and run[2] >= 3, "the last round goes on", agent)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(WAIT_S) in (143, 0), self.said()[-4000:]
        return max(int(path.name[5:]) for path in (self.folder / "disturbed.checkpoints").glob("step-*") if path.name[5:].isdigit()), times

    def model(self, name, steps):
        assert self.start(name, steps, 0).wait(WAIT_S * 4) == 0, self.said()[-4000:]
        return (self.folder / f"{name}.model").read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--what", default=",".join(WORLDS))
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.kills} kills", flush=True)
    for what in options.what.split(","):
        with tempfile.TemporaryDirectory(prefix="muster mesh kills ") as scratch, contextlib.ExitStack() as stack:
            job, begun = stack.enter_context(contextlib.closing(Job(pathlib.Path(scratch), what, options.seed))), time.monotonic()
            steps, times = job.play(options.kills)
            said = job.said()
            assert len(re.findall(r"verdict: rank \d+ .* was killed by signal 9|restart \d+ of \d+", said)) >= options.kills, said[-4000:]
            found = job.model("disturbed", steps)
            assert f"all {steps} steps had been done already" in job.said(), job.said()[-2000:]
            assert found == job.model("undisturbed", steps), f"{what}: another model than that of a job that nothing befell"
            print(f"{what}: {steps} steps, {len(times)} kills; a rank in the killed one's place within {max(times):.2f} s, {sum(times) / len(times):.2f} s on average; "
                  f"{time.monotonic() - begun:.0f} s", flush=True)
            assert max(times) <= ENDS_S, times


if __name__ == "__main__":
    sys.exit(main())
