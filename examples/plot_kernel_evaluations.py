"""
Batch perceptron or exact solver, by kernel evaluations
=======================================================

Kernel values are what a kernel SVM spends its time on. The stochastic batch perceptron is made to have a good model
early; the exact solver is made to end at the optimum with a proof. Each point below is a whole fit that was stopped
after some sweeps, with the kernel values that it had computed by then.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

from widemargin import KernelSVC

# %%
# A tenth of the labels are wrong, and C = 10 is too large for that.

X, y = make_classification(
    16_000, 20, n_informative=10, n_clusters_per_class=4, flip_y=0.1, class_sep=1.2, random_state=0
)
X, X_test, y, y_test = train_test_split(scale(X), y, train_size=8_000, random_state=0)
warnings.simplefilter("ignore", ConvergenceWarning)  # fits are stopped early on purpose

# %%
# ``cost_.kernel_evaluations`` counts every value, those of the final proof included; in units of n squared it is the
# share of the whole kernel matrix.

curves = {}
for solver in ("batch-perceptron", "exact"):
    curves[solver] = points = []
    for n_sweeps in (1, 2, 3, 4, 5, 6, 8, 12, 20):
        model = KernelSVC(C=10, gamma=0.1, solver=solver, max_iter=n_sweeps, random_state=0).fit(X, y)
        spent = model.cost_.kernel_evaluations / len(y) ** 2
        points.append((spent, 100 * (1 - model.score(X_test, y_test)), model.certificate_.relative))
        if model.stop_reason_ != "max_iter":
            break
    print(f"{solver}: ended by {model.stop_reason_!r} after {points[-1][0]:.2f} n^2 values, gap {points[-1][2]:.1e}")

# %%
# The perceptron stops by itself when the error on rows held out no longer falls, before the wrong labels are learnt.
# Its bounds are true and far apart: it is no way to the optimum, which here is not the best model.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for (solver, points), colour, marker in zip(curves.items(), ("#D55E00", "#0072B2"), "so", strict=True):
    spent, errors, gaps = zip(*points, strict=True)
    left.plot(spent, errors, color=colour, marker=marker, markersize=4, label=solver)
    right.semilogy(spent, gaps, color=colour, marker=marker, markersize=4, label=solver)
left.set_ylabel("test error, %")
right.set_ylabel("certified relative gap")
right.axhline(1e-3, color="0.5", linestyle=":", linewidth=1)
right.annotate("tol", (0, 1e-3), textcoords="offset points", xytext=(2, 3), fontsize=8, color="0.4")
for axis in (left, right):
    axis.set_xlabel("kernel evaluations / n²")
    axis.legend(fontsize=8)
figure.suptitle("Early: the perceptron errs less. Late: only the exact solver has a proof")
plt.show()
