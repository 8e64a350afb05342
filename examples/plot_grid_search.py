"""
Choosing C, and what a warm start saves
=======================================

``GridSearchCV`` chooses C as for any classifier of scikit-learn; it makes a fresh copy for every point, so that each
fit begins at nothing. Where one walks along C oneself, ``warm_start=True`` begins each fit at the last solution and
saves kernel values.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV

from widemargin import KernelSVC

X, y = make_moons(3_000, noise=0.3, random_state=0)
values_of_C = np.geomspace(0.1, 1_000, 9)

# %%
# The search, with five folds.

search = GridSearchCV(KernelSVC(gamma=1, random_state=0), {"C": values_of_C}, cv=5).fit(X, y)
means, spreads = search.cv_results_["mean_test_score"], search.cv_results_["std_test_score"] / np.sqrt(5)
print(f"best: C = {search.best_params_['C']:.3g}, accuracy {search.best_score_:.4f}")

# %%
# The walk: once from nothing each time, once from the solution before. The certificates are those of the same
# problems, so both are equally good.

spent = {}
for is_warm in (False, True):
    model = KernelSVC(gamma=1, warm_start=is_warm, random_state=0)
    spent[is_warm] = []
    for C in values_of_C:
        model.set_params(C=C).fit(X, y)
        spent[is_warm].append(model.cost_.kernel_evaluations / len(y) ** 2)
saved = 1 - sum(spent[True]) / sum(spent[False])
print(f"kernel values: {sum(spent[False]):.1f} n^2 cold, {sum(spent[True]):.1f} n^2 warm")

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
left.errorbar(values_of_C, means, spreads, color="#0072B2", marker="o", capsize=3, label="mean of five folds")
left.axvline(search.best_params_["C"], color="#D55E00", linestyle="--", label=f"C = {search.best_params_['C']:.3g}")
left.set_ylabel("accuracy, one standard error")
left.set_title("GridSearchCV: which C?", fontsize=10)
for (is_warm, counts), colour, marker in zip(spent.items(), ("#CC79A7", "#009E73"), "so", strict=True):
    label = "warm start" if is_warm else "cold start"
    right.plot(values_of_C, np.cumsum(counts), color=colour, marker=marker, label=label)
right.set_ylabel("kernel evaluations / n², added up")
right.set_title("Walking along C", fontsize=10)
for axis in (left, right):
    axis.set_xscale("log")
    axis.set_xlabel("C")
    axis.legend(fontsize=8, loc="lower right")
figure.suptitle(f"A warm start along C saves {saved:.0%} of the kernel values")
plt.show()
