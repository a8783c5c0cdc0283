"""Our dynamic loss scale against DeepSpeed's own class, step by step over random sequences of overflows: a hundred thousand, with --full
a million.

The class comes from DeepSpeed's source archive (deepspeed_source.py); its file imports torch. Skipped where either is not there."""

import logging
import os
import random
import struct
import subprocess
import sys

import deepspeed_source
import torch_python

torch_python.require(load=False)
SEQUENCES = 1_000_000 if "--full" in sys.argv else 100_000
SEED = int(os.environ.get("MUSTER_SEED", random.SystemRandom().randrange(1 << 32)))


def their_class():
    class Comm:
        @staticmethod
        def get_rank():
            return 1  # rank 0 logs

    logger = logging.getLogger("deepspeed")
    deepspeed_source.stand_in("deepspeed", comm=Comm)
    deepspeed_source.stand_in("deepspeed.utils", log_dist=lambda *a, **k: None, logger=logger)
    deepspeed_source.stand_in("deepspeed.runtime.config_utils", DeepSpeedConfigObject=object)
    deepspeed_source.stand_in("deepspeed.runtime.utils", has_inf_or_nan=None)
    return deepspeed_source.load("deepspeed/runtime/fp16/loss_scaler.py").DynamicLossScaler


def sequence(draw):
    """(initial, minimum, window, hysteresis, consecutive, overflows): short windows and low scales, so that all of it happens."""
    initial = 2.0 ** draw.randrange(0, 17)
    minimum = draw.choice([1.0, 1.0, 2.0, 0.25, 3.0])
    share = draw.choice([0.02, 0.1, 0.3, 0.6, 0.95])
    return (initial, minimum, draw.choice([1, 2, 3, 4, 7]), draw.choice([1, 2, 2, 3, 5]), draw.random() < 0.3,
            bytes(draw.random() < share for _ in range(draw.randrange(1, 25))))


def theirs(scaler_class, initial, minimum, window, hysteresis, consecutive, overflows):
    scaler = scaler_class(initial, window, minimum, hysteresis, consecutive)
    scales = []
    for overflow in overflows:
        try:
            scaler.update_scale(overflow)
        except Exception as error:
            assert "already at minimum" in str(error), error
            break
        scales.append(scaler.cur_scale)
    return scales + [0.0] * (len(overflows) - len(scales))


def main():
    scaler_class = their_class()
    draw = random.Random(SEED)
    cases = [sequence(draw) for _ in range(SEQUENCES)]
    sent = b"".join(struct.pack("=ddiiii", *case[:5], len(case[5])) + case[5] for case in cases)
    dump = os.path.join(torch_python.build(), "tests", "loss_scale_dump")
    ours = memoryview(subprocess.run([dump], input=sent, capture_output=True, check=True).stdout).cast("d")
    at = steps = ended = 0
    for case in cases:
        wanted = theirs(scaler_class, *case)
        found = ours[at:at + len(wanted)].tolist()
        at += len(wanted)
        if found != wanted:
            sys.exit(f"seed {SEED}: {case}: ours {found}, theirs {wanted}")
        steps += len(wanted)
        ended += wanted[-1] == 0.0
    assert at == len(ours) and 0 < ended < SEQUENCES, (at, len(ours), ended)
    print(f"{SEQUENCES} sequences of {steps} steps equal, {ended} of which end at the minimum; seed {SEED}")


main()
