"""Nodes of their own on one machine: network namespaces with a host name and a private /etc/hosts. Needs root.

Standard library only. Nothing of them has a name outside: they end with the process that holds them."""

import os
import pathlib
import shutil
import subprocess
import tempfile

LIMIT = 120  # of any command


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Node:
    """A network namespace with a host name of its own and a private /etc/hosts; it lives as long as its holder."""

    def __init__(self, number, folder):
        self.number = number
        self.hosts = folder / f"hosts.{number}"
        self.hosts.write_text("127.0.0.1 localhost\n")
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "sh", "-c",
             f'hostname node{number} && mount --bind "{self.hosts}" /etc/hosts && echo ready && exec cat'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if self.holder.stdout.readline() != "ready\n":
            raise OSError(self.holder.stderr.read())

    def command(self, *command):
        return ["nsenter", "-t", str(self.holder.pid), "--net", "--uts", "--mount", *command]

    def ip(self, *arguments):
        run(*self.command("ip", *arguments))

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
