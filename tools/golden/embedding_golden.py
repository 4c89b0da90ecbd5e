#!/usr/bin/env python3
"""Writes tests/golden/embedding.json: pooled lookups, row gradients and sparse optimizers.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0 numpy
    venv/bin/python tools/golden/embedding_golden.py

Lookups and their gradients come from torch.nn.EmbeddingBag. Where PyTorch's dense optimizer means the
same (every row is touched in every step) the weights come from torch.optim; elsewhere the formula is
written out below in float64: row-wise optimizers, decoupled decay of SGD and Adagrad, max-norm, and
"lazy" steps, in which an untouched row keeps its weights and state.
"""
import json
import pathlib

import torch

ROWS, DIM, BAGS, STEPS = 12, 20, 26, 4
LR, EPS, BETA1, BETA2, DECAY = 0.05, 1e-6, 0.9, 0.99, 0.02
OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/embedding.json"


def make_steps(generator, every_row):
    """Batches of bags; in each one all rows occur, or only the lower half."""
    steps = []
    for _ in range(STEPS):
        rows = ROWS if every_row else ROWS // 2
        bags = [[b % rows] + torch.randint(rows, (int(torch.randint(3, (1,), generator=generator)),),
                                           generator=generator).tolist() for b in range(BAGS)]
        bags[3] = []
        ids = [i for bag in bags for i in bag]
        offsets = [0]
        for bag in bags:
            offsets.append(offsets[-1] + len(bag))
        steps.append({
            "ids": ids, "offsets": offsets,
            "weights": torch.randn(len(ids), generator=generator).tolist(),
            "upstream": torch.randn(BAGS, DIM, generator=generator).tolist()})
    return steps


def look_up(weight, step, weighted):
    factors = torch.tensor(step["weights"], dtype=weight.dtype) if weighted else None
    return torch.nn.functional.embedding_bag(
        torch.tensor(step["ids"]), weight, torch.tensor(step["offsets"][:-1]), mode="sum",
        per_sample_weights=factors)


def gradient(weight, step, weighted):
    """The dense gradient of sum(output * upstream), and which rows were touched."""
    leaf = weight.detach().clone().requires_grad_()
    upstream = torch.tensor(step["upstream"], dtype=weight.dtype)
    (look_up(leaf, step, weighted) * upstream).sum().backward()
    touched = torch.zeros(ROWS, dtype=torch.bool)
    touched[torch.tensor(step["ids"])] = True
    return leaf.grad, touched


TORCH = {
    ("sgd", "none"): lambda p: torch.optim.SGD(p, lr=LR),
    ("sgd", "l2"): lambda p: torch.optim.SGD(p, lr=LR, weight_decay=DECAY),
    ("adagrad", "none"): lambda p: torch.optim.Adagrad(p, lr=LR, eps=EPS, initial_accumulator_value=0.1),
    ("adagrad", "l2"): lambda p: torch.optim.Adagrad(p, lr=LR, eps=EPS, initial_accumulator_value=0.1,
                                                     weight_decay=DECAY),
    ("adam", "none"): lambda p: torch.optim.Adam(p, lr=LR, eps=EPS, betas=(BETA1, BETA2)),
    ("adam", "l2"): lambda p: torch.optim.Adam(p, lr=LR, eps=EPS, betas=(BETA1, BETA2), weight_decay=DECAY),
    ("adam", "decoupled"): lambda p: torch.optim.AdamW(p, lr=LR, eps=EPS, betas=(BETA1, BETA2),
                                                       weight_decay=DECAY),
}


def by_torch(make, initial, steps, weighted):
    weight = torch.nn.Parameter(initial.clone())
    optimizer = make([weight])
    for step in steps:
        weight.grad, touched = gradient(weight, step, weighted)
        assert touched.all()
        optimizer.step()
    return weight.detach()


def by_formula(rule, mode, max_norm, initial, steps, weighted):
    w = initial.double().clone()
    m = torch.full((ROWS, DIM), 0.1 if rule == "adagrad" else 0.0, dtype=torch.float64)
    v = torch.zeros(ROWS, DIM, dtype=torch.float64)
    row_state = torch.full((ROWS, 1), 0.1 if rule == "row_wise_adagrad" else 0.0, dtype=torch.float64)
    for t, step in enumerate(steps, 1):
        g, touched = gradient(w, step, weighted)
        for r in touched.nonzero().flatten().tolist():
            wd = DECAY if mode != "none" else 0.0
            gl = g[r] + wd * w[r] if mode == "l2" else g[r]
            keep = 1 - LR * wd if mode == "decoupled" else 1.0
            if rule == "sgd":
                w[r] = keep * w[r] - LR * gl
            elif rule == "adagrad":
                m[r] += gl * gl
                w[r] = keep * w[r] - LR * gl / (m[r].sqrt() + EPS)
            elif rule == "row_wise_adagrad":
                row_state[r] += (gl * gl).mean()
                rate = LR / (row_state[r].sqrt() + EPS)
                keep = 1 - rate * wd if mode == "l2" else keep
                w[r] = keep * w[r] - rate * g[r]
            else:
                m[r] = BETA1 * m[r] + (1 - BETA1) * gl
                if rule == "adam":
                    v[r] = BETA2 * v[r] + (1 - BETA2) * gl * gl
                else:
                    row_state[r] = BETA2 * row_state[r] + (1 - BETA2) * (gl * gl).mean()
                    v[r] = row_state[r]
                direction = (m[r] / (1 - BETA1**t)) / ((v[r] / (1 - BETA2**t)).sqrt() + EPS)
                if mode == "decoupled":
                    direction = direction + wd * w[r]
                w[r] = w[r] - LR * direction
            norm = w[r].norm()
            if max_norm > 0 and norm > max_norm:
                w[r] *= max_norm / norm
    return w


def numbers(tensor):
    """With the digits that give the same fp32 back."""
    return [float(f"{x:.9g}") for x in tensor.flatten().tolist()]


def main():
    generator = torch.Generator().manual_seed(7)
    torch.manual_seed(8)
    initial = torch.randn(ROWS, DIM, generator=generator) * 0.3
    steps = {"dense": make_steps(generator, True), "lazy": make_steps(generator, False)}
    lookups, cases = [], []
    for weighted in (False, True):
        first = steps["lazy"][0]
        lookups.append({"weighted": weighted, "output": numbers(look_up(initial, first, weighted)),
                        "gradient": numbers(gradient(initial, first, weighted)[0])})
    for rule in ("sgd", "adagrad", "row_wise_adagrad", "adam", "row_wise_adam"):
        for mode in ("none", "l2", "decoupled"):
            if (rule, mode) in TORCH:
                cases.append({"optimizer": rule, "decay": mode, "max_norm": 0.0, "steps": "dense",
                              "weighted": False, "source": "torch.optim",
                              "result": numbers(by_torch(TORCH[rule, mode], initial, steps["dense"], False))})
            for max_norm, weighted in ((0.0, True), (0.9, False)):
                cases.append({"optimizer": rule, "decay": mode, "max_norm": max_norm, "steps": "lazy",
                              "weighted": weighted, "source": "formula",
                              "result": numbers(by_formula(rule, mode, max_norm, initial, steps["lazy"],
                                                           weighted))})
    for kind in steps.values():
        for step in kind:
            step["weights"] = numbers(torch.tensor(step["weights"]))
            step["upstream"] = numbers(torch.tensor(step["upstream"]))
    OUT.write_text(json.dumps({
        "version": 1, "torch": torch.__version__, "rows": ROWS, "dim": DIM, "bags": BAGS,
        "learning_rate": LR, "eps": EPS, "beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY,
        "initial_accumulator": 0.1, "initial": numbers(initial), "steps": steps, "lookups": lookups,
        "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
