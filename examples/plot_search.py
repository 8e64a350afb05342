"""
Choosing C and gamma with a map of scores
=========================================

``KernelSVCCV`` tries a grid of C and gamma by cross-validation, then a few more points around the best one. Scores
within one standard error of the best are too close to tell which point is better.
``selection="one-standard-error"`` takes the widest margin among them: often a simpler boundary, but not fewer support
vectors.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from widemargin import KernelSVCCV
from widemargin.reports import plot_search

X, y = make_moons((600, 200), noise=0.3, random_state=0)
X_new, y_new = make_moons((15_000, 5_000), noise=0.3, random_state=1)

# %%
# Both rules choose from the same scores. The best mean over folds is optimistic, because it is the maximum of many. The
# score on new rows is not.

models = {}
for rule in ("best", "one-standard-error"):
    model = models[rule] = KernelSVCCV(Cs=8, gammas=6, selection=rule).fit(X, y)
    scores = model.scores_[model.best_index_]
    print(f"{rule}: C = {model.C_:.3g}, gamma = {model.best_params_['gamma']:.3g}")
    print(f"   mean over folds {scores.mean():.3f}, standard error {scores.std(ddof=1) / np.sqrt(len(scores)):.3f}")
    print(f"   on {len(y_new):,} new rows {model.score(X_new, y_new):.3f}, {len(model.support_)} support vectors")

# %%
# Left: mean scores. Small circles are the points that refine the grid, the ring is the best point, and the hatched cell
# was skipped. Beside it: the boundary of each choice (solid) and its margins (dashed).

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
