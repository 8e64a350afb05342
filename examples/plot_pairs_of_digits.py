"""
Which digits are closest to each other?
=======================================

With several classes :class:`~widemargin.HardMarginSVC` and :class:`~widemargin.NuMarginSVC` solve one problem for each
pair. Each answer is a distance between two classes with its own certificate, so that the 45 pairs of ten digits make a
map.
"""

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from widemargin import HardMarginSVC

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)

# %%
# ``parts_`` holds the results of all pairs, in the order of LIBSVM: (0, 1), (0, 2), ..., (8, 9).

model = HardMarginSVC().fit(X_train, y_train)
distances = np.full((10, 10), np.nan)
for (first, second), part in zip(combinations(range(10), 2), model.parts_, strict=True):
    distances[first, second] = distances[second, first] = part.certificate.primal
print(f"{len(model.parts_)} pairs, worst {model.certificate_.relative:.1e}, stopped by {model.stop_reason_!r}")
print(f"test accuracy {model.score(X_test, y_test):.3f}")

# %%
# All pairs can be separated. Dark pairs are nearly not.

figure, axis = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
picture = axis.imshow(distances, cmap="cividis")
for first, second in combinations(range(10), 2):
    value = distances[first, second]
    shade = "white" if value < np.nanmedian(distances) else "black"
    for place in ((first, second), (second, first)):
        axis.annotate(f"{value:.2f}", place, ha="center", va="center", fontsize=7, color=shade)
axis.set_xticks(range(10))
axis.set_yticks(range(10))
axis.set_xlabel("digit")
axis.set_ylabel("digit")
figure.colorbar(picture, ax=axis, label="distance of the hulls, certified to 0.1%")
one, other = np.unravel_index(np.nanargmin(distances), distances.shape)
axis.set_title(f"The hulls of {one} and {other} are the closest, {np.nanmin(distances):.2f} apart")
plt.show()
