"""Plain PyTorch, one process: an nn.EmbeddingBag with sparse gradients per table.

    train_pytorch.py JOB.json RESULT.json
"""
import sys

import torch
from torch import nn

from common import NE_CHUNK, Clock, DenseModel, evaluate, loss_of, prepare, read_job, report, training_slices


class Dlrm(nn.Module):
    def __init__(self, job):
        super().__init__()
        self.tables = nn.ModuleList(table(rows, job["dim"]) for rows in job["rows"])
        self.dense = DenseModel(job)
        self.register_buffer("offsets", torch.arange(max(job["batch"], NE_CHUNK)))

    def forward(self, dense, ids):
        offsets = self.offsets[:len(dense)]
        vectors = [bag(column, offsets) for bag, column in zip(self.tables, ids)]
        return self.dense(dense, torch.stack(vectors, 1))


def table(rows, dim):
    weights = torch.empty(rows, dim)
    bound = rows ** -0.5
    return nn.EmbeddingBag(rows, dim, mode="sum", sparse=True, _weight=weights.uniform_(-bound, bound))


class RowWiseAdagrad:
    """PyTorch has none for sparse gradients: one statistic per row, the mean of its gradient's squares."""

    def __init__(self, weights, learning_rate, eps):
        self.learning_rate, self.eps = learning_rate, eps
        self.weights = list(weights)
        self.sums = [torch.zeros(len(w)) for w in self.weights]

    @torch.no_grad()
    def step(self):
        for weight, sums in zip(self.weights, self.sums):
            gradient = weight.grad.coalesce()
            rows, values = gradient.indices()[0], gradient.values()
            fresh = sums[rows] + values.square().mean(1)
            sums[rows] = fresh
            weight.index_add_(0, rows, values / (fresh.sqrt() + self.eps).unsqueeze(1), alpha=-self.learning_rate)

    def zero_grad(self):
        for weight in self.weights:
            weight.grad = None


def sparse_optimizer(job, weights):
    of = job["sparse"]
    if of["type"] == "sgd":
        return torch.optim.SGD(weights, lr=of["learning_rate"])
    return RowWiseAdagrad(weights, of["learning_rate"], of["eps"])


def main():
    job = read_job(sys.argv[1])
    prepare(job)
    model = Dlrm(job)
    optimizers = [sparse_optimizer(job, [t.weight for t in model.tables]),
                  torch.optim.SGD(model.dense.parameters(), lr=job["dense_learning_rate"])]
    batches = training_slices(job)
    clock = Clock(job)
    for dense, ids, labels in batches:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(model(dense, ids), labels).backward()
        for optimizer in optimizers:
            optimizer.step()
        clock.step()
    report(sys.argv[2], clock, evaluate(job, lambda dense, ids, _: model(dense, ids)))


if __name__ == "__main__":
    main()
