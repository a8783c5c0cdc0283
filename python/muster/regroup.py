"""Ranks that stay when others are lost, for scripts that make their process groups anew (launcher/docs/regroup.md).

    regroup = muster.Regroup()                # after init_process_group
    while step < steps:
        try:
            train(step)                       # collectives
        except RuntimeError as error:
            regroup.join(error, dist.destroy_process_group)
            dist.init_process_group("gloo")   # with the ranks that replace the lost ones
            step = take_the_state_of_a_survivor()

The script itself gives the state to the new ranks; examples/torch_regroup.py does it for DDP. Only the standard library is used."""

import contextlib
import json
import os
import select
import threading
import time

# what a worker that was started now would have in its environment
VARIABLES = {
    "round": "MUSTER_ROUND",
    "restarts": "TORCHELASTIC_RESTART_COUNT",
    "rank": "RANK",
    "world_size": "WORLD_SIZE",
    "local_rank": "LOCAL_RANK",
    "local_world_size": "LOCAL_WORLD_SIZE",
    "node": "GROUP_RANK",
    "nodes": "GROUP_WORLD_SIZE",
    "master_addr": "MASTER_ADDR",
    "master_port": "MASTER_PORT",
}


class Regroup:
    """Registers this rank with `muster run`: its process stays when other ranks are lost. Outside of `muster run` it does nothing.

    let_go: ends a collective that waits for a lost rank, from another thread (NCCL's abort, say); without it a rank whose collective
    does not end by itself within two seconds is started anew.

    resizes: the script takes another rank, and a world of another size, from `join` too; without it such a world starts it anew."""

    def __init__(self, let_go=None, resizes=False):
        self.fd = int(os.environ.get("MUSTER_NOTICE_FD", -1))
        self.round = int(os.environ.get("MUSTER_ROUND", 0))
        self.let_go, self.rest, self.place = let_go, b"", None
        self.told = self.answered = self.ended = False
        self.changed = threading.Condition()
        if self.fd >= 0:
            self._say(b"regroup\nresize\n" if resizes else b"regroup\n")
            threading.Thread(target=self._watch, name="muster-regroup", daemon=True).start()

    def _say(self, words):
        with contextlib.suppress(OSError):  # the agent has gone: _watch sees it
            os.write(self.fd, words)

    def _watch(self):
        while not self.ended:
            select.select([self.fd], [], [])
            try:
                got = os.read(self.fd, 65536)
            except BlockingIOError:
                continue
            except OSError:
                got = b""
            *lines, self.rest = (self.rest + got).split(b"\n")
            with self.changed:
                self.ended = not got
                for line in map(json.loads, lines):
                    self._take(line)
                self.changed.notify_all()

    def _take(self, line):
        if line["coming"] == "regroup" and line["round"] >= self.round:
            self.told, self.answered, self.place = True, False, None
            if self.let_go:
                self.let_go()
                self._answer()
        elif line["coming"] == "place" and self.told:
            self.place = line

    def _answer(self):
        if self.told and not self.answered:
            self.answered = True
            self._say(b"held\n")

    def join(self, error=None, release=None, patience=5.0):
        """After a collective has failed: waits for the launcher's word, at most `patience` seconds, calls `release`, which drops the old
        process groups, and waits for this rank's place in the next round, which it puts into os.environ and returns. Without word
        `error` is raised, which was another one; without `error` None is returned."""
        deadline = time.monotonic() + patience
        if error is not None and self.fd >= 0 and not self.told:
            self._say(b"lost\n")  # the agent may know no failure: a peer has exited with code 0, say
        with self.changed:
            while not self.told and not self.ended and self.fd >= 0 and time.monotonic() < deadline:
                self.changed.wait(deadline - time.monotonic())
            told = self.told
        if not told:
            if error is not None:
                raise error
            return None
        if release:
            release()
        with self.changed:
            while not self.place and not self.ended:
                self._answer()  # also where the word comes again while this rank waits
                self.changed.wait()
            if not self.place:
                raise ConnectionError("muster run has gone while this rank waited for its place")
            place, self.place, self.told = self.place, None, False
            self.round = place["round"]
        os.environ.update({name: str(place[key]) for key, name in VARIABLES.items()})
        return place
