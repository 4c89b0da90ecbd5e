"""Reads checkpoints by the description of their format alone: docs/checkpoint_format.md."""

import json
import struct

SIZES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp64": 8, "split_bf16": 4}


class Matrix:
    """rows: {number: bytes of all columns} of those that are stored."""

    def __init__(self, dtype, rows, cols, listed):
        self.dtype, self.row_count, self.cols, self.listed = dtype, rows, cols, listed
        self.rows = {}

    def put(self, row, col, data):
        whole = self.rows.setdefault(row, bytearray(self.cols * SIZES[self.dtype]))
        begin = col * SIZES[self.dtype]
        whole[begin:begin + len(data)] = data

    def all_bytes(self):
        return b"".join(bytes(self.rows[row]) for row in sorted(self.rows))


def blocks_of(item):
    """(file, offset, rows, (first column, end)) of an item."""
    if "cut" not in item:
        for block in item["blocks"]:
            yield (block["file"], block["offset"],
                   range(block["row_begin"], block["row_end"], block.get("row_step", 1)),
                   (block["col_begin"], block["col_end"]))
        return
    cut = item["cut"]
    begin, end, *step = cut["rows"]
    first, distance, count = cut["files"]
    for i, offset in enumerate(int(text) for text in item["offsets"].split()):
        if count == 1:
            rows = range(begin, end, *step)
        elif cut["by"] == "modulo":
            rows = range(begin + i, end, count)
        else:
            rows = range(begin + (end - begin) * i // count, begin + (end - begin) * (i + 1) // count)
        yield first + i * distance, offset, rows, cut["cols"]


def read_segment(path):
    """[(index of the row's stream, id, bytes)] in the order of the file; no tombstones."""
    data = path.read_bytes()
    assert data[:8] == b"WEFTROWS" and data[-64:-56] == b"WEFTSEAL", path
    streams = struct.unpack_from("<I", data, 12)[0]
    lengths = [struct.unpack_from("<QQ", data, 16 + 16 * s)[1] for s in range(streams)]
    at, _, _, rows, tombstones = struct.unpack_from("<QQQQQ", data, len(data) - 48)
    assert tombstones == 0
    block, out = (16 + 16 * streams + 8 + 4095) // 4096, []
    groups = struct.unpack_from("<Q", data, at)[0]
    at += 8
    for _ in range(groups):
        stream, count, blocks = struct.unpack_from("<IIQ", data, at)
        for i, row in enumerate(struct.unpack_from(f"<{count}Q", data, at + 16)):
            begin = 4096 * block + 16 + i * lengths[stream]
            out.append((stream, row, data[begin:begin + lengths[stream]]))
        at += 16 + 8 * count
        block += blocks
    assert len(out) == rows, path
    return out


def words_of(halves):
    """fp32 of high halves and, behind them, low ones."""
    half = len(halves) // 2
    highs = struct.unpack(f"<{half // 2}H", halves[:half])
    lows = struct.unpack(f"<{half // 2}h", halves[half:])
    return b"".join(struct.pack("<I", ((high << 16) + low) & 0xffffffff)
                    for high, low in zip(highs, lows))


def put_rows(table, stream, matrices, row, packed):
    cols, at = stream["cols"], 0
    for index, item in enumerate(table["items"]):
        begin, end = cols if item["cols"] == table["items"][0]["cols"] else (0, item["cols"])
        size = (end - begin) * SIZES[item["dtype"]]
        data = packed[at:at + size]
        at += size
        if index == 0 and stream["dtype"] == "split_bf16":
            data = words_of(data)
        matrices[table["parameter"], item["kind"]].put(row, begin, data)
    assert at == len(packed)


def read_tables(folder, manifest, matrices):
    """A segment's streams are known by keys, which are hashes; here their order tells them apart, which
    is that of the tables where each rank has a part of each."""
    for table in manifest.get("tables", []):
        for item in table["items"]:
            matrices[table["parameter"], item["kind"]] = Matrix(
                item["dtype"], table["rows"], item["cols"], not table["has_all_rows"])
    for segments in manifest.get("segments", []):
        cuts = manifest["layouts"][segments["layout"]]["cuts"]
        for name in segments["files"]:
            rank, number, _ = (int(text) for text in name.split())
            known = []
            for cut in cuts:
                first, distance, count = cut["ranks"]
                table = manifest["tables"][cut["table"]]
                stream = table["streams"][cut["stream"]]
                held = rank in range(first, first + distance * (count - 1) + 1, distance or 1)
                if held and (table, stream) not in known:
                    known.append((table, stream))
            path = folder.parent / "rows" / f"{segments['prefix']}-{rank}-{number}.rows"
            for stream, row, packed in read_segment(path):
                put_rows(*known[stream - 1], matrices, row, packed)


def stored_matrices(folder):
    """{(parameter, kind): Matrix} of a checkpoint."""
    manifest = json.loads((folder / "manifest.json").read_text())
    files = [(folder / entry["name"]).read_bytes() for entry in manifest["files"]]
    matrices = {}
    for item in manifest["items"]:
        matrix = Matrix(item["dtype"], item["rows"], item["cols"], False)
        for file, offset, rows, (begin, end) in blocks_of(item):
            width = (end - begin) * SIZES[item["dtype"]]
            for row in rows:
                matrix.put(row, begin, files[file][offset:offset + width])
                offset += width
        matrices[item["parameter"], item["kind"]] = matrix
    read_tables(folder, manifest, matrices)
    for matrix in matrices.values():
        matrix.listed = matrix.listed and len(matrix.rows) < matrix.row_count
    return matrices
