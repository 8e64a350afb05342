"""The command ``widemargin``."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

_EXTRAS = {"typer": "cli", "rich": "cli", "zmq": "cli,gossip", "matplotlib": "cli,plot", "onnx": "cli,onnx"}
_INTERRUPTED = 130
_EXPECTED = (ValueError, OSError, ImportError, MemoryError)


def main() -> None:
    """Run the command. Whatever is wrong is said in a sentence, with the exit code 2."""
    try:
        _run()
    except KeyboardInterrupt:
        _fail("Interrupted.", _INTERRUPTED)


def _run() -> NoReturn:
    try:
        import typer

        from widemargin.cli.app import app
    except ModuleNotFoundError as error:
        _fail(in_words(error))
    usage_error: Any = typer.BadParameter.__mro__[1]  # of click, or of typer's own copy of it
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except SystemExit as end:
        if end.code == _INTERRUPTED:  # which typer does not say
            _fail("Interrupted.", _INTERRUPTED)
        raise
    except usage_error as error:
        _fail(error.format_message())
    except typer.Abort:
        _fail("Interrupted.", _INTERRUPTED)
    except BrokenPipeError:  # whoever read the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if os.environ.get("WIDEMARGIN_TRACEBACK") and not isinstance(error, _EXPECTED):
            raise
        _fail(in_words(error))


def in_words(error: Exception) -> str:
    """What is said of an error, on one line."""
    text = str(error)
    if isinstance(error, ModuleNotFoundError):
        extra = _EXTRAS.get((error.name or "").split(".")[0])
        text = text if extra is None else f"This command needs {error.name}: pip install 'widemargin[{extra}]'."
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}."
    elif isinstance(error, MemoryError):
        text = "There is not enough memory for this."
    elif not isinstance(error, _EXPECTED):
        text = (
            f"This should not have happened: {type(error).__name__}: {error} (WIDEMARGIN_TRACEBACK=1 shows where; "
            "please tell us)."
        )
    return " ".join(text.split())


def _fail(sentence: str, code: int = 2) -> NoReturn:
    sys.stderr.write(" ".join(sentence.split()) + "\n")
    raise SystemExit(code) from None
