"""Tables of docs/scaling.md, of what bench/scaling_bench.cc counts and predicts."""
from table_text import number, table

PARTS = ("exchange_counts", "exchange_ids", "output_dist", "grad_dist", "exchange_report", "reduce", "update_rows")


def _cases(results, schedule):
    return list(dict.fromkeys((r["parameters"]["tables"], r["parameters"]["ranks"])
                              for r in results.find("scaling", "messages", schedule=schedule)))


def _value(results, name, case, schedule):
    found = results.find("scaling", name, tables=case[0], ranks=case[1], schedule=schedule)
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
            rows.append([*case, schedule, _cell(_value(results, "step", case, schedule)),
                         _cell(_value(results, "start", case, schedule)),
                         _cell(_value(results, "memory", case, schedule), 1e-6),
                         _cell(_control(results, case, schedule), 1e-3)])
    return table(["tables", "ranks", "schedule", "step, ms", "start, ms", "memory, MB", "control, kB"], rows)


def table_growth_bytes(results):
    rows = [[*case, _cell(_control(results, case, "predicted"), 1e-6),
             _cell(_value(results, "plan", case, "predicted"), 1e-6)] for case in _cases(results, "predicted")]
    return table(["tables", "ranks", "control, MB", "plan, MB"], rows)
