"""The tables of memory tiers (docs/tiers.md), from what scripts/tiers writes; tables.py puts them there."""
from table_text import table

PARTS = ["exchange_ids", "fetch", "lookup", "output_dist", "coalesce", "grad_dist", "update_rows"]
KERNELS = ["lookup", "coalesce", "update", "distinct rows alone", "ids to slots alone", "fetch", "cached lookup",
           "cached coalesce", "rows to slots", "cached update", "release", "all over dense, fetch in the step",
           "all over dense, fetch ahead"]
SCHEDULES = ["sync", "prefetch"]
SHARED_TABLES = ["user", "item", "query", "session", "tags", "place"]  # of bench/tiers_caches.yaml


def law(zipf):
    if zipf == "production":
        return "856 tables"
    return "uniform" if float(zipf) == 0 else f"Zipf {zipf}"


def variants(results):
    """Every law of ids, schedule and tier that was measured."""
    for zipf in sorted({r["parameters"]["zipf"] for r in results.find("tiers_hits", "step_ms")}):
        for schedule in SCHEDULES:
            for tier in ("dense", "lazy", "ssd"):
                yield zipf, schedule, tier


HITS = ["ids", "schedule", "rows", "step, ms", "of dense", "sparse part, ms", "of dense", "first quartile", "third",
        "misses a step"]


def table_tier_hits(results):
    """Steps and their sparse parts. A ratio is the median of those of every round, not of the medians beside it."""
    rows = []
    for zipf, schedule, tier in variants(results):
        def find(name, variant=f"{tier} {schedule}", zipf=zipf):
            return results.find("tiers_hits", name, variant=variant, zipf=zipf)

        row = [law(zipf), schedule, tier, f"{find('step_ms')[0]['median']:.2f}"]
        against = f"{tier} {schedule}/dense {schedule}"
        step, sparse = find("step_ratio", against), find("sparse_ratio", against)
        row.append(f"{step[0]['median']:.2f}" if step else "-")
        row.append(f"{find('sparse_ms')[0]['median']:.2f}")
        row += [f"{sparse[0][key]:.2f}" if sparse else "-" for key in ("median", "q1", "q3")]
        misses = find("misses")
        rows.append(row + [f"{misses[0]['median']:.0f}" if misses else "-"])
    return table(HITS, rows)


def table_tier_parts(results):
    """Milliseconds of the stages of the sparse part, on whatever stream they run."""
    rows = []
    for zipf, schedule, tier in variants(results):
        found = [results.find("tiers_hits", f"part.{part}", variant=f"{tier} {schedule}", zipf=zipf)[0] for part in PARTS]
        rows.append([law(zipf), schedule, tier] + [f"{one['median']:.2f}" for one in found])
    return table(["ids", "schedule", "rows", *PARTS], rows)


def table_tier_kernels(results):
    """Nanoseconds an id of the kernels, by law of ids and ways of a set."""
    shapes = list(dict.fromkeys((r["parameters"]["ids"], r["parameters"]["ways"])
                                for r in results.find("tiers_cache", "fetch")))
    rows = []
    for name in KERNELS:
        found = [results.find("tiers_cache", name, ids=ids, ways=ways) for ids, ways in shapes]
        rows.append([name] + [f"{one[0]['median']:.{2 if one[0]['unit'] == 'x' else 1}f}" if one else "-"
                              for one in found])
    return table([""] + [f"{ids}, {ways} ways" for ids, ways in shapes], rows if shapes else [])


class Jobs:
    """The jobs of a ladder; each over a cache finds the same one all in memory."""

    def __init__(self, document):
        self.document = document
        self.all = document.get("jobs", [])
        self.cached = [job for job in self.all if job["cache_mib"]]

    def in_memory(self, job):
        return next(one for one in self.all if not one["cache_mib"] and
                    (one["law"], one["schedule"]) == (job["law"], job["schedule"]))

    def read_ms(self, job):
        """What reading the blocks of the job's misses takes at the disk's rate."""
        return 1e3 * self.blocks(job) / job["reads_per_s"]

    @staticmethod
    def blocks(job):
        """Of 4 KiB that a step reads; several rows of one block are read once."""
        return job["read_bytes"] / 4096

    def without(self, job):
        """The same job under sync."""
        return next((one for one in self.cached if one["schedule"] == "sync" and all(
            one[key] == job[key] for key in ("law", "cache_mib", "space_factor", "warm_steps"))), None)


def ladder_line(document):
    """What all jobs of a ladder have in common."""
    jobs = Jobs(document)
    if not jobs.cached:
        return ""
    rates = [job[key] for job in jobs.all for key in ("reads_before", "reads_after")]
    peak = max(job["peak_bytes"] for job in jobs.cached)
    equal = all(job["state_hash"] == jobs.in_memory(job)["state_hash"] for job in jobs.cached
                if job["last_step"] == jobs.in_memory(job)["last_step"])
    compared = sum(job["last_step"] == jobs.in_memory(job)["last_step"] for job in jobs.cached)
    tables = f"{document['tables']} tables" if document["tables"] > 1 else "A table"
    return (f"{tables} of {document['table_bytes'] / 2**20:.0f} MiB with the optimizer's state, a job that may use "
            f"{document['limit_bytes'] / 2**20:.0f} MiB ({document['limit']}), which is "
            f"{document['table_bytes'] / document['limit_bytes']:.1f} times less; the most that one had resident: "
            f"{peak / 2**20:.0f} MiB. {len(jobs.cached)} jobs ended, {compared} of them at the step of one all in memory, "
            f"{'all with its state hash' if equal else 'NOT ALL WITH ITS STATE HASH'}. The disk: "
            f"{min(rates) / 1e3:.0f} to {max(rates) / 1e3:.0f} thousand blocks/s.")


LADDER = ["ids", "cache, MiB", "of the tables", "schedule", "hits", "rows read a step", "blocks", "all in memory, ms",
          "reads at the disk's rate, ms", "reads over memory", "step, ms", "step over the longer"]


def table_tier_ladder(results):
    return steps_table(results.others.get("tiers_ladder", {}))


def table_tier_production(results):
    return steps_table(results.others.get("tiers_production", {}))


def steps_table(document):
    """Steps over the longer of what the same job takes all in memory, and what its reads take at the disk's rate."""
    jobs = Jobs(document)
    rows = []
    for job in jobs.cached:
        memory_ms, read_ms = jobs.in_memory(job)["step_ms"], jobs.read_ms(job)
        rows.append([law(job["law"]), str(job["cache_mib"]) + ("" if job["space_factor"] == 1.5 else ", cleaning"),
                     f"{100 * job['cache_mib'] * 2**20 / document['table_bytes']:.1f} %", job["schedule"],
                     f"{100 * job['hits'] / job['asked']:.1f} %", f"{job['read']:,.0f}", f"{jobs.blocks(job):,.0f}", f"{memory_ms:.1f}",
                     f"{read_ms:.1f}", f"{read_ms / memory_ms:.2f}", f"{job['step_ms']:.1f}",
                     f"{job['step_ms'] / max(memory_ms, read_ms):.2f}"])
    return f"{ladder_line(document)}\n\n{table(LADDER, rows)}" if rows else ""


TRAFFIC = ["ids", "cache, MiB", "schedule", "asked for", "read", "made", "late", "written back", "stored", "moved by cleaning",
           "read, MB", "written, MB", "fetch, ms", "of it exposed", "of sync's"]


def table_tier_traffic(results):
    return traffic_table(results.others.get("tiers_ladder", {}))


def table_tier_production_traffic(results):
    return traffic_table(results.others.get("tiers_production", {}))


def traffic_table(document):
    """Rows a step by what is done with them, and how long their fetch takes and shows."""
    jobs = Jobs(document)
    rows = []
    for job in jobs.cached:
        sync = jobs.without(job)
        written = (job["stored"] + job["moved"]) * document["row_bytes"]
        of_sync = f"{100 * job['exposed_fetch_ms'] / sync['exposed_fetch_ms']:.0f} %" if sync and sync is not job else "-"
        rows.append([law(job["law"]), str(job["cache_mib"]) + ("" if job["space_factor"] == 1.5 else ", cleaning"),
                     job["schedule"]] +
                    [f"{job[key]:,.0f}" for key in ("asked", "read", "made", "late", "written_back", "stored", "moved")] +
                    [f"{job['read_bytes'] / 1e6:.1f}", f"{written / 1e6:.1f}", f"{job['fetch_ms']:.1f}",
                     f"{job['exposed_fetch_ms']:.1f}", of_sync])
    return table(TRAFFIC, rows)


SHARED = ["caches, MiB", "policy", "table", "by bytes, MiB", "hits", "misses", "predicted", "by curves, MiB", "hits",
          "misses", "predicted", "misses, of by bytes"]


def shared_columns(tables):
    """Of some tables of a job together."""
    asked, hits, predicted, size = (sum(one[key] for one in tables) for key in ("asked", "hits", "predicted", "cache_bytes"))
    return asked - hits, [f"{size / 2**20:.1f}", f"{100 * hits / asked:.1f} %", f"{asked - hits:,.0f}", f"{predicted:,.0f}"]


def table_tier_shared(results):
    """Misses of a step where tables share the memory of caches, by how it is divided; by table of the middle size."""
    jobs = results.others.get("tiers_shared_caches", {}).get("jobs", [])
    sizes = sorted({job["cache_mib"] for job in jobs})
    rows = []
    for by_bytes in (job for job in jobs if job["division"] == "bytes"):
        same = {key: by_bytes[key] for key in ("cache_mib", "policy")}
        by_curves = next(job for job in jobs if job["division"] == "curves" and same.items() <= job.items())
        if by_bytes["state_hash"] != by_curves["state_hash"]:
            raise SystemExit(f"tier_tables.py: another state by how caches are divided: {same}")
        names = list(by_bytes["tables"])
        details = names if same == {"cache_mib": sizes[len(sizes) // 2], "policy": "lfu"} else []
        for name, shown in [*((name, [name]) for name in details), ("all", names)]:
            before, columns = shared_columns([by_bytes["tables"][one] for one in shown])
            after, more = shared_columns([by_curves["tables"][one] for one in shown])
            rows.append([str(same["cache_mib"]), same["policy"], name, *columns, *more,
                         f"{after / before:.2f}" if before else "-"])
    return table(SHARED, rows)
