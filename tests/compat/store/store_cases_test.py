"""The cases of PyTorch's own store tests that speak to a server from outside, against our TCPStore, with torch's own client.

    MUSTER_BUILD=build python3 tests/compat/store/store_cases_test.py [case ...]

Every case is a list of calls, and each call's result or exception is written down. It runs twice, on the server that this version of
torch starts by default and on ours, and the two records have to be equal: torch's behaviour is expected. Runs with every torch
from 2.1 on; a call that a version has not is written down as missing on both sides."""

import sys

from record import CASES, OurServer, Record, TorchServer, torch
import values, waits, clients, raw  # noqa: E401, F401 - each adds its cases


def run_on(make, body):
    server = make()
    record = Record(server.port)
    try:
        body(record)
    except Exception as error:  # noqa: BLE001
        record.lines.append(f"the case ended with {type(error).__name__}: {error}")
    server.close()
    return record.lines


def show_difference(theirs, ours):
    for index in range(max(len(theirs), len(ours))):
        a = theirs[index] if index < len(theirs) else "(nothing)"
        b = ours[index] if index < len(ours) else "(nothing)"
        if a != b:
            print(f"    call {index}:\n      torch's server: {a:.300}\n      our server:     {b:.300}", flush=True)


def main():
    wanted = sys.argv[1:]
    failed, calls = [], 0
    print(f"torch {torch.__version__}", flush=True)
    chosen = [body for body in CASES if not wanted or body.__name__ in wanted]
    for body in chosen:
        theirs, ours = run_on(TorchServer, body), run_on(OurServer, body)
        calls += len(ours)
        broken = [line for line in theirs + ours if line.startswith("the case ended")]
        if theirs != ours or broken or not ours:
            failed.append(body.__name__)
            print(f"not equal: {body.__name__}", flush=True)
            show_difference(theirs, ours)
            for line in broken:
                print(f"    {line:.300}", flush=True)
        else:
            print(f"equal: {body.__name__} ({len(ours)} calls)", flush=True)
    if TorchServer.factory:
        TorchServer.close_factory()
    print(f"{len(chosen) - len(failed)} cases equal to torch {torch.__version__}'s own server, {len(failed)} not; {calls} calls", flush=True)
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
