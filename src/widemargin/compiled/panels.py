"""Products of rows with points that are the columns of panels, added up in vector registers.

A panel is a dense array of shape (d, width): a line of it holds one feature of ``width`` points and fills eight vector
registers. For each entry of a row, the line of its feature is multiplied with it and added to the registers, which are
read from a tile of sums and written back at the end. So the entries of a row may be added group by group, in their
order: while the rows of a tile pass over one group of features, its lines stay in the first-level cache. The sums do
not depend on the groups, and a sum of k entries takes k roundings at most.

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


def _add_entries_of(context, data, indices, row, begin, end, panels, p, tile, i, left):
    """Add products of some entries of a row with the points of panel ``p`` to ``tile[i, left : left + width]``.

    The row begins at ``row`` in ``data``, and its entries count from there. Without ``indices`` it is a dense one.
    """
    return types.void(data, indices, row, begin, end, panels, p, tile, i, left), _write_add_entries


def _write_add_entries(context, builder, signature, arguments):
    number = context.get_data_type(signature.args[0].dtype)
    index, size = context.get_value_type(types.intp), signature.args[0].dtype.bitwidth // 8
    vector, width = ir.VectorType(number, _REGISTER_BYTES // size), _LINE_BYTES // size

    def array(k):
        return context.make_array(signature.args[k])(context, builder, arguments[k])

    def whole(value):
        return ir.Constant(index, value)

    def vectors(pointer):
        return builder.bitcast(pointer, vector.as_pointer())

    indices = None if isinstance(signature.args[1], types.NoneType) else array(1)
    panels, tile = array(5), array(7)
    row, begin, end, p, i, left = (arguments[k] for k in (2, 3, 4, 6, 8, 9))
    n_lines, stride = builder.extract_value(panels.shape, 1), builder.extract_value(tile.shape, 1)
    panel = builder.gep(panels.data, [builder.mul(p, builder.mul(n_lines, whole(width)))])
    target = vectors(builder.gep(tile.data, [builder.add(builder.mul(i, stride), left)]))
    entries = builder.gep(array(0).data, [row])
    sums = []
    for k in range(width // vector.count):
        loaded = builder.load(builder.gep(target, [whole(k)]), align=size)
        sums.append(cgutils.alloca_once_value(builder, loaded))
    with cgutils.for_range_slice(builder, begin, end, whole(1), index) as (at, _):
        feature = at
        if indices is not None:
            feature = builder.load(builder.gep(indices.data, [builder.add(row, at)]))
            feature = feature if feature.type == index else builder.zext(feature, index)
        entry = builder.load(builder.gep(entries, [at]))
        nothing, first = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), vector.count), 0)
        entry = builder.shuffle_vector(builder.insert_element(nothing, entry, whole(0)), nothing, first)
        line = vectors(builder.gep(panel, [builder.mul(feature, whole(width))]))
        for k, total in enumerate(sums):
            coordinates = builder.load(builder.gep(line, [whole(k)]), align=size)
            product = builder.fmul(entry, coordinates, flags=_CONTRACT)
            builder.store(builder.fadd(product, builder.load(total), flags=_CONTRACT), total)
    for k, total in enumerate(sums):
        builder.store(builder.load(total), builder.gep(target, [whole(k)]), align=size)
    return context.get_dummy_value()


add_entries: Any = intrinsic(_add_entries_of)


@compiled()
def panel_of_dense(X, begin, end, panel):
    """Write some rows to the columns of a panel, filled up with zeros."""
    panel[:, end - begin :] = 0
    for j in range(panel.shape[0]):
        for k in range(end - begin):
            panel[j, k] = X[begin + k, j]


@compiled()
def panel_of_csr(data, indices, indptr, begin, end, panel):
    """:func:`panel_of_dense` of sparse rows."""
    panel[:] = 0
    for k in range(end - begin):
        for at in range(np.intp(indptr[begin + k]), np.intp(indptr[begin + k + 1])):
            panel[indices[at], k] += data[at]
