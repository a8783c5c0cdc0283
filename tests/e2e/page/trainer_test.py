"""A job's progress at Kubeflow Trainer's status URL (KEP-2779), which a TrainJob's pods find in their environment: what arrives there over
TLS, with which token, from which node; and that a server which refuses or cannot be trusted costs a warning and no more.

    MUSTER_BUILD=build python3 tests/e2e/page/trainer_test.py [TestClass.test_name ...]
"""

import http.server
import json
import pathlib
import re
import ssl
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import AgentTest, free_port, wait_until  # noqa: E402

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/job/status"
# rank 0 reports; it ends when the file `go` is there
WORK = r"""
step=0
while [ ! -e go ]; do
  step=$((step + 1))
  [ "$RANK" != 0 ] || printf '%d\nfigures/1 loss=%d.5 step_ms=20 total_steps=100000 slow_rank=1 slow_ms=3 my.value=42\n' $step $step >&$MUSTER_HEARTBEAT_FD
  sleep 0.02
done
"""


class Trainer(AgentTest):
    def setUp(self):
        super().setUp()
        self.got, self.answer = [], (200, "")
        test = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                test.got.append((self.path, self.headers, json.loads(body)))
                code, text = test.answer
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self.make_certificate("ca")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "ca.pem", self.folder / "ca.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        (self.folder / "token").write_text("the-first-token\n")

    def make_certificate(self, name):
        """For localhost, and its own authority."""
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=trainer",
             "-addext", "subjectAltName=DNS:localhost", "-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.pem"],
            check=True, capture_output=True)

    def place(self, host="localhost", ca="ca.pem"):
        return {"KUBEFLOW_TRAINER_SERVER_URL": f"https://{host}:{self.server.server_port}{PATH}",
                "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.folder / ca), "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.folder / "token")}

    def run_short(self, **place):
        return self.start("--standalone", "--", "sh", self.script("work.sh", WORK), env=place)

    def test_the_serving_node_reports_and_the_end_is_told(self):
        world = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--rdzv-id=job"]
        command = ["--", "sh", self.script("work.sh", WORK)]
        agents = [self.start(f"--node-rank={rank}", *world, *command, env=self.place()) for rank in range(2)]
        wait_until(lambda: self.got, "the first report")
        path, headers, body = self.got[0]
        self.assertEqual((path, headers["Authorization"], headers["Content-Type"]), (PATH, "Bearer the-first-token", "application/json"))
        self.assertEqual(set(body), {"trainerStatus"})
        status = body["trainerStatus"]
        self.assertEqual(status["progressPercentage"], 0)
        self.assertGreater(status["estimatedRemainingSeconds"], 100)  # 100,000 steps of 20 ms and more
        self.assertLess(abs(time.mktime(time.strptime(status["lastUpdatedTime"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone - time.time()), 60)
        metrics = {metric["name"]: metric["value"] for metric in status["metrics"]}
        self.assertEqual({name: metrics[name] for name in ("my.value", "restarts", "total_steps")}, {"my.value": "42", "restarts": "0", "total_steps": "100000"})
        self.assertEqual(float(metrics["loss"]), int(metrics["loss"].split(".")[0]) + 0.5)
        self.assertNotIn("slow_rank", metrics)
        (self.folder / "token").write_text("another-token")  # it rotates
        (self.folder / "go").touch()
        _, said = self.finish(agents[0], 0)
        _, other = self.finish(agents[1], 0)
        _, headers, body = self.got[-1]
        self.assertEqual(headers["Authorization"], "Bearer another-token")
        self.assertEqual((body["trainerStatus"]["progressPercentage"], body["trainerStatus"]["estimatedRemainingSeconds"]), (100, 0))
        self.assertEqual(said.count("the job's progress is reported to Kubeflow Trainer"), 1)
        self.assertNotIn("progress is", other)  # node 1 has sent nothing

    def test_a_server_that_refuses(self):
        self.answer = (403, "token is for another TrainJob\nmore")
        agent = self.run_short(**self.place())
        wait_until(lambda: self.got, "the first report")
        (self.folder / "go").touch()
        _, said = self.finish(agent, 0)
        self.assertEqual(len(re.findall(r"warning: the job's progress is not reported to Kubeflow Trainer: .*/status answered with status 403: "
                                        r"token is for another TrainJob\n", said)), 1, said)

    def test_a_server_that_cannot_be_trusted(self):
        """Its certificate is of another authority, or of another name: nothing is sent there, the token least of all."""
        self.make_certificate("others")
        for place, why in ((self.place(ca="others.pem"), "the certificate of localhost: .*not trusted"),
                           (self.place(host="127.0.0.1"), "the certificate of 127.0.0.1: .*does not match"),
                           (self.place(ca="token"), "token has no certificates")):
            with self.subTest(why):
                (self.folder / "go").unlink(missing_ok=True)
                agent = self.run_short(**place)
                self.wait_said(agent, "progress is not reported")
                (self.folder / "go").touch()
                _, said = self.finish(agent, 0)
                self.assertRegex(agent.said + said, "(?i)warning: the job's progress is not reported to Kubeflow Trainer: .*" + why)
        self.assertEqual(self.got, [])

    def test_a_url_that_is_none(self):
        agent = self.run_short(KUBEFLOW_TRAINER_SERVER_URL="ftp://x")
        (self.folder / "go").touch()
        _, said = self.finish(agent, 0)
        self.assertIn("warning: the job's progress is not reported: ftp://x: not of the form https://HOST[:PORT]/PATH", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
