"""Our learning rates against the classes they are named after, step by step over 2,000 steps, with --full over 10,000: PyTorch's own,
and DeepSpeed's own file (deepspeed/runtime/lr_schedules.py, deepspeed_source.py). A value may differ by 1e-9 of the peak: PyTorch forms
each rate from the one before. All lengths are parts of the run's, or a few steps.

Skipped where there is no torch; DeepSpeed's half where its archive could not be fetched (in CI that fails)."""

import logging
import os
import random
import subprocess
import sys
import warnings

import deepspeed_source
import torch_python

torch = torch_python.require()
try:
    import transformers
except ImportError:
    transformers = None

STEPS, PEAK, BOUND = 10_000 if "--full" in sys.argv else 2_000, 3e-3, 1e-9
SHORT = 2_000 if "--full" in sys.argv else 240  # the Trainer's many schedules


def optimizer(rate=PEAK):
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=rate, betas=(0.95, 0.999))


def ours(kind, steps=STEPS, **members):
    members = {"peak": PEAK, "total_steps": steps, **members}
    command = [os.path.join(torch_python.build(), "tests", "schedule_dump"), kind, str(steps), *(f"{k}={v}" for k, v in members.items())]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [tuple(map(float, line.split())) for line in lines]


def theirs(used, scheduler, steps=STEPS):
    """The values that each update uses: the optimizer steps, then the scheduler."""
    found = []
    for _ in range(steps):
        group = used.param_groups[0]
        found.append((float(group["lr"]), float(group["betas"][0])))
        used.step()
        scheduler.step()
    return found


def compare(name, mine, reference, momentum=False):
    assert len(mine) == len(reference) and len(mine) in (STEPS, SHORT), name
    for step, (a, b) in enumerate(zip(mine, reference)):
        if abs(a[0] - b[0]) > BOUND * PEAK or (momentum and abs(a[1] - b[1]) > BOUND):
            sys.exit(f"{name}: step {step}: ours {a}, theirs {b}")
    print(f"{name}: {len(mine)} steps equal within {max(abs(a[0] - b[0]) for a, b in zip(mine, reference)) / PEAK:.1e} of the peak")


def after_warm_up(used, warm, scheduler):
    if not warm:
        return scheduler
    rising = torch.optim.lr_scheduler.LinearLR(used, start_factor=1 / warm, end_factor=1.0, total_iters=max(warm - 1, 1))
    return torch.optim.lr_scheduler.SequentialLR(used, [rising, scheduler], milestones=[warm])


def torch_cases():
    schedules = torch.optim.lr_scheduler
    for warm in (0, 2, STEPS // 20):
        low, length = PEAK / 10, STEPS - 1 - warm
        used = optimizer()
        yield f"cosine, warm-up {warm}", ours("cosine", minimum=low, warmup_steps=warm), theirs(
            used, after_warm_up(used, warm, schedules.CosineAnnealingLR(used, T_max=length, eta_min=low)))
        used = optimizer()
        yield f"linear, warm-up {warm}", ours("linear", minimum=low, warmup_steps=warm), theirs(
            used, after_warm_up(used, warm, schedules.LinearLR(used, start_factor=1.0, end_factor=0.1, total_iters=length)))
        used = optimizer()
        yield f"constant, warm-up {warm}", ours("constant", warmup_steps=warm), theirs(
            used, after_warm_up(used, warm, schedules.ConstantLR(used, factor=1.0)))
    used = optimizer()
    yield "cosine of as many steps as there are", ours("cosine", decay_steps=STEPS), theirs(
        used, schedules.CosineAnnealingLR(used, T_max=STEPS, eta_min=0.0))
    used, last, warm = optimizer(), STEPS // 5, STEPS // 100
    yield "wsd", ours("wsd", minimum=0, warmup_steps=warm, decay_steps=last), theirs(
        used, schedules.LambdaLR(used, lambda t: min((t + 1) / warm, 1.0) * (1 - max(0.0, (t + 1 - (STEPS - last)) / last) ** 0.5)))


def trainer_cases():
    """get_scheduler of transformers, which the Trainer calls, with what lr_scheduler_kwargs may have."""
    shapes = {"linear": 0, "cosine": 1, "1-sqrt": 2}
    for warm in (0, 1, SHORT // 20):
        for name, kind, given, members in (
                ("linear", "hf_linear", {}, {}),
                ("cosine", "hf_cosine", {}, {"cycles": 0.5}),
                ("cosine", "hf_cosine", {"num_cycles": 1.75}, {"cycles": 1.75}),
                ("cosine_with_min_lr", "hf_cosine", {"min_lr": PEAK / 7}, {"cycles": 0.5, "minimum": PEAK / 7}),
                ("cosine_with_min_lr", "hf_cosine", {"min_lr_rate": 0.25}, {"cycles": 0.5, "minimum": PEAK / 4}),
                ("cosine_with_restarts", "hf_cosine_with_restarts", {}, {"cycles": 1}),
                ("cosine_with_restarts", "hf_cosine_with_restarts", {"num_cycles": 3}, {"cycles": 3}),
                ("polynomial", "hf_polynomial", {}, {"power": 1, "minimum": 1e-7}),
                ("polynomial", "hf_polynomial", {"lr_end": PEAK / 9, "power": 2.5}, {"power": 2.5, "minimum": PEAK / 9}),
                ("constant_with_warmup", "hf_constant_with_warmup", {}, {}),
                ("inverse_sqrt", "hf_inverse_sqrt", {}, {}),
                ("inverse_sqrt", "hf_inverse_sqrt", {"timescale": 70}, {"timescale": 70}),
                *(("warmup_stable_decay", "hf_warmup_stable_decay",
                   {"num_decay_steps": SHORT // 4, "warmup_type": up, "decay_type": down, "min_lr_ratio": low},
                   {"decay_steps": SHORT // 4, "warmup_shape": shapes[up], "decay_shape": shapes[down], "minimum": low * PEAK, "cycles": 0.5})
                  for up, down, low in (("linear", "cosine", 0), ("cosine", "1-sqrt", 0.125), ("1-sqrt", "linear", 0.125))),
                ("warmup_stable_decay", "hf_warmup_stable_decay", {"num_decay_steps": 40, "num_stable_steps": SHORT // 3},
                 {"decay_steps": 40, "stable_steps": SHORT // 3, "decay_shape": 1, "cycles": 0.5})):
            used = optimizer()
            scheduler = transformers.get_scheduler(name, used, num_warmup_steps=warm, num_training_steps=SHORT, scheduler_specific_kwargs=given)
            yield f"{name} {given}, warm-up {warm}", ours(kind, SHORT, warmup_steps=warm, **members), theirs(used, scheduler, SHORT)


def plateau_metrics(case, rising):
    """10,000: a noisy fall (or rise) to a floor, again and again, with NaN among it."""
    chance, metrics = random.Random(case), []
    for number in range(10_000):
        value = 3 * 0.97 ** (number % 150) + 0.2 * chance.random() + (chance.random() < 0.01)
        metrics.append(float("nan") if chance.random() < 0.002 else -value if rising else value)
    return metrics


def plateau():
    """The same bits as torch's class after every metric, with a rate that begins anew whenever it has become small."""
    for case in range(24):
        chance = random.Random(case)
        torch_members = {"mode": chance.choice(["min", "max"]), "factor": chance.choice([0.1, 0.5, 0.97, 0.993]), "patience": chance.choice([0, 1, 5, 10]),
                         "threshold": chance.choice([1e-4, 0.02, 0.5]), "threshold_mode": chance.choice(["rel", "abs"]),
                         "cooldown": chance.choice([0, 0, 3, 20]), "min_lr": chance.choice([0, PEAK / 50]), "eps": chance.choice([1e-8, PEAK / 300])}
        metrics, used = plateau_metrics(case, torch_members["mode"] == "max"), optimizer()
        scheduler, reference = torch.optim.lr_scheduler.ReduceLROnPlateau(used, **torch_members), []
        for metric in metrics:
            scheduler.step(metric)
            reference.append(float(used.param_groups[0]["lr"]))
        names = {"min_lr": "minimum", "eps": "least_fall"}
        members = [f"{names.get(k, k)}={v}" for k, v in torch_members.items() if v not in ("min", "rel")]
        command = [os.path.join(torch_python.build(), "tests", "schedule_dump"), "plateau", str(PEAK), *members]
        lines = subprocess.run(command, capture_output=True, text=True, check=True, input="\n".join(map(repr, metrics))).stdout.splitlines()
        mine = [float(line) for line in lines]
        if mine != reference:
            at = next((n for n, pair in enumerate(zip(mine, reference)) if pair[0] != pair[1]), min(len(mine), len(reference)))
            sys.exit(f"ReduceLROnPlateau {torch_members}: metric {at}: ours {mine[at:at + 1]}, torch's {reference[at:at + 1]}")
        if len(set(mine)) < 2:
            sys.exit(f"ReduceLROnPlateau {torch_members}: the rate never fell: nothing was compared")
    print("ReduceLROnPlateau: 24 rules, 10,000 metrics each: every rate is torch's")


def deepspeed_cases(module):
    end, cosine_end = STEPS * 7 // 10, STEPS * 8 // 10
    for warm in (0, 1, 2, STEPS // 10, STEPS):
        for kind in ("log", "linear"):
            start = PEAK / 50
            both = {"warmup_num_steps": max(warm, 1), "warmup_type": kind}  # 0, which "auto" becomes, was 2 as 1 is, and is refused since 0.19
            extra = {"warmup_steps": warm, "warmup_minimum": start, "warmup": "linear"} if kind == "linear" else {
                "warmup_steps": warm, "warmup_minimum": start}
            used = optimizer()
            yield f"WarmupLR {kind} {warm}", ours("WarmupLR", **extra), theirs(used, module.WarmupLR(used, start, PEAK, **both))
            used = optimizer()
            yield f"WarmupDecayLR {kind} {warm}", ours("WarmupDecayLR", **{**extra, "total_steps": end}), theirs(
                used, module.WarmupDecayLR(used, end, start, PEAK, **both))
            used = optimizer()
            yield f"WarmupCosineLR {kind} {warm}", ours("WarmupCosineLR", **{**extra, "total_steps": cosine_end, "minimum": 0.001 * PEAK}), theirs(
                used, module.WarmupCosineLR(used, cosine_end, 0.02, max(warm, 1), 0.001, kind))
    for first, second in ((STEPS // 5, None), (STEPS * 3 // 20, STEPS // 4), (STEPS // 2 - 1, STEPS // 2 + 1), (3, 7)):
        for rate, interval, momentum_rate in ((0, 0, 0), (0.5, STEPS // 100, 0.001)):
            used = optimizer()
            scheduler = module.OneCycle(used, PEAK / 25, PEAK, rate, first, second, decay_step_size=interval, decay_mom_rate=momentum_rate)
            yield f"OneCycle {first} {second} {rate}", ours(
                "OneCycle", minimum=PEAK / 25, warmup_steps=first, decay_steps=second or 0, decay_rate=rate, decay_interval=interval,
                momentum_low=0.8, momentum_high=0.9, momentum_rate=momentum_rate), theirs(used, scheduler), True


def main():
    warnings.simplefilter("ignore")
    plateau()
    for case in torch_cases():
        compare(*case)
    if transformers is None:
        sys.exit("no package transformers: the Trainer's schedules were not compared" if os.environ.get("CI") else 77)
    for case in trainer_cases():
        compare(*case)
    logger = logging.getLogger("deepspeed")
    logger.setLevel(logging.ERROR)
    deepspeed_source.stand_in("deepspeed.utils", logger=logger)
    module = deepspeed_source.load("deepspeed/runtime/lr_schedules.py")
    for case in deepspeed_cases(module):
        compare(*case)


main()
