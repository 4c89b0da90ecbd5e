#!/usr/bin/env python3
"""Golden runs of DLRM and DCNv2 from PyTorch: 20 steps from given initial values and data.

Writes tests/golden/dense_*.json: the model's shape, initial parameters and tables, every batch,
the loss of every step, the logits of the first, and parameters and tables after the last. Autograd
gives the gradients; the table updates are written out (row-wise Adagrad and SGD on gradients
coalesced per row), since torch.optim has no row-wise Adagrad. Dense updates are torch.optim's.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tools/golden/dense_golden.py

Everything is computed in float64 from float32 inputs and written with 9 digits, so that a test's
tolerance is about its own fp32 alone.
"""
import json
import pathlib

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, relu

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
STEPS = 20
BATCH = 16

CASES = {
    "dense_dlrm_adagrad": dict(
        model="dlrm", dense=4, bottom=[8, 6], top=[10, 7], tables=[(11, 6), (5, 6), (3, 6)],
        dense_optimizer=dict(type="adagrad", learning_rate=0.05, eps=1e-8),
        sparse_optimizer=dict(type="row_wise_adagrad", learning_rate=0.05, eps=1e-8)),
    "dense_dlrm_sgd": dict(
        model="dlrm", dense=3, bottom=[5], top=[9], tables=[(7, 5), (4, 5)],
        dense_optimizer=dict(type="sgd", learning_rate=0.2, weight_decay=0.01, clip_norm=0.3),
        sparse_optimizer=dict(type="sgd", learning_rate=0.2)),
    "dense_dcnv2_adam": dict(
        model="dcnv2", dense=4, bottom=[8, 6], top=[10], tables=[(9, 6), (5, 4), (3, 7)],
        cross_layers=2, cross_rank=3,
        dense_optimizer=dict(type="adam", learning_rate=0.01, eps=1e-6),
        sparse_optimizer=dict(type="row_wise_adagrad", learning_rate=0.05, eps=1e-8)),
}


def float32(tensor):
    """A float64 tensor whose values are those of float32."""
    return tensor.float().double()


def parameter_shapes(case):
    shapes = {}

    def linear(name, out, into, bias=True):
        shapes[name + ".weight"] = (out, into)
        if bias:
            shapes[name + ".bias"] = (1, out)

    into = case["dense"]
    for i, width in enumerate(case["bottom"]):
        linear(f"dense.bottom.{i}", width, into)
        into = width
    if case["model"] == "dlrm":
        fields = 1 + len(case["tables"])
        into += fields * (fields - 1) // 2
    else:
        into += sum(dim for _, dim in case["tables"])
        for i in range(case["cross_layers"]):
            linear(f"dense.cross.{i}.v", case["cross_rank"], into, bias=False)
            linear(f"dense.cross.{i}.w", into, case["cross_rank"])
    for i, width in enumerate(case["top"] + [1]):
        linear(f"dense.top.{i}", width, into)
        into = width
    return shapes


def affine(p, name, x):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def logits_of(case, p, dense, vectors):
    x = dense
    for i in range(len(case["bottom"])):
        x = relu(affine(p, f"dense.bottom.{i}", x))
    if case["model"] == "dlrm":
        fields = torch.stack([x] + vectors, dim=1)
        dots = fields @ fields.transpose(1, 2)
        rows, cols = torch.tril_indices(fields.shape[1], fields.shape[1], offset=-1)
        x = torch.cat([x, dots[:, rows, cols]], dim=1)
    else:
        x0 = torch.cat([x] + vectors, dim=1)
        x = x0
        for i in range(case["cross_layers"]):
            low = x @ p[f"dense.cross.{i}.v.weight"].T
            x = x0 * affine(p, f"dense.cross.{i}.w", low) + x
    for i in range(len(case["top"])):
        x = relu(affine(p, f"dense.top.{i}", x))
    return affine(p, f"dense.top.{len(case['top'])}", x)[:, 0]


def make_batch(case, generator):
    def randint(high):
        return int(torch.randint(high, (1,), generator=generator))

    bags = [[[randint(rows) for _ in range(randint(4))] for _ in range(BATCH)]
            for rows, _ in case["tables"]]
    dense = float32(torch.randn(BATCH, case["dense"], generator=generator, dtype=torch.float64))
    labels = [float(randint(2)) for _ in range(BATCH)]
    weights = [float(1 + randint(3)) / 2 for _ in range(BATCH)]
    return dict(dense=dense, bags=bags, labels=labels, weights=weights)


def pool(table, bags):
    return torch.stack([table[bag].sum(0) if bag else torch.zeros(table.shape[1], dtype=table.dtype)
                        for bag in bags])


def update_table(options, table, sums, touched):
    """One update per row that occurs in the batch, on its coalesced gradient."""
    with torch.no_grad():
        for row in sorted(touched):
            g = table.grad[row]
            if options["type"] == "row_wise_adagrad":
                sums[row] += (g * g).mean()
                table[row] -= options["learning_rate"] * g / (sums[row].sqrt() + options["eps"])
            else:
                table[row] -= options["learning_rate"] * g
        table.grad = None


def dense_optimizer(options, parameters):
    lr, decay = options["learning_rate"], options.get("weight_decay", 0.0)
    if options["type"] == "sgd":
        return torch.optim.SGD(parameters, lr=lr, weight_decay=decay)
    if options["type"] == "adagrad":
        return torch.optim.Adagrad(parameters, lr=lr, eps=options["eps"], weight_decay=decay)
    return torch.optim.Adam(parameters, lr=lr, eps=options["eps"], weight_decay=decay)


def plain(value):
    """Lists of numbers with 9 digits."""
    if isinstance(value, torch.Tensor):
        value = value.detach().tolist()
    if isinstance(value, list):
        return [plain(v) for v in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def run(name, case):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))

    def values(shape, deviation):
        return float32(torch.randn(*shape, generator=generator, dtype=torch.float64) * deviation)

    p = {n: values(s, (2.0 / sum(s)) ** 0.5).requires_grad_() for n, s in
         parameter_shapes(case).items()}
    tables = [values(s, 0.5).requires_grad_() for s in case["tables"]]
    sums = [torch.zeros(t.shape[0], dtype=torch.float64) for t in tables]
    batches = [make_batch(case, generator) for _ in range(STEPS)]
    result = dict(version=1, batch_size=BATCH, case=case,
                  parameters={n: plain(t.flatten()) for n, t in p.items()},
                  tables=[plain(t.flatten()) for t in tables],
                  batches=[{k: plain(v) for k, v in b.items()} for b in batches])
    optimizer = dense_optimizer(case["dense_optimizer"], list(p.values()))
    losses = []
    for batch in batches:
        vectors = [pool(t, b) for t, b in zip(tables, batch["bags"])]
        logits = logits_of(case, p, batch["dense"], vectors)
        weights = torch.tensor(batch["weights"], dtype=torch.float64)
        labels = torch.tensor(batch["labels"], dtype=torch.float64)
        loss = (binary_cross_entropy_with_logits(logits, labels, reduction="none")
                * weights).sum() / weights.sum()
        if not losses:
            result["first_logits"] = plain(logits)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        if "clip_norm" in case["dense_optimizer"]:
            torch.nn.utils.clip_grad_norm_(list(p.values()), case["dense_optimizer"]["clip_norm"])
        optimizer.step()
        for table, s, bags in zip(tables, sums, batch["bags"]):
            update_table(case["sparse_optimizer"], table, s, {i for bag in bags for i in bag})
    result["losses"] = plain(losses)
    result["final_parameters"] = {n: plain(t.flatten()) for n, t in p.items()}
    result["final_tables"] = [plain(t.flatten()) for t in tables]
    result["final_sums"] = [plain(s) for s in sums]
    path = OUT / f"{name}.json"
    path.write_text(json.dumps(result, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes, loss {losses[0]:.6f} to {losses[-1]:.6f}")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for case_name, described in CASES.items():
        run(case_name, described)
