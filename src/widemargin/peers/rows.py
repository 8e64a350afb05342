"""The rows of one peer, and the sums over them that it sends."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from widemargin.compiled import csr
from widemargin.data.shard import csr_arrays
from widemargin.peers.cutting_planes import Cut
from widemargin.rounding import gamma

_MAX_EXPONENT = 1000
LARGEST_LOSS = 1e90  # that is sent


@dataclass(frozen=True)
class PeerRows:
    """Rows with a label of +1 or -1 in each of several problems, which share all messages.

    ``X`` is dense or CSR of shape (n, d), with a constant feature if there is an intercept; ``signs`` has shape
    (problems, n); ``weight`` are multiplicities.
    """

    X: Any
    signs: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, X: Any, codes: np.ndarray, weight: np.ndarray, n_classes: int, *, has_constant: bool) -> Self:
        """Rows with class numbers as labels: one problem for two classes, else one for each class against the rest."""
        if has_constant:
            ones = np.ones((X.shape[0], 1), X.dtype)
            X = sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.hstack([X, ones])
        positive = [1] if n_classes == 2 else range(n_classes)
        signs = np.array([np.where(codes == k, 1.0, -1.0) for k in positive])
        return cls(X, signs.reshape(len(positive), X.shape[0]), np.asarray(weight, dtype=np.float64))

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_problems(self) -> int:
        return len(self.signs)

    @cached_property
    def total(self) -> float:
        """The sum of the weights, rounded once."""
        return math.fsum(self.weight.tolist())

    @property
    def classes(self) -> np.ndarray:
        """The class number of each row."""
        classes: np.ndarray = (self.signs[0] > 0).astype(np.intp) if len(self.signs) == 1 else self.signs.argmax(axis=0)
        return classes

    @cached_property
    def _scale(self) -> np.ndarray:
        """The power of two next to the largest entry of each column; 1 for columns of zeros."""
        if self.n_rows == 0:
            return np.ones(self.n_features)
        largest = abs(self.X).max(axis=0)
        largest = np.asarray(largest.toarray() if sp.issparse(largest) else largest, dtype=np.float64).ravel()
        exponents = np.clip(np.where(largest > 0, np.frexp(largest)[1], 0), -_MAX_EXPONENT, _MAX_EXPONENT)
        return np.asarray(np.ldexp(1.0, exponents))

    @cached_property
    def _scaled_lengths(self) -> np.ndarray:
        return self._row_lengths(1.0 / self._scale)

    @cached_property
    def _lengths(self) -> np.ndarray:
        return self._row_lengths(np.ones(self.n_features))

    def _row_lengths(self, factors: np.ndarray) -> np.ndarray:
        """An upper bound of the length of each row, its columns multiplied by factors."""
        X = self.X.multiply(factors[None, :]).tocsr() if sp.issparse(self.X) else self.X * factors
        squares = X.multiply(X).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
        return np.asarray(np.sqrt(np.asarray(squares, dtype=np.float64).ravel()) * (1 + gamma(self.n_features + 8)))

    def hinge_sums(self, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds of ``sum_i m_i max(0, 1 - y_i w.x_i)``, and how much of each allows for rounding.

        Both are (models, problems), of models of shape (models, problems, d). A score is off by
        ``gamma(d) |x|.|w| <= gamma(d) ||x / s|| ||s w||`` whatever the scale s of the columns, and the slack 1 - y w.x
        by one rounding more. The sum over n rows has no negative term: it is off by ``gamma(n + 1)`` of itself.
        Products that underflow change a score by less than the roundings of 1 that are counted.
        """
        n_models, n_problems, d = models.shape
        flat = models.reshape(-1, d)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = np.asarray(self.X @ flat.T).T.reshape(n_models, n_problems, self.n_rows)
            sizes = np.linalg.norm(flat * self._scale, axis=1).reshape(n_models, n_problems, 1)
            error = gamma(2 * d + 16) * (1.0 + self._scaled_lengths * sizes)
            slack = 1.0 - self.signs * scores
            upper = (np.maximum(0.0, slack + error) @ self.weight) * (1 + gamma(self.n_rows + 8))
            allowance = upper - np.maximum(0.0, slack) @ self.weight
        # A loss beyond all measure is none that an optimum has, and any large number is above that.
        is_finite = upper < LARGEST_LOSS
        return np.where(is_finite, upper, LARGEST_LOSS), np.where(is_finite, allowance, LARGEST_LOSS)

    def is_violated(self, models: np.ndarray) -> np.ndarray:
        """Whether ``y_i w.x_i < 1`` with the model of each problem, (problems, n)."""
        return np.asarray(self.signs * np.asarray(self.X @ models.T).T < 1.0)

    def cut(self, dual: np.ndarray) -> Cut:
        """``A`` and ``V`` of dual variables between 0 and the weights, (problems, n).

        A sum over n rows is off by ``gamma(n + 1)`` of the sum of the sizes of its terms: A of itself, and V by that of
        sum_i a_i ||x_i||.
        """
        loss = gamma(self.n_rows + 8)
        return Cut(dual.sum(axis=1) * (1 - loss), self.combine(dual), loss * (dual @ self._lengths) * (1 + loss))

    def combine(self, dual: np.ndarray) -> np.ndarray:
        """``V = sum_i a_i y_i x_i`` of each problem."""
        coefficients = dual * self.signs
        if not sp.issparse(self.X):
            return np.asarray(coefficients @ self.X, dtype=np.float64)
        total = np.empty((self.n_problems, self.n_features))
        for k in range(self.n_problems):
            csr.combine_csr(*csr_arrays(self.X), coefficients[k], total[k])
        return total

    def moment(self, *, is_full: bool) -> np.ndarray:
        """``sum_i m_i x_i x_i'``, or its diagonal."""
        X = self.X.astype(np.float64)
        if is_full:
            scaled = X.multiply(self.weight[:, None]).tocsr() if sp.issparse(X) else X * self.weight[:, None]
            product = X.T @ scaled
            return product.toarray() if sp.issparse(product) else np.asarray(product)
        squares = X.multiply(X) if sp.issparse(X) else X * X
        return np.asarray(squares.T @ self.weight, dtype=np.float64).ravel()

    def clipped(self, limit: float) -> "PeerRows":
        """The rows in float64, longer ones scaled down: no norm is above ``limit``, not even by rounding."""
        rows = PeerRows(self.X.astype(np.float64), self.signs, self.weight)
        with np.errstate(divide="ignore"):
            factors = np.minimum(1.0, limit / rows._lengths * (1 - gamma(8)))
        X = sp.diags(factors).dot(rows.X).tocsr() if sp.issparse(rows.X) else rows.X * factors[:, None]
        return PeerRows(X, self.signs, self.weight)

    def joined(self, other: "PeerRows") -> "PeerRows":
        """These rows and others after them."""
        if sp.issparse(self.X) != sp.issparse(other.X):
            raise ValueError("New rows must be sparse if the present ones are, and dense if they are dense.")
        X = sp.vstack([self.X, other.X], format="csr") if sp.issparse(self.X) else np.vstack([self.X, other.X])
        return PeerRows(X, np.hstack([self.signs, other.signs]), np.concatenate([self.weight, other.weight]))
