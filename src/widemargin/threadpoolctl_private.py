"""BLAS libraries and their numbers of threads: what threadpoolctl has no public name for, in one place."""

from __future__ import annotations

import threading
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["BlasLibrary", "blas_libraries"]


class BlasLibrary:
    """One library that is loaded: its number of threads, a setting of the process or of each thread."""

    def __init__(self, controller: Any) -> None:
        self.get = controller.get_num_threads
        # The public function does nothing, from 3.7 on, in any thread but the first that called it.
        self.set = getattr(controller, "_real_set_num_threads", controller.set_num_threads)
        self.is_per_thread = self._is_per_thread()

    def _is_per_thread(self) -> bool:
        """Whether another thread changes the number for itself alone; MKL, and OpenBLAS on OpenMP."""
        before = self.get()
        other = threading.Thread(target=self.set, args=(1 if before > 1 else 2,))
        other.start()
        other.join()
        is_so = bool(self.get() == before)
        self.set(before)
        return is_so


def blas_libraries() -> list[BlasLibrary]:
    """Those that are loaded and have threads; it takes milliseconds to look for them."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [BlasLibrary(controller) for controller in found if controller.get_num_threads() is not None]
