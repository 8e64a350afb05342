"""Products of rows with points that are the columns of panels, added up in vector registers.

A panel is a dense array of shape (d, width): a line of it holds one feature of ``width`` points and fills eight vector
registers. For each entry of a row, the line of its feature is multiplied with it and added to the registers. Those of a
sparse row are read from a tile of sums and written back at the end, so that its entries may be added group by group, in
their order: while the rows of a tile pass over one group of features, its lines stay in the first-level cache. The sums
do not depend on the groups, and a sum of k entries takes k roundings at most.

Lines begin at multiples of 64 bytes: a register that crosses two lines of the cache takes two reads.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from widemargin.compiled.jit import compiled

ALIGNMENT = 64  # bytes
_REGISTER_BYTES = 64 if "+avx512f" in get_host_cpu_features() else 32
_LINE_BYTES = 8 * _REGISTER_BYTES
_GROUP_BYTES = 48 << 10  # of a panel that stays in the first-level cache
_CONTRACT = ("contract",)  # a product and a sum may be rounded once


def panel_width(dtype: Any) -> int:
    """How many points a panel holds, for products of this type."""
    return _LINE_BYTES // np.dtype(dtype).itemsize


def group_size(d: int, n_entries: float) -> int:
    """How many features a group has, for rows of ``d`` features, ``n_entries`` of them not zero on average.

    Each group has at least eight entries of an average row, so that reading and writing sums takes less than adding.
    """
    n_groups = max(1, min(-(-d * _LINE_BYTES // _GROUP_BYTES), int(n_entries / 8)))
    return max(1, -(-d // n_groups))


class _Writer:
    """Writes the sums of products of one panel with rows whose entries are read together."""

    def __init__(self, context: Any, builder: Any, panels: Any, p: Any, tile: Any, dtype: Any) -> None:
        self._builder, self._tile, self._size = builder, tile, dtype.bitwidth // 8
        self._index = context.get_value_type(types.intp)
        self._vector = ir.VectorType(context.get_data_type(dtype), _REGISTER_BYTES // self._size)
        self._width = _LINE_BYTES // self._size
        n_entries = builder.mul(builder.extract_value(panels.shape, 1), self.whole(self._width))
        self._panel = builder.gep(panels.data, [builder.mul(p, n_entries)])

    def whole(self, value: int) -> Any:
        return ir.Constant(self._index, value)

    def nothing(self) -> list[Any]:
        """Sums to begin with."""
        zeros = ir.Constant(self._vector, [0.0] * self._vector.count)
        return [zeros] * (self._width // self._vector.count)

    def read(self, i: Any, left: Any) -> list[Any]:
        """The sums of a row of the tile."""
        places = self._places(i, left)
        return [self._builder.load(place, align=self._size) for place in places]

    def write(self, sums: list[Any], i: Any, left: Any) -> None:
        for total, place in zip(sums, self._places(i, left), strict=True):
            self._builder.store(self._builder.load(total), place, align=self._size)

    def add(self, rows: list[Any], indices: Any, begin: Any, end: Any, start: list[Any]) -> list[list[Any]]:
        """Add products of the entries from ``begin`` to ``end`` of each row; returns where its sums are.

        ``indices`` are the features of the entries; without them, an entry's number is its feature.
        """
        builder, first = self._builder, ir.Constant(ir.VectorType(ir.IntType(32), self._vector.count), 0)
        each = [[cgutils.alloca_once(builder, self._vector) for _ in start] for _ in rows]
        for sums in each:
            for total, value in zip(sums, start, strict=True):
                builder.store(value, total)
        with cgutils.for_range_slice(builder, begin, end, self.whole(1), self._index) as (at, _):
            feature, undefined, entries = at, ir.Constant(self._vector, ir.Undefined), []
            if indices is not None:
                feature = builder.load(builder.gep(indices, [at]))
                feature = feature if feature.type == self._index else builder.zext(feature, self._index)
            for row in rows:
                entry = builder.insert_element(undefined, builder.load(builder.gep(row, [at])), self.whole(0))
                entries.append(builder.shuffle_vector(entry, undefined, first))
            line = self._vectors(builder.gep(self._panel, [builder.mul(feature, self.whole(self._width))]))
            for k in range(len(start)):
                coordinates = builder.load(builder.gep(line, [self.whole(k)]), align=self._size)
                for entry, sums in zip(entries, each, strict=True):
                    product = builder.fmul(entry, coordinates, flags=_CONTRACT)
                    builder.store(builder.fadd(product, builder.load(sums[k]), flags=_CONTRACT), sums[k])
        return each

    def _places(self, i: Any, left: Any) -> list[Any]:
        stride = self._builder.extract_value(self._tile.shape, 1)
        at = self._builder.add(self._builder.mul(i, stride), left)
        target = self._vectors(self._builder.gep(self._tile.data, [at]))
        return [self._builder.gep(target, [self.whole(k)]) for k in range(self._width // self._vector.count)]

    def _vectors(self, pointer: Any) -> Any:
        return self._builder.bitcast(pointer, self._vector.as_pointer())


def _add_entries_of(context, data, indices, row, begin, end, panels, p, tile, i, left):
    """Add products of some entries of a sparse row with the points of panel ``p`` to ``tile[i, left : left + width]``.

    The row begins at ``row`` in ``data``, and its entries count from there.
    """

    def write(context, builder, signature, arguments):
        data, indices, panels, tile = _arrays(context, builder, signature, arguments, (0, 1, 5, 7))
        row, begin, end, p, i, left = (arguments[k] for k in (2, 3, 4, 6, 8, 9))
        writer = _Writer(context, builder, panels, p, tile, signature.args[0].dtype)
        entries, features = builder.gep(data.data, [row]), builder.gep(indices.data, [row])
        (sums,) = writer.add([entries], features, begin, end, writer.read(i, left))
        writer.write(sums, i, left)
        return context.get_dummy_value()

    return types.void(data, indices, row, begin, end, panels, p, tile, i, left), write


def _multiply_rows(n_rows):
    """Write products of ``n_rows`` dense rows from ``first`` on to ``tile[i : i + n_rows, left : left + width]``."""

    def of(context, rows, first, panels, p, tile, i, left):
        def write(context, builder, signature, arguments):
            rows, panels, tile = _arrays(context, builder, signature, arguments, (0, 2, 4))
            first, p, i, left = (arguments[k] for k in (1, 3, 5, 6))
            writer = _Writer(context, builder, panels, p, tile, signature.args[0].dtype)
            d, places = builder.extract_value(rows.shape, 1), range(n_rows)
            entries = [builder.gep(rows.data, [builder.mul(builder.add(first, writer.whole(r)), d)]) for r in places]
            each = writer.add(entries, None, writer.whole(0), d, writer.nothing())
            for r in places:
                writer.write(each[r], builder.add(i, writer.whole(r)), left)
            return context.get_dummy_value()

        return types.void(rows, first, panels, p, tile, i, left), write

    return of


def _arrays(context, builder, signature, arguments, places):
    return [context.make_array(signature.args[k])(context, builder, arguments[k]) for k in places]


add_entries: Any = intrinsic(_add_entries_of)
multiply_row: Any = intrinsic(_multiply_rows(1))
# Two rows share what is read of a panel. Their sums take 16 registers, which is all that there are of 32 bytes.
ROWS_AT_ONCE = 2 if _REGISTER_BYTES == 64 else 1
multiply_rows: Any = intrinsic(_multiply_rows(ROWS_AT_ONCE))


@compiled()
def panel_of_dense(X, begin, end, panel):
    """Write some rows to the columns of a panel, filled up with zeros."""
    panel[:, end - begin :] = 0
    for j in range(panel.shape[0]):
        for k in range(end - begin):
            panel[j, k] = X[begin + k, j]


@compiled()
def panel_of_sparse(data, indices, starts, splits, begin, end, panel):
    """:func:`panel_of_dense` of sparse rows."""
    panel[:] = 0
    for k in range(end - begin):
        row = np.intp(starts[begin + k])
        for at in range(row, row + np.intp(splits[begin + k, -1])):
            panel[indices[at], k] += data[at]
