"""A kernel on the rows of one rank: the primitives that algorithms call, with the same signatures on every device.

A vector has one float64 number per row, and places are row positions. Both are NumPy arrays on the CPU and tensors on
a torch device. Code that combines them only by arithmetic, indexing and these primitives runs on both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

import numpy as np

from widemargin.compiled.small_dual import combined, sub_block
from widemargin.kernels.cache import RowCache
from widemargin.kernels.functions import Kernel
from widemargin.kernels.known_values import KnownValues
from widemargin.kernels.points import Points
from widemargin.kernels.storage import joined
from widemargin.kernels.vectors import Dual, group_size, padded
from widemargin.ledger import Ledger
from widemargin.rounding import UNIT, gamma

Vector: TypeAlias = Any  # float64, on the device of the rows: one number per row, or per row of a working set
Places: TypeAlias = Any  # row positions, on the device of the rows
Block: TypeAlias = Any  # kernel values, on the device of the rows
Matrix: TypeAlias = Any  # rows: a dense array, a CSR matrix, or a tensor
Lane: TypeAlias = Callable[[], AbstractContextManager[Any]]
T = TypeVar("T")

_EXP_ERROR = 6 * UNIT  # of an exponential


class KernelRows(ABC):
    """Primitives marked ``exact`` compute kernel values in float64 from the rows as given.

    ``numbers`` are the row numbers among the rows of all ranks; ``n_everywhere`` is how many rows all ranks have, rows
    of weight 0 included, where that is known.
    """

    dtype: Any  # NumPy type of kernel values that are not exact
    error: float  # typical error of such a value
    largest_error: float
    width: int = 0  # the largest number of entries of a row, of all ranks; 0 for kernels that are given
    longest: float = 0.0  # the largest norm of a row as it is multiplied, of all ranks
    is_by_differences: bool = False  # squared distances are sums of squared differences
    has_relative_errors: bool = False  # of values that are not exact: a bound on each, relative to the value
    _primitives: Any  # the module of vector primitives: scan, choose, keep, solve, Repeated

    def __init__(
        self, kernel: Kernel, X: Matrix, first: int | np.ndarray, ledger: Ledger | None, n_everywhere: int | None
    ) -> None:
        self.kernel, self.X = kernel, joined(X) if isinstance(X, list) else X
        self.numbers = first if isinstance(first, np.ndarray) else np.arange(first, first + self.X.shape[0])
        self.ledger = ledger if ledger is not None else Ledger()
        self.n_everywhere = n_everywhere
        self._rounding: dict[tuple[str, type], Any] = {}
        self._whole: tuple[KernelRows, np.ndarray] | None = None  # the rows that these are some of, and their places
        self.n_problems = 1  # of the fit, on these rows or on some of them
        # Labels, where problems are on some of them: kernel values of rows with the same label are kept together.
        self.groups: np.ndarray | None = None
        # All kernel values: as rows are, or by label with the place of each row there. Copies of this object share it.
        self._values: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._known: KnownValues | None = None  # all kernel values, once they are kept for many problems

    @property
    def n_rows(self) -> int:
        return len(self.numbers)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    # -- vectors -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def vector(self, values: np.ndarray) -> Vector:
        """A host array on the device."""

    @abstractmethod
    def vectors(self, several: list[np.ndarray]) -> Vector:
        """Several vectors in one block of memory, as the rows of a matrix; always a copy."""

    @abstractmethod
    def places(self, rows: np.ndarray) -> Places:
        """Row positions on the device."""

    @abstractmethod
    def host(self, values: Vector) -> np.ndarray:
        """A copy of a vector on the host."""

    @abstractmethod
    def nonzero(self, values: Vector) -> Places:
        """Where a vector is not zero."""

    def lanes(self, n_rows: int) -> list[Lane]:
        """Where runs on ``n_rows`` of these rows or fewer go on at the same time; each is entered for a part of a run.

        One lane: a run leaves nothing to wait for.
        """
        return [nullcontext]

    def repeated(self, step: Callable[[], None]) -> Callable[[int], None]:
        """A function that repeats ``step``, which must update arrays in place and read nothing back to the host."""
        repeat: Callable[[int], None] = self._primitives.Repeated(step, self.ledger)
        return repeat

    def room(self, make: Callable[[KernelRows], T]) -> T:
        """What ``make`` builds on these rows, or on rows in memory that problems in the same lane use in turn.

        There rows that are all zero follow these. It is then built once, so that a recorded step can be used again.
        """
        return make(self)

    @property
    def are_sums_on_host(self) -> bool:
        """Whether the device takes longer to answer than the host to add up a copy of its vectors."""
        return False

    @abstractmethod
    def hinge_sums(self, scores: Vector, y: Vector, weight: Vector, scale: float, intercept: float) -> np.ndarray:
        """Hinge loss of all rows and its slopes, as :func:`widemargin.compiled.hinge.hinge_sums`."""

    # -- kernel values -----------------------------------------------------------------------------------------------

    @abstractmethod
    def points(self, rows: Places) -> Points:
        """The rows at these places, with their numbers."""

    @abstractmethod
    def only(self, rows: np.ndarray) -> KernelRows:
        """The same kernel on some of the rows."""

    @abstractmethod
    def cache(self, n_bytes: int) -> RowCache:
        """A cache of kernel rows of at most so many bytes, one for all problems on these rows."""

    @abstractmethod
    def times(self, points: Points, coef: Vector, *, exact: bool = False) -> Vector:
        """``sum_j coef_j k(x_i, z_j)`` for every row, summed in float64.

        Several columns of coefficients give as many columns of sums. The result is on the device of the coefficients.
        """

    @abstractmethod
    def rows(self, points: Points) -> np.ndarray:
        """Kernel values of points (down) with all rows (across), on the host."""

    @abstractmethod
    def block(self, points: Points, *, exact: bool = False) -> Block:
        """Kernel values between all pairs of some points, on the device of the points."""

    def values(self, most_rows: int, *, exact: bool = True) -> tuple[np.ndarray, np.ndarray | slice]:
        """Kernel values in float64 between all rows, on the host, and the order of the rows in them.

        A line has the values of one point for all rows, filled up with zeros to the width that working sets have. Rows
        of :meth:`only` take theirs from the values between the rows that they are some of, where these are at most
        ``most_rows``. Not ``exact``, they are in the type of sweeps, where :meth:`keep_classes` has said that values
        are kept.
        """
        if self._whole is None or self._whole[0].n_rows > most_rows:
            return self._kept_values("as they are", None)[0], slice(None)
        (whole, places), n = self._whole, self.n_rows
        values, place_of = whole._kept_values("by label", whole.groups)
        among, out = place_of[places], np.empty((n, padded(n)))
        order = np.argsort(among)
        sub_block(values, among[order], out)
        return out, order

    def values_at_hand(self) -> np.ndarray | None:
        """Those of :meth:`values` between all rows, where they are kept in the order of rows."""
        found = self._values.get("as they are")
        return None if found is None else found[0]

    def share_rows(self, n_bytes: int) -> None:  # noqa: B027
        """Let several problems on all of these rows share the kernel values that they ask for, where most have room.

        Sums and blocks of sweeps then keep the kernel rows of their points, in ``n_bytes``, and use them again.
        """

    def keep_values(self, n_bytes: int, space: Any = None, *, is_tied: bool = False) -> bool:
        """Whether all kernel values are kept for many problems, in ``n_bytes``; computes them.

        ``space`` is that of another kernel on the same rows, whose values are not needed any more. ``is_tied`` says
        that the coefficients of every problem sum to zero.
        """
        return False

    @property
    def space(self) -> Any:
        """The memory of what :meth:`keep_values` has kept."""
        return self._known

    def known_values(self) -> KnownValues | None:
        """What :meth:`keep_values` has kept; some of the rows have a copy of their values."""
        if self._known is None and self._whole is not None:
            whole, places = self._whole
            self._known = None if whole._known is None else whole._known.only(places)
        return self._known

    def keep_classes(self, most_rows: int, n_bytes: int) -> bool:
        """Whether kernel values within each class are kept for all pairs of classes; computes those of this pair.

        They are, where all rows are more than ``most_rows``, and those of classes of fewer fit in ``n_bytes``.
        """
        return False

    def times_known(self, numbers: np.ndarray, coef: np.ndarray) -> np.ndarray | None:
        """:meth:`times` for rows of this rank by their numbers, from all kernel values if they are kept; else None.

        Coefficients and sums have a line for each problem.
        """
        if not self._values:
            return None
        values, place_of = next(iter(self._values.values()))
        own = np.minimum(np.searchsorted(self.numbers, numbers), self.n_rows - 1)
        if not np.array_equal(self.numbers[own], numbers):
            return None
        out = np.empty((len(coef), self.n_rows))
        combined(values, place_of[own], coef, out)
        return np.asarray(out[:, place_of])

    def _kept_values(self, name: str, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        if name not in self._values:
            order = np.arange(self.n_rows) if groups is None else np.argsort(groups, kind="stable")
            self._values[name] = self._all_values(order), np.argsort(order)
        return self._values[name]

    def _all_values(self, order: np.ndarray) -> np.ndarray:
        n = self.n_rows
        out = np.zeros((n, padded(n)))
        out[:, :n] = self.host(self.block(self.points(self.places(order)), exact=True)).T
        return out

    def diagonal_of(self, points: Points) -> np.ndarray:
        """``k(z, z)`` of every point, in float64, on the host."""
        return self.kernel.diagonal(points.X, points.numbers)

    # -- working sets ------------------------------------------------------------------------------------------------

    def working_set(self, dual: Dual, kept: Places, middle: Vector, size: int) -> tuple[Places, Vector, Vector]:
        """``size`` rows: those that are kept, then the worst violators, half of them rising and half falling.

        Rows are grouped with their neighbours, and each group offers its worst row on each side. A free row counts on
        the side of ``middle`` that it pulls to. If one side has too few rows, the other fills up. Also returns the
        largest pull of a row that may rise and the smallest pull of a row that may fall.
        """
        keys, places, top, bottom = self._primitives.scan(dual, kept, middle, group_size(self.n_rows))
        if size >= self.n_rows:
            return self.places(np.arange(self.n_rows)), top, bottom
        return self._primitives.choose(keys, places, kept, size - len(kept)), top, bottom

    def kept(self, working: Places, dual: Dual, size: int) -> Places:
        """``size`` rows of a working set to keep, in order: free rows first, then the latest."""
        return self._primitives.keep(working, dual, size)

    def working_block(self, points: Points) -> Block:
        """Kernel values of a working set as :meth:`solve_block` reads them; the next call may overwrite them."""
        return self.block(points)

    def solve_block(
        self, K: Block, dual: Dual, tol: Vector, *, is_tied: bool, max_steps: int, middle: Vector = 0.0
    ) -> tuple[Vector, Vector, Any]:
        """Solve the dual of a working set: new ``beta``, new ``pull`` and the number of steps.

        ``is_tied`` keeps the sum of ``beta``. A GPU searches in float32 and measures pulls from ``middle`` for that.
        """
        solved: tuple[Vector, Vector, Any] = self._primitives.solve(K, dual, tol, middle, is_tied, max_steps)
        return solved

    # -- rounding ----------------------------------------------------------------------------------------------------
    # An exact response is the float64 sum of coef_j k(x, z_j). With e a bound on the error of a value, relative to
    # ||phi(x)|| ||phi(z)||, and values at most that large,
    #
    #     |computed - exact| <= ||phi(x)|| sum_j |coef_j| ||phi(z_j)|| (e + gamma(depth of the sum) (1 + e)).
    #
    # As in ``times``, results are on the device of the coefficients.

    def mass(self, coef: Vector) -> float:
        """``sum_j |coef_j| ||phi_j||`` over the rows of this rank; its sum over ranks scales all rounding errors."""
        return float(abs(coef) @ self._once("lengths", self._lengths, coef))

    def score_error(self, mass: float, n_terms: float, coef: Vector) -> Vector:
        """By how much the exact response of each row may be wrong, for so many coefficients of this mass."""
        (lengths, of_values), of_sum = self.error_terms(coef), gamma(self._sum_depth(n_terms) + 4)
        return mass * (of_values + of_sum * (1 + of_values)) * lengths

    def error_terms(self, coef: Vector) -> tuple[Vector, Any]:
        """``||phi(x)||`` of every row, and the error of its kernel values: a number of each row, or of all."""
        return self._once("lengths", self._lengths, coef), self._once("value error", self._value_error, coef)

    def sweep_error(self, reach: Vector, mass: float, n_terms: float) -> Vector:
        """By how much responses may be wrong that are sums of values that are not exact.

        ``reach`` has the same sums with the sizes of all coefficients, where ``has_relative_errors``; a response may be
        the sum of several calls of :meth:`times`. Infinite where no bound is known.
        """
        is_exact = self.dtype == np.float64 or self.kernel.name == "precomputed"
        return self.score_error(mass, n_terms, reach) if is_exact else reach * 0.0 + np.inf

    def _once(self, name: str, compute: Callable[[Vector], Vector], coef: Vector) -> Vector:
        """What does not depend on the coefficients, but for the device that they are on."""
        key = name, type(coef)
        if key not in self._rounding:
            self._rounding[key] = compute(coef)
        return self._rounding[key]

    def _value_error(self, coef: Vector) -> Any:
        """The error of exact kernel values of each row with any other, relative to ``||phi(x)|| ||phi(z)||``.

        A product of rows takes at most k roundings on the way of any of its terms, k the number of entries. Squared
        distances from norms and products, of rows that may be centred, take five more, and have errors of
        ``gamma (|x| + |z|)^2``. If one of the rows is twice as long as the other, that is at most
        ``9 gamma |x - z|^2``, and ``t exp(-t) <= 1 / e``; else at most ``9 gamma |x|^2``, whatever z is. 1-norm
        distances are treated alike.
        """
        kernel, k = self.kernel, self.width
        if kernel.function is not None or kernel.name == "precomputed":
            return 0.0  # the values are those that are given
        if kernel.name == "linear":
            return gamma(k + 2)
        if kernel.name == "poly":
            return gamma(kernel.degree * (k + 4))
        if kernel.name == "cosine":
            return gamma(2 * k + 10)  # the norms take half as many
        if kernel.name == "sigmoid":
            return gamma(k + 4) * (1 + float(kernel.gamma) * self.longest**2 + abs(kernel.coef0)) + 4 * _EXP_ERROR
        if self.is_by_differences:
            return gamma(k + 5) + _EXP_ERROR
        squares = self._squares(coef)
        if kernel.name == "laplacian":
            unit, exponents = gamma(2 * k + 5), 6 * float(kernel.gamma) * (self.n_features * squares) ** 0.5
        else:
            unit, exponents = gamma(k + 5), 9 * float(kernel.gamma) * squares
        error = (unit * exponents).clip(0.0, 1.0)  # beyond 1 nothing is known of a value
        return error * (1 + error) + 3.4 * unit + _EXP_ERROR  # exp(t) - 1 <= t + t^2 up to t = 1

    def _lengths(self, coef: Vector) -> Vector:
        """``||phi(x)||`` of every row, or 1 for all rows where no kernel value is larger."""
        return coef * 0.0 + 1.0 if self.kernel.is_bounded else abs(self._diagonal(coef)) ** 0.5

    @abstractmethod
    def _sum_depth(self, n_terms: float) -> float:
        """At most so many additions are on the way of a kernel value to an exact response."""

    @abstractmethod
    def _squares(self, coef: Vector) -> Vector:
        """``||x||^2`` of every row as it is multiplied, which may be centred, on the device of the coefficients."""

    @abstractmethod
    def _diagonal(self, coef: Vector) -> Vector:
        """``k(x, x)`` of every row, on the device of the coefficients."""


class RowsOnDevice(KernelRows):
    """Rows of a device that solves many problems side by side, by values that :meth:`keep_values` has kept."""

    @property
    @abstractmethod
    def has_lockstep(self) -> bool:
        """Whether values are kept, and bound a gap."""

    @abstractmethod
    def lockstep(self, labels: np.ndarray, weights: np.ndarray, which: np.ndarray, Cs: np.ndarray, size: int) -> Any:
        """Problems side by side, where ``has_lockstep``: ``which`` has the lines of labels and of weights of each.

        ``size`` is that of their working sets.
        """

    @abstractmethod
    def lockstep_room(self, size: int) -> float:
        """How many problems have room side by side."""
