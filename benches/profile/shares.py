#!/usr/bin/env python3
"""Reads `perf script --fields comm,time,ip,sym` and says who had the processors, as one row of a table.

The round that is looked at is the busiest stretch of WINDOW_S at the end of the run: what comes after it is clean-up.
"""

import sys
from collections import Counter

WINDOW_S = 7
FUNCTIONS = 4
HEAD = (
    "| what | PostgreSQL | Laneway | others | idle | PostgreSQL in the kernel | Laneway in the kernel | PostgreSQL's functions | Laneway's functions |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
IDLE, OURS, POSTGRES = "swapper", ("tokio-rt-worker", "laneway"), ("postgres",)


def samples(lines):
    """Yields (who, seconds, innermost function, whether that is the kernel's)."""
    who, at, inner = None, 0.0, None
    for line in lines:
        line = line.rstrip()
        if not line:
            if who is not None:
                yield who, at, *(inner or ("", False))
            who, inner = None, None
        elif not line[0].isspace() or line.rstrip().endswith(":"):
            name, _, time = line.rstrip(": ").rpartition(" ")
            who, at = name.strip(), float(time)
        elif inner is None:
            address, _, function = line.strip().partition(" ")
            inner = function.strip(), address.startswith("ffff")
    if who is not None:
        yield who, at, *(inner or ("", False))


def side(who):
    if who.startswith(IDLE):
        return "idle"
    if who.startswith(POSTGRES):
        return "postgres"
    return "laneway" if who.startswith(OURS) else "others"


def window(found):
    """The end of the last second that was as busy as the usual one, and WINDOW_S before it."""
    busy = Counter(int(at) for who, at, *_ in found if side(who) in ("postgres", "laneway"))
    usual = sorted(busy.values())[len(busy) // 2]
    end = max(second for second, count in busy.items() if count >= usual * 0.8) + 1
    return end - WINDOW_S, end


def percent(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "–"


def row(name, found):
    first, end = window(found)
    found = [sample for sample in found if first <= sample[1] < end]
    sides = Counter(side(who) for who, *_ in found)
    cells = [percent(sides[each], len(found)) for each in ("postgres", "laneway", "others", "idle")]
    kernel, functions = [], []
    for each in ("postgres", "laneway"):
        mine = [sample for sample in found if side(sample[0]) == each]
        kernel.append(percent(sum(is_kernel for *_, is_kernel in mine), len(mine)))
        inner = Counter(function for _, _, function, _ in mine if function and function != "[unknown]")
        most = inner.most_common(FUNCTIONS)
        functions.append(", ".join(f"`{function}` {percent(count, len(mine))}" for function, count in most))
    return "| " + " | ".join([name, *cells, *kernel, *functions]) + " |"


def main():
    if sys.argv[1:] == ["--head"]:
        print(HEAD)
        return
    found = list(samples(sys.stdin))
    if not found:
        sys.exit("perf has no samples: may this user profile all processors? See kernel.perf_event_paranoid.")
    print(row(sys.argv[1], found), flush=True)


main()
