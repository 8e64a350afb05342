"""
A margin is a distance between hulls
====================================

The widest margin between two classes is the distance between their convex hulls. Where classes overlap, there is no
such margin; the nu-SVM shrinks the hulls until they are apart: no row may carry more than a share of the mass.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import ConvexHull
from sklearn.datasets import make_blobs

from widemargin import HardMarginSVC, NuMarginSVC


def reduced_hull(rows, cap, n_directions=360):
    """Corners of the hull in which no row carries more mass than ``cap``: the furthest point in each direction."""
    corners = []
    for angle in np.linspace(0, 2 * np.pi, n_directions, endpoint=False):
        order = np.argsort(-rows @ [np.cos(angle), np.sin(angle)])
        masses = np.diff(np.minimum(cap * np.arange(len(rows) + 1), 1.0))  # as much as may be on the furthest rows
        corners.append(masses @ rows[order])
    return np.array(corners)


def draw_margin(axis, model):
    """The separator and the two lines at which scores are -1 and +1."""
    (slope_1, slope_2), intercept = model.coef_[0], model.intercept_[0]
    ends = np.array(axis.get_xlim())
    for score, style in ((-1, "--"), (0, "-"), (1, "--")):
        axis.plot(ends, (score - intercept - slope_1 * ends) / slope_2, color="0.25", linestyle=style, linewidth=1)


# %%
# Two sets of rows: the first can be separated, the second cannot.

apart = make_blobs(60, centers=[[-2.2, -0.6], [2.2, 0.6]], cluster_std=0.9, random_state=1)
mixed = make_blobs(60, centers=[[-1.2, -0.5], [1.2, 0.5]], cluster_std=1.2, random_state=1)
hard = HardMarginSVC(tol=1e-8).fit(*apart)
soft = NuMarginSVC(nu=0.5, tol=1e-6).fit(*mixed)
print(f"hard margin: hulls {hard.certificate_.primal:.4f} apart, margin {2 / np.linalg.norm(hard.coef_):.4f}")
print(f"nu = 0.5: no row has more mass than {soft.cap_:.4f}; reduced hulls {soft.certificate_.primal:.4f} apart")

# %%
# Left, the margin (dashed) touches the hulls. Right, the hulls overlap and the reduced hulls do not: the separator is
# parallel to the gap between them, and rows that are alone in their place no longer decide.

figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.6), sharex=True, sharey=True, layout="constrained")
for axis, (X, y), model in zip(axes, (apart, mixed), (hard, soft), strict=True):
    for label, colour, marker in ((0, "#0072B2", "o"), (1, "#D55E00", "s")):
        rows = X[y == label]
        corners = rows[ConvexHull(rows).vertices]
        axis.fill(*corners.T, color=colour, alpha=0.15, label=f"hull of class {label}")
        axis.scatter(*rows.T, s=14, color=colour, marker=marker)
        if model is soft:
            axis.fill(
                *reduced_hull(rows, model.cap_).T, color=colour, alpha=0.55, label=f"reduced hull of class {label}"
            )
    axis.set(xlim=(-4.2, 4.6), ylim=(-4, 4.4), xlabel="feature 1", ylabel="feature 2", aspect="equal")
    draw_margin(axis, model)
    axis.legend(fontsize=7, loc="upper left", ncols=2)
axes[0].set_title("HardMarginSVC: hulls that are apart", fontsize=10)
axes[1].set_title("NuMarginSVC: hulls that overlap, reduced", fontsize=10)
figure.suptitle("The margin is the distance between the hulls, or between what is left of them")
plt.show()
