"""Figures and tables as text of documents."""


def number(value):
    """Three digits, thousands apart."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def spread(result):
    return f"{number(result['median'])} ({number(result['q1'])} to {number(result['q3'])})"


def percent(result):
    return f"{100 * result['share']:.0f} %" if "share" in result else "-"


def table(header, rows):
    if not rows:
        return ""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"
