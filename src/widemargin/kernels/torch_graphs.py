"""Work on a CUDA device that is recorded once and then started as a whole."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any, ClassVar

import torch

from widemargin.ledger import Ledger


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: it might destroy another graph, which is not allowed during a recording."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def _streams(device: int, n: int) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(n)]


def lanes(n: int) -> list[Callable[[], Any]]:
    """Streams whose work goes on at the same time, after what was started before; one: the stream of the caller."""
    if n == 1:
        return [nullcontext]
    streams = _streams(torch.cuda.current_device(), n)
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    return [partial(torch.cuda.stream, stream) for stream in streams]


class Graph:
    # Memory for temporary tensors, one pool per stream, since graphs of one stream never run at the same time; a graph
    # that stays alive keeps it.
    _pools: ClassVar[dict[tuple[int, int], tuple[Any, Graph | None]]] = {}

    def __init__(self, step: Callable[[], Any]) -> None:
        where = torch.cuda.current_device(), int(torch.cuda.current_stream().cuda_stream)
        if where not in self._pools:
            self._pools[where] = torch.cuda.graph_pool_handle(), None
            keeper = Graph(lambda: torch.zeros(1, device="cuda"))
            self._pools[where] = self._pools[where][0], keeper
        self._graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), _no_collection():
            self._graph.capture_begin(pool=self._pools[where][0])
            try:
                step()
            finally:
                self._graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)

    def __call__(self) -> None:
        self._graph.replay()


class Repeated:
    """A step that is repeated on the same memory without reading anything back to the host.

    A replayed step adds to the ledger what it added when it was recorded.
    """

    def __init__(self, step: Callable[[], None], ledger: Ledger) -> None:
        self._step, self._ledger = step, ledger
        self._graph: Graph | None = None
        self._values, self._is_warm = 0, False

    def __call__(self, times: int) -> None:
        for _ in range(times):
            if not self._is_warm:
                self._step()  # kernels that are compiled when first used cannot be recorded
                self._is_warm = True
                continue
            if self._graph is None:
                before = self._ledger.kernel_evaluations
                self._graph = Graph(self._step)
                self._values = self._ledger.kernel_evaluations - before
                self._ledger.kernel_evaluations = before
            self._graph()
            self._ledger.kernel_evaluations += self._values
