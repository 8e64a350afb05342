"""
Intervals from rows on many machines
====================================

A 1-norm penalty pulls coefficients towards zero, and averaging the models of many machines keeps that bias: the more
machines, the fewer rows each has, and the stronger its penalty. Debiasing in two rounds takes it back, and what comes
out has intervals that hold, however the rows are divided.
"""

import matplotlib.pyplot as plt
import numpy as np

from widemargin import DebiasedSparseSVC
from widemargin.data import make_sparse_gaussians

# %%
# 16 data sets of 4,000 rows and 40 features, of which 5 have an effect that is known; each is divided among 1 to 20
# machines. How often does a 95% interval hold the true coefficient?

machines, n_sets = (1, 5, 10, 20), 16
covered = {"no effect": [], "an effect": []}
estimates = []
for n_machines in machines:
    hits = []
    for seed in range(n_sets):
        X, y, beta = make_sparse_gaussians(4_000, 40, random_state=seed)
        model = DebiasedSparseSVC(cluster=n_machines).fit(X, y)
        low, high = model.coef_interval_[0].T
        hits.append((low <= beta) & (beta <= high))
        if seed == 0:
            estimates.append((model.coef_naive_[0, 4], model.coef_debiased_[0, 4], *model.coef_interval_[0, 4]))
    covered["no effect"].append(np.mean(np.array(hits)[:, 5:]))
    covered["an effect"].append(np.mean(np.array(hits)[:, :5]))
    print(f"{n_machines:2} machines: coverage {covered['no effect'][-1]:.3f} and {covered['an effect'][-1]:.3f}")

# %%
# Left, the strongest coefficient in the first data set. Right, the coverage over all of them; the band is what chance
# alone would do to the 80 intervals of coefficients with an effect.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
naive, debiased, low, high = np.array(estimates).T
places = np.arange(len(machines))
left.axhline(beta[4], color="0.4", linestyle="--", linewidth=1, label="true coefficient")
left.plot(places, naive, color="#D55E00", marker="s", linestyle="", label="average of 1-norm SVMs")
left.errorbar(
    places, debiased, (debiased - low, high - debiased), fmt="o", color="#0072B2", capsize=3, label="debiased, 95%"
)
left.set_ylabel("coefficient of feature 5")
left.legend(fontsize=8, loc="lower left")
noise = 2 * np.sqrt(0.95 * 0.05 / (5 * n_sets))
right.axhspan(0.95 - noise, 0.95 + noise, color="0.9", label="95%, and two standard errors")
for (name, shares), colour, marker in zip(covered.items(), ("#009E73", "#CC79A7"), "os", strict=True):
    right.plot(places, shares, color=colour, marker=marker, label=f"features with {name}")
right.set_ylim(0.8, 1.0)
right.set_ylabel("share of intervals that hold the truth")
right.legend(fontsize=8, loc="lower left")
for axis in (left, right):
    axis.set_xticks(places, machines)
    axis.set_xlabel("machines that the 4,000 rows are divided among")
figure.suptitle("Averages shrink as machines multiply; debiased intervals stay where they are")
plt.show()
