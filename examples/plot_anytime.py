"""
A model whenever time is up
===========================

``max_time`` ends a fit after so many seconds with the best model so far, and the certificate says how far it is from
the optimum. Where the solver is left to choose (``"auto"``), it takes the exact one if it can be expected to finish in
time, and the batch perceptron otherwise.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

from widemargin import KernelSVC

X, y = make_classification(20_000, 20, n_informative=10, n_clusters_per_class=4, flip_y=0.02, random_state=0)
X, X_test, y, y_test = train_test_split(scale(X), y, train_size=10_000, random_state=0)
warnings.simplefilter("ignore", ConvergenceWarning)  # time is up on purpose
KernelSVC(C=1, max_time=0.1).fit(X[:500], y[:500])  # compiled code is loaded before the clock runs

# %%
# Each point is a fit of its own. Seconds are of this machine; gaps and errors are what they are.

limits = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
curves = {}
for solver in ("exact", "batch-perceptron"):
    curves[solver] = []
    for limit in limits:
        model = KernelSVC(C=3, gamma=0.05, solver=solver, max_time=limit, random_state=0).fit(X, y)
        error = 100 * (1 - model.score(X_test, y_test))
        curves[solver].append((limit, error, model.certificate_.relative))
        print(f"{solver:17} {limit:.1f} s: {model.stop_reason_!r}, error {error:.2f}%, gap {curves[solver][-1][2]:.1e}")
        if model.stop_reason_ != "max_time":
            break

# %%
# A curve ends where the solver did: the exact one closed its gap. The proof takes some time on top of ``max_time``:
# both bounds of the model that is returned are computed in float64.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for (solver, points), colour, marker in zip(curves.items(), ("#0072B2", "#D55E00"), "os", strict=True):
    seconds, errors, gaps = zip(*points, strict=True)
    left.semilogx(seconds, errors, color=colour, marker=marker, label=f'solver="{solver}"')
    right.loglog(seconds, gaps, color=colour, marker=marker, label=f'solver="{solver}"')
left.set_ylabel("test error, %")
right.set_ylabel("certified relative gap")
for axis in (left, right):
    axis.set_xticks(limits, [f"{limit:g}" for limit in limits])
    axis.minorticks_off()
    axis.set_xlabel("max_time, seconds")
    axis.legend(fontsize=8)
figure.suptitle("Time is up: every point is a model with its proof")
plt.show()
