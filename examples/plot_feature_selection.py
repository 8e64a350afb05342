"""
Which pixels tell a 3 from an 8?
================================

A 1-norm SVM answers with few pixels, and with a proof that no other choice of coefficients does better on its
objective. The 2-norm SVM of all pixels is the measure of what was given up.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score

from widemargin import KernelSVC, SparseSVC, SparseSVCCV

digits = load_digits(n_class=10)
rows = np.isin(digits.target, (3, 8))
X, y = digits.data[rows] / 16, digits.target[rows]

# %%
# The penalty is chosen by cross-validation, by the rule of one standard error. Errors of both machines are means of
# five folds; the penalty was chosen on the same rows, so that the first is a little too good.

model = SparseSVCCV(n_alphas=25, rule="one-standard-error").fit(X, y)
sparse_error = 1 - cross_val_score(SparseSVC(alpha=model.alpha_), X, y, cv=5).mean()
dense_error = 1 - cross_val_score(KernelSVC(kernel="linear", C=0.1), X, y, cv=5).mean()
print(f"{model.n_features_selected_} of {X.shape[1]} pixels, alpha = {model.alpha_:.4f}, {model.certificate_}")
print(f"error {sparse_error:.3f} with few pixels, {dense_error:.3f} with all")

# %%
# Purple pixels speak for a 3, orange ones for an 8; dark ones are not needed.

figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.6), layout="constrained")
for axis, label in zip(axes, (3, 8), strict=False):
    axis.imshow(X[y == label].mean(axis=0).reshape(8, 8), cmap="Greys")
    axis.set_title(f"mean of all {label}s", fontsize=10)
weights = model.coef_[0].reshape(8, 8)
limit = np.abs(weights).max()
picture = axes[2].imshow(np.where(weights == 0, np.nan, weights), cmap="PuOr_r", vmin=-limit, vmax=limit)
axes[2].set_facecolor("0.3")
axes[2].set_title(f"the {model.n_features_selected_} pixels that are kept", fontsize=10)
figure.colorbar(picture, ax=axes[2], label="coefficient: towards 3 (< 0) or 8 (> 0)")
for axis in axes:
    axis.set_xticks([])
    axis.set_yticks([])
figure.suptitle(
    f"{model.n_features_selected_} of 64 pixels: cross-validated error {sparse_error:.1%}, all pixels {dense_error:.1%}"
)
plt.show()
