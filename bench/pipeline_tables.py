"""The tables of schedules (docs/pipeline.md), from what lab/ladder.py writes of lab/pipeline.yaml and
lab/pipeline_square.yaml. Here are their lines and cells; tables.py makes text of them.

R is what the exchanges alone lose to the links: their step with shaped links less that without. C is a step of compute
alone on links that are not shaped, less what its trace still has exposed there: ids and control travel although vectors,
gradients and dense sums do not. N is the number of micro-batches, however unequal they are.
"""
import json

MOST_BY_TIME = 8  # micro-batches, beyond which what cutting costs is more than what the links do: the trace speaks


def setting(rung, key, default):
    """The value that a rung's options give a key."""
    found = [word.partition("=")[2] for word in rung["options"] if word.startswith(f"{key}=")]
    return found[-1] if found else default


def micro_batches(rung):
    """Their relative sizes, or None where the schedule cuts nothing."""
    if setting(rung, "pipeline.schedule", "sync") not in ("fwp", "nested"):
        return None
    value = json.loads(setting(rung, "pipeline.micro_batches", "1"))
    return value if isinstance(value, list) else [1] * value


def lost_ms(rung):
    return rung["shaped"]["step_ms"] - rung["free"]["step_ms"]


def lost_by_trace_ms(rung):
    """What the trace has exposed on shaped links beyond what it has on others."""
    return rung["shaped"]["exposed_ms"] - rung["free"]["exposed_ms"]


class Links:
    """The rungs of one topology and rate."""

    def __init__(self, document, hosts, rate):
        of_these = [[one for one in document.get(key, []) if (one["hosts"], one["rate_mbit"]) == (hosts, rate)]
                    for key in ("rungs", "floors")]
        self.hosts, self.rate, self.rungs = hosts, rate, of_these[0]
        self.floor = of_these[1][0] if of_these[1] else None
        exchange, compute = self.find("exchange alone"), self.find("compute alone")
        self.r_ms = lost_ms(exchange) if exchange else None
        self.c_ms = compute["free"]["step_ms"] - compute["free"]["exposed_ms"] if compute else None

    def find(self, name):
        return next((rung for rung in self.rungs if rung["rung"] == name), None)

    def line(self):
        """What the rungs have in common, as text."""
        text = f"{self.hosts} host{'s' if self.hosts > 1 else ''}, {self.rate:g} Mbit/s: "
        text += "nothing to exchange" if self.r_ms is None else f"R = {self.r_ms:.0f} ms"
        text += "" if self.c_ms is None else f", C = {self.c_ms:.0f} ms"
        if self.r_ms is not None and self.c_ms is not None:
            text += f", R/C = {self.r_ms / self.c_ms:.2f}"
        if self.floor:
            text += (f"; the floor is {self.floor['floor_ms']:.0f} ms, to which shaping adds "
                     f"{self.floor['lost_ms']:.0f} ms")
        return text + "."

    def of_r(self, ms):
        return percent(ms / self.r_ms) if self.r_ms else "-"

    def above_floor(self, ms):
        """As a share of R. A floor below zero is noise."""
        return percent((ms - max(0, self.floor["floor_ms"])) / self.r_ms) if self.r_ms and self.floor else "-"

    def bound(self, sizes):
        """What stays exposed of R at best: the first vectors, or what is longer than all compute."""
        if sizes is None or not self.r_ms or self.c_ms is None:
            return "-"
        return percent(max(sizes[0] / sum(sizes) / 2, 1 - self.c_ms / self.r_ms))


def percent(share):
    return f"{100 * share:.0f} %"


def all_links(document):
    """Every topology and rate of a file, in its order."""
    return [Links(document, *at) for at in
            dict.fromkeys((rung["hosts"], rung["rate_mbit"]) for rung in document.get("rungs", []))]


SCHEDULES = ["schedule", "step, ms", "links not shaped", "lost to the links", "of R", "above the floor",
             "exposed by the trace, ms", "of R, beyond links not shaped", "1/N", "at best"]


def schedules(document):
    """Per rate a line, the header and rows of its table.

    *lost* is the step with shaped links less that without, *of R* its share of R, *above the floor* the same less
    what overlap_bench loses where both run at once. The trace's own figure is the
    time of a step in which a collective runs and no work does, with shaped links; its share of R is of what that time
    is beyond the one with links that are not shaped, so it compares with *of R*. Above MOST_BY_TIME micro-batches
    the share above the floor is the trace's, and says so."""
    return [(links.line(), SCHEDULES, [schedule_row(links, rung) for rung in links.rungs]) for links in all_links(document)]


def schedule_row(links, rung):
    sizes = micro_batches(rung)
    n = len(sizes) if sizes else None
    lost, traced = lost_ms(rung), lost_by_trace_ms(rung)
    by_trace = n is not None and n > MOST_BY_TIME
    alone = rung["rung"].endswith(" alone")
    above = "-" if alone else f"{links.above_floor(traced)} by the trace" if by_trace else links.above_floor(lost)
    return [rung["rung"], f"{rung['shaped']['step_ms']:.0f}", f"{rung['free']['step_ms']:.0f}", f"{lost:.0f}",
            "-" if by_trace else links.of_r(lost), above, f"{rung['shaped']['exposed_ms']:.0f}", links.of_r(traced),
            "-" if n is None else percent(1 / n), links.bound(sizes)]


SQUARE = ["hosts", "schedule", "T, ms", "C", "exposed by the trace", "C + exposed", "against T", "compute in this run",
          "lost to the links", "closed of what sync loses", "lost of R", "above the floor", "at best"]


def square(document):
    """The lines of all hosts, the header and the rows of one table.

    T is a step with shaped links, and what the trace has exposed is of the same run; C is of another one, of which
    *compute in this run* shows how far it holds: threads that move bytes take processor time from those that compute.
    *closed* is 1 less what the schedule loses to the links over what sync does on the same hosts."""
    found = [links for links in all_links(document) if links.c_ms is not None]
    rows = [square_row(links, rung) for links in found for rung in links.rungs if not rung["rung"].endswith(" alone")]
    return "\n".join(f"- {links.line()}" for links in found), SQUARE, rows


def square_row(links, rung):
    shaped, sync = rung["shaped"], links.find("sync")
    both = links.c_ms + shaped["exposed_ms"]
    row = [str(links.hosts), rung["rung"], f"{shaped['step_ms']:.0f}", f"{links.c_ms:.0f}", f"{shaped['exposed_ms']:.0f}",
           f"{both:.0f}", f"{100 * (both / shaped['step_ms'] - 1):+.1f} %", f"{shaped['compute_ms']:.0f}"]
    if links.r_ms is None:
        return row + ["-"] * 5
    closed = "-" if sync is None or rung is sync else percent(1 - lost_ms(rung) / lost_ms(sync))
    return row + [f"{lost_ms(rung):.0f}", closed, links.of_r(lost_ms(rung)), links.above_floor(lost_ms(rung)),
                  links.bound(micro_batches(rung))]
