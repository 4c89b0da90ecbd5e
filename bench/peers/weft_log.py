"""Reads a log in the weft format (docs/weft_format.md) as arrays, where every bag has exactly one id.

Checksums are not verified: Weft does that for the same file. Of the libraries only NumPy is needed.
"""
import struct

import numpy as np

ID_TYPES = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<i8"}


class Log:
    """dense [samples, columns] fp32 with NaN where missing, ids [columns, samples] int64, labels [samples] fp32."""

    def __init__(self, path):
        data = np.memmap(path, np.uint8, "r")
        if bytes(data[:8]) != b"WEFTDATA":
            raise SystemExit(f"weft_log.py: {path} is not in the weft format")
        _, _, dense, categorical, labels, _ = struct.unpack("<6I", data[8:32])
        footer, size, _ = struct.unpack("<3Q", data[-32:-8])
        self.samples, blocks, _ = struct.unpack("<QII", data[footer:footer + 16])
        columns = dense + categorical + labels
        entries = np.frombuffer(data[footer + 16:footer + size].tobytes(), "<u8",
                                blocks * (1 + 3 * columns)).reshape(blocks, -1)
        self.dense = np.empty((self.samples, dense), np.float32)
        self.ids = np.empty((categorical, self.samples), np.int64)
        self.labels = np.empty(self.samples, np.float32)
        begin = 0
        for entry in entries:
            end = begin + int(entry[0])
            for column, offset in enumerate(int(o) for o in entry[1::3]):
                if dense <= column < dense + categorical:
                    self.ids[column - dense, begin:end] = one_id_each(data, offset, end - begin, path)
                    continue
                values = np.frombuffer(data, "<f4", end - begin, offset)
                if column < dense:
                    self.dense[begin:end, column] = values
                elif column == dense + categorical:
                    self.labels[begin:end] = values
            begin = end


def one_id_each(data, offset, samples, path):
    offset_bytes, id_bytes, weighted, _, ids = struct.unpack("<4BI", data[offset:offset + 8])
    if offset_bytes or weighted or ids != samples:
        raise SystemExit(f"weft_log.py: {path} has bags that are not one id without a weight")
    return np.frombuffer(data, ID_TYPES[id_bytes], samples, offset + 8)


def log_transform(dense):
    """`transform: log` of a configuration: 0 for x <= 0 or missing, else ln(1 + x), rounded once from fp64."""
    values = np.nan_to_num(dense.astype(np.float64), nan=0.0)
    return np.log1p(np.maximum(values, 0.0)).astype(np.float32)
