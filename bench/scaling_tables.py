"""Tables of docs/scaling.md, of what bench/scaling_bench.cc counts and predicts."""
from table_text import number, table

PARTS = ("exchange_counts", "exchange_ids", "output_dist", "grad_dist", "exchange_report", "reduce", "update_rows")


def _cases(results, schedule):
    found = {(r["parameters"]["tables"], r["parameters"]["ranks"])
             for r in results.find("scaling", "messages", schedule=schedule)}
    return sorted(found, key=lambda case: (case[0], int(case[1])))


def _value(results, name, case, schedule, program="scaling", cut=None):
    cuts = {} if cut is None else {"cut": cut}
    found = results.find(program, name, tables=case[0], ranks=case[1], schedule=schedule, **cuts)
    return found[0]["median"] if found else None


def _cell(value, scale=1):
    return "-" if value is None else number(value * scale)


def _messages(results, schedule):
    rows = [[*case] + [_cell(_value(results, f"messages.{part}", case, schedule)) for part in PARTS]
            + [_cell(_value(results, "messages", case, schedule))] for case in _cases(results, schedule)]
    return table(["tables", "ranks", *PARTS, "step"], rows)


def table_growth_sync(results):
    return _messages(results, "sync")


def table_growth_nested(results):
    return _messages(results, "nested")


def table_growth_predicted(results):
    return _messages(results, "predicted")


def _control(results, case, schedule):
    """Bytes of counts and reports, with what relays add."""
    values = [_value(results, f"bytes.{part}", case, schedule) for part in ("exchange_counts", "exchange_report")]
    return None if None in values else sum(values)


def table_growth_measured(results):
    """Processor time, start, memory and control bytes of a rank."""
    rows = []
    for schedule in ("sync", "nested"):
        for case in _cases(results, schedule):
            rows.append([*case, schedule, *_times(results, case, schedule), _cell(_control(results, case, schedule), 1e-3)])
    return table(["tables", "ranks", "schedule", *TIMES, "control, kB"], rows)


TIMES = ("step, ms", "library, ms", "start, ms", "memory, MB", "heap, MB")


def _times(results, case, schedule, program="scaling", cut=None):
    return [_cell(_value(results, name, case, schedule, program, cut), scale) for name, scale in (
        ("step", 1), ("library", 1), ("start", 1), ("memory", 1e-6), ("heap", 1e-6))]


def table_growth_bytes(results):
    rows = [[*case, _cell(_control(results, case, "predicted"), 1e-6),
             _cell(_value(results, "plan", case, "predicted"), 1e-6),
             _cell(_value(results, "manifest", case, "sync"), 1e-6),
             _cell(_value(results, "manifest_most", case, "predicted"), 1e-6)] for case in _cases(results, "predicted")]
    return table(["tables", "ranks", "control, MB", "plan, MB", "manifest, MB", "its formula, MB"], rows)


def _imitated(results, kind):
    """Jobs of which `kind` ranks were measured: set, cut, ranks, schedule."""
    found = {(r["parameters"]["tables"], r["parameters"]["cut"], r["parameters"]["ranks"], r["parameters"]["schedule"])
             for r in results.find("scaling", "messages") if r["parameters"]["schedule"].startswith(kind)}
    return sorted(found, key=lambda job: (job[0], job[1] != "row-wise", job[3].endswith("nested"), int(job[2])))


def table_growth_imitated(results):
    """A host's real ranks among imitated ones; "alone": one of them on a processor of its own."""
    rows = []
    for name, cut, ranks, schedule in _imitated(results, "imitated"):
        case = (name, ranks)
        rows.append([name, cut, ranks, schedule.removeprefix("imitated "),
                     _cell(_value(results, "messages", case, schedule, cut=cut)),
                     _cell(_value(results, "bytes", case, schedule, cut=cut), 1e-6),
                     _cell(_value(results, "alone", case, schedule, cut=cut)),
                     *_times(results, case, schedule, cut=cut)[1:]])
    return table(["tables", "cut", "ranks", "schedule", "messages", "sent, MB", "alone, ms", *TIMES[1:]], rows)


ALONE = ("exchange_counts", "exchange_ids", "lookup", "output_dist", "coalesce", "grad_dist", "update_rows",
         "exchange_report")


def table_growth_alone(results):
    """The parts of a step of a rank on a processor of its own, of the most ranks that were imitated."""
    jobs = _imitated(results, "imitated")
    most = max((int(ranks) for _, _, ranks, _ in jobs), default=0)
    rows = [[name, cut, schedule.removeprefix("imitated "),
             *(_cell(_value(results, f"alone.{part}", (name, ranks), schedule, cut=cut)) for part in ALONE)]
            for name, cut, ranks, schedule in jobs if int(ranks) == most]
    return table(["tables", "cut", "schedule", *ALONE], rows)


def table_growth_agreement(results):
    """The same ranks among imitated peers and among real ones: figures of both."""
    rows = []
    for name, cut, ranks, schedule in _imitated(results, "real"):
        both = [[_value(results, figure, (name, ranks), f"{kind} {schedule.removeprefix('real ')}", cut=cut)
                 for figure in ("messages", "bytes", "library", "memory", "heap")] for kind in ("imitated", "real")]
        scales = (1, 1e-3, 1, 1e-6, 1e-6)
        rows.append([name, cut, ranks, schedule.removeprefix("real "),
                     *(f"{_cell(a, scale)} / {_cell(b, scale)}" for a, b, scale in zip(*both, scales))])
    return table(["tables", "cut", "ranks", "schedule", "messages", "sent, kB", "library, ms", "memory, MB", "heap, MB"],
                 rows)


def table_growth_processes(results):
    """Processes over MPI beside threads."""
    rows = []
    for r in results.find("scaling_mpi", "messages"):
        parameters = r["parameters"]
        case, schedule = (parameters["tables"], parameters["ranks"]), parameters["schedule"]
        counts = [f"{_cell(r_value)} / {_cell(_value(results, name, case, schedule))}" for name in ("messages", "bytes")
                  for r_value in [_value(results, name, case, schedule, "scaling_mpi")]]
        rows.append([*case, schedule, *counts, *_times(results, case, schedule, "scaling_mpi")])
    return table(["tables", "ranks", "schedule", "messages", "bytes", *TIMES], rows)


def table_growth_before(results):
    """An earlier build over MPI beside a later one, "before / now"."""
    document = results.others.get("scaling_before", {"jobs": []})
    figures = (("messages", 1), ("bytes", 1e-3), ("step_ms", 1), ("ends_s", 1), ("resident", 1e-6))
    rows = [[job["tables"], job["schedule"], job["form"], str(job["ranks"]),
             *(f"{number(job['before'][name] * scale)} / {number(job['now'][name] * scale)}" for name, scale in figures)]
            for job in document["jobs"]]
    return table(["tables", "schedule", "collectives", "ranks", "messages", "sent, kB", "step, ms", "start and end, s",
                  "resident set, MB"], rows)


def table_growth_before_files(results):
    """Plans and manifests of both builds, and jobs of ranks as threads, "before / now"."""
    document = results.others.get("scaling_before", {"files": []})
    figures = (("plan", 1e-3), ("manifest", 1e-3), ("seconds", 1))
    rows = [[one["tables"], str(one["ranks"]),
             *(f"{number(one['before'][name] * scale)} / {number(one['now'][name] * scale)}" for name, scale in figures)]
            for one in document["files"]]
    return table(["tables", "ranks", "plan, kB", "manifest, kB", "a job of 3 steps, s"], rows)
