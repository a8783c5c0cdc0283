#!/usr/bin/env python3
"""Runs ctest for `./dev test`, judges the failures and, at the end, lists the untested cases.

    run_tests.py BUILD [ctest arguments...]

A red test stays red, with one exception. Tests of real processes (e2e, compat, gpu_train, process) can fail without anything wrong
where the machine gives them no processor. So each test has a canary next to it (canary.h), and a few that failed are run once more,
alone, for the diagnosis. Only a test that was starved the first time and passes alone is FLAKY, and its run green: the last
line names it, to be mended. A test that passes alone and was not starved has a race, and the run is red."""

import collections
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

# A test was starved where a process that did nothing but wake and work a little got an eighth of a processor for two seconds, or was
# kept waiting once for half a second (a heartbeat's interval). On an idle machine with two processors ./dev test stays below 6
# and 100 ms.
STARVED_SLOWEST = 8.0
STARVED_MS = 500.0

RERUN_LIMIT = 3  # more that fail at once have one cause, and it is no bad luck
RERUN = re.compile(r"^(e2e|compat|gpu_train)_|^.*_process(_test)?$")
OTHER_TIERS = {"full": "./dev test --full", "soak": "./dev soak"}
ALSO = ("sanitizers: ./dev sanitize", "random input for longer: ./dev fuzz", "mutants of the pure files: ./dev mutate")

Canary = collections.namedtuple("Canary", "seconds cpu probes factor slowest largest_ms")


def read_canary(path):
    """None where there is none, or another program's."""
    try:
        words = path.read_text().split()
        values = {name: float(value) for name, value in zip(words[::2], words[1::2])}
        return Canary(**{name: values[name] for name in Canary._fields})
    except (OSError, ValueError, KeyError):
        return None


# --- what failures are worth (pure) ---


def is_starved(canary):
    return canary is not None and (canary.slowest >= STARVED_SLOWEST or canary.largest_ms >= STARVED_MS)


def worth_a_rerun(failed):
    """The failed tests that are run once more: all or none."""
    few = len(failed) <= RERUN_LIMIT
    return list(failed) if few and all(RERUN.match(name) for name in failed) else []


def describe(canary):
    if canary is None:
        return "nothing is known of the machine during the test"
    return f"the machine at its slowest {canary.slowest:.1f} times slower than idle, longest wait {canary.largest_ms:.0f} ms"


def judge(failed, canaries, passed_alone):
    """Whether the run is green, and a line for each that failed. canaries: {name: Canary or None} of the run that failed;
    passed_alone: the tests that passed when they were run once more."""
    green, lines = True, []
    for name in failed:
        starved, alone = is_starved(canaries.get(name)), name in passed_alone
        if alone and starved:
            verdict = "FLAKY: starved, and passes alone"
        elif alone:
            verdict = "FAILED: passes alone: a race, not starvation"
        else:
            verdict = "FAILED"
        green = green and alone and starved
        lines.append(f"{name}: {verdict} ({describe(canaries.get(name))})")
    return green, lines


def last_line(failed, green):
    """The last line of the run; "" if all passed."""
    if not failed:
        return ""
    names = " ".join(failed)
    return f"FLAKY: starved among other tests, passed alone (the first output is above): {names}" if green else f"FAILED: {names}"


# --- untested cases (pure) ---

REASONS = re.compile(
    r"""\.\.\.\ skipped\ (?P<quote>['"])(?P<unittest>.*)(?P=quote)\s*$ # unittest -v
      | ^skipped:\ (?P<said>.*)$                                       # programs, skip_because
      | ^(?P<row>[^\n]*:\ skipped,\ .*)$                               # rows of a matrix
      """,
    re.X | re.M,
)


def reasons(output):
    """{reason: how many cases} of the skipped cases in a test's output."""
    found = collections.Counter()
    for match in REASONS.finditer(output):
        found[(match["unittest"] or match["said"] or match["row"]).strip()] += 1
    return found


def untested(every, ran, cache):
    """The lines of the list. every: {name: labels} of all tests that this build has; ran: {name: (status, output)}; cache: text of
    CMakeCache.txt."""
    lines, left = [], collections.Counter()
    for name, labels in sorted(every.items()):
        if name not in ran:
            left[next((label for label in labels if label in OTHER_TIERS), "")] += 1
            continue
        status, output = ran[name]
        why = reasons(output)
        if status == "notrun":
            lines.append(f"{name}: {'; '.join(why) or 'it does not say why'}")
        else:
            lines += [f"{name}: {count} case{'s' * (count > 1)}: {reason}" for reason, count in why.items()]
    if left[""]:
        lines.append(f"{left['']} tests that the arguments leave out")
    lines += [f"tier {tier}, {left[tier]} tests: {how}" for tier, how in OTHER_TIERS.items() if left[tier]]
    if not re.search(r"^MUSTER_CUDA:BOOL=(ON|1|TRUE)$", cache, re.M):
        lines.append("GPUs: what was tried of the CUDA back end ran on fakes (tests/gpu); on a GPU: tests/gpu/on_a_gpu.sh")
    return lines + list(ALSO)


# --- the cost (pure) ---

COSTLIEST = 5


def costs(canaries):
    """One line: the processor time of all tests, and the tests that took most of it. canaries: {name: Canary or None}."""
    known = sorted(((canary.cpu, name) for name, canary in canaries.items() if canary), reverse=True)
    most = ", ".join(f"{name} {cpu:.0f}" for cpu, name in known[:COSTLIEST])
    return f"{sum(cpu for cpu, _ in known):.0f} s of a processor in {len(known)} tests; most: {most}" if known else ""


# --- the shell ---


def ctest(build, report, *arguments):
    """The status, and {name: (status, output)} of the tests that ran; status: run, fail, notrun."""
    report.unlink(missing_ok=True)
    status = subprocess.run(
        ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "--output-junit", report,
         "--test-output-size-passed", "4000000", "--test-output-size-failed", "4000000", *arguments]).returncode  # fmt: skip
    ran = {}
    if report.exists():
        for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
            ran[case.get("name")] = (case.get("status"), case.findtext("system-out") or "")
    return status, ran


def failed_of(build):
    path = build / "Testing" / "Temporary" / "LastTestsFailed.log"
    return [line.split(":", 1)[1] for line in path.read_text().splitlines()] if path.exists() else []


def canaries_of(build, names):
    return {name: read_canary(build / "Testing" / "canary" / name) for name in names}


def all_tests(build):
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
    found = {}
    for test in json.loads(shown)["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        found[test["name"]] = properties.get("LABELS", [])
    return found


def say(text):
    print(f"dev: {text}", file=sys.stderr, flush=True)


def main(build, *arguments):
    build = pathlib.Path(build).resolve()
    (build / "Testing" / "Temporary" / "LastTestsFailed.log").unlink(missing_ok=True)  # left by an earlier run
    status, ran = ctest(build, build / "Testing" / "tests.xml", *arguments)
    failed, cost = failed_of(build), costs(canaries_of(build, ran))
    green, lines = status == 0, []
    if status and failed:
        canaries = canaries_of(build, failed)
        again, alone = worth_a_rerun(failed), set()
        if again:
            say(f"failed among other tests, once more alone: {' '.join(again)}")
            _, once_more = ctest(build, build / "Testing" / "alone.xml", "-R", f"^({'|'.join(map(re.escape, again))})$")
            alone = {name for name in again if once_more.get(name, ("", ""))[0] == "run"}
        green, lines = judge(failed, canaries, alone)
    for line in lines:
        say(line)
    if cost:
        say(cost)
    if ran:
        say("not tested here:")
        for line in untested(all_tests(build), ran, (build / "CMakeCache.txt").read_text()):
            print(f"  {line}", file=sys.stderr)
    if last := last_line(failed if status else [], green):
        say(last)
    return 0 if green else status or 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
