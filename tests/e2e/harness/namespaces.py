"""Nodes of their own on one machine: namespaces for network, host name, mounts and processes. Needs root.

Standard library only. Nothing of them has a name outside: they, and every process in them, end with the process that made
them, however it ends: the kernel kills all processes of a process namespace when its first process goes, and that one waits for
the end of a pipe whose other end is ours. `cluster.py` puts them on one network and does harm to them."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import harness

LIMIT = 300  # for any command


def run(*command, given=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, input=given)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def children(pid):
    """For all threads of a process, as they are numbered outside."""
    found = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has just ended
        return found
    for thread in threads:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:  # one may end, and the others go on
            found += map(int, file.read().split())
    return found


def state_of(pid):
    """The kernel's letter; X where there is none any more."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            text = file.read()
    except OSError:
        return "X"
    return text[text.rindex(")") + 2]


class Node:
    """Namespaces with a host name, a private /etc/hosts, /dev/shm and, where resolver is given, a name server of its own; they live as
    long as their holder, and so does every process in them."""

    SET_UP = """
hostname "$1" && mount --bind "$2" /etc/hosts && mount -t tmpfs tmpfs /dev/shm && ip link set lo up || exit 1
if [ -n "$3" ]; then mount --bind "$3" /etc/resolv.conf && mount --bind "$4" /etc/nsswitch.conf || exit 1; fi
trap '' CHLD # inherited by the program below: the dead that it adopts are gone at once
echo ready
exec cat
"""

    def __init__(self, number, folder, name=None, resolver=None):
        harness.be_prompt()
        self.number = number
        self.name = name or f"node{number}"
        self.hosts = folder / f"hosts.{number}"
        self.hosts.write_text("127.0.0.1 localhost\n")
        switch = folder / "nsswitch.conf"  # no resolver of the machine is asked instead
        switch.write_text("hosts: files dns\n")
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc",
             "sh", "-c", self.SET_UP, "sh", self.name, self.hosts, resolver or "", switch],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if self.holder.stdout.readline() != "ready\n":
            raise OSError(self.holder.stderr.read())

    def command(self, *command):
        """The command's start in this node; its process is a child of this one."""
        of_holder = f"/proc/{self.holder.pid}/ns"
        return ["nsenter", "-t", str(self.holder.pid), "--net", "--uts", "--mount", f"--pid={of_holder}/pid_for_children", *command]

    def ip(self, *arguments):
        """In its network alone: a process that is named here (netns PID) is named as outside."""
        run("nsenter", "-t", str(self.holder.pid), "--net", "ip", *arguments)

    def pids(self, entered=()):
        """Its processes, as they are numbered outside; the holder and exited ones are not among them. entered: what command()
        made and still runs, whose child is in this node."""
        first = children(self.holder.pid)  # to which the kernel gives orphans
        found, parents = [], [*first, *entered]
        while parents:  # not every process of the machine, several times a second
            parents = [pid for parent in parents for pid in children(parent)]
            found += parents
        return sorted(pid for pid in found if state_of(pid) not in "ZX")

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()
        for stream in (self.holder.stdout, self.holder.stderr):
            stream.close()


def can_be_made():
    """Whether this machine lets us; where not, why is printed."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    try:
        with tempfile.TemporaryDirectory() as folder:
            node = Node(0, pathlib.Path(folder))
            try:
                node.ip("link", "add", "x0", "type", "veth", "peer", "name", "x1")
            finally:
                node.close()
    except OSError as error:
        print(error)
        return False
    return True
