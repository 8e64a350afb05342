"""Algorithms that the papers compare with, and the papers' own as they are printed; they are not in the wheel."""
