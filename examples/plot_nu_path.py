"""
What nu means
=============

``nu`` of :class:`~widemargin.NuMarginSVC` is a share of rows. At most that many lie on the wrong side of their margin,
and at least that many have a say in the model. Both bounds can be read off a path of fits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

from widemargin import NuMarginSVC, max_nu

X, y = load_breast_cancer(return_X_y=True)
X = scale(X)
signs = np.where(y == 1, 1, -1)

# %%
# The largest feasible value depends on the balance of the classes alone: no class may be asked for more mass than it
# has rows.

print(f"nu may be at most {max_nu(y):.3f}")
shares = np.linspace(0.03, max_nu(y) * 0.995, 30)
outside, within, widths = [], [], []
model = NuMarginSVC(warm_start=True, tol=1e-4)
for nu in shares:
    model.set_params(nu=nu).fit(X, y)
    margins = signs * model.decision_function(X)  # the margin itself is at 1
    outside.append(np.mean(margins < 1 - 1e-3))
    within.append(np.mean(margins < 1 + 1e-3))
    widths.append(2 / np.linalg.norm(model.coef_))
outside, within = np.array(outside), np.array(within)

# %%
# The zero line is nu itself: one curve never rises above it, the other never falls below.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.axhline(0, color="0.4", linestyle="--", linewidth=1, label="nu")
left.plot(
    shares, 100 * (within - shares), color="#0072B2", marker="o", markersize=3, label="on the margin or short of it"
)
left.plot(shares, 100 * (outside - shares), color="#D55E00", marker="s", markersize=3, label="short of the margin")
left.set_xlabel("nu")
left.set_ylabel("share of rows, less nu (points)")
left.legend(fontsize=8)
left.set_title("nu lies between the two shares", fontsize=10)
right.plot(shares, widths, color="#009E73", marker="o", markersize=3)
right.set_xlabel("nu")
right.set_ylabel("width of the margin")
right.set_title("A larger nu buys a wider margin", fontsize=10)
figure.suptitle("nu bounds the rows short of the margin from above, those with a say from below")
plt.show()
