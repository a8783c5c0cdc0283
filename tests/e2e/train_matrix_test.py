"""The fault matrix (fault_rows.py) with muster-train: a model that is trained on 2 and 4 nodes, one rank on each.

    MUSTER_BUILD=build python3 tests/e2e/train_matrix_test.py [--full] [--rows TEXT] [--mode static|elastic] [--nodes N[,N...]]
        [--keep FOLDER] [--jobs N] [--list]

Every job is checked as by fault_matrix_test.py. Its model must also equal, to the last bit, the model that as many ranks of one node
learn in as many steps without a fault. Checkpoints are off here: every world begins with step 1.

The worker is muster-train as it is. step_tap (tests/support) is between the worker and the launcher: it records its beats as
steps, holds them back so that a test is not about who gets the processor, and ends the training by a notice. Needs root, for namespaces."""

import math
import os
import subprocess
import sys

from harness import cluster
import fault_matrix_test
from fault_matrix_test import Played, play
from harness.fault_rows import ROWS, at_exit_barrier
from harness.job import MUSTER
from harness.preload import lingers

TRAIN = cluster.BUILD / "bin" / "muster-train"
TAP = cluster.BUILD / "tests" / "step_tap"
SANITIZED = os.environ.get("MUSTER_SANITIZED")
BATCH = 12  # for 1, 2, 3 or 4 ranks
CONFIG = """\
training: {{steps: 1000000, micro_batch: {micro_batch}, global_batch: {batch}, sequence_length: 16, strategy: FULL_SHARD, threads: 1,
           learning_rate: 1.0e-3, min_learning_rate: 1.0e-3, warmup_steps: 5, output: "{output}"}}
model: {{layers: 2, channels: 16, heads: 2}}
data: {{path: "{text}"}}
logging: {{interval: 1, sample_length: 0}}
"""
PROSE = "the quick fox jumps over the hill and then it rests. " * 200

# Each way in which a world of muster-train ends is among these: a rank dies, a peer's node falls silent, a stop is announced, the job ends.
SHORT = {
    "a worker is killed": "static", "an agent is killed": "elastic", "the server's agent is killed at the exit barrier": "static",
    "a node is cut off and healed": "elastic", "2 nodes become 4, then 3": "elastic", "TERM to a member": "static",
}  # fmt: skip


class Trained(Played):
    """One row, with muster-train as the worker."""

    def make_job(self, nodes):
        job = super().make_job(nodes)
        job.step_ms, job.limit = 50, 2 * job.limit
        self.folder = nodes.folder
        (self.folder / "text").write_text(PROSE)
        sizes = range(job.lowest if job.elastic else job.count, job.count + 1)
        share = math.gcd(*(BATCH // size for size in sizes))  # divides the batch of every size that the world may have
        self.model, self.config = self.folder / "model", self.folder / "config.yaml"
        self.config.write_text(CONFIG.format(micro_batch=share, batch=BATCH, output=self.model, text=self.folder / "text"))
        job.program = (TAP, *lingers(), TRAIN, self.config)
        return job

    def check_end(self, job):
        super().check_end(job)
        if not self.expect("again") and self.row.begin is not at_exit_barrier:
            return
        *_, last = (world for world in job.observer.worlds() if world.steps)
        assert last.ended, f"not all ranks have told their end: {last}"
        assert self.model.read_bytes() == self.undisturbed(job, last), f"another model than that of a job that nothing befell: {last}"

    def undisturbed(self, job, world):
        """What as many ranks of one node learn in as many steps."""
        path = self.folder / "undisturbed"
        changes = [f"training.steps={world.steps}", f"training.output={path}"]
        environment = {name: value for name, value in {**os.environ, **job.environment()}.items() if value is not None}
        command = [MUSTER, "run", "--standalone", f"--nproc-per-node={world.size}", "--termination-log=", TRAIN, self.config]
        for change in changes:
            command += ["--set", change]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=job.limit, check=False)
        assert done.returncode == 0, done.stderr
        return path.read_bytes()


def chosen(options):
    for row in ROWS:
        if options.rows.lower() not in row.name.lower():
            continue
        everything = options.full or options.mode or options.nodes
        for mode in row.modes if everything else [SHORT.get(row.name)]:
            if mode not in row.modes or (options.mode and mode != options.mode):
                continue
            sizes = row.sizes or options.nodes or ((2, 4) if options.full else (2,))
            for count in sorted({count for count in sizes if count >= row.least}):
                yield Trained(row, mode, count, options)


def skips(job):
    """Why it cannot be played here; "" where it can."""
    if SANITIZED and job.row.begin is at_exit_barrier:
        return "a preloaded library and a sanitizer do not go together"
    return fault_matrix_test.skips(job)


if __name__ == "__main__":
    sys.exit(play(__doc__, chosen, jobs=4, skips=skips))
