"""The two-class problems of a fit: one per pair of classes, or one per class against the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import Literal

import numpy as np

from widemargin.compiled.labels import votes_of_pairs
from widemargin.data.pieces import each_piece
from widemargin.data.shard import Shard
from widemargin.kernels.points import Points
from widemargin.kernels.protocol import KernelRows, Vector

MultiClass = Literal["pairs", "rest"]
_WORK_PER_CLASS = 6e6  # multiplications in the time that a class takes to be computed by itself


@dataclass(frozen=True)
class Parts:
    """The positive and the negative class of each problem, and how their scores are combined.

    With two classes there is one problem, and a positive score means the second class. With more classes, pairs are in
    LIBSVM's order, a positive score means the first class of the pair, and the pairs vote. Votes, scores and ties are
    those of scikit-learn's ``SVC``.
    """

    n_classes: int
    multi_class: MultiClass

    @cached_property
    def pairs(self) -> list[tuple[int, int | None]]:
        """The positive and the negative class of each problem; None stands for all others."""
        if self.n_classes == 2:
            return [(1, 0)]
        if self.multi_class == "rest":
            return [(positive, None) for positive in range(self.n_classes)]
        return list(combinations(range(self.n_classes), 2))

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def are_votes(self) -> bool:
        return self.n_classes > 2 and self.multi_class == "pairs"

    @property
    def kind(self) -> str:
        """What several problems are called."""
        return "pairs of classes" if self.multi_class == "pairs" else "classes against the rest"

    def names(self, classes: np.ndarray) -> list[str]:
        return [
            f"{classes[positive]} against {'the rest' if negative is None else classes[negative]}"
            for positive, negative in self.pairs
        ]

    def weights(self, totals: np.ndarray) -> list[tuple[float, float]]:
        """The weights of the positive and negative rows of each problem, from the weight of each class."""
        return [(totals[p], totals.sum() - totals[p] if n is None else totals[n]) for p, n in self.pairs]

    def labelled(self, shard: Shard, part: int) -> Shard:
        """The rows of one problem, with labels -1 and +1."""
        positive, negative = self.pairs[part]
        return shard.against_rest(positive) if negative is None else shard.between(positive, negative)

    def all_labelled(self, shard: Shard) -> Iterator[Shard]:
        return (self.labelled(shard, part) for part in range(len(self)))

    def kernel_sums(self, rows: KernelRows, support: Points, coef: np.ndarray, *, exact: bool = False) -> Vector:
        """``sum_j coef_pj k(x, z_j)`` of every row x for every problem p, which has a row of coefficients.

        A support vector takes part in the pairs of its class alone: those of each class are taken together, so that
        no kernel value is multiplied with the zeros of all other pairs.
        """
        classes = self._classes_of(coef) if self._is_worth_grouping(rows.n_rows, coef) else None
        if classes is None:
            return rows.times(support, rows.vector(np.ascontiguousarray(coef.T)), exact=exact)
        places = _pairs_of_classes(self.n_classes)
        out = rows.vector(np.zeros((rows.n_rows, len(coef))))
        for k in range(self.n_classes):
            own = np.flatnonzero(classes == k)
            if len(own):
                some = rows.vector(np.ascontiguousarray(coef[places[:, k]][:, own].T))
                out[:, places[:, k]] += rows.times(support[own], some, exact=exact)
        return out

    def _is_worth_grouping(self, n_rows: int, coef: np.ndarray) -> bool:
        n_zero = (len(coef) - self.n_classes + 1) * coef.shape[1]  # at least
        return self.are_votes and n_rows * n_zero > _WORK_PER_CLASS * self.n_classes

    def _classes_of(self, coef: np.ndarray) -> np.ndarray | None:
        """The class of each support vector, by the pairs in which it has a coefficient; None if one is in no class.

        One with a single coefficient is given to either class of that pair.
        """
        is_used, places = coef != 0, _pairs_of_classes(self.n_classes)
        counts = np.stack([np.count_nonzero(is_used[places[:, k]], axis=0) for k in range(self.n_classes)])
        are_complete = np.array_equal(counts.max(axis=0), np.count_nonzero(is_used, axis=0))
        return counts.argmax(axis=0) if are_complete else None

    def class_scores(self, scores: np.ndarray) -> np.ndarray:
        """Combine the scores of all problems: of shape (n_rows,) for two classes, else (n_rows, n_classes).

        Each pair has one vote. The sum of a class's scores, mapped into (-1/3, 1/3), is added to its votes.
        """
        if self.n_classes == 2:
            return scores[:, 0]
        if not self.are_votes:
            return scores
        out = np.empty((len(scores), self.n_classes))
        each_piece(lambda rows: votes_of_pairs(scores[rows], out[rows]), len(scores), 4.0 * len(self))
        return out

    def winners(self, class_scores: np.ndarray) -> np.ndarray:
        """The number of the class that each row is given, from the combined scores of all problems.

        The first class with the most votes wins, as in LIBSVM: sums of scores do not break ties.
        """
        if self.n_classes == 2:
            return (class_scores > 0).astype(np.intp)
        best: np.ndarray = (np.rint(class_scores) if self.are_votes else class_scores).argmax(axis=1)
        return best


@cache
def _pairs_of_classes(n_classes: int) -> np.ndarray:
    """The numbers of the pairs that each class is in, one class a column."""
    pairs = np.array(list(combinations(range(n_classes), 2)))
    return np.stack([np.flatnonzero((pairs == k).any(axis=1)) for k in range(n_classes)], axis=1)
