"""What problems ask of their parameters and of the two classes."""

from __future__ import annotations

SMALLEST, LARGEST = 1e-50, 1e50  # parameters and weights: products of several must not overflow or vanish


def require_positive(name: str, value: float, role: str) -> None:
    """Raise ValueError unless a parameter, which has this role, is positive and can be squared in float64."""
    if not SMALLEST <= value <= LARGEST:
        raise ValueError(
            f"{name}={value:g} cannot weight {role} in float64, where its square and that of its inverse must be "
            f"finite: it must lie in [{SMALLEST:g}, {LARGEST:g}]. If it was computed from the rows, scale the features."
        )


def require_both_classes(total_positive: float, total_negative: float) -> None:
    """Raise ValueError unless both classes have a weight, and float64 can square it."""
    for total, name in ((total_positive, "positive"), (total_negative, "negative")):
        if not total > 0:
            raise ValueError(f"The {name} class has weight {total:g}: both classes need a weight over 0.")
        require_weight(total)


def require_weight(total: float) -> None:
    """Raise ValueError if a class, or a row, has a weight that float64 cannot square."""
    if total and not SMALLEST <= total <= LARGEST:
        raise ValueError(
            f"A class has weight {total:g}, beyond what float64 can square: the weights of rows and classes must be 0 "
            f"or lie in [{SMALLEST:g}, {LARGEST:g}]."
        )


class Balanced:
    """A problem whose dual variables have equal sums in both classes where there is an intercept."""

    fit_intercept: bool

    def balance_factors(self, sum_positive: float, sum_negative: float) -> tuple[float, float]:
        """Factors for the dual variables of each class that make both sums equal; at most 1, so that caps hold."""
        if not self.fit_intercept or sum_positive == sum_negative:
            return 1.0, 1.0
        lighter = min(sum_positive, sum_negative)
        return (lighter / sum_positive, 1.0) if sum_positive > sum_negative else (1.0, lighter / sum_negative)
