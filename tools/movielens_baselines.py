#!/usr/bin/env python3
"""AUC of simple models on MovieLens, on the split that the movielens reader makes.

A yardstick for the trained model. The features are derived here from the CSV files alone, by their
description in docs/data.md and not by Weft's code, so that the two check each other:
--dump writes them, one event per line, for the test that compares.

    tools/movielens_baselines.py FOLDER [--dump FILE]

Needs numpy; without --dump also scipy and scikit-learn.
"""

import argparse
import csv
import pathlib
from collections import defaultdict
from datetime import datetime, timezone
from itertools import groupby

SMOOTHING = 10.0  # ratings that the prior of a rate counts for
PRIOR_RATE = 0.5  # of the prior's prior: the running rate over all users starts here
HISTORY = 50  # films kept in liked and disliked
RECENT = 10  # ratings of recent_click_rate
DENSE = ["click_rate", "genre_click_rate", "recent_click_rate", "history", "film_click_rate",
         "film_history"]


def read_events(folder):
    with open(folder / "movies.csv", encoding="utf-8", newline="") as file:
        genres = {int(row["movieId"]): row["genres"].split("|") for row in csv.DictReader(file)}
    with open(folder / "ratings.csv", encoding="utf-8", newline="") as file:
        events = [
            (int(row["timestamp"]), int(row["userId"]), int(row["movieId"]), float(row["rating"]))
            for row in csv.DictReader(file)
        ]
    return sorted(events), genres


def rate(liked, total, prior):
    return (liked + SMOOTHING * prior) / (total + SMOOTHING)


class History:
    """What is known before a second: counts of liked and of all ratings."""

    def __init__(self):
        self.all = [0, 0]
        self.user = defaultdict(lambda: [0, 0])
        self.film = defaultdict(lambda: [0, 0])
        self.user_genre = defaultdict(lambda: [0, 0])
        self.clicks = defaultdict(list)
        self.liked = defaultdict(list)
        self.disliked = defaultdict(list)

    def features(self, user, film, genres):
        prior = rate(*self.all, PRIOR_RATE)
        click_rate = rate(*self.user[user], prior)
        on_genres = [sum(x) for x in zip(*(self.user_genre[user, g] for g in genres))]
        recent = self.clicks[user][-RECENT:]
        return (
            click_rate,
            rate(*on_genres, click_rate),
            rate(sum(recent), len(recent), click_rate),
            self.user[user][1],
            rate(*self.film[film], prior),
            self.film[film][1],
        )

    def add(self, user, film, genres, click):
        counters = [self.all, self.user[user], self.film[film]]
        counters += [self.user_genre[user, g] for g in genres]
        for counter in counters:
            counter[0] += click
            counter[1] += 1
        self.clicks[user].append(click)
        (self.liked if click else self.disliked)[user].append(film)


def derive(events, genres):
    """One dictionary per event, in order."""
    history = History()
    samples = []
    for timestamp, group in groupby(events, key=lambda event: event[0]):
        group = list(group)
        when = datetime.fromtimestamp(timestamp, tz=timezone.utc)
        for _, user, film, rating in group:
            samples.append(
                {
                    "user": user,
                    "film": film,
                    "genres": genres[film],
                    "hour": when.hour,
                    "weekday": when.weekday(),
                    "dense": history.features(user, film, genres[film]),
                    "liked": history.liked[user][: -HISTORY - 1 : -1],
                    "disliked": history.disliked[user][: -HISTORY - 1 : -1],
                    "click": int(rating >= 4),
                }
            )
        for _, user, film, rating in group:
            history.add(user, film, genres[film], int(rating >= 4))
    return samples


def dump(samples, path):
    with open(path, "w", encoding="utf-8") as file:
        for s in samples:
            fields = [s["click"], s["user"], s["film"], s["hour"], s["weekday"]]
            fields += [f"{x:.9g}" for x in s["dense"]]
            fields += [" ".join(map(str, s[name])) for name in ("liked", "disliked")]
            file.write("\t".join(map(str, fields)) + "\n")


def one_hot(values, train):
    import numpy as np
    from scipy import sparse

    known = {value: i for i, value in enumerate(sorted({v for vs in values[:train] for v in vs}))}
    rows, columns = [], []
    for row, vs in enumerate(values):
        for v in vs:
            if v in known:
                rows.append(row)
                columns.append(known[v])
    shape = (len(values), len(known))
    return sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)


def dense_columns(samples, train, names):
    import numpy as np
    from scipy import sparse

    x = np.array([[s["dense"][DENSE.index(name)] for name in names] for s in samples])
    for column, name in enumerate(names):
        if name.endswith("history"):
            x[:, column] = np.log1p(x[:, column])
    return sparse.csr_matrix((x - x[:train].mean(0)) / x[:train].std(0))


def logistic_auc(features, y, train):
    """The best of three strengths, chosen on the evaluation part: in favour of the baseline."""
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    x = sparse.hstack(features).tocsr()
    best = 0.0
    for strength in (0.01, 0.1, 1.0):
        model = LogisticRegression(C=strength, max_iter=1000)
        model.fit(x[:train], y[:train])
        best = max(best, roc_auc_score(y[train:], model.decision_function(x[train:])))
    return best


def averages_auc(samples, y, train):
    """user mean + film mean - global mean, of the training events; an unknown one is the mean."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    mean = y[:train].mean()
    score = np.full(len(samples) - train, -mean)
    for name in ("user", "film"):
        sums = defaultdict(lambda: [0, 0])
        for s in samples[:train]:
            sums[s[name]][0] += s["click"]
            sums[s[name]][1] += 1
        means = {key: rate(*value, mean) for key, value in sums.items()}
        score += np.array([means.get(s[name], mean) for s in samples[train:]])
    return roc_auc_score(y[train:], score)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dump", type=pathlib.Path)
    args = parser.parse_args()

    events, genres = read_events(args.folder)
    samples = derive(events, genres)
    if args.dump:
        dump(samples, args.dump)
        return
    report(samples)


def report(samples):
    import numpy as np

    train = len(samples) - len(samples) // 10
    y = np.array([s["click"] for s in samples])
    plain = [one_hot([[s[k]] for s in samples], train) for k in ("user", "film", "hour", "weekday")]
    plain.append(one_hot([s["genres"] for s in samples], train))
    dense = dense_columns(samples, train, DENSE)
    without_recent = dense_columns(samples, train, [x for x in DENSE if x != "recent_click_rate"])
    films = [one_hot([s[k][:RECENT] for s in samples], train) for k in ("liked", "disliked")]
    known = {s["user"] for s in samples[:train]}
    unseen = np.mean([s["user"] not in known for s in samples[train:]])
    print(f"events {len(samples)}, training {train}, evaluation {len(samples) - train}")
    print(f"click rate {y[:train].mean():.4f} in training, {y[train:].mean():.4f} in evaluation")
    print(f"evaluation events of users without training events: {unseen:.1%}")
    rows = [
        ("user and film averages", averages_auc(samples, y, train)),
        ("logistic regression, no history", logistic_auc(plain, y, train)),
        ("  with it, but no recent_click_rate", logistic_auc(plain + [without_recent], y, train)),
        ("  with all dense features", logistic_auc(plain + [dense], y, train)),
        ("  and with the films liked, disliked", logistic_auc(plain + [dense] + films, y, train)),
        ("  dense features alone", logistic_auc([dense], y, train)),
    ]
    for name, auc in rows:
        print(f"evaluation AUC  {name:<38} {auc:.4f}")


if __name__ == "__main__":
    main()
