"""
Two bounds close around the optimum
===================================

Every fit keeps two numbers that bracket the optimum of its problem: what the best model so far achieves, and a bound
that no model can pass. Training ends when they are close enough. Here one nu-SVM is solved twice, by Newton's method
and by the saddle point method of the paper, to a relative gap of 1e-4.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

from widemargin import NuMarginSVC

# %%
# ``history_`` has a row for each certified sweep: seconds, both bounds, and what was spent until then.

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)
fits = {
    solver: NuMarginSVC(nu=0.1, solver=solver, tol=1e-4, random_state=0).fit(X, y) for solver in ("newton", "saddle")
}
for solver, model in fits.items():
    print(f"{solver}: {model.n_iter_} sweeps, stopped by {model.stop_reason_!r}, {model.certificate_}")

# %%
# Left: the distance of two points of the reduced hulls falls, the margin of the model rises, and the optimum lies
# between. Right: how fast they meet depends on the solver. That they bracket the optimum does not.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
rows = fits["saddle"].history_[:25]
sweeps = [row["sweep"] for row in rows]
above, below = [row["primal"] for row in rows], [row["dual"] for row in rows]
left.fill_between(sweeps, below, above, color="#56B4E9", alpha=0.25, label="the optimum lies in here")
left.plot(sweeps, above, color="#0072B2", marker="o", markersize=3, label="distance of the hulls: at most this")
left.plot(sweeps, below, color="#D55E00", marker="s", markersize=3, label="margin of the model: at least this")
left.set(xlabel="sweep", ylabel="distance")
left.set_title('The bounds of solver="saddle", first sweeps', fontsize=10)
left.legend(fontsize=8)
for (solver, model), colour, marker in zip(fits.items(), ("#009E73", "#CC79A7"), "os", strict=True):
    gaps = [1 - row["dual"] / row["primal"] for row in model.history_]
    sweeps = [row["sweep"] for row in model.history_]
    right.semilogy(sweeps, gaps, color=colour, marker=marker, markersize=3, label=f'solver="{solver}"')
right.axhline(1e-4, color="0.4", linestyle=":", linewidth=1, label="tol")
right.set(xlabel="sweep", ylabel="relative gap")
right.set_title("The gap of both solvers", fontsize=10)
right.legend(fontsize=8)
figure.suptitle("Training ends when the two bounds meet")
plt.show()
