"""Figures and tables as text of documents."""
import statistics


def number(value):
    """Three digits, thousands apart."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def spread(result):
    return f"{number(result['median'])} ({number(result['q1'])} to {number(result['q3'])})"


def spread_of_ratios(ratios):
    """The median, and where there are several the least and the most."""
    median = f"{statistics.median(ratios):.2f}"
    return median if len(ratios) == 1 else f"{median} ({min(ratios):.2f} to {max(ratios):.2f})"


def percent(result):
    return f"{100 * result['share']:.0f} %" if "share" in result else "-"


def table(header, rows):
    if not rows:
        return ""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"
