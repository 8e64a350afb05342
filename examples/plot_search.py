"""
Choosing C and gamma with a map of scores
=========================================

``KernelSVCCV`` tries a grid of C and gamma by cross-validation and then looks once more around the best point. Points
within one standard error of the best cannot be told from it: on noisy rows they are a broad ridge, and
``selection="one-standard-error"`` takes the smoothest model on it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from widemargin import KernelSVCCV
from widemargin.reports import plot_search

X, y = make_moons(1_000, noise=0.35, random_state=0)
X_test, y_test = make_moons(20_000, noise=0.35, random_state=1)

# %%
# Both rules on the same folds. The mean over folds is the best of many points; the score on new rows is not.

models = {}
for rule in ("best", "one-standard-error"):
    model = models[rule] = KernelSVCCV(Cs=8, gammas=6, selection=rule).fit(X, y)
    spread = model.scores_[model.best_index_].std(ddof=1) / np.sqrt(model.n_splits_)
    print(f"{rule}: C = {model.C_:.3g}, gamma = {model.best_params_['gamma']:.3g}")
    print(f"   mean over folds {model.best_score_:.4f}, standard error {spread:.4f}")
    print(f"   on {len(y_test):,} new rows {model.score(X_test, y_test):.4f}, {len(model.support_)} support vectors")

# %%
# The map, with small circles for points that refine the grid and a ring for the choice; beside it the two boundaries.

figure, axes = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained", width_ratios=(1.3, 1, 1))
plot_search(models["best"], ax=axes[0])
sides = [np.linspace(X[:, j].min() - 0.3, X[:, j].max() + 0.3, 160) for j in range(2)]
places = np.stack(np.meshgrid(*sides), axis=-1)
for ax, (rule, model) in zip(axes[1:], models.items(), strict=True):
    scores = model.decision_function(places.reshape(-1, 2)).reshape(places.shape[:2])
    ax.contourf(*sides, scores, [-np.inf, 0, np.inf], colors=["#cfe3f1", "#f6dcc8"])
    ax.contour(*sides, scores, [-1, 0, 1], colors="#1b2027", linewidths=[0.7, 1.6, 0.7], linestyles=["--", "-", "--"])
    for label, colour, marker in ((0, "#0067a6", "o"), (1, "#b84a00", "s")):
        ax.plot(*X[y == label].T, marker, color=colour, markersize=2, alpha=0.6)
    ax.set(xticks=[], yticks=[])
    ax.set_title(f"{rule}\nC = {model.C_:.3g}, gamma = {model.best_params_['gamma']:.3g}", fontsize=10)
plt.show()
