"""MPI programs under `muster run`, without mpirun and sshd: MPICH of PyPI, and Debian's with --full.

    MUSTER_BUILD=build MUSTER_TORCH_PYTHON=.venv/bin/python python3 tests/e2e/worlds/mpi_test.py [--full] [TestClass.test_name ...]

The nodes are agents on this machine with loopback addresses of their own."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import MUSTER, AgentTest, free_port

PROGRAM = r"""
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "", *rank_text = getenv("RANK");
    int rank, size, sum, local, last = atoi(getenv("WORLD_SIZE")) - 1, is_last = atoi(rank_text) == last;
    if (!strcmp(mode, "never"))
        return puts("never"), 0;
    if (!strcmp(mode, "absent") && is_last)
        return 0;
    if (!strcmp(mode, "torn") && is_last) { /* killed in the middle of MPI_Init */
        (void)write(atoi(getenv("PMI_FD")), "cmd=init pmi_version=1 pmi_subversion=1\n", 40);
        raise(SIGKILL);
    }
    if (!strcmp(mode, "garbage") && is_last) {
        char block[4096];
        signal(SIGPIPE, SIG_IGN);
        memset(block, 'a', sizeof block);
        for (int i = 0; i < 256; i++)
            if (write(atoi(getenv("PMI_FD")), block, sizeof block) < 0)
                return 9;
        return 8;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm node, others;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(mode, "abort") && rank == last && fprintf(stderr, "the mesh is broken\n") > 0)
        MPI_Abort(MPI_COMM_WORLD, atoi(argv[2]));
    if (!strcmp(mode, "once") && !strcmp(getenv("TORCHELASTIC_RESTART_COUNT"), "0") && rank == last)
        raise(SIGKILL);
    if (!strcmp(mode, "spawn")) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        printf("spawn fails: %d\n", MPI_SUCCESS != MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0,
                                                                   MPI_COMM_WORLD, &others, MPI_ERRCODES_IGNORE));
    }
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &local);
    printf("rank %d is %s of %d, sum %d, node of %d\n", rank, rank_text, size, sum, local);
    MPI_Finalize();
    return 0;
}
"""
SCRIPT = """
from mpi4py import MPI
world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size}, sum {world.allreduce(world.rank)}")
"""


def skip(why):
    """In CI it has to be made."""
    if os.environ.get("CI") == "true":
        sys.exit(f"{why}, and in CI this test must run")
    print(f"skipped: {why}")
    sys.exit(77)


class Programs(AgentTest):
    python = compiler = None  # set by main
    linked = ()
    asks_to_spawn = True
    second_fails = 139  # a second program of a rank, in MPI_Init

    def setUp(self):
        super().setUp()
        source = self.script("program.c", PROGRAM)
        self.program = str(pathlib.Path(source).with_suffix(""))
        subprocess.run([*self.compiler, source, "-o", self.program, *self.linked], check=True)

    def nodes(self, count, each, *program, flags=(), code=0, env=None):
        """The job's lines, of all its agents."""
        port = free_port()
        agents = [self.start(f"--nnodes={count}", f"--node-rank={node}", f"--nproc-per-node={each}", "--master-addr=127.0.0.1",
                             f"--master-port={port}", *flags, *program, env=env) for node in range(count)]  # fmt: skip
        return "".join("".join(self.finish(agent, code)) for agent in agents)

    def expect_world(self, text, nodes, each):
        size = nodes * each
        lines = {f"rank {r} is {r} of {size}, sum {size * (size - 1) // 2}, node of {size}" for r in range(size)}  # one machine
        there = set(re.findall(r"rank \d+ is .*", text))
        self.assertIn(there, (lines, {re.sub(r"node of \d+", f"node of {each}", line) for line in lines}), text)


class MpiTest(Programs):
    def test_worlds(self):
        """A program that is linked with MPICH needs no flag."""
        for count, each in (1, 3), (2, 1), (2, 4), (3, 2):
            self.expect_world(self.nodes(count, each, self.program), count, each)

    def test_with_a_secret(self):
        secret = self.script("secret", subprocess.run([MUSTER, "secret"], check=True, capture_output=True, text=True).stdout)
        os.chmod(secret, 0o600)
        self.expect_world(self.nodes(2, 2, self.program, flags=[f"--secret-file={secret}"]), 2, 2)

    def test_python(self):
        script = self.script("train.py", SCRIPT)
        for warm in [], ["--warm=mpi4py"]:
            text = self.nodes(2, 2, script, flags=["--mpi", *warm], env={"PYTHON_EXEC": self.python})
            self.assertEqual(set(re.findall(r"rank \d of 4, sum 6", text)), {f"rank {r} of 4, sum 6" for r in range(4)}, text)

    def test_off_and_without_mpi(self):
        text = self.nodes(1, 2, self.program, flags=["--mpi=off"])
        self.assertEqual(text.count(" of 1, sum 0"), 2, text)
        self.assertEqual(self.nodes(2, 2, self.program, "never").count("never\n"), 4)

    def test_abort(self):
        for given, code in (3, 3), (0, 1):
            text = self.nodes(2, 2, self.program, "abort", str(given), code=code)
            self.assertIn(f"MPI_Abort was called with exit code {given}", text)
            self.assertRegex(text, rf"verdict: rank 3 .* exit code {code}")
            self.assertRegex(text, r"stderr    : the last lines\n    the mesh is broken\n")
            self.assertNotRegex(text, r"rank 3 .* ended by SIGTERM")  # it is the cause

    def test_failures(self):
        text = self.nodes(2, 2, self.program, "torn", code=137)
        self.assertRegex(text, r"verdict: rank 3 .*SIGKILL")
        text = self.nodes(1, 2, self.program, "absent", code=1)
        self.assertRegex(text, r"rank 1 .* exited 0 without MPI_Finalize while 1 rank of its node is in MPI")
        text = self.nodes(2, 1, self.program, "absent", code=1)
        self.assertRegex(text, r"verdict: rank 0 .* rank 1, for which MPI waits, exited 0 without MPI_Finalize")
        text = self.nodes(1, 2, "--mpi", "sh", "-c", f"'{self.program}' && '{self.program}'", code=self.second_fails)
        self.assertRegex(text, r"verdict: rank \d .* after MPI_Finalize: a second MPI program of the same rank")
        text = self.nodes(1, 2, self.program, "garbage", code=9)
        self.assertIn("rank 1: PMI: a line has more than 4095 bytes: its connection is closed", text)

    def test_restart(self):
        text = self.nodes(2, 2, self.program, "once", flags=["--max-restarts=1"])
        self.expect_world(text, 2, 2)

    def test_spawn(self):
        text = self.nodes(1, 2, self.program, "spawn")
        self.assertEqual(text.count("spawn fails: 1"), 2, text)
        if self.asks_to_spawn:
            self.assertIn("calls MPI_Comm_spawn, which muster does not serve: the call fails there", text)

    def test_requests_of_a_node(self):
        """They do not depend on its ranks."""
        asked = {}
        for each in 2, 8:
            text = self.nodes(2, each, self.program, env={"LOGLEVEL": "DEBUG"})
            self.expect_world(text, 2, each)
            asked[each] = len(re.findall(r"PMI: exchange \d+ of keys", text))
        self.assertEqual(asked[2], asked[8])
        self.assertGreater(asked[2], 2)

    def test_refusals(self):
        gcc = shutil.which("gcc")
        library = pathlib.Path(self.folder) / "libmpi.so.40"
        subprocess.run([gcc, "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libmpi.so.40", "-o", library], check=True)
        main = self.script("main.c", "int main(void) { return 0; }\n")
        other = str(pathlib.Path(self.folder) / "other")
        subprocess.run([gcc, main, "-Wl,--no-as-needed", library, f"-Wl,-rpath,{self.folder}", "-o", other], check=True)
        text = self.nodes(1, 1, other, flags=["--mpi"], code=2)
        self.assertIn(f"'{other}' is linked with libmpi.so.40 (Open MPI), whose processes find each other by PMIx", text)
        self.assertIn("which needs PMIx: without mpirun each worker is an MPI world of its own", self.nodes(1, 1, other))
        late = pathlib.Path(self.folder) / "libopen-pal.so.40"  # by a script, as mpi4py does
        subprocess.run([gcc, "-shared", "-x", "c", "/dev/null", "-o", late], check=True)
        script = self.script("late.py", f"import ctypes, time\nctypes.CDLL({str(late)!r})\ntime.sleep(1.5)\n")
        text = self.nodes(1, 2, script, flags=["--mpi"])
        self.assertEqual(len(re.findall(r"rank \d \(pid \d+\) has loaded libopen-pal.so.40 \(Open MPI\), which needs PMIx", text)), 1, text)
        text = self.nodes(1, 1, self.program, flags=["--mpi", "--nnodes=1:2", "--worker-store=worker"], code=2)
        self.assertIn("--mpi keeps its keys in the agent's store, and --worker-store=worker has none", text)


class Timed(Programs):
    """MPI_Init is no slower than under the library's own mpirun: medians of turns on this machine."""

    def test_start(self):
        mpirun = str(pathlib.Path(self.compiler[0]).with_name("mpirun.mpich"))
        ours, theirs = [], []
        for _ in range(7):
            for times, command in (ours, [MUSTER, "run", "--standalone", "--nproc-per-node=8", self.program]), (theirs, [mpirun, "-n", "8", self.program]):
                begun = time.monotonic()
                subprocess.run(command, check=True, capture_output=True, env={**os.environ, "RANK": "0", "WORLD_SIZE": "8"})
                times.append(time.monotonic() - begun)
        print(f"8 ranks, the whole program: {sorted(ours)[3]:.3f} s, under mpirun {sorted(theirs)[3]:.3f} s")
        self.assertLess(sorted(ours)[3], 1.1 * sorted(theirs)[3])


def main():
    full = "--full" in sys.argv
    python = os.environ.get("MUSTER_TORCH_PYTHON", "")
    bin_folder = pathlib.Path(python).absolute().parent
    if not python or not (bin_folder / "mpicc").exists():
        skip("MUSTER_TORCH_PYTHON has no MPICH (mpich, mpi4py)")
    # not by its mpicc, which cannot be in a folder whose name has a blank
    prefix = bin_folder.parent
    Programs.python, Programs.compiler = python, ["gcc", f"-I{prefix}/include"]
    Programs.linked = [f"-L{prefix}/lib", "-lmpi", f"-Wl,-rpath,{prefix}/lib"]
    if full:
        Programs.asks_to_spawn = False  # its client refuses by itself
        Programs.second_fails = 141  # the first one has shut the descriptor down
        Programs.compiler, Programs.linked = [shutil.which("mpicc.mpich") or skip("there is no mpicc.mpich (package libmpich-dev)")], ()
    else:
        Timed.test_start = unittest.skip("--full")(Timed.test_start)
    unittest.main(argv=[word for word in sys.argv if word != "--full"])


if __name__ == "__main__":
    main()
