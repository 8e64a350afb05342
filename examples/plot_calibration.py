"""
Probabilities by calibration
============================

A score is a distance, not a probability. ``CalibratedClassifierCV(ensemble=False)`` turns one into the other: scores of
rows that a model was not trained on are mapped to frequencies, and one model of all rows is kept.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.datasets import make_classification
from sklearn.metrics import brier_score_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

from widemargin import KernelSVC

X, y = make_classification(20_000, 12, n_informative=6, flip_y=0.15, class_sep=0.7, random_state=0)
X, X_test, y, y_test = train_test_split(scale(X), y, train_size=4_000, random_state=0)

# %%
# Beside it, what one must not do: to squeeze scores through a logistic curve as they are.

machine = KernelSVC(C=1, gamma=0.1, random_state=0)
raw = 1 / (1 + np.exp(-machine.fit(X, y).decision_function(X_test)))
curves = {"scores through a logistic curve, as they are": raw}
for method in ("sigmoid", "isotonic"):
    model = CalibratedClassifierCV(machine, method=method, ensemble=False, cv=3).fit(X, y)
    curves[f'calibrated, method="{method}"'] = model.predict_proba(X_test)[:, 1]
for name, probabilities in curves.items():
    print(f"{name:46} Brier score {brier_score_loss(y_test, probabilities):.4f}")

# %%
# On the diagonal, of the rows given a probability of 0.8 eight in ten are positive.

figure, axis = plt.subplots(figsize=(6, 5), layout="constrained")
axis.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=1, label="perfect")
for (name, probabilities), colour, marker in zip(curves.items(), ("#D55E00", "#0072B2", "#009E73"), "s^o", strict=True):
    observed, predicted = calibration_curve(y_test, probabilities, n_bins=12, strategy="quantile")
    score = brier_score_loss(y_test, probabilities)
    axis.plot(predicted, observed, color=colour, marker=marker, markersize=5, label=f"{name} (Brier {score:.3f})")
axis.set_xlabel("predicted probability")
axis.set_ylabel("share of positive test rows")
axis.legend(fontsize=8)
axis.set_title("Calibrated scores are probabilities; raw ones are not")
plt.show()
