"""
Models along C: support vectors, accuracy, gaps
===============================================

``kernel_svc_path`` fits a kernel SVM for every C of a list, at one gamma. It computes kernel values once for all
models. Each model is certified: its relative gap is at most ``tol``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from widemargin import kernel_svc_path

X, y = make_moons((600, 200), noise=0.3, random_state=0)
X_new, y_new = make_moons((15_000, 5_000), noise=0.3, random_state=1)

# %%
# One call fits all models.

path = kernel_svc_path(X, y, np.geomspace(0.01, 1000, 21), gamma=2.5)
accuracy = np.array([model.score(X_new, y_new) for model in path.models])
gaps = np.array([proof.relative for proof in path.certificates])
print(f"{len(path.Cs)} models, from {path.n_support.max()} to {path.n_support.min()} support vectors")
print(f"best on new rows: C = {path.Cs[accuracy.argmax()]:.2g}. Largest gap below tol: {gaps.max() <= 1e-3}")

# %%
# A small C gives a wide margin, and every row inside it is a support vector. If C is too small, the model predicts the
# larger class for all rows, which is right for three quarters of them. If C is too large, the boundary follows single
# rows, and accuracy slowly falls.

figure, axes = plt.subplots(3, 1, figsize=(7, 6.5), layout="constrained", sharex=True, height_ratios=(3, 3, 2))
curves = {"support vectors": path.n_support, "accuracy on new rows": accuracy, "relative gap": gaps}
for ax, (label, values) in zip(axes, curves.items(), strict=True):
    ax.semilogx(path.Cs, values, "o-", color="#0067a6", markersize=4)
    ax.set_ylabel(label)
axes[0].set_ylim(bottom=0)
axes[0].set_title("gamma = 2.5")
axes[2].set(yscale="log", ylim=(None, 4e-3), xlabel="C")
axes[2].axhline(1e-3, color="#1b2027", linestyle=":", linewidth=1)
axes[2].annotate("tol", (path.Cs[0], 1e-3), xytext=(0, 3), textcoords="offset points", fontsize=9)
plt.show()
