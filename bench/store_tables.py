"""The tables of a store of rows on a disk (docs/tiers.md), from what store_bench measures: headers and rows, of which
tables.py makes text."""

WAYS = {"io_uring": "segments, io_uring", "threads": "segments, threads", "RocksDB": "RocksDB, threads"}


def thousands(value):
    return f"{value:,.0f}"


def with_quartiles(result):
    return f"{thousands(result['median'])} ({thousands(result['q1'])} to {thousands(result['q3'])})"


def reads(results):
    rows = []
    for rate in results.find("store", "gather"):
        cpu = results.find("store", "gather_cpu", **rate["parameters"])[0]
        rows.append([WAYS[rate["parameters"]["way"]], rate["parameters"]["in_flight"], with_quartiles(rate),
                     with_quartiles(rate["limit"]), f"{100 * rate['share']:.0f} %", f"{cpu['median']:.1f}",
                     f"{cpu['limit']['median']:.1f}"])
    return ["", "in flight, or threads", "rows/s", "the disk's random 4 KiB reads/s", "share", "CPU per row, us",
            "of a read alone, us"], rows


def appends(results):
    rows = []
    for rate in results.find("store", "append"):
        limit = rate.get("limit")
        rows.append([rate["parameters"]["way"], with_quartiles(rate), with_quartiles(limit) if limit else "-",
                     f"{100 * rate['share']:.0f} %" if limit else "-"])
    return ["", "rows/s, sealed and synced; of RocksDB, in one level", "as many bytes written and synced, rows/s",
            "share"], rows


def changes(results):
    rows = []
    for written in results.find("store", "rows_written_per_row_changed"):
        space = results.find("store", "space_of_live_rows", **written["parameters"])[0]
        rows.append([written["parameters"]["factor"], written["parameters"]["law"], f"{written['median']:.2f}",
                     f"{space['median']:.2f}"])
    return ["space factor", "rows that change", "rows written per row changed", "largest space / live rows"], rows


def sizes(results):
    names = {"index_bytes_per_row": "bytes of memory that say where it lies", "disk_bytes_per_row": "bytes on the disk",
             "groups_per_row": "blocks read"}
    return ["of a row", ""], [[text, f"{result['median']:.2f}"] for name, text in names.items()
                              for result in results.find("store", name)]
