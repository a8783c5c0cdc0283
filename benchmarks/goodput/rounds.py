"""Pure: the rounds of a log of steps. A launcher that keeps its workers goes on with the next step after a fault, and the log alone does
not show where the round ended."""


def breaks(steps, faults):
    """Indices into steps, rising, at which a round begins.

    steps: [(number, ms)] as they were made; faults: [ms], rising. A round begins where a step does not follow the last one, and with the
    step after the longest pause of each fault. A fault's pause ends after it and before the next fault's."""
    found = {index for index, (number, _) in enumerate(steps) if index == 0 or number != steps[index - 1][0] + 1}
    return sorted(found | {index for index in longest(steps, faults) if index is not None})


def longest(steps, faults):
    """For each fault the index of the step that ends its longest pause; None where no step came before the next fault."""
    found = []
    for at, until in zip(faults, [*faults[1:], None]):
        after = [index for index in range(1, len(steps)) if steps[index][1] > at and (until is None or steps[index][1] <= until)]
        found.append(max(after, key=lambda index: steps[index][1] - steps[index - 1][1], default=None))
    return found


def pauses(steps, faults):
    """ms of each fault's longest pause; None where no step came before the next fault."""
    return [None if index is None else steps[index][1] - steps[index - 1][1] for index in longest(steps, faults)]


def of(steps, faults):
    """[(first step, last step, ms of the first, ms of the last)], as launcher/policy/goodput.h takes them."""
    begin = breaks(steps, faults)
    parts = [steps[a:b] for a, b in zip(begin, [*begin[1:], len(steps)])]
    return [(part[0][0], part[-1][0], part[0][1], part[-1][1]) for part in parts]
