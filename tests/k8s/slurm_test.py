"""k8s/clusters/slurm/train.sbatch under a real Slurm: Debian's slurmctld and two slurmd, as nodes `na` and `nb` with addresses of their
own, unpacked over this machine's files in a mount namespace, so that nothing is installed. Root, overlayfs and Debian's packages are needed.

    MUSTER_BUILD=build python3 tests/k8s/slurm_test.py [TestClass.test_name ...]"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ.get("MUSTER_SOURCE") or HERE.parent.parent)
sys.path.insert(0, str(SOURCE / "tests" / "e2e"))

from harness import LIMIT, MUSTER, environment  # noqa: E402

SCRIPT = SOURCE / "k8s" / "clusters" / "slurm" / "train.sbatch"
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins")
WORKER = """
import os, sys, time
get = os.environ.get
print("rank", get("RANK"), "of", get("WORLD_SIZE"), "at", get("MASTER_ADDR"), "on", get("SLURMD_NODENAME"), "cpus", len(os.sched_getaffinity(0)),
      sys.argv[1:], flush=True)
open(f"up.{get('RANK')}", "w").close()
time.sleep(float(get("SLEEP", "0")))
sys.exit(int(get("CODE", "0")) if get("RANK") == "5" else 0)
"""
# $1: a folder with the packages. Files written to these trees stay in the namespace.
MACHINE = """
set -eu
ip link set lo up
ip link add v0 type veth peer name v1
ip link set v1 up
for last in 1 2 3; do ip addr add 10.9.0.$last/24 dev v0; done
ip link set v0 up
mount --make-rprivate /
mkdir "$1/over"
mount -t tmpfs tmpfs "$1/over"
for tree in usr etc var; do
  mkdir -p "$1/over/$tree/up" "$1/over/$tree/work"
  mount -t overlay overlay -o "lowerdir=/$tree,upperdir=$1/over/$tree/up,workdir=$1/over/$tree/work" "/$tree"
done
for package in "$1"/debs/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -x -C / --keep-directory-symlink --no-same-owner; done
for program in slurmctld slurmd slurmstepd; do ln -sf $program-wlm /usr/sbin/$program; done
ldconfig
printf '10.9.0.2 na\\n10.9.0.3 nb\\n' >>/etc/hosts
slurmctld -c
slurmd -N na
slurmd -N nb
until [ "$(sinfo -h -N -o %t | sort -u)" = idle ]; do sleep 0.1; done
cd "$1/submit"
set +e
eval "$2"
"""
CONFIGURATION = """
ClusterName=here
SlurmctldHost={host}(10.9.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName=na NodeHostname={host} NodeAddr=10.9.0.2 Port=17001 CPUs=8 RealMemory=1000
NodeName=nb NodeHostname={host} NodeAddr=10.9.0.3 Port=17002 CPUs=8 RealMemory=1000
PartitionName=all Nodes=na,nb Default=YES MaxTime=INFINITE State=UP
"""
OVERLAY = 'mkdir "$1/a" "$1/b" "$1/c" && mount -t tmpfs tmpfs "$1/a" && mkdir "$1/a/up" "$1/a/work" && ' \
    'mount -t overlay overlay -o "lowerdir=$1/b,upperdir=$1/a/up,workdir=$1/a/work" "$1/c"'  # fmt: skip


def why_not():
    if os.geteuid() != 0:
        return "not root"
    with tempfile.TemporaryDirectory(prefix="muster-overlay-") as folder:
        if subprocess.run(["unshare", "-m", "sh", "-c", OVERLAY, "-", folder], capture_output=True).returncode:
            return "no overlayfs in a mount namespace"
    return None


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = why_not()
        if reason:
            raise unittest.SkipTest(reason)
        cls.scratch = tempfile.TemporaryDirectory(prefix="muster-slurm-")  # no blanks: Slurm's configuration knows no quotes
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        for name in ("debs/partial", "state", "submit", "bin"):
            (cls.folder / name).mkdir(parents=True)
        got = subprocess.run(
            ["apt-get", "-qq", "install", "-y", "--no-install-recommends", "--download-only", "-o", f"Dir::Cache::archives={cls.folder / 'debs'}",
             "-o", "APT::Sandbox::User=root", *PACKAGES],
            capture_output=True, text=True,
        )  # fmt: skip
        if got.returncode:
            raise unittest.SkipTest(f"Slurm's packages cannot be fetched: {got.stderr.strip()}")
        (cls.folder / "bin" / "muster").symlink_to(MUSTER)
        (cls.folder / "submit" / "train.py").write_text(WORKER)
        (cls.folder / "slurm.conf").write_text(CONFIGURATION.format(host=os.uname().nodename, folder=cls.folder))

    def cluster(self, command):
        """A cluster for one command line in the submit folder; its output."""
        env = environment(
            PATH=f"{self.folder / 'bin'}:/usr/sbin:{os.environ['PATH']}", SLURM_CONF=str(self.folder / "slurm.conf"), MUSTER_METRICS_PORT="0",
            S=f"{SCRIPT} train.py",
        )  # fmt: skip
        del env["OMP_NUM_THREADS"]
        done = subprocess.run(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", MACHINE, "-", str(self.folder), command],
            env=env, capture_output=True, text=True, timeout=LIMIT,
        )  # fmt: skip
        logs = "".join(path.read_text()[-2000:] for path in self.folder.glob("slurm*.log"))
        (self.folder / "over").rmdir()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + logs)
        return done.stdout

    def log(self, name):
        return (self.folder / "submit" / name).read_text()

    FLAGS = "--gpus-per-node=0 --cpus-per-task=2"

    def test_whole_jobs(self):
        out = self.cluster(
            f"""
            sbatch -W {self.FLAGS} --output=runs.log $S 'a b'; echo runs=$?
            CODE=7 PET_MAX_RESTARTS=0 sbatch -W {self.FLAGS} --output=fails.log $S; echo fails=$?
            rm up.*
            SLEEP=600 sbatch -W {self.FLAGS} --output=stopped.log $S & stopped=$!
            until [ -e up.7 ]; do sleep 0.1; done
            scancel --signal=TERM $(squeue -h -o %i); wait $stopped; echo stopped=$?
            sbatch -W --nodes=2 --ntasks-per-node=2 --output=apart.log --wrap='srun muster run train.py'; echo apart=$?
            """
        )
        self.assertEqual(dict(re.findall(r"(\w+)=(\d+)\n", out)), {"runs": "0", "fails": "7", "stopped": "143", "apart": "0"}, out)
        runs = self.log("runs.log")
        ranks = sorted(re.findall(r"rank (\d) of 8 at na on (\w+) cpus \d+ \['a b'\]", runs))
        self.assertEqual(ranks, [(str(rank), "na" if rank < 4 else "nb") for rank in range(8)], runs)
        self.assertIn("from Slurm: --nnodes=2 --node-rank=1 --master-addr=na", runs)
        self.assertNotIn("OMP_NUM_THREADS is not set", runs)  # the script has set it
        self.assertEqual(len(list(self.folder.glob("submit/logs/1/*/attempt_0/*"))), 8)
        self.assertIn("verdict: rank 5 ", self.log("fails.log"))
        self.assertIn("exit code 143", self.log("stopped.log"))
        self.assertIn("this is one of 4 tasks that srun started on 2 nodes", self.log("apart.log"))
        self.assertEqual(list(self.folder.glob("submit/.muster-secret-*")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
