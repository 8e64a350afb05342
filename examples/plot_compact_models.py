"""
Small kernel models that are nearly as good
===========================================

A kernel SVM keeps all rows in doubt as support vectors, and each prediction pays for every one of them.
``max_support`` replaces the solution by the nearest one with few support vectors, and the certificate then says how
far the small model is from the optimum.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons

from widemargin import KernelSVC

X, y = make_moons(6_000, noise=0.3, random_state=0)
X_test, y_test = make_moons(20_000, noise=0.3, random_state=1)

# %%
# First the exact model, then smaller ones. ``stop_reason_`` is ``"max_support"`` where the model was made smaller after
# its gap had been closed.

exact = KernelSVC(C=10, gamma=2, random_state=0).fit(X, y)
n_exact, exact_error = int(exact.n_support_[0]), 1 - exact.score(X_test, y_test)
sizes, errors, gaps = [], [], []
for size in (5, 8, 12, 20, 35, 60, 80, 100, 130):
    model = KernelSVC(C=10, gamma=2, max_support=size, random_state=0).fit(X, y)
    sizes.append(int(model.n_support_[0]))
    errors.append(1 - model.score(X_test, y_test))
    gaps.append(model.certificate_.relative)
    print(f"{sizes[-1]:4} support vectors: error {errors[-1]:.4f}, gap {gaps[-1]:.1e}, {model.size_bytes()} B")
print(f"{n_exact:4} support vectors: error {exact_error:.4f}, gap {exact.certificate_.relative:.1e}")

# %%
# Test error settles long before the gap does. Vectors are taken out greedily, so that the curves need not fall all the
# way.

figure, (above, below) = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
above.semilogx(sizes, errors, color="#0072B2", marker="o", label="max_support")
above.axhline(exact_error, color="#D55E00", linestyle="--", label=f"exact, {n_exact:,} support vectors")
above.set_ylabel("test error")
above.legend(fontsize=8)
below.loglog(sizes, gaps, color="#009E73", marker="s")
below.set_ylabel("certified gap")
below.set_xlabel("support vectors")
below.set_xticks(sizes, [str(size) for size in sizes])
below.minorticks_off()
good_enough = min(size for size, error in zip(sizes, errors, strict=True) if error <= exact_error + 0.002)
figure.suptitle(f"{good_enough} support vectors err like {n_exact:,}, to within 0.2 points")
plt.show()
