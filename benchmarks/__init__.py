"""One program per question, each against named peers in one run; results as JSON and pictures under ``results/``.

Run from a checkout: ``python -m benchmarks.nu_margin``, with ``--quick`` for a smoke run.
"""
