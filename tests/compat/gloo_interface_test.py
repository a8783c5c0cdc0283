"""Two nodes with several interfaces each, in network namespaces: the interface that reaches the master is chosen, and a gloo
job works that fails with PyTorch's own choice.

    MUSTER_BUILD=build MUSTER_TORCH_PYTHON=.venv/bin/python python3 tests/compat/gloo_interface_test.py

PyTorch's gloo takes the address of the host's own name. Here that name leads, as on many machines, to a loopback address, or to
an interface that no other node reaches; each node's default route leaves by that interface too. Needs root, for namespaces."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import torch_python

torch_python.require(load=False)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

from harness import namespaces

LIMIT = 400  # for any wait
BUILD = pathlib.Path(torch_python.build()).resolve()
MUSTER = str(BUILD / "bin" / "muster")
PORT = 29511

JOB = """
import datetime, os, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=int(os.environ["GIVE_UP_S"])))
value = torch.full((100000,), float(dist.get_rank() + 1))
dist.all_reduce(value)
print("sum", value.sum().item(), "over", os.environ.get("GLOO_SOCKET_IFNAME"), flush=True)
dist.destroy_process_group()
"""


class Interfaces(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster-gloo-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.job = self.folder / "job.py"
        self.job.write_text(JOB)
        self.nodes = []
        for number in range(2):
            node = namespaces.Node(number, self.folder)
            self.addCleanup(node.close)
            self.nodes.append(node)
        pids = [str(node.holder.pid) for node in self.nodes]
        self.nodes[0].ip("link", "add", "data0", "type", "veth", "peer", "name", "fabric7", "netns", pids[1])
        for node, name in zip(self.nodes, ("data0", "fabric7")):  # names differ from node to node
            number = node.number
            node.ip("link", "set", "lo", "up")
            for decoy, address in (("eth0", f"10.88.{number}.1/24"), ("cni0", f"10.89.{number}.1/24")):
                node.ip("link", "add", decoy, "type", "veth", "peer", "name", f"{decoy}-end")
                node.ip("addr", "add", address, "dev", decoy)
                for end in (decoy, f"{decoy}-end"):
                    node.ip("link", "set", end, "up")
            node.ip("addr", "add", f"10.77.0.{number + 1}/24", "dev", name)
            node.ip("link", "set", name, "up")
            node.ip("route", "add", "default", "via", f"10.88.{number}.254", "dev", "eth0")

    def names_lead_to(self, addresses):
        for node, address in zip(self.nodes, addresses):
            node.hosts.write_text(f"127.0.0.1 localhost\n{address} node{node.number}\n")

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "MUSTER_", "GLOO_", "NCCL_"))}
        kept.update(OMP_NUM_THREADS="1", PYTHON_EXEC=sys.executable, TMPDIR=str(self.folder), **more)
        return kept

    def start(self, node, *flags, **more):
        return subprocess.Popen(
            node.command(
                MUSTER, "run", "--nnodes=2", f"--node-rank={node.number}", "--master-addr=10.77.0.1", f"--master-port={PORT}",
                *flags, str(self.job),
            ),
            env=self.environment(**more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def outcome(self, *flags, give_up_s=300):
        """[(exit code, output, errors)] of both nodes."""

        def attempt():
            return self.attempt(*flags, GIVE_UP_S=str(give_up_s))

        return torch_python.undisturbed(attempt, lambda ends: "".join(out + err for _, out, err in ends))

    def attempt(self, *flags, **more):
        agents = [self.start(node, *flags, **more) for node in self.nodes]
        found = []
        for agent in agents:
            try:
                out, err = agent.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                for other in agents:
                    other.send_signal(signal.SIGTERM)
                self.fail("the job does not end")
            found.append((agent.returncode, out, err))
        return found

    def check_works(self):
        for (code, out, err), interface in zip(self.outcome(), ("data0", "fabric7")):
            self.assertEqual(code, 0, err)
            self.assertEqual(out.strip(), f"sum 300000.0 over {interface}")
            self.assertIn(f"GLOO_SOCKET_IFNAME={interface}", err)

    def check_fails_without(self):
        """What PyTorch chooses by itself does not work here: the other tests' proof that they can fail."""
        self.assertNotEqual([code for code, _, _ in self.outcome("--nccl-tune=off", give_up_s=15)], [0, 0])

    def test_names_that_lead_to_a_loopback_address(self):
        self.names_lead_to(("127.0.1.1", "127.0.1.1"))
        self.check_fails_without()
        self.check_works()

    def test_names_that_lead_to_an_unreached_interface(self):
        self.names_lead_to(("10.88.0.1", "10.88.1.1"))
        self.check_fails_without()
        self.check_works()

    def test_nccl_gets_the_same_interface(self):
        fake = BUILD / "tests" / "fake_nvml.so"
        for node, interface in zip(self.nodes, ("data0", "fabric7")):
            out, err = self.start(node, "--dry-run", MUSTER_NVML_LIBRARY=str(fake), FAKE_NVML="GPU-a GPU-b").communicate(timeout=LIMIT)
            self.assertIn(f"    NCCL_SOCKET_IFNAME=={interface}\n", out, err)
            self.assertIn(f"    GLOO_SOCKET_IFNAME={interface}\n", out)


if __name__ == "__main__":
    if not namespaces.can_be_made():
        torch_python.skip("network namespaces cannot be made here (root, iproute2, veth interfaces)")
    unittest.main(verbosity=2)
