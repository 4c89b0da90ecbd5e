#!/usr/bin/env python3
"""What of bench/peers needs neither torch nor a run: turns, ratios, figures, tables, the reader of logs."""
import importlib.util
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "peers")]
import environment  # noqa: E402
import peer_turns  # noqa: E402
import tables  # noqa: E402

PARTS_MS = dict.fromkeys(peer_turns.PARTS, 2.0)


def turn(system, round_number, rate, ranks=1, threads=2, workload="w", compute="fp32"):
    one = {"workload": workload, "compute": compute, "system": system, "ranks": ranks, "threads": threads,
           "round": round_number, "samples_per_s": rate, "peak_bytes": 3e9, "ne": 0.9 + round_number / 100}
    return {**one, "parts_ms": PARTS_MS} if system == "weft" else one


class Turns(unittest.TestCase):
    def test_every_round_has_every_turn_once(self):
        expected = {(system, *shape) for system, shapes in peer_turns.SYSTEMS.items() for shape in shapes}
        for number in range(2):
            order = peer_turns.turns_of(number, peer_turns.SYSTEMS)
            self.assertEqual((len(order), set(order)), (len(expected), expected))

    def test_rounds_alternate_and_peers_run_beside_weft(self):
        order = peer_turns.turns_of(0, peer_turns.SYSTEMS)
        self.assertEqual(order, peer_turns.turns_of(1, peer_turns.SYSTEMS)[::-1])
        for at, (system, *shape) in enumerate(order):
            if system != "weft":
                self.assertIn(("weft", *shape), order[max(at - 1, 0):at + 2])

    def test_without_the_environment_only_weft_runs(self):
        self.assertEqual({who[0] for who in peer_turns.turns_of(0, {"weft"})}, {"weft"})


class Figures(unittest.TestCase):
    def test_normalised_entropy_of_ranks(self):
        mean = 5 / 20
        base = -(mean * math.log(mean) + (1 - mean) * math.log(1 - mean))
        ranks = [{"entropy": 4.0, "count": 10, "positives": 2.0}, {"entropy": 6.0, "count": 10, "positives": 3.0}]
        self.assertAlmostEqual(peer_turns.normalised_entropy(ranks), 0.5 / base)

    def test_the_slowest_rank_counts(self):
        rank = {"timed_samples": 1000, "entropy": 1.0, "count": 4, "positives": 2.0}
        figures = peer_turns.peer_figures([{**rank, "seconds": 2.0}, {**rank, "seconds": 4.0}])
        self.assertEqual(figures["samples_per_s"], 250)

    def test_weft_without_its_first_window(self):
        def window(step, elapsed, data):
            return {"type": "train", "step": step, "samples": 100 * step, "elapsed_s": elapsed,
                    "seconds": {**dict.fromkeys(peer_turns.PARTS, 0.5), "data": data}}

        figures = peer_turns.weft_figures({"eval": {"ne": 0.9}},
                                          [window(10, 7.0, 99.0), window(20, 8.0, 0.25), window(30, 9.0, 0.75), {"type": "eval"}])
        self.assertEqual((figures["samples_per_s"], figures["ne"]), (1000, 0.9))
        self.assertEqual((figures["parts_ms"]["data"], figures["parts_ms"]["total"]), (50, 50))

    def test_the_sum_of_limits_is_of_the_step(self):
        document = {"results": [{"name": "step", "limit": {"median": 9}}, {"name": "step_ms", "limit": {"median": 7.5}},
                                {"name": "part.load"}]}
        self.assertEqual(peer_turns.sum_of_limits(document), 7.5)

    def test_ratios_are_within_rounds(self):
        turns = [turn("weft", 0, 100), turn("torchrec", 0, 50), turn("weft", 1, 300), turn("torchrec", 1, 100),
                 turn("torchrec", 2, 1), turn("weft", 0, 7, ranks=2, threads=1)]
        self.assertEqual(peer_turns.ratios(turns, "w", "fp32", "torchrec", 1), [2, 3])


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def made(self, turns):
        (self.folder / "peers.json").write_text(json.dumps({
            "version": 1, "program": "peers", "processor": "X 9", "cores": 2, "date": "2026-01-02", "rounds": 3,
            "versions": {"torchrec": "1.8.0", "torch": "2.13", "weft": "0.1"}, "turns": turns}))
        return tables.Results(self.folder)

    def test_rows(self):
        result = self.made([turn(system, n, rate) for n, factor in enumerate((2, 4, 3))
                            for system, rate in (("torchrec", 1000), ("weft", factor * 1000))])
        made = tables.table_peers(result)
        self.assertIn("X 9, 2 cores; 2026-01-02; 3 rounds; Weft 0.1; torchrec 1.8.0, torch 2.13.\n\n| workload |", made)
        self.assertIn("| w | fp32 | 1 rank x 2 threads | Weft | 3,000 | - | 3.00 | 0.9100 (0.9000 to 0.9200) |", made)
        self.assertIn("| w | fp32 | 1 rank x 2 threads | TorchRec | 1,000 | 3.00 (2.00 to 4.00) | 3.00 |", made)
        self.assertEqual(tables.table_peers_parts(result).count("| w |"), 1)
        self.assertIn("| w | fp32 | 1 rank x 2 threads |" + " 2 |" * len(peer_turns.PARTS) + " - | - | - |",
                      tables.table_peers_parts(result))

    def test_what_weft_would_be_at_its_limits(self):
        """Steps of 2 ms with limits of 1, 0.5 and none: 4 and 16 times as fast as a peer, where they are 2 and 4 times."""
        weft = [{**turn("weft", n, factor * 1000), **({"limit_ms": limit} if limit else {})}
                for n, (factor, limit) in enumerate(((2, 1.0), (4, 0.5), (9, None)))]
        result = self.made([*weft, *(turn("torchrec", n, 1000) for n in range(3))])
        self.assertIn(" 0.75 | 3.00 | 10.00 (4.00 to 16.00) |", tables.table_peers_parts(result))

    def test_nothing_without_results(self):
        (self.folder / "q.json").write_text(json.dumps({"program": "quality", "quality": []}))
        result = tables.Results(self.folder)
        self.assertEqual(tables.table_peers(result) + tables.table_peers_parts(result), "")


class Environment(unittest.TestCase):
    def test_what_cannot_be_made_is_said(self):
        with tempfile.NamedTemporaryFile() as file:
            folder = pathlib.Path(file.name) / "venv"  # below a file
            self.assertIsNone(environment.versions(folder))
            self.assertIn("venv", environment.make(folder))

    def test_every_requirement_is_pinned(self):
        for name in ("requirements.txt", "torchrec.txt"):
            lines = [line for line in (environment.HERE / name).read_text().splitlines() if not line.startswith("#")]
            self.assertTrue(lines)
            self.assertEqual([line for line in lines if line.count("==") != 1], [])


@unittest.skipUnless(importlib.util.find_spec("numpy"), "NumPy is not there")
class Log(unittest.TestCase):
    def test_reads_blocks_of_one_id_each(self):
        import weft_log
        column = struct.Struct("<QQQ")
        header = b"WEFTDATA" + struct.pack("<6I", 1, 0, 1, 2, 1, 0)
        data, entries = bytearray(header), b""
        for samples, dense, ids, labels in ((2, (1.5, math.nan), ((7, 300), (1, 2)), (1.0, 0.0)), (1, (3.0,), ((4,), (9,)), (1.0,))):
            entries += struct.pack("<Q", samples)
            floats = [struct.pack(f"<{samples}f", *values) for values in (dense, labels)]
            bags = [struct.pack(f"<4BI{samples}{'H' if kind == 2 else 'B'}", 0, kind, 0, 0, samples, *column_ids)
                    for kind, column_ids in zip((2, 1), ids)]
            for piece in (floats[0], *bags, floats[1]):
                entries += column.pack(len(data), len(piece), 0)
                data += piece + bytes(-len(piece) % 8)
        footer = struct.pack("<QII", 3, 2, 0) + entries
        begin = len(data)
        with tempfile.NamedTemporaryFile() as file:
            file.write(data + footer + struct.pack("<3Q", begin, len(footer), 0) + b"WEFTTAIL")
            file.flush()
            log = weft_log.Log(file.name)
        self.assertEqual((log.samples, log.ids.tolist(), log.labels.tolist()), (3, [[7, 300, 4], [1, 2, 9]], [1, 0, 1]))
        self.assertEqual(weft_log.log_transform(log.dense).ravel().tolist()[1], 0)
        self.assertAlmostEqual(float(weft_log.log_transform(log.dense)[2, 0]), math.log(4), places=6)


@unittest.skipUnless(importlib.util.find_spec("yaml"), "PyYAML is not there")
class Skipped(unittest.TestCase):
    def test_a_broken_download_ends_with_a_word_and_zero(self):
        """run_peers.py where no environment can be made: it does not come to running Weft."""
        code = ("import environment, run_peers; environment.versions = lambda *_: None; "
                "environment.make = lambda *_: 'no network'; run_peers.main()")
        done = subprocess.run([sys.executable, "-c", code, "--weft", "/nowhere"], cwd=ROOT / "bench" / "peers",
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("peers: skipped", done.stdout)
        self.assertIn("no network", done.stdout)


if __name__ == "__main__":
    unittest.main()
