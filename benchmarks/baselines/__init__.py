"""Algorithms that the papers compare with, on the library's own protocol; they are not in the wheel."""
