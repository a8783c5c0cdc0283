"""The fault matrix as a table: the harm to a job, and its required end. fault_matrix_test.py runs it.

A row is played in this order:

    begin   how the job gets to its phase; the default: all nodes start, and their world trains
    harm    the damage done
    gone    the state while the harm lasts: the size of the world that trains then; STOPPED, no node that can be reached has
            workers; ALONE, the server's own have none; STANDS, nothing changes for longer than it takes to miss a node; None
    back    how the harm is taken back
    again   the world that trains afterwards: its size; SAME (the old one goes on); None: the job ends by itself
    codes   the agents' exit codes: one for all, or by a piece of the log's name ("node1.", * for the rest); None: not asked
    cause   (class, node): the first cause in the failure.json of every agent that was not killed
    `says`    text that an agent must have logged (a regular expression), the cause by name
    restarts  how many the job has used in the end; None: not asked

Values may differ by mode ({"static": .., "elastic": ..}; a mode that is missing there is not played) and may be functions of
the number of nodes. For each mode the row is played with the sizes of the run, from `least` up."""

import dataclasses
import signal
import time
from typing import Any, Callable

from harness import cluster
from harness.job import MUSTER, PORT

STOPPED, ALONE, STANDS, SAME = "stopped", "alone", "stands", "same"
STATIC, ELASTIC = ("static",), ("elastic",)
BOTH = STATIC + ELASTIC
LOST, DONE = 138, 0


def of_agent(number, code):
    """This code for a node's first agent, -1 being the victim, 0 for the others."""
    return lambda n: {f"node{number % n}.agent.1": code, "*": DONE}


def everybody(n):
    return n


def one_less(n):
    return n - 1


def nothing(_):
    return None


def all_start(job):
    job.start_all()
    job.trains(job.count)


def victim_is_missing(job):
    """The world cannot form yet."""
    job.lowest = job.count
    job.start_all(job.members[:-1])
    job.waits(job.members[:-1])


def at_exit_barrier(job):
    all_start(job)
    job.to_exit_barrier()


@dataclasses.dataclass
class Row:
    name: str
    harm: Callable = nothing
    begin: Callable = all_start
    gone: Any = None
    back: Callable = nothing
    again: Any = everybody
    codes: Any = DONE
    cause: tuple = ()
    says: Any = ""
    restarts: Any = None
    flags: tuple = ()
    modes: tuple = BOTH
    least: int = 2
    spares: int = 0  # nodes next to the world's
    lowest: Any = None  # an elastic world's; the default is one less than all
    short: tuple = BOTH  # the modes in which the short run plays it
    needs_torch: bool = False
    sizes: tuple = ()  # the only ones; () stands for the run's


def of_mode(value, mode, count):
    if isinstance(value, dict) and set(value) <= set(BOTH):
        value = value[mode]
    return value(count) if callable(value) else value


# --- harm, and how it is taken back ---


def kill_agent(node_of):
    def kill(job):
        agent = job.agents[node_of(job)]
        agent.signal(signal.SIGKILL)
        agent.wait()  # the next one needs its port

    return kill


def start_agent(node_of):
    def start(job):
        before = job.agents.get(node_of(job))
        if before:
            before.wait()  # as a pod is started again when its program has ended
        job.start(node_of(job))

    return start


def lose_power(node_of):
    return lambda job: node_of(job).kill_pod(silently=True)


def start_pod(node_of, number=None):
    """A fresh pod under the same name, with another address where a number is given, and its agent."""

    def start(job):
        node = node_of(job)
        node.restart(f"10.66.9.{number}" if number else None)
        job.start(node)

    return start


def of(node_of, method, *arguments):
    return lambda job: getattr(node_of(job), method)(*arguments)


def freeze_agent(node_of):
    return lambda job: node_of(job).freeze(job.agents[node_of(job)])


def terminate(node_of):
    return lambda job: job.terminate(node_of(job))


def is_led_on(node_of):
    """Another agent has taken over, and this one knows the new server: nothing leads it there once the job has ended. Of two
    nodes neither takes over."""

    def wait(job):
        if job.elastic and job.count > 2:
            agent = job.agents[node_of(job)]
            job.until(lambda: " serves the job now" in agent.said(), "it is led to the job")

    return wait


def leaves(node_of):
    """Its agent has ended, before anything else happens."""
    return lambda job: job.agents[node_of(job)].wait()


def in_turn(*steps):
    def do(job):
        for step in steps:
            step(job)

    return do


def victim(job):
    return job.victim


def server(job):
    return job.server


def member(job):
    return job.members[1]


def spare(job):
    return job.cluster.nodes[job.count]


def on_all(method, *arguments):
    def do(job):
        for node in job.cluster.nodes:
            getattr(node, method)(*arguments)

    return do


def after_steps(more):
    """Training goes on for so many steps, in whatever world."""

    def do(job):
        since = time.monotonic_ns()

        def taken():
            times = [t for world in job.observer.worlds() if world.steps for t in world.records[0].steps]
            return sum(t > since for t in times) >= more

        job.until(taken, f"{more} more steps")

    return do


def starts_apart(job):
    """One node after another; each is up and waits before the next comes."""
    job.lowest = job.count
    for node in job.members:
        job.start(node)
        if node is not job.victim:
            job.waits([node])
            time.sleep(job.gap)  # part of the fault: how far apart they start


def name_comes_late(job):
    """The server's name does not exist yet when the others ask for it; then each answer takes a second."""
    job.cluster.unpublish("node0")
    job.start_all()
    job.until(lambda: "node0" in job.agents[job.victim].said(), "the name is missed")
    job.cluster.publish("node0", job.server.address, delay=1)


def name_is_wrong(job):
    """It leads nowhere, then to another node, then to the server."""
    job.cluster.publish("node0", "10.66.200.200")
    job.start_all(job.members[1:])
    job.until(lambda: "10.66.200.200" in job.agents[job.victim].said(), "the address does not answer")
    job.cluster.publish("node0", job.victim.address)
    time.sleep(1)
    job.cluster.publish("node0", job.server.address)
    job.start(job.server)


def rank_is_claimed(job):
    """By a node of another name, of the victim's rank. In an elastic world that is a wish, and the claimer is a spare."""
    if job.elastic:
        job.start(spare(job), f"--node-rank={job.count - 1}")
        job.waits([spare(job)], "a spare waits")
    else:
        job.start(spare(job), rank=job.count - 1, log="claimer").wait(job.limit)


def other_job(node_of, rank):
    def do(job):
        node = node_of(job)
        kept = job.agents.get(node)
        job.other = job.start(node, "--rdzv-id=another", rank=rank, log="other")
        if kept:
            job.agents[node] = kept
        job.other.wait(job.limit)

    return do


def torchrun_joins(job):
    """The victim runs torchrun, the others muster."""
    victim_is_missing(job)
    start_torchrun(job, job.victim, f"--node-rank={job.count - 1}")
    job.until(lambda: STRANGE_PEER in job.said(), "torchrun is named")


def terminate_all(job):
    for agent in job.all_agents:
        agent.signal(signal.SIGTERM)


def torchrun_serves(job):
    """Node 0 runs torchrun, the others muster."""
    start_torchrun(job, job.server, "--node-rank=0")
    job.until(lambda: listens(job.server, PORT), "torchrun listens")
    job.start_all(job.members[1:])


def start_torchrun(job, node, *flags):
    world = [f"--nnodes={job.count}", "--nproc-per-node=1", "--no-python"]
    if job.elastic:
        where = ["--rdzv-backend=c10d", f"--rdzv-endpoint=node0:{PORT}", "--rdzv-conf=join_timeout=60"]
    else:
        where = [*flags, "--master-addr=node0", f"--master-port={PORT}"]
    environment = job.environment()
    job.torchrun = node.start(
        job.torch_python, "-m", "torch.distributed.run", *world, *where, *job.program, log="torchrun", **environment
    )


def listens(node, port):
    text = cluster.namespaces.run(*node.pod.command("cat", "/proc/net/tcp", "/proc/net/tcp6"))
    rows = [line.split() for line in text.splitlines()]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def grows_and_shrinks(job):
    """From 2 nodes to 4, and to 3."""
    job.start_all(job.members[2:4])
    job.trains(4)
    job.terminate(job.victim)


def two_start(job):
    job.start_all(job.members[:2])
    job.trains(2)


def spare_waits(job):
    all_start(job)
    job.start(spare(job))
    job.waits([spare(job)], "a spare waits")


def restarting(job):
    """A worker has died twice in a row, and the wait before the second restart runs; the first is at once."""
    all_start(job)
    since = time.monotonic_ns()
    job.victim.kill_worker()
    job.trains(job.count, since)
    job.victim.kill_worker()
    job.waits(job.members)


SLOW_RESTART = ("--restart-backoff=8",)
MANY_RESTARTS = ("--max-restarts=100",)  # a false alarm costs one
NO_RESTART = ("--max-restarts=0",)
SHORT_JOIN = ("--join-timeout=8",)
LONG_CALL = ("--last-call-timeout=60",)  # a server that was started again waits for all who look for it
STRANGE_PEER = "it does not speak muster's protocol: torchrun"
LOST_VICTIM = r"the first cause: node rank \d+ \(node\d+\) is lost"  # whatever followers reported before
LOST_SERVER = r"the first cause: node rank \d+ \(node\d+\) is lost, it served the job in round 0"
OTHER_JOB = {
    "static": 'refused by the server: job id: this agent has "another"',
    "elastic": "the server has this job secret and another job id",
}
CLAIMED = r'is held by agent "node\d+", which is alive; agent "node\d+" claims it too'

# after a loss the others of a static job wait, and an elastic job's go on
ON_LOSS = {"static": STOPPED, "elastic": one_less}



def others(n):
    """Of three nodes or more another one takes over from the server; of two neither does."""
    return n - 1 if n > 2 else STOPPED


# the same where the server is lost
ON_SERVER_LOSS = {"static": STOPPED, "elastic": others}

ROWS = [
    Row("a worker is killed", of(victim, "kill_worker"), restarts=1,
        says=r"the first cause: rank \d+ \(pid \d+ on node\d+\) was killed by signal 9", short=ELASTIC),
    Row("a worker is killed, no restart left", of(victim, "kill_worker"), flags=NO_RESTART, again=None, codes=137,
        cause=("signal", victim), says="SIGKILL", short=STATIC),
    Row("an agent is killed", kill_agent(victim), gone=ON_LOSS, back=start_agent(victim), restarts=1, says=LOST_VICTIM),
    Row("an agent is killed, no restart left", kill_agent(victim), flags=NO_RESTART, again=None, codes=LOST,
        cause=("lost node", victim), says=r"verdict: node rank \d+ \(node\d+\) is lost"),
    Row("a node loses power", lose_power(victim), gone=ON_LOSS, back=start_pod(victim), restarts=1, says=LOST_VICTIM, short=STATIC),
    Row("a pod comes back with another address", lose_power(victim), gone=ON_LOSS, back=start_pod(victim, 9), restarts=1,
        short=ELASTIC),
    Row("a pod is replaced at once", in_turn(of(victim, "kill_pod"), start_pod(victim, 9)), restarts=1, short=STATIC),
    Row("the server's agent is killed while forming", kill_agent(server), begin=victim_is_missing,
        back=in_turn(start_agent(server), start_agent(victim)), restarts=0),
    Row("the server's agent is killed", kill_agent(server), gone=ON_SERVER_LOSS, back=start_agent(server), restarts=1,
        says=LOST_SERVER),
    Row("the server's agent is killed, no restart left", kill_agent(server), flags=NO_RESTART, again=None,
        codes=LOST, modes=STATIC, cause=("lost node", server), says=r"verdict: node rank 0 \(node0\) is lost"),
    Row("the server's agent is killed at the exit barrier", kill_agent(server), begin=at_exit_barrier,
        back=in_turn(start_agent(server), is_led_on(server)), again=None),
    Row("the server's pod comes back with another address", lose_power(server), flags=LONG_CALL, gone=ON_SERVER_LOSS,
        back=start_pod(server, 8), restarts=1, says=LOST_SERVER),
    Row("an agent freezes and thaws", freeze_agent(victim), gone=ON_LOSS, back=of(victim, "thaw"), restarts=1, short=STATIC),
    Row("a node freezes and thaws", of(victim, "freeze"), gone=ON_LOSS, back=of(victim, "thaw"), restarts=1),
    Row("the server's node freezes and thaws", of(server, "freeze"), gone={"static": lambda n: STOPPED if n > 2 else STANDS, "elastic": others},
        back=of(server, "thaw")),
    Row("a node is cut off and healed", of(victim, "cut"), gone=ON_LOSS, back=of(victim, "heal"), restarts=1),
    Row("a node is not heard and is healed", of(victim, "cut", "from"), gone=ON_LOSS, back=of(victim, "heal"), restarts=1,
        short=STATIC),
    Row("the server is cut off and healed", of(server, "cut"), gone={"static": ALONE, "elastic": others}, back=of(server, "heal")),
    Row("a node hears nothing and is healed", of(victim, "cut", "to"), gone=ON_LOSS, back=of(victim, "heal"), restarts=1,
        short=ELASTIC),
    Row("5% loss", on_all("lose", 5), flags=MANY_RESTARTS, back=in_turn(after_steps(100), on_all("heal")), short=ELASTIC),
    Row("200 ms delay", begin=in_turn(on_all("delay", 100), all_start), again=SAME, restarts=0, short=STATIC),
    Row("1 Mbit/s", begin=in_turn(on_all("slow", "1mbit"), all_start), again=SAME, restarts=0, short=ELASTIC),
    Row("nodes start apart", begin=starts_apart, restarts=0, short=ELASTIC),
    Row("the server's name comes late", begin=name_comes_late, restarts=0, short=STATIC),
    Row("the server's name is wrong at first", begin=name_is_wrong, restarts=0, short=ELASTIC),
    Row("two agents claim one rank", rank_is_claimed, spares=1, lowest=everybody, again=SAME, restarts=0,
        codes={"claimer": 1, "*": DONE}, says={"static": CLAIMED, "elastic": ""}),
    Row("another job on the port", other_job(spare, 1), spares=1, again=SAME, restarts=0, codes={"other": 1, "*": DONE},
        says=OTHER_JOB, short=STATIC),
    Row("another server on the port", other_job(server, 0), again=SAME, restarts=0, codes={"other": 1, "*": DONE},
        says={**OTHER_JOB, "static": rf"port {PORT} is in use by pid \d+"}),
    Row("torchrun among the members", terminate_all, begin=torchrun_joins, lowest=everybody, again=None, codes=143,
        says=STRANGE_PEER, needs_torch=True, short=STATIC),
    Row("torchrun on the server's node", begin=torchrun_serves, lowest=everybody, flags=SHORT_JOIN, again=None, codes=LOST,
        says="did not respond within .*torchrun", needs_torch=True, short=ELASTIC),
    Row("a spare takes over", kill_agent(victim), begin=spare_waits, spares=1, lowest=everybody, restarts=1, modes=ELASTIC),
    Row("2 nodes become 4, then 3", grows_and_shrinks, begin=two_start, lowest=lambda _: 2, again=3, restarts=0,
        codes={"node3": 143, "*": DONE}, modes=ELASTIC, sizes=(4,)),
    Row("TERM to a member while forming", terminate(member), begin=victim_is_missing, least=3,
        back=in_turn(start_agent(member), start_agent(victim)), restarts=0, codes=of_agent(1, 143), short=STATIC),
    Row("TERM to the server while forming", terminate(server), begin=victim_is_missing, least=3,
        back=in_turn(start_agent(server), start_agent(victim)), restarts=0, codes=of_agent(0, 143)),
    Row("TERM to a member", terminate(victim), gone={"static": None, "elastic": one_less},
        again={"static": None, "elastic": one_less}, codes={"static": 143, "elastic": of_agent(-1, 143)}),
    Row("TERM to the server", terminate(server), again=None, codes=143, modes=STATIC, short=()),
    Row("TERM to the server, which comes back", terminate(server), gone=others, back=start_agent(server), restarts=0,
        codes=of_agent(0, 143), says="server left: ", modes=ELASTIC),
    Row("TERM to the server, which stays away", terminate(server), flags=SHORT_JOIN, gone=STOPPED, again=None,
        codes={"node0": 143, "*": LOST}, says="left on SIGTERM and did not come back within", modes=ELASTIC, sizes=(2,), short=()),
    Row("TERM to a member while restarting", terminate(victim), begin=restarting, flags=SLOW_RESTART, back=start_agent(victim),
        restarts=2, codes=of_agent(-1, 143), short=STATIC),
    Row("TERM to the server while restarting", terminate(server), begin=restarting, flags=SLOW_RESTART,
        back=start_agent(server), restarts=2, codes=of_agent(0, 143), short=ELASTIC),
    Row("TERM to a member at the exit barrier", terminate(member), begin=at_exit_barrier, back=leaves(member), again=None,
        codes=of_agent(1, 143), least=3, short=STATIC),
    Row("TERM to the last at the exit barrier", terminate(victim), begin=at_exit_barrier, gone=STOPPED, again=None,
        codes={"static": 143, "elastic": of_agent(-1, 143)}),
    Row("TERM to the server at the exit barrier", terminate(server), begin=at_exit_barrier, gone=STOPPED, again=None, codes=143,
        modes=STATIC, short=STATIC),
    Row("TERM to the server at the exit barrier, which comes back", terminate(server), begin=at_exit_barrier, gone=STOPPED,
        back=start_agent(server), again=None, codes=of_agent(0, 143), modes=ELASTIC, sizes=(2,)),
    Row("TERM to the server at the exit barrier, and another takes over", terminate(server), begin=at_exit_barrier, again=None,
        codes=of_agent(0, 143), modes=ELASTIC, least=3),
]
