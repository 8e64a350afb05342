"""``python -m widemargin.cli`` is the command ``widemargin``."""

from widemargin.cli import main

main()
