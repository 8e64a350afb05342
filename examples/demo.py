"""Train hard-margin, nu and kernel SVMs on small data, print what was proven, and draw the way there."""

from __future__ import annotations

from pathlib import Path

from widemargin.reports.demo import run

if __name__ == "__main__":
    run(Path("demo-output"))
