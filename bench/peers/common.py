"""What both peers share: the job, its batches, the dense model, the figures that come back.

A job is the JSON that run_peers.py writes: paths of the logs, sizes, optimizers, ranks, threads, compute.
"""
import contextlib
import json
import math
import os
import time

import numpy as np
import torch
from torch import nn

from weft_log import Log, log_transform

NE_CHUNK = 2048  # samples evaluated at once


def read_job(path):
    with open(path) as file:
        return json.load(file)


def rank_and_world():
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def prepare(job):
    """Threads and seed of this process."""
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])
    np.random.seed(job["seed"])


class Samples:
    """Tensors of a log: dense [n, 13] after its transform, ids [26, n], labels [n]."""

    def __init__(self, path):
        log = Log(path)
        self.count = log.samples
        self.dense = torch.from_numpy(log_transform(log.dense))
        self.ids = torch.from_numpy(log.ids)
        self.labels = torch.from_numpy(log.labels)

    def slice(self, begin, end):
        """dense, ids [26, end - begin] and labels, each in one piece of memory of its own."""
        return (self.dense[begin:end].clone(), self.ids[:, begin:end].contiguous(), self.labels[begin:end].clone())


def training_slices(job):
    """This rank's share of every global batch, all made before the clock starts."""
    rank, world = rank_and_world()
    samples = Samples(job["train"])
    share = job["batch"] // world
    return [samples.slice(step * job["batch"] + rank * share, step * job["batch"] + (rank + 1) * share)
            for step in range(samples.count // job["batch"])]


class DenseModel(nn.Module):
    """Weft's DLRM (docs/models.md) above the tables: dense [B, n], vectors [B, F, D] -> logits [B]."""

    def __init__(self, job):
        super().__init__()
        fields = len(job["rows"]) + 1
        pairs = torch.tril_indices(fields, fields, -1)
        self.register_buffer("pairs", pairs[0] * fields + pairs[1])
        self.bottom = mlp(job["dense_columns"], job["bottom"])
        width = job["bottom"][-1] + len(self.pairs)
        self.top = nn.Sequential(*mlp(width, job["top"]), linear(([width] + job["top"])[-1], 1))
        nn.init.zeros_(self.top[-1].bias)
        self.bf16 = job["compute"] == "bf16"

    def forward(self, dense, vectors):
        with torch.autocast("cpu", torch.bfloat16) if self.bf16 else contextlib.nullcontext():
            x = self.bottom(dense)
            fields = torch.cat([x.unsqueeze(1), vectors.to(x.dtype)], 1)
            dots = torch.bmm(fields, fields.transpose(1, 2)).flatten(1)
            logits = self.top(torch.cat([x, dots.index_select(1, self.pairs)], 1)).squeeze(1)
        return logits.float()


def linear(inputs, outputs):
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, 0.0, math.sqrt(2.0 / (inputs + outputs)))
    nn.init.normal_(layer.bias, 0.0, math.sqrt(1.0 / outputs))
    return layer


def mlp(inputs, widths):
    layers = []
    for width in widths:
        layers += [linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers)


def loss_of(logits, labels):
    return nn.functional.binary_cross_entropy_with_logits(logits, labels)


class Clock:
    """Seconds of the steps after the first `warm` ones."""

    def __init__(self, job):
        self.warm = job["warm"]
        self.batch = job["batch"]
        self.steps = 0
        self.begin = self.end = 0.0

    def step(self):
        self.steps += 1
        self.end = time.perf_counter()
        if self.steps == self.warm:
            self.begin = self.end

    def figures(self):
        return {"steps": self.steps, "timed_samples": (self.steps - self.warm) * self.batch,
                "seconds": self.end - self.begin}


def evaluate(job, logits_of):
    """Sums from which run_peers.py makes the NE: logits_of(dense, ids, labels) without gradients, chunk by chunk."""
    rank, world = rank_and_world()
    samples = Samples(job["eval"])
    entropy, count, positives = 0.0, 0, 0.0
    with torch.no_grad():
        for chunk in range(rank, samples.count // NE_CHUNK // world * world, world):
            part = samples.slice(chunk * NE_CHUNK, (chunk + 1) * NE_CHUNK)
            z, y = logits_of(*part).double(), part[2].double()
            entropy += float(nn.functional.binary_cross_entropy_with_logits(z, y, reduction="sum"))
            count += len(y)
            positives += float(y.sum())
    return {"entropy": entropy, "count": count, "positives": positives}


def report(path, clock, sums):
    with open(path, "w") as file:
        json.dump({**clock.figures(), **sums, "torch": torch.__version__}, file)
