"""Two programs on one ladder: does a build lose against an earlier one?

Both run every rung on the same hosts, one after the other, and the order turns with every round, so
that a machine whose speed changes favours neither. A ratio is taken within a round.
"""

import statistics

from config import LabError

STATES = ("shaped", "free")  # of the links


def rounds_of(number):
    """Pairs of turns: True is the program that is asked about, False the one beside it."""
    if number < 1:
        raise LabError(f"--rounds: is {number}; it must be at least 1", code=2)
    return [(True, False) if i % 2 == 0 else (False, True) for i in range(number)]


def compared(rounds):
    """Of pairs of a rung's figures, the program's and the other's, of the same round: the step times, and
    how long the program's step takes of the other's."""
    first = rounds[0][0]
    result = {key: first[key] for key in ("rung", "hosts", "ranks", "rate_mbit")}
    for state in STATES:
        times = [tuple(one[state]["step_ms"] for one in pair) for pair in rounds]
        result[state] = {"step_ms": statistics.median(ours for ours, _ in times),
                         "beside_ms": statistics.median(theirs for _, theirs in times),
                         "ratios": [ours / theirs for ours, theirs in times]}
    return result


def line(result):
    words = [f"{result['hosts']} x {result['ranks']}  {result['rate_mbit']:4g} Mbit/s  {result['rung']:40}"]
    for state in STATES:
        one = result[state]
        words.append(f"{state}: step {one['step_ms']:7.1f} ms, beside {one['beside_ms']:7.1f}, ratio "
                     f"{statistics.median(one['ratios']):.2f} ({min(one['ratios']):.2f} to {max(one['ratios']):.2f})")
    return "; ".join(words)
