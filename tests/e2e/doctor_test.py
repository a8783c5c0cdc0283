"""muster doctor on machines with one planted fault each: namespaces, small file systems, limits, and a driver that is ours.

    MUSTER_BUILD=build python3 tests/e2e/doctor_test.py [TestClass.test_name ...]
"""

import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import BUILD, LIMIT, MUSTER, environment, wait_until

FAKE_NVML = str(BUILD / "tests" / "fake_nvml.so")
SANITIZED = os.environ.get("MUSTER_SANITIZED", "")
FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)


def can(*command):
    """Whether this user may make such a namespace."""
    try:
        return subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


MOUNTS = can("unshare", "-m")
PIDS = can("unshare", "-pf", "--mount-proc")
NETWORKS = can("unshare", "-n") and shutil.which("ip")


def gpus(count, facts="", fail="", **more):
    """The environment of a machine with so many GPUs; on buses that no real report of the kernel log names."""
    return {
        "MUSTER_NVML_LIBRARY": FAKE_NVML,
        "FAKE_NVML_BUS": "0xa0",
        "FAKE_NVML": " ".join(f"GPU-{i}" for i in range(count)),
        "FAKE_NVML_FACTS": facts,
        "FAKE_NVML_FAIL": fail,
        **more,
    }


class DoctorTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster doctor ")  # with blanks on purpose
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_doctor(self, *flags, around=(), **variables):
        command = [*around, MUSTER, "doctor", *map(str, flags)]
        return subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=5 * LIMIT)

    def report(self, *flags, around=(), hangs=False, **variables):
        """hangs: something does not answer, and the report names it; elsewhere that is a busy machine, which is asked again."""
        for _ in range(20):
            done = self.run_doctor("--output=json", *flags, around=around, **variables)
            if hangs or "did not respond in" not in done.stdout:
                break
        self.assertEqual(done.stderr, "")
        report = json.loads(done.stdout)
        self.assertEqual({"ok": 0, "warning": 1, "unfit": 3}[report["verdict"]], done.returncode)
        return report

    def rows(self, report, name):
        return [row for row in report["rows"] if row["name"] == name]

    def assert_row(self, report, name, status, says):
        found = self.rows(report, name)
        for row in found:
            if row["status"] == status and says in row["found"]:
                if status in ("warning", "unfit"):
                    self.assertTrue(row["cure"], row)
                return
        self.fail(f"no row {name}: {status}: {says} in {found}")

    def in_mounts(self, script):
        """A command in a private mount namespace after the script, which may use $0 (this test's folder)."""
        return ("unshare", "-m", "sh", "-ec", f'{script}\nexec "$@"', str(self.folder))


class Command(DoctorTest):
    def test_description_can_be_replayed(self):
        driver = gpus(2, "*.name=NVIDIA_H200 *.links=18 *.switch=1 0-1.p2p=0 *.temperature=95")
        described = self.run_doctor("--describe", "--gpus=4", **driver)
        self.assertEqual((described.returncode, described.stderr), (0, ""))
        machine = json.loads(described.stdout)
        self.assertEqual([gpu["name"] for gpu in machine["gpus"]], ["NVIDIA H200"] * 2)
        self.assertIn("lo", [interface["name"] for interface in machine["interfaces"]])
        self.assertTrue(machine["source"].startswith(f"read on {machine['host']} at "))
        file = self.folder / "machine.json"
        file.write_text(described.stdout)
        report = self.report("--from", file)
        self.assert_row(report, "gpu-count", "unfit", "2 GPUs, 4 requested")
        self.assert_row(report, "throttle", "warning", "95 degrees")
        self.assert_row(self.report("--from", file, "--gpus=2"), "gpu-count", "ok", "2 GPUs, 2 requested")
        self.assertEqual(self.run_doctor("--describe", "--from", file).stdout, described.stdout)
        matrix = self.run_doctor("--topology", "--from", file)
        self.assertEqual(matrix.returncode, 0)
        self.assertRegex(matrix.stdout, r"(?m)^GPU0 +X +NV18 ")

    def test_rows_are_sorted_by_weight_for_people(self):
        text = self.run_doctor("--gpus=4", **gpus(2, "0.temperature=95")).stdout
        kinds = [line.split()[0] for line in text.splitlines() if line and not line.startswith(" ")]
        order = ["unfit", "warning", "ok", "skipped", "verdict:"]
        self.assertEqual(kinds, sorted(kinds, key=order.index))

    def test_usage(self):
        done = self.run_doctor("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--nvml-timeout", done.stdout)
        broken = self.folder / "broken.json"
        broken.write_text('{"version": 1,\n "gpu": []}')
        for flags, says in [
            (["--describe", "--topology"], "choose one"),
            (["--topology", "--output=json"], "--describe has the same as JSON"),
            (["--from=/nonexistent"], "/nonexistent"),
            (["--from", broken], "broken.json:2:2: unknown field 'gpu'; did you mean gpus"),
            (["--from", broken, "--log-dir=/x"], "--log-dir reads this machine"),
            (["--level=1"], "--level"),
            (["--nvml-timeout=0"], "--nvml-timeout"),
            (["--gpu=1", "x"], "'x' is not a flag"),
        ]:
            done = self.run_doctor(*flags)
            self.assertEqual((done.returncode, done.stdout), (2, ""), flags)
            self.assertIn(says, done.stderr)


class Driver(DoctorTest):
    def test_wrong_number_of_gpus(self):
        self.assert_row(self.report("--gpus=2", **gpus(2)), "gpu-count", "ok", "2 GPUs, 2 requested")
        self.assert_row(self.report("--gpus=8", **gpus(7)), "gpu-count", "unfit", "7 GPUs, 8 requested")
        hidden = self.report("--gpus=8", **gpus(8), CUDA_VISIBLE_DEVICES="0,1")
        self.assert_row(hidden, "gpu-count", "unfit", "2 GPUs, 8 requested: CUDA_VISIBLE_DEVICES=0,1")

    def test_no_driver(self):
        report = self.report("--gpus=1", **gpus(0, MUSTER_NVML_LIBRARY="/nonexistent/libnvidia-ml.so"))
        self.assert_row(report, "driver", "unfit", "NVML cannot be loaded")
        self.assert_row(self.report("--gpus=1", **{**gpus(1), "FAKE_NVML": "fail"}), "driver", "unfit", "Driver Not Loaded")

    def test_a_driver_that_hangs_is_left(self):
        mark = f"DOCTOR_HANGS={self.folder}".encode()

        def nobody_waits():
            for entry in glob.glob("/proc/[0-9]*/environ"):
                try:
                    if mark in pathlib.Path(entry).read_bytes():
                        return False
                except OSError:
                    continue  # it ended in the meantime
            return True

        for limit in ("0.5", "5", "50"):  # a busy machine may not have come that far in a short time
            driver = gpus(4, "*.name=x", "nvmlDeviceGetTemperature@2:hang", DOCTOR_HANGS=str(self.folder))
            report = self.report(f"--nvml-timeout={limit}", hangs=True, **driver)
            wait_until(nobody_waits, "nobody waits on in the driver")
            if "GPU 2: its temperature" in str(self.rows(report, "driver")):
                break
        self.assert_row(report, "driver", "unfit", f"NVML did not respond in {limit} s; the query was: GPU 2: its temperature")

    def test_the_limit_comes_from_the_environment(self):
        for limit in ("0.2", "2", "20"):
            report = self.report(hangs=True, **gpus(1, "", "nvmlInit_v2:hang", MUSTER_NVML_TIMEOUT=limit))
            if "to start" in str(self.rows(report, "driver")):
                break
        self.assert_row(report, "driver", "unfit", f"did not respond in {limit} s; the query was: to start")

    def test_sick_gpus(self):
        facts = (
            "0.lost=1 1.pending=1 1.remap_failed=1 2.recovery=2 *.links=18 3.links_down=1 *.links_down=0 "
            "*.uncorrected=0 *.corrected=0 3.uncorrected_now=4 *.uncorrected_now=0 *.fabric=2 *.name=H"
        )
        report = self.report(**gpus(4, facts))
        self.assert_row(report, "gpu-lost", "unfit", "GPU 0 (address unknown) fell off the bus")
        self.assert_row(report, "row-remap", "unfit", "GPU 1 (0000:a1:00.0): a row remap failed")
        self.assert_row(report, "recovery-action", "unfit", "GPU 2 (0000:a2:00.0): the driver requests: reboot")
        self.assert_row(report, "nvlink", "unfit", "GPU 3 (0000:a3:00.0): 17 of 18 NVLinks are up")
        self.assert_row(report, "ecc", "warning", "GPU 3 (0000:a3:00.0): 4 uncorrectable memory errors")
        self.assert_row(report, "fabric", "unfit", "in progress")

    def test_leftover_processes(self):
        with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as leftover:
            report = self.report(**gpus(2, f"1.process={leftover.pid}:512"))
            first = os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"
            name = pathlib.Path(f"/proc/{leftover.pid}/comm").read_text().strip() if first else "not readable in this container"
            self.assert_row(report, "gpu-processes", "warning", f"process {leftover.pid} ({name}) uses 512 MiB of GPU 1")
        self.assert_row(self.report(**gpus(2)), "gpu-processes", "ok", "no other process")
        self.assert_row(self.report(**gpus(1, "*.memory=16384 *.used=9000")), "gpu-processes", "warning", "9000 MiB are in use")

    @unittest.skipUnless(PIDS, "needs a pid namespace")
    def test_a_container_does_not_name_processes_of_its_host(self):
        report = self.report(around=("unshare", "-pf", "--mount-proc"), **gpus(1, "*.process=1:512"))
        self.assert_row(report, "gpu-processes", "warning", "process 1 (not readable in this container) uses 512 MiB of GPU 0")


@unittest.skipUnless(MOUNTS, "needs a mount namespace")
class FileSystems(DoctorTest):
    def test_small_shared_memory(self):
        for size, status in [("32m", "unfit"), ("64m", "unfit"), ("512m", "warning"), ("2g", "ok")]:
            around = self.in_mounts(f"mount -t tmpfs -o size={size} tmpfs /dev/shm")
            report = self.report("--nproc-per-node=4", around=around, **gpus(4))
            self.assert_row(report, "shm", status, "/dev/shm has ")
        around = self.in_mounts("mount -t tmpfs -o size=2g tmpfs /dev/shm; fallocate -l 2000000000 /dev/shm/left")
        self.assert_row(self.report(around=around), "shm", "warning", "MiB free")

    def test_full_disk(self):
        around = self.in_mounts('mount -t tmpfs -o size=32m tmpfs "$0"; head -c 40000000 /dev/zero >"$0/all" 2>/dev/null || :')
        report = self.report("--log-dir", self.folder / "logs" / "job", around=around)
        self.assert_row(report, "disk", "unfit", f"{self.folder} has 0 MiB")

    def test_no_inodes(self):
        around = self.in_mounts('mount -t tmpfs -o nr_inodes=2 tmpfs "$0"; : >"$0/last"')
        self.assert_row(self.report("--log-dir", self.folder, around=around), "disk", "unfit", "0 files free")

    def test_read_only_disk(self):
        around = self.in_mounts('mount -t tmpfs -o ro tmpfs "$0"')
        report = self.report("--log-dir", self.folder, around=around)
        self.assert_row(report, "disk", "unfit", f"{self.folder} is not writable: Read-only file system")

    def test_nothing_stays_on_the_disk(self):
        report = self.report("--log-dir", self.folder)
        self.assertTrue(self.rows(report, "disk"))
        self.assertEqual(os.listdir(self.folder), [])

    @unittest.skipUnless(shutil.which("fsfreeze") and shutil.which("mkfs.ext4"), "needs fsfreeze and mkfs.ext4")
    def test_a_disk_that_does_not_answer(self):
        image, folder = self.folder / "image", self.folder / "disk"
        folder.mkdir()
        with open(image, "wb") as file:
            file.truncate(16 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        if subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True).returncode != 0:
            self.skipTest("needs a loop device")
        unmounted = lambda: subprocess.run(["umount", folder], capture_output=True).returncode == 0
        self.addCleanup(wait_until, unmounted, "the process that hung there is gone")
        subprocess.run(["fsfreeze", "-f", folder], check=True)  # who writes there waits, for ever and deaf to SIGKILL
        try:
            report = self.report("--log-dir", folder, hangs=True)
        finally:
            subprocess.run(["fsfreeze", "-u", folder], check=True)
        self.assert_row(report, "disk", "warning", "the disk did not respond in 0.6 s")

    def test_low_memlock_where_there_is_rdma(self):
        port = 'class/infiniband/mlx5_0/ports/1'
        around = self.in_mounts(
            'mkdir -p "$0/class"; cp -a /sys/class/. "$0/class/" 2>/dev/null || :\n'
            f'mkdir -p "$0/{port}"; echo "4: ACTIVE" >"$0/{port}/state"; echo InfiniBand >"$0/{port}/link_layer"\n'
            'mount --bind "$0/class" /sys/class'
        )
        limited = ("prlimit", "--memlock=65536:65536")
        low = (*around, "setpriv", "--bounding-set=-ipc_lock", *limited)
        report = self.report(around=low)
        self.assert_row(report, "memlock", "warning", "64 KiB may be locked, but RDMA registers memory")
        self.assert_row(report, "rdma", "warning", "mlx5_0 is ACTIVE but /dev/infiniband cannot be opened")
        if not os.geteuid():  # the capability is what makes it fine
            [row] = self.rows(self.report(around=(*around, *limited)), "memlock")
            self.assertEqual(row["status"] == "ok", "IPC_LOCK" in row["found"], row)
        high = ("prlimit", "--memlock=unlimited:unlimited")
        if can(*high):  # root in a container may not raise it
            self.assert_row(self.report(around=(*around, *high)), "memlock", "ok", "without limit")


class Limits(DoctorTest):
    def test_few_files(self):
        report = self.report(around=("prlimit", "--nofile=512:512"))
        self.assert_row(report, "nofile", "warning", "512 files may be open at most")

    @unittest.skipUnless(FAKETIME and not SANITIZED, "needs libfaketime, and no sanitizer, whose runtime has to be loaded first")
    @unittest.skipIf(SANITIZED, "a sanitizer must be the first library")
    def test_skewed_clock(self):
        for offset, says in [("+600", "ahead of"), ("-3600", "behind")]:
            report = self.report("--log-dir", self.folder, LD_PRELOAD=FAKETIME, FAKETIME=f"{offset}s")
            self.assert_row(report, "clock", "unfit", says)
        clock = self.rows(self.report("--log-dir", self.folder), "clock")
        self.assertNotIn("unfit", [row["status"] for row in clock])

    @unittest.skipUnless(PIDS, "needs a pid namespace")
    def test_a_shell_as_pid_1(self):
        around = ("unshare", "-pf", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh")
        self.assert_row(self.report(around=around), "pid1", "warning", "PID 1 is sh, which does not forward SIGTERM")
        around = ("unshare", "-pf", "--mount-proc")  # the doctor itself is PID 1
        self.assertEqual(self.rows(self.report(around=around), "pid1"), [])


@unittest.skipUnless(NETWORKS, "needs a network namespace and ip")
class Network(DoctorTest):
    def in_network(self, *more):
        script = "\n".join((
            "ip link set lo up", "ip link add data7 type veth peer name far7", "ip addr add 10.77.0.2/24 dev data7",
            "ip link set far7 up", "ip link set data7 up", *more, 'exec "$@"',
        ))
        return ("unshare", "-n", "sh", "-ec", script, "sh")

    def look(self, *more, master="10.77.0.1"):
        return self.report("--nnodes=2", f"--master-addr={master}", around=self.in_network(*more))

    def test_the_interface_that_leads_to_the_master(self):
        up = "until ip link show data7 | grep -q LOWER_UP; do :; done"
        self.assert_row(self.look(up), "interface", "ok", "data7 is on the route to 10.77.0.1, MTU 1500")
        self.assert_row(self.look(up, master="10.77.0.2"), "interface", "ok", "data7 is on the route to 10.77.0.2")

    def test_interface_down(self):
        report = self.look("ip link set data7 down")
        self.assert_row(report, "interface", "unfit", "no route to 10.77.0.1")

    def test_no_carrier(self):
        report = self.look("ip link set far7 down", "while ip link show data7 | grep -q LOWER_UP; do :; done")
        self.assert_row(report, "interface", "unfit", "data7 is up without a carrier")

    def test_no_route(self):
        self.assert_row(self.look(master="192.0.2.7"), "interface", "unfit", "no route to 192.0.2.7")

    def test_a_name_without_address(self):
        self.assert_row(self.look(master="nobody.invalid"), "interface", "warning", "'nobody.invalid' has no address yet")


if __name__ == "__main__":
    unittest.main(verbosity=2)
