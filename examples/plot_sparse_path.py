"""
Features enter one by one
=========================

A 1-norm penalty sets coefficients to zero exactly. As it falls, features enter the model; cross-validation says how
many are worth having. Every model of the path is solved to a certified gap of 1e-6.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

from widemargin import SparseSVCCV, sparse_svc_path
from widemargin.reports import plot_sparse_path

data = load_breast_cancer()
X, y = scale(data.data), data.target

# %%
# The path, and the penalty by the rule of one standard error: the sparsest model that is hardly worse than the best.

path = sparse_svc_path(X, y, n_alphas=40, eps=0.02)
chosen = SparseSVCCV(alphas=path.alphas, rule="one-standard-error").fit(X, y)
print(f"{chosen.n_features_selected_} of {X.shape[1]} features at alpha = {chosen.alpha_:.3g}:")
for feature in chosen.support_:
    print(f"  {data.feature_names[feature]:25} {chosen.coef_[0, feature]:+.3f}")
print(f"largest gap on the path: {max(certificate.relative for certificate in path.certificates):.1e}")

# %%
# ``plot_sparse_path`` draws coefficients over the penalty, with the number of features along the top.

figure, axis = plt.subplots(figsize=(8, 4.6), layout="constrained")
plot_sparse_path(path, feature_names=data.feature_names, chosen=chosen.alpha_, ax=axis)
axis.set_title(f"Cross-validation keeps {chosen.n_features_selected_} of {X.shape[1]} features")
plt.show()
