"""init_process_group, object collectives, groups and barriers of many ranks over the store of `muster run`, the agent's and a
worker's own.

    MUSTER_BUILD=build python3 tests/compat/process_groups_test.py [WORLD ...]

Ranks are forked from one worker that has imported torch, so that 64 of them need no 64 imports. Without torch: skipped (exit 77)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch_python
from torch_python import free_port

torch_python.require(load=False)
HERE = pathlib.Path(__file__).resolve().parent
MUSTER = pathlib.Path(torch_python.build()).resolve() / "bin" / "muster"
WORLDS = [8]  # a world of 2, which is restarted, comes before it


def environment():
    drop = ("PET_", "MUSTER_", "TORCHELASTIC_", "TORCH_", "OMP_", "MASTER_", "RANK", "WORLD_SIZE", "LOGLEVEL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
    kept.update(PYTHON_EXEC=sys.executable, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    return kept


class ProcessGroups(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster groups ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_world(self, world, *flags, arguments=(), store="agent"):
        command = [str(MUSTER), "run", "--standalone", "--nproc_per_node=1", f"--worker-store={store}", *flags]
        command += [str(HERE / "forked_ranks.py"), str(world), str(self.folder), *arguments]
        done = torch_python.run(command, self.folder, env=environment(), timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = [json.loads((self.folder / f"round-{n}.json").read_text()) for n in range(2 if arguments else 1)]
        for each in found:
            self.assertEqual(each["codes"], [0] * world)
            self.assertEqual([rank["rank"] for rank in each["ranks"]], list(range(world)))
            self.assertEqual(each["ranks"][0]["served_by"], store)
            self.assertEqual(each["agent_store"], "True" if store == "agent" else "False")
            slowest = max(rank["formed"] for rank in each["ranks"])
            print(f"{world} ranks, the {store}'s store: group formed in {slowest} s, all in {each['seconds']} s, torch {each['torch']}", flush=True)
        return found

    def test_the_agents_store(self):
        for world in WORLDS:
            with self.subTest(world=world):
                self.run_world(world)

    def test_a_workers_store(self):
        self.run_world(WORLDS[-1], store="worker")

    def test_two_nodes_meet_at_a_workers_store(self):
        port = free_port()
        shared = ["--nnodes=2", "--nproc_per_node=1", "--master_addr=127.0.0.1", f"--master_port={port}", "--worker-store=worker"]
        script = [str(HERE / "scripts" / "object_collectives.py"), str(self.folder)]

        def attempt():
            nodes = [
                subprocess.Popen(
                    [str(MUSTER), "run", *shared, f"--node_rank={k}", *script], env=dict(environment(), MUSTER_HOSTNAME=f"node-{k}"),
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
                for k in range(2)
            ]
            said = [node.communicate(timeout=600)[0] for node in nodes]
            return [node.returncode for node in nodes], said

        codes, said = torch_python.undisturbed(attempt, lambda done: "".join(done[1]), self.folder)
        self.assertEqual(codes, [0, 0], said)
        for rank in range(2):
            self.assertEqual(json.loads((self.folder / f"rank-{rank}.json").read_text())["answers"], [0, 1])

    def test_a_restart_with_the_agents_store(self):
        self.run_world(2, "--max-restarts=1", "--warm=torch", arguments=["--fail"])

    def test_a_restart_with_a_workers_store(self):
        first, second = self.run_world(2, "--max-restarts=1", "--warm=torch", arguments=["--fail"], store="worker")
        self.assertEqual(first["port"], second["port"])


if __name__ == "__main__":
    if sys.argv[1:]:
        WORLDS = [int(world) for world in sys.argv[1:]]
    unittest.main(argv=sys.argv[:1], verbosity=2)
