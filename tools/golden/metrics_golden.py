#!/usr/bin/env python3
"""Writes tests/golden/metrics.json: figures of scikit-learn for small seeded inputs.

    pip install scikit-learn numpy
    python3 tools/golden/metrics_golden.py > tests/golden/metrics.json

NE is not in scikit-learn: it is log_loss(y, p) / log_loss(y, mean(y)), both weighted. Inputs are
multiples of powers of two, so that every float is written and read exactly.
"""
import json
import sys

import numpy
from sklearn.metrics import log_loss, roc_auc_score


def case(name, rng, samples, score_step, rate, weighted):
    logits = numpy.round(rng.normal(-1.0, 1.5, samples) / score_step) * score_step
    probability = 1.0 / (1.0 + numpy.exp(-(0.8 * logits + numpy.log(rate / (1 - rate)))))
    labels = (rng.random(samples) < probability).astype(int)
    labels[:2] = [0, 1]
    weights = rng.integers(1, 9, samples) / 4.0 if weighted else numpy.ones(samples)
    predictions = 1.0 / (1.0 + numpy.exp(-logits))
    mean = numpy.average(labels, weights=weights)
    loss = log_loss(labels, predictions, sample_weight=weights)
    entropy = log_loss(labels, numpy.full(samples, mean), sample_weight=weights)
    return {
        "name": name,
        "logits": logits.tolist(),
        "labels": labels.tolist(),
        "weights": weights.tolist(),
        "auc": roc_auc_score(labels, logits),
        "log_loss": loss,
        "ne": loss / entropy,
        "calibration": float(numpy.sum(weights * predictions) / numpy.sum(weights * labels)),
        "label_mean": float(mean),
    }


def main():
    rng = numpy.random.default_rng(20240501)
    cases = [
        case("few ties", rng, 300, 2.0**-10, 0.5, False),
        case("many ties", rng, 300, 0.5, 0.3, False),
        case("weighted", rng, 300, 0.125, 0.4, True),
        case("rare positives", rng, 200, 0.25, 0.05, True),
        case("all scores equal", rng, 20, 64.0, 0.5, False),
    ]
    json.dump({"version": 1, "cases": cases}, sys.stdout, separators=(",", ":"))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
