"""weft checkpoint: inspect, verify, diff, reshard and export of what a job has written."""

import json
import struct

from harness import BASE, Case, with_values
from stored_state import SIZES, stored_matrices

# Rows in ranges and in steps, columns; all types of rows. No bag is split, so ranks change no bit.
JOB = with_values(BASE, {
    "train.epochs": 9,
    "train.steps": 12,
    "tables.0.sharding": "row_wise",
    "tables.0.row_split": "modulo",
    "tables.0.dtype": "bf16",
    "tables.1.sharding": "row_wise",
    "tables.1.dtype": "fp16",
    "tables.2.sharding": "column_wise",
})
TYPES = {"fp32": "F32", "fp16": "F16", "bf16": "BF16", "fp64": "F64"}


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}, with nothing but the standard library."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    tensors, end = {}, 0
    for name, tensor in header.items():
        first, last = tensor["data_offsets"]
        assert first == end, f"a gap before {name}"
        end = last
        tensors[name] = (tensor["dtype"], tensor["shape"], data[begin + first:begin + last])
    assert begin + end == len(data), f"{path} has other bytes behind its tensors"
    return tensors


def read_export(folder):
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    tensors = {}
    for name in sorted(set(index["weight_map"].values())):
        for tensor, value in read_safetensors(folder / name).items():
            assert index["weight_map"].pop(tensor) == name
            tensors[tensor] = value
    assert not index["weight_map"], index
    assert index["metadata"]["total_size"] == sum(len(value[2]) for value in tensors.values())
    return tensors


def tensor_name(parameter, kind):
    if kind != "weight":
        return f"{parameter}.{kind}"
    return parameter if parameter.endswith((".weight", ".bias")) else f"{parameter}.weight"


def ids_name(parameter, kind):
    return f"{parameter}.ids" if kind == "weight" else f"{parameter}.{kind}.ids"


class CheckpointTools(Case):
    def setUp(self):
        super().setUp()
        self.config = self.write(JOB)
        self.train(self.config, "--checkpoint", "ck", "--checkpoint-every", 6, ranks=3)

    def tool(self, *args, code=0):
        return self.run_weft("checkpoint", *args, code=code)

    def test_inspect_verify_and_diff(self):
        shown = json.loads(self.tool("inspect", "ck", "--json").out)
        self.assertEqual((shown["step"], shown["ranks"], shown["job"]["save_number"]), (12, 3, 2))
        self.assertEqual(shown["job"]["parent"]["name"], "step-00000006")
        sizes = {(item["parameter"], item["kind"]): item["bytes"] for item in shown["items"]}
        expected = stored_matrices(self.folder / "ck/step-00000012")
        self.assertEqual(sizes, {name: len(value.all_bytes()) for name, value in expected.items()})
        self.assertEqual({item["dtype"] for item in shown["items"]}, {"fp32", "fp16", "bf16"})
        files = list((self.folder / "ck/step-00000012").iterdir())
        files += [self.folder / "ck/rows" / entry["name"] for part in shown["segments"]
                  for entry in part["files"]]
        self.assertEqual(shown["bytes"], sum(path.stat().st_size for path in files))
        chain = "one full set" if len(shown["segments"]) == 1 else "a full set and "
        self.assertIn("chain: " + chain, self.tool("inspect", "ck").out)
        self.assertIn("tables.a weight", self.tool("inspect", "ck/step-00000006").out)

        self.refused(2, "checkpoint", "inspect", "", says="PATH")

        good = self.tool("verify", "ck", "--all").out
        self.assertEqual(good.count(": good: manifest"), 2, good)

        self.assertIn("equal: ", self.tool("diff", "ck", "ck/step-00000012").out)
        self.train(self.config, "--checkpoint", "again", ranks=2)
        same = self.tool("diff", "ck", "again").out
        self.assertIn("no difference by itself: ranks: 3 and 2", same)
        other = self.tool("diff", "ck/step-00000006", "ck", code=1).out
        self.assertIn("metadata step: 6 and 12", other)
        self.assertIn("first difference: ", other)

    def test_diff_names_row_and_column(self):
        before = stored_matrices(self.folder / "ck/step-00000006")
        after = stored_matrices(self.folder / "ck/step-00000012")
        out = self.tool("diff", "ck/step-00000006", "ck", code=1).out
        for (parameter, kind), a in before.items():
            b = after[parameter, kind]
            changed = [row for row in sorted(a.rows.keys() | b.rows.keys())
                       if a.rows.get(row) != b.rows.get(row)]
            line = [line for line in out.splitlines()
                    if line.startswith(f"item {parameter} {kind}: ")]
            self.assertEqual(len(line), 1 if changed else 0, out)
            if not changed:
                continue
            self.assertIn(f"differing rows: {len(changed)} of {len(a.rows.keys() | b.rows.keys())}",
                          line[0])
            only = len(a.rows.keys() - b.rows.keys()), len(b.rows.keys() - a.rows.keys())
            if any(only):
                self.assertIn(f", {only[0]} stored only in A and {only[1]} only in B", line[0])
            both = [row for row in changed if row in a.rows and row in b.rows]
            if both:
                size, row = SIZES[a.dtype], both[0]
                column = next(c for c in range(a.cols) if a.rows[row][c * size:][:size] !=
                              b.rows[row][c * size:][:size])
                bits = [bytes(m.rows[row][column * size:][:size][::-1]).hex() for m in (a, b)]
                self.assertIn(f"; row {row}, column {column}: ", line[0])
                self.assertRegex(line[0], rf"\({bits[0]}\) and .*\({bits[1]}\)$")

    def test_a_job_goes_on_from_a_resharded_one(self):
        more = ["--set", "train.steps=20"]
        whole = self.train(self.config, *more)
        for files in (1, 5):
            out = f"cut-{files}"
            self.tool("reshard", "ck", "--out", out, "--files", files)
            names = sorted(path.name for path in (self.folder / out / "step-00000012").iterdir())
            self.assertEqual(names, [f"file-{k:04}.bin" for k in range(files)] + ["manifest.json"])
            self.tool("verify", out)
            self.assertEqual(len(list((self.folder / out / "rows").iterdir())), files)
            self.assertIn("equal: ", self.tool("diff", "ck", out).out)
            at_12 = [self.train(self.config, "--resume", folder, command="eval")["state_hash"]
                     for folder in ("ck", out)]
            self.assertEqual(at_12[0], at_12[1])
            last = self.train(self.config, *more, "--resume", "auto", "--checkpoint", out,
                              "--checkpoint-keep", 1, ranks=files)
            self.assertEqual(last["steps"], 8)
            self.assert_same_bits(whole, last)
            left = sorted(path.name for path in (self.folder / out).iterdir())
            self.assertEqual(left, ["latest", "rows", "step-00000020"])
        self.refused(2, "checkpoint", "reshard", "ck", "--out", "ck", "--files", 2,
                     says=["'ck' is not empty", "nothing is overwritten"])

    def test_an_export_is_read_back(self):
        expected = stored_matrices(self.folder / "ck/step-00000012")
        for out, args, kinds, files in (("all", [], None, 1),
                                        ("weights", ["--weights-only"], {"weight"}, 1),
                                        ("cut", ["--shard-bytes", 9000], None, None)):
            self.tool("export", "ck", "--out", out, *args)
            tensors = read_export(self.folder / out)
            wanted = {}
            for name, matrix in expected.items():
                if kinds is not None and name[1] not in kinds:
                    continue
                wanted[tensor_name(*name)] = (TYPES[matrix.dtype], [len(matrix.rows), matrix.cols],
                                              matrix.all_bytes())
                if matrix.listed:
                    ids = struct.pack(f"<{len(matrix.rows)}q", *sorted(matrix.rows))
                    wanted[ids_name(*name)] = ("I64", [len(matrix.rows)], ids)
            self.assertEqual(tensors, wanted)
            shards = list((self.folder / out).glob("model-*.safetensors"))
            self.assertTrue(len(shards) == files or files is None and len(shards) > 3, shards)
            self.read_by_the_package(shards, tensors)
        self.assertIn("BF16", {tensor[0] for tensor in tensors.values()})
        self.refused(2, "checkpoint", "export", "ck", "--out", "all", says="not an empty folder")

    def read_by_the_package(self, shards, tensors):
        """The same by the format's own library, where it is installed; it checks headers, too."""
        try:
            from safetensors import deserialize
        except ImportError:
            return
        for path in shards:
            for name, tensor in deserialize(path.read_bytes()):
                self.assertEqual((tensor["dtype"], tensor["shape"], bytes(tensor["data"])),
                                 tensors[name])

    def test_damage_is_named_and_leaves_nothing(self):
        shown = json.loads(self.tool("inspect", "ck", "--json").out)
        name = shown["segments"][-1]["files"][0]["name"]
        paths = [("ck/step-00000012/rank-0000.bin", ["has changed", "at offset ", "rows"], -1),
                 (f"ck/rows/{name}", ["checksum"], 4096 + 20)]
        for damaged, says, place in paths:
            path = self.folder / damaged
            good = path.read_bytes()
            data = bytearray(good)
            data[place] ^= 1
            path.write_bytes(data)
            for args in (["verify", "ck"], ["diff", "ck", "ck/step-00000012"],
                         ["reshard", "ck", "--out", "new", "--files", 2],
                         ["export", "ck", "--out", "new"]):
                self.refused(5, "checkpoint", *args, says=[f"'{damaged}'", *says])
                self.assertFalse((self.folder / "new").exists())
            result = self.tool("verify", "ck", "--all", code=5)
            self.assertIn("ck/step-00000006: good", result.out)
            self.assertIn("ck/step-00000012: DAMAGED", result.out)
            self.assertIn(f"1 of 2 checkpoints in 'ck' is damaged, the first: '{damaged}'", result.err)
            self.tool("inspect", "ck")
            left = {entry.name for entry in self.folder.iterdir() if entry.is_dir()}
            self.assertEqual(left, {"ck"})
            path.write_bytes(good)
