"""
A model at every level of a tree
================================

SODM solves the margin distribution machine on parts of the rows, merges parts two by two and goes on from their
coefficients, until one is left: the problem of all rows. Each level is a model, and early ones are nearly as good.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import minmax_scale

from widemargin import MarginDistributionSVC

X, y = make_classification(12_000, 12, n_informative=8, n_clusters_per_class=3, flip_y=0.05, random_state=0)
X, X_test, y, y_test = train_test_split(minmax_scale(X), y, train_size=6_000, random_state=0)
parameters = {"C": 1e4, "gamma": 4, "random_state": 0}

# %%
# ``levels_`` tells what each level took, ``at_level`` makes a classifier of it. Beside it, all rows at once.

tree = MarginDistributionSVC(solver="partition-merge", n_partitions=16, **parameters).fit(X, y)
whole = MarginDistributionSVC(**parameters).fit(X, y)
parts = [level.n_parts for level in tree.levels_]
seconds = [level.seconds for level in tree.levels_]  # from the beginning
accuracies = [tree.at_level(k).score(X_test, y_test) for k in range(len(parts))]
whole_seconds = sum(whole.cost_.seconds.values())
for k, n_parts in enumerate(parts):
    print(f"{n_parts:3} parts: accuracy {accuracies[k]:.4f} after {seconds[k]:.2f} s")
print(f"all rows at once: {whole.score(X_test, y_test):.4f} after {whole_seconds:.2f} s")

# %%
# On one core the whole tree takes longer than all rows at once: it solves the root too. Its use is to stop before it
# (``stop_level=1``), and to share the parts out to workers (``cluster=``).

figure, axis = plt.subplots(figsize=(7.5, 4), layout="constrained")
axis.plot(seconds, accuracies, color="#0072B2", marker="o", label="levels of the tree, one core")
for x, accuracy, n_parts in zip(seconds, accuracies, parts, strict=True):
    name = "1 part: the root" if n_parts == 1 else f"{n_parts} parts"
    place = (-6, -12) if n_parts == 1 else (6, -10)
    axis.annotate(
        name, (x, accuracy), place, textcoords="offset points", fontsize=8, ha="right" if n_parts == 1 else "left"
    )
whole_accuracy = whole.score(X_test, y_test)
axis.plot(
    whole_seconds, whole_accuracy, color="#D55E00", marker="s", linestyle="", markersize=8, label="all rows at once"
)
axis.margins(y=0.12)
axis.set_xlabel("seconds, this machine")
axis.set_ylabel("test accuracy")
axis.legend(fontsize=8, loc="lower right")
axis.set_title("Two parts are as accurate as the root; on one core, all rows at once are sooner")
plt.show()
