"""
Margins of two machines
=======================

The SVM asks that the smallest margins be large and does not care about the others. The optimal margin distribution
machine asks that all margins be near 1: those that are too short cost, and so do those that are too long.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from widemargin import KernelSVC, MarginDistributionSVC

X, y = make_moons(3_000, noise=0.2, random_state=0)
X_test, y_test = make_moons(10_000, noise=0.2, random_state=1)

# %%
# A margin is the score of a row times its label, -1 or +1.

machines = {
    "KernelSVC": KernelSVC(C=1, gamma=1),
    "MarginDistributionSVC": MarginDistributionSVC(C=1e4, gamma=1, deadband=0.2),
}
margins, accuracies = {}, {}
for name, machine in machines.items():
    machine.fit(X, y)
    margins[name] = np.where(y_test == 1, 1, -1) * machine.decision_function(X_test)
    accuracies[name] = machine.score(X_test, y_test)
    print(f"{name:22} accuracy {accuracies[name]:.4f}, margins {margins[name].mean():.2f} +- {margins[name].std():.2f}")

# %%
# Both classify test rows about equally well. What differs is the shape of the distribution: one has a tail to the
# right, the other piles up at the end of its deadband. By their means, the spreads are not far apart.

figure, axis = plt.subplots(figsize=(7.5, 4), layout="constrained")
bins = np.linspace(min(map(np.min, margins.values())), max(map(np.max, margins.values())), 70)
for (name, values), colour in zip(margins.items(), ("#0072B2", "#D55E00"), strict=True):
    label = f"{name}: {values.mean():.2f} ± {values.std():.2f}, accuracy {accuracies[name]:.3f}"
    axis.hist(values, bins, color=colour, alpha=0.45, density=True, label=label)
axis.axvspan(0.8, 1.2, color="0.85", zorder=0, label="deadband: margins that cost nothing")
axis.axvline(0, color="0.3", linewidth=1, linestyle=":")
axis.annotate("wrong  ", (0, axis.get_ylim()[1] * 0.55), ha="right", fontsize=9, color="0.3")
axis.set_xlabel("margin of a test row")
axis.set_ylabel("density")
axis.legend(fontsize=8, loc="upper left")
axis.set_title("The margin distribution machine gathers margins near 1, for the same accuracy")
plt.show()
