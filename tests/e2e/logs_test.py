"""The workers' output end to end: files, console, filters, formats, rotation.

    MUSTER_BUILD=build python3 tests/e2e/logs_test.py [TestClass.test_name ...]

What happens where the places that it goes to are slow, full or stuck is in logs_matrix_test.py."""

import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import unittest

from harness import LIMIT, AgentTest, free_port, wait_until


class Logs(AgentTest):
    def files(self):
        return {str(p.relative_to(self.folder / "logs")): p.read_text() for p in (self.folder / "logs").rglob("std*.log")}

    def test_redirect_and_tee(self):
        arguments = ("--standalone", "--nproc-per-node=2", "--log-dir=logs", "--rdzv-id=job")
        script = ("--", "sh", "-c", "echo out $RANK; echo err $RANK >&2")
        out, err = self.run_muster(*arguments, "--redirects=3", *script)
        self.assertEqual(out, "")
        self.assertNotIn("err ", err)
        files = self.files()
        self.assertEqual(len(files), 4)
        for path, text in files.items():
            match = re.fullmatch(r"job_[a-z0-9]{8}/attempt_0/([01])/(std(out|err))\.log", path)
            self.assertTrue(match, path)
            self.assertEqual(text, f"{match.group(3)} {match.group(1)}\n")
        out, err = self.run_muster(*arguments, "--redirects=1:2", "--tee=0:1", *script)
        self.assertEqual(sorted(out.splitlines()), ["[default0]:out 0", "out 1"])
        self.assertIn("err 0\n", err)
        self.assertNotIn("err 1", err)

    def test_earlier_attempts_are_kept(self):
        self.run_muster(
            "--standalone", "--log-dir=logs", "--redirects=3", "--max-restarts=1", "--", "sh", "-c",
            "echo $TORCHELASTIC_RESTART_COUNT; exit 5", code=5,
        )
        texts = {path.split("/")[1]: text for path, text in self.files().items() if path.endswith("stdout.log")}
        self.assertEqual(texts, {"attempt_0": "0\n", "attempt_1": "1\n"})

    def test_the_report_reads_a_redirected_stderr(self):
        _, err = self.run_muster(
            "--standalone", "--log-dir=logs", "--redirects=3", "--", "sh", "-c", "echo last words >&2; exit 5", code=5
        )
        self.assertIn("last words", err[err.index("Root Cause") :])

    def test_no_folder_without_being_asked(self):
        self.run_muster("--standalone", "--", "true", env={"TMPDIR": str(self.folder)})
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_folder_that_this_machine_lacks(self):
        """TMPDIR of a login node: neither an error nor a folder that is made."""
        lacking = self.folder / "scratch" / "job"
        out, err = self.run_muster("--standalone", "--tee=3", "--", "echo", "here", env={"TMPDIR": str(lacking)})
        self.assertIn("here", out)
        self.assertEqual(err.count(f"TMPDIR={lacking} cannot be used"), 1, err)
        (run,) = re.findall(r"log directory: (\S+)", err)
        self.assertFalse(run.startswith(str(self.folder)), run)
        self.assertFalse(lacking.parent.exists())
        shutil.rmtree(pathlib.Path(run).parent)

    def test_lines_are_whole(self):
        path = self.script(
            "lines.py",
            "import os, sys\n"
            "for i in range(2000):\n"
            "    sys.stdout.write(os.environ['RANK'] * 50)\n"
            "    sys.stdout.flush()\n"
            "    sys.stdout.write(os.environ['RANK'] * 49 + '\\n')\n",
        )
        out, _ = self.run_muster("--standalone", "--nproc-per-node=4", path)
        lines = out.splitlines()
        self.assertEqual({line for line in lines if len(set(line)) != 1}, set())
        for rank in "0123":
            self.assertEqual(out.count(rank), 2000 * 99)
        # a worker that gets no processor for 50 ms in the middle of a line has its beginning shown, and the rest apart
        broken = [line for line in lines if len(line) != 99]
        self.assertEqual({len(line) for line in broken} - {49, 50}, set())
        self.assertEqual(len(lines) - len(broken) + len(broken) // 2, 8000)

    def test_a_long_line_without_an_end(self):
        out, err = self.run_muster(
            "--standalone", "--", "python3", "-c", "import sys; sys.stdout.write('x' * 900000); sys.stderr.write('no end')"
        )
        self.assertEqual(out, "x" * 900000)  # less than the agent keeps in memory
        self.assertTrue(err.endswith("no end"))

    def test_a_line_of_64_mb_in_bounded_memory(self):
        process = self.start(
            "--standalone", "--", "sh", "-c", "head -c 67108864 /dev/zero | tr '\\0' y; echo", stdout=subprocess.PIPE
        )
        total, peak = 0, 0
        while True:
            chunk = os.read(process.stdout.fileno(), 1 << 20)
            if not chunk:
                break
            total += len(chunk)
            try:
                with open(f"/proc/{process.pid}/status") as file:
                    match = re.search(r"VmHWM:\s+(\d+) kB", file.read())
                peak = max(peak, int(match.group(1)) if match else 0)
            except OSError:
                pass
        self.finish(process, 0)
        self.assertEqual(total, 67108865)
        if not os.environ.get("MUSTER_SANITIZED"):
            self.assertLess(peak, 16 * 1024)

    def test_progress_without_newlines_is_shown(self):
        process = self.start(
            "--standalone", "--", "python3", "-uc",
            "import sys, time; sys.stdout.write('10%'); sys.stdout.flush(); sys.stdin.read(); time.sleep(1000)",
        )
        self.assertEqual(os.read(process.stdout.fileno(), 100), b"10%")
        process.send_signal(signal.SIGTERM)
        self.finish(process, 143)

    def test_a_stuck_console_does_not_stop_workers(self):
        path = self.script(
            "chatty.py",
            "import os\n"
            "for i in range(100000):\n"
            "    print('%099d' % i)\n"
            "open(os.environ['E2E_FOLDER'] + '/finished', 'w').close()\n",
        )
        process = self.start("--standalone", path)
        wait_until((self.folder / "finished").exists, "the worker ends though nobody reads its 10 MB")
        out, err = self.finish(process, 0)  # reads now
        match = re.search(r"muster: warning: (\d+) lines .* not shown", out)
        late = re.search(r"muster: warning: standard output is stuck: (\d+) bytes of the workers are not shown", err)
        self.assertTrue(match or late or len(out) == 100000 * 100)

    def test_a_console_that_stays_stuck_is_told_of_on_the_other(self):
        process = self.start("--standalone", "--", "sh", "-c", "yes 'a line of the worker' | head -n 100000")
        process.wait(timeout=LIMIT)  # nothing reads standard output, to the very end; it is more than the largest pipe takes
        out, err = process.communicate()
        match = re.search(r"muster: warning: standard output is stuck: (\d+) bytes of the workers are not shown", err)
        self.assertTrue(match, err)
        self.assertGreaterEqual(int(match.group(1)) + len(out), 100000 * 21)

    def test_a_console_that_went_away(self):
        process = self.start("--standalone", "--", "sh", "-c", "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; exit 3")
        process.stdout.close()
        process.stdout = None
        self.finish(process, 3)

    def test_closed_standard_descriptors(self):
        self.run_muster(
            "--standalone", "--", "sh", "-c", "echo nobody hears; exit 6", code=6,
            preexec_fn=lambda: [os.close(fd) for fd in (0, 1, 2)],
        )

    def test_stdout_stays_blocking(self):
        reader, writer = os.pipe()
        process = self.start("--standalone", "--", "echo", "hello", stdout=writer)
        self.finish(process, 0)
        self.assertTrue(os.get_blocking(writer))
        os.close(writer)
        os.close(reader)

    def test_a_terminal_is_the_workers_own(self):
        controller, terminal = os.openpty()
        process = self.start("--standalone", "--", "python3", "-c", "print(open(1, closefd=False).isatty())", stdout=terminal)
        self.finish(process, 0)
        os.close(terminal)
        shown = b""
        while not shown.endswith(b"\n"):  # it is written in parts
            shown += os.read(controller, 100)
        self.assertIn(b"True", shown)
        os.close(controller)


class Filters(AgentTest):
    SAY = ("--", "sh", "-c", "echo out $RANK; echo err $RANK >&2")

    def test_local_ranks_filter_is_for_the_console(self):
        out, err = self.run_muster("--standalone", "--nproc-per-node=3", "--local-ranks-filter=0,2", *self.SAY)
        self.assertEqual(sorted(out.splitlines()), ["out 0", "out 2"])
        self.assertEqual(sorted(line for line in err.splitlines() if line.startswith("err")), ["err 0", "err 2"])
        out, err = self.run_muster(
            "--standalone", "--nproc-per-node=12", "--local-ranks-filter=11", "--log-dir=logs", "--tee=10:3,11:3", *self.SAY
        )
        self.assertEqual(out, "[default11]:out 11\n")
        files = {p.parent.name + "/" + p.name: p.read_text() for p in (self.folder / "logs").rglob("std*.log")}
        self.assertEqual(files, {f"{r}/std{s}.log": f"{s} {r}\n" for r in (10, 11) for s in ("out", "err")})

    def test_the_report_has_the_last_words_of_a_rank_that_is_not_shown(self):
        _, err = self.run_muster(
            "--standalone", "--nproc-per-node=2", "--local-ranks-filter=0", "--", "sh", "-c",
            "[ $RANK = 0 ] && exec sleep 1000; echo unheard >&2; exit 4", code=4,
        )
        self.assertNotIn("unheard", err.splitlines())
        self.assertIn("unheard", err[err.index("Root Cause") :])

    def test_a_bad_filter_is_named(self):
        _, err = self.run_muster("--standalone", "--local-ranks-filter=0;1", "true", code=2)
        self.assertIn("--local-ranks-filter: '0;1' is not a list of local ranks", err)

    def test_duplicate_filters(self):
        path = self.script("say.sh", "echo loss,a $RANK; echo other; echo an Error $RANK; echo an Error of stderr >&2\n")
        self.run_muster(
            "--standalone", "--nproc-per-node=2", "--log-dir=logs", "--tee=3", "--local-ranks-filter=0",
            "--duplicate-stdout-filters=loss,,a,Error", "--duplicate-stderr-filters", "Error", "--", "sh", path,
        )
        (out,) = (self.folder / "logs").glob("*/attempt_0/filtered_stdout.log")
        (err,) = (self.folder / "logs").glob("*/attempt_0/filtered_stderr.log")
        wanted = [f"[default{rank}]:{text} {rank}" for rank in (0, 1) for text in ("an Error", "loss,a")]
        self.assertEqual(sorted(out.read_text().splitlines()), wanted)
        self.assertEqual(sorted(err.read_text().splitlines()), [f"[default{rank}]:an Error of stderr" for rank in (0, 1)])
        _, said = self.run_muster("--standalone", "--duplicate-stdout-filters=x", "true")
        self.assertIn("--duplicate-stdout-filters has no effect", said)


class Prefixes(AgentTest):
    def teed(self, *flags, env=None):
        return self.run_muster("--standalone", "--log-dir=logs", "--tee=1", *flags, "--", "echo", "hello", env=env)[0]

    def test_templates(self):
        self.assertEqual(self.teed(), "[default0]:hello\n")
        self.assertEqual(self.teed(env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[rank${rank}]: "}), "[rank0]: hello\n")
        self.assertEqual(self.teed(env={"PET_LOG_LINE_PREFIX_TEMPLATE": "$local_rank|"}), "0|hello\n")
        self.assertEqual(self.teed("--log-line-prefix-template="), "hello\n")  # raw
        host = socket.gethostname()
        self.assertEqual(
            self.teed("--log-line-prefix-template=${hostname}/${node_rank}/${restart} "), f"{host}/0/0 hello\n"
        )
        self.assertRegex(self.teed("--log-line-prefix-template=${time} "), r"^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z hello\n$")

    def test_several_nodes_say_host_and_rank(self):
        port = free_port()
        nodes = [
            self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1", f"--master-port={port}", "--tee=1",
                       f"--log-dir=logs{rank}", "--", "echo", "hello")
            for rank in (0, 1)
        ]
        for rank, process in enumerate(nodes):
            self.assertEqual(self.finish(process, 0)[0], f"[{socket.gethostname()} default{rank}]: hello\n")


class Formats(AgentTest):
    def test_json(self):
        before = datetime.datetime.now(datetime.timezone.utc)
        out, err = self.run_muster(
            "--standalone", "--nproc-per-node=2", "--log-format=json", "--log-dir=logs", "--", "python3", "-c",
            "import os, sys; print('say \\x07 \"é\" ' + os.environ['RANK']); sys.stdout.buffer.write(b'\\xff\\n');"
            "sys.stdout.write('no end'); sys.stderr.write('x' * 100000); sys.exit(7)", code=7,
        )
        records = [json.loads(line) for line in (out + err).splitlines()]
        for record in records:
            moment = datetime.datetime.fromisoformat(record["time"].replace("Z", "+00:00"))
            self.assertLess(abs(moment - before), datetime.timedelta(minutes=14))  # the same time zone's
            self.assertEqual(record["host"], socket.gethostname())
            keys = ["time", "host", "stream", "rank", "local_rank", "message"] if "stream" in record else ["time", "host", "level", "message"]
            self.assertEqual([key for key in record if key != "partial"], keys)
        text = "\n".join(r["message"] for r in records if r.get("level") == "error")
        first = int(re.search(r"Root Cause.*?rank      : (\d)", text, re.S).group(1))
        wanted = ["say \a \"é\" %d", "\ufffd", "no end"]
        for rank in (0, 1):
            said = [r["message"] for r in records if r.get("rank") == rank and r["stream"] == "stdout"]
            whole = [line % rank if "%" in line else line for line in wanted]
            parts = [r for r in records if r.get("rank") == rank and r["stream"] == "stderr"]
            shouted = "".join(r["message"] for r in parts)
            if rank == first:
                self.assertEqual(said, whole)
                self.assertEqual(shouted, "x" * 100000)
                self.assertEqual([r.get("partial", False) for r in parts], [True] * (len(parts) - 1) + [False])
            else:  # it may have been stopped anywhere
                self.assertEqual(said, whole[: len(said)])
                self.assertEqual(shouted, "x" * len(shouted))
                self.assertLessEqual(len(shouted), 100000)
                self.assertTrue(all(r.get("partial") for r in parts[:-1]))
        self.assertTrue(any(r.get("level") == "error" and "Root Cause" in r["message"] for r in records))
        (log,) = (self.folder / "logs").glob("*/agent.log")
        self.assertTrue(any("Root Cause" in json.loads(line)["message"] for line in log.read_text().splitlines()))

    def test_json_progress(self):
        """A progress bar: its latest state at most once a second, the last one at its newline."""
        script = ("import sys, time\nfor i in range(0, 101, 4):\n    sys.stderr.write(f'\\r{i}%'); sys.stderr.flush(); time.sleep(0.1)\n"
                  "sys.stderr.write('\\n')")
        _, err = self.run_muster("--standalone", "--log-format=json", "--tee=3", "--log-dir=logs", "--", "python3", "-c", script)
        records = [json.loads(line) for line in err.splitlines() if '"rank"' in line]
        shown = [record["message"] for record in records]
        for message in shown:
            self.assertRegex(message, r"^\d+%$")
        self.assertTrue(3 <= len(shown) <= 5, shown)  # 2.6 s
        self.assertEqual(shown[-1], "100%")
        self.assertEqual([record for record in records if "partial" in record], [])

    def test_timed(self):
        _, err = self.run_muster("--standalone", "--log-format=timed", "--log-dir=logs", "--", "sh", "-c", "exit 3", code=3)
        self.assertRegex(err, r"(?m)^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z muster: log directory: ")
        self.assertRegex(err, r"(?m)^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z muster: error: failed \(exitcode: 3\)")
        (log,) = (self.folder / "logs").glob("*/agent.log")
        self.assertRegex(log.read_text(), r"(?m)^\d{4}.*Z muster: error: failed \(exitcode: 3\)")


class Files(AgentTest):
    def test_rotation(self):
        for flag in ("--tee=1", "--redirects=1"):
            with self.subTest(flag):
                folder = f"logs{flag[2]}"
                out, _ = self.run_muster(
                    "--standalone", f"--log-dir={folder}", flag, "--log-max-size=10k", "--log-keep=3", "--", "python3", "-c",
                    "for i in range(1000): print('%099d' % i)",
                )
                self.assertEqual(len(out), 1000 * 111 if flag == "--tee=1" else 0)
                files = sorted((self.folder / folder).glob("*/attempt_0/0/stdout.log*"))
                self.assertEqual([f.name for f in files], ["stdout.log", "stdout.log.1", "stdout.log.2", "stdout.log.3"])
                text = "".join(f.read_text() for f in reversed(files))
                self.assertEqual([int(line) for line in text.splitlines()], list(range(1000 - len(text) // 100, 1000)))
                for file in files:
                    self.assertLessEqual(file.stat().st_size, 10240)
                    self.assertEqual(file.read_bytes()[-1:], b"\n")
                self.assertEqual({f.stat().st_size for f in files[1:]}, {10200})

    def test_a_log_directory_that_is_a_file(self):
        (self.folder / "logs").write_text("in the way")
        _, err = self.run_muster("--standalone", "--log-dir=logs", "--tee=3", "true", code=1)
        self.assertIn("--log-dir: ", err)
        self.assertIn("logs", err)

    def test_dev_null_is_no_files(self):
        out, err = self.run_muster(
            "--standalone", "--log-dir=/dev/null", "--tee=3", "--redirects=3", "--", "sh", "-c", "echo out; echo err >&2",
            env={"TMPDIR": str(self.folder)},
        )
        self.assertEqual(out, "out\n")
        self.assertIn("err\n", err)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_error_files_have_whole_paths(self):
        out, _ = self.run_muster("--standalone", "--log-dir=logs", "--", "sh", "-c", "echo $TORCHELASTIC_ERROR_FILE")
        self.assertRegex(out, r"^/.*/logs/[^/]+/attempt_0/0/error\.json\n$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
