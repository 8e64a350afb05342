"""Walks through networks of peers."""

import numpy as np

from widemargin.compiled.jit import compiled


@compiled()
def reach(me, snapshots, links, pool, is_excluded, is_reached, reached):
    """Mark who is reached from ``me`` along the links in snapshots; whether the snapshots of all of them are known.

    ``snapshots`` has the number of each peer's snapshot, 0 for none; the links of a snapshot are in ``pool``, from
    ``links`` on: how many there are, then their ends. ``reached`` is for the work.
    """
    is_reached[me] = True
    reached[0] = me
    n_reached, n_done, is_known = 1, 0, True
    while n_done < n_reached:
        snapshot = snapshots[reached[n_done]]
        n_done += 1
        if snapshot == 0:
            is_known = False
            continue
        first = links[snapshot] + 1
        for k in range(first, first + pool[first - 1]):
            end = np.int64(pool[k])
            if not is_reached[end] and not is_excluded[end]:
                is_reached[end] = True
                reached[n_reached] = end
                n_reached += 1
    return is_known
