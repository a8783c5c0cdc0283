"""How many idle connections the two ports of a job tolerate: that of its rendezvous, and that of its workers' store.

    python3 benchmarks/idle_connections.py --build BUILD_DIR [--connections N,N,...] [--descriptors N] [--secret] [--patience S]
                                    [--store silent|greeted]

Rendezvous: two of three agents wait at their server, N idle connections are held and each is opened again as soon as it is closed, and
the third agent starts. Printed for each N: how long it took from its start to its worker's, whether all agents ended well, idle
connections opened a second, and the serving agent's processor time and memory. The peer is the first row, without idle connections.

With --store: a job of two agents runs, and N connections to its workers' store are held that send nothing, or the greeting of a worker
and then nothing. During that time a member asks the store over a connection that it has, and newcomers connect, greet and ask. Printed
for each N: the median and the longest of both, how many newcomers had to try again or got no answer, and the same as above."""

import argparse
import os
import pathlib
import re
import resource
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from support import results

RUN = results.Run("idle_connections")

SOURCE = pathlib.Path(__file__).resolve().parent.parent
HELD_S = 3  # seconds for which the world continues with the idle connections
ASKING_S = 5  # how long a member and newcomers ask the store
VALIDATE = b"\0" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d" + b"echo"  # answered with the same four bytes
SOURCES = 64  # source addresses of the idle connections: an address has 28,000 ports, which stay used for a while


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--connections", default="0,1000,2000,4000,8000,12000,16000")
    parser.add_argument("--descriptors", type=int, help="limit of the serving agent; without it, this machine's hard limit")
    parser.add_argument("--secret", action="store_true", help="the job has one")
    parser.add_argument("--patience", type=float, default=60, help="seconds that the third agent has, or a newcomer at the store")
    parser.add_argument("--store", choices=("silent", "greeted"), help="measure the workers' store, with connections that send nothing, or only the greeting")
    results.add_argument(parser)
    return parser.parse_args()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def open_idle(port, number):
    peer = socket.socket()
    peer.setblocking(False)
    peer.bind((f"127.1.0.{number % SOURCES + 1}", 0))
    peer.connect_ex(("127.0.0.1", port))
    return peer


def hold(port, count, report, greeting=b""):
    """Until it is killed; writes how many connections were opened, now and then."""
    poll, peers, opened = select.epoll(), {}, 0
    waits = select.EPOLLIN | select.EPOLLRDHUP

    def greeted(peer):
        """At once where it can, since the server may close a connection that is slow at that."""
        try:
            return peer.send(greeting) == len(greeting)
        except BlockingIOError:
            return False

    def come():
        nonlocal opened
        try:
            peer = open_idle(port, opened)
        except OSError:
            return  # no port or descriptor now
        opened += 1
        peers[peer.fileno()] = peer
        try:
            poll.register(peer, waits if greeted(peer) else waits | select.EPOLLOUT)
        except OSError:  # ended already
            peers.pop(peer.fileno()).close()

    while True:
        for _ in range(min(256, count - len(peers))):
            come()
        for fd, events in poll.poll(0.01, 256):
            try:
                if events & select.EPOLLOUT and greeted(peers[fd]):
                    poll.modify(fd, waits)
                    continue
                if peers[fd].recv(100):
                    continue  # the server's greeting
            except OSError:
                pass
            poll.unregister(fd)
            peers.pop(fd).close()
        report.seek(0)
        report.write(f"{opened:20}")
        report.flush()


def start_idle(port, count, scratch, greeting=b""):
    path = pathlib.Path(scratch, "opened")
    path.write_text("0")
    pid = os.fork()
    if pid == 0:
        with path.open("r+") as report:
            try:
                hold(port, count, report, greeting)
            finally:
                os._exit(1)
    return pid, path


def used(pid):
    """(processor seconds, resident MB)"""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[21]) * resource.getpagesize() / 2**20


def wait_for(what, seconds):
    limit = time.monotonic() + seconds
    while not what():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except OSError:
        return False


class Job:
    def __init__(self, build, scratch, secret, descriptors, nodes=3):
        self.scratch, self.descriptors, self.port = pathlib.Path(scratch), descriptors, free_port()
        drop = re.compile(r"PET_|MUSTER_|TORCHELASTIC_|MASTER_|LOGLEVEL|RANK$|WORLD_SIZE$")
        self.environment = {name: value for name, value in os.environ.items() if not drop.match(name)}
        self.environment["OMP_NUM_THREADS"] = "1"
        self.command = [str(build / "bin" / "muster"), "run", f"--nnodes={nodes}", "--master-addr=127.0.0.1", f"--master-port={self.port}"]
        if secret:
            path = self.scratch / "secret"
            path.touch(0o600)
            path.write_bytes(subprocess.run([self.command[0], "secret"], capture_output=True, check=True).stdout)
            self.command.append(f"--secret-file={path}")
        self.log = (self.scratch / "log").open("ab")

    def start(self, rank):
        limit = self.descriptors if rank == 0 else None
        worker = 'echo "$MASTER_PORT" >port; touch "started.$RANK"; while [ ! -e finish ]; do sleep 0.05; done'
        return subprocess.Popen(
            [*self.command, f"--node-rank={rank}", "--", "sh", "-c", worker],
            env={**self.environment, "MUSTER_HOSTNAME": f"node-{rank}"},
            cwd=self.scratch,
            stdout=self.log,
            stderr=self.log,
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))) if limit else None,
        )

    def end(self, agents):
        """Their exit codes."""
        (self.scratch / "finish").touch()
        codes = []
        for agent in agents:
            try:
                codes.append(agent.wait(timeout=30))
            except subprocess.TimeoutExpired:
                agent.kill()
                codes.append(agent.wait())
        return codes


def run_once(options, build, count):
    with tempfile.TemporaryDirectory(prefix="muster-idle-") as scratch:
        job = Job(build, scratch, options.secret, options.descriptors)
        agents = [job.start(0)]
        if not wait_for(lambda: answers(job.port), 20):
            sys.exit("idle_connections.py: the server did not start")
        agents.append(job.start(1))
        attacker, opened = start_idle(job.port, count, scratch)
        time.sleep(2)
        begun, (cpu, _), before = time.monotonic(), used(agents[0].pid), int(opened.read_text())
        agents.append(job.start(2))
        joined = wait_for(lambda: len(list(job.scratch.glob("started.*"))) == 3, options.patience)
        took = time.monotonic() - begun
        time.sleep(HELD_S)
        lasted = time.monotonic() - begun
        rate = (int(opened.read_text()) - before) / lasted
        alive = all(agent.poll() is None for agent in agents)
        (cpu_then, memory) = used(agents[0].pid) if agents[0].poll() is None else (cpu, 0)
        codes = job.end(agents)
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)
        ended = "ended well" if alive and joined and not any(codes) else f"exit codes {codes}"
        joined_after = f"{took:8.2f} s" if joined else "   never  "
        figure = f"a third agent joins, {count:,} silent connections{', with a secret' if options.secret else ''}"
        RUN.add(figure, "s", took if joined else None, note=f"server {memory:.0f} MB")
        print(
            f"{count:10}{joined_after:>14}   {ended:22}{rate:12.0f}/s{(cpu_then - cpu) / lasted * 100:10.0f} %{memory:10.0f} MB",
            flush=True,
        )
        if not joined or any(codes):
            job.log.flush()
            print("".join(f"    {line}\n" for line in (job.scratch / "log").read_text().splitlines()[-4:]), end="")


def ask(peer):
    """Seconds until the store has answered; ConnectionError where it ended the connection, TimeoutError where it does not answer."""
    begun = time.monotonic()
    peer.sendall(PING)
    if peer.recv(4) != b"echo":
        raise ConnectionError
    return time.monotonic() - begun


def come(port, patience):
    """A newcomer that tries again where its connection is ended, as torch's client does: (seconds or None, tries)"""
    begun, tries = time.monotonic(), 0
    while (left := begun + patience - time.monotonic()) > 0:
        tries += 1
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=left) as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.sendall(VALIDATE)
                ask(peer)
                return time.monotonic() - begun, tries
        except ConnectionError:
            continue
        except TimeoutError:
            break
    return None, tries


def ask_for_a_while(member, port, patience):
    """[seconds of the member's calls], [seconds of newcomers that were admitted], newcomers that were not, tries more than one each"""
    calls, arrivals, refused, again, end = [], [], 0, 0, time.monotonic() + ASKING_S
    while time.monotonic() < end:
        calls += [ask(member) for _ in range(10)]
        seconds, tries = come(port, patience)
        again += tries - 1
        if seconds is None:
            refused += 1
        else:
            arrivals.append(seconds)
        calls += [ask(member) for _ in range(10)]
    return calls, arrivals, refused, again


def milliseconds(found):
    return f"{statistics.median(found) * 1e3:8.2f} {max(found) * 1e3:8.1f} ms" if found else f"{'never':>20}"


def run_at_the_store(options, build, count):
    with tempfile.TemporaryDirectory(prefix="muster-idle-") as scratch:
        job = Job(build, scratch, options.secret, options.descriptors, nodes=2)
        agents = [job.start(rank) for rank in range(2)]
        if not wait_for(lambda: len(list(job.scratch.glob("started.*"))) == 2, 60):
            sys.exit("idle_connections.py: the workers did not start")
        port = int((job.scratch / "port").read_text())
        member = socket.create_connection(("127.0.0.1", port), timeout=60)
        member.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        member.sendall(VALIDATE)
        attacker, opened = start_idle(port, count, scratch, VALIDATE if options.store == "greeted" else b"")
        time.sleep(2)
        begun, (cpu, _), before = time.monotonic(), used(agents[0].pid), int(opened.read_text())
        calls, arrivals, refused, again = ask_for_a_while(member, port, options.patience)
        lasted = time.monotonic() - begun
        rate, (cpu_then, memory) = (int(opened.read_text()) - before) / lasted, used(agents[0].pid)
        member.close()
        codes = job.end(agents)
        RUN.add(f"a call to the store, {count:,} {options.store} connections", "ms", [call * 1e3 for call in calls], note=f"{refused} newcomers refused")
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)
        print(
            f"{count:10}  {milliseconds(calls)}  {milliseconds(arrivals)}{again:7}{refused:7}   "
            f"{'ended well' if not any(codes) else f'exit codes {codes}':16}{rate:8.0f}/s{(cpu_then - cpu) / lasted * 100:6.0f} %{memory:7.0f} MB",
            flush=True,
        )


def at_the_store(options, build, descriptors):
    kind = "say nothing" if options.store == "silent" else "greet and then say nothing"
    print(f"idle connections at the port of the workers' store that {kind}; the server may have {descriptors} descriptors")
    print(f"{'idle':>10}{'member: median, most':>22}{'newcomer':>22}{'again':>7}{'never':>7}{'':19}{'they open':>8}{'server':>8}{'memory':>10}")
    for count in map(int, options.connections.split(",")):
        run_at_the_store(options, build, count)


def main():
    options = arguments()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    descriptors = options.descriptors or hard
    if options.store:
        at_the_store(options, pathlib.Path(options.build).resolve(), descriptors)
        RUN.write(options)
        return
    print(f"idle connections at the port of a job of three nodes{' with a secret' if options.secret else ''}; the server may have {descriptors} descriptors")
    print(f"{'idle':>10}{'third joined':>14}   {'':22}{'they open':>14}{'server':>12}{'its memory':>13}")
    for count in map(int, options.connections.split(",")):
        run_once(options, pathlib.Path(options.build).resolve(), count)
    RUN.write(options)


if __name__ == "__main__":
    main()
