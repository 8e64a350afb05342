"""The command ``widemargin``."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from widemargin.cli._say import one_line

_EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "zmq": "cli,gossip",
    "nacl": "cli,gossip",
    "matplotlib": "cli,plot",
    "onnx": "cli,onnx",
}
_INTERRUPTED = 130
_EXPECTED = (ValueError, OSError, ImportError, MemoryError)


def main() -> None:
    """Run the command; an error is one line on stderr, and the exit code is 2."""
    try:
        import typer

        from widemargin.cli.app import app

        usage_error: Any = typer.BadParameter.__mro__[1]  # of click, or of typer's own copy of it
        sys.exit(app(standalone_mode=False) or 0)
    except KeyboardInterrupt:
        _fail("Interrupted.", _INTERRUPTED)
    except ImportError as error:  # perhaps of typer itself
        _fail(in_words(error))
    except SystemExit as end:
        if end.code == _INTERRUPTED:  # typer prints nothing then
            _fail("Interrupted.", _INTERRUPTED)
        raise
    except usage_error as error:
        _fail(error.format_message())
    except typer.Abort:
        _fail("Interrupted.", _INTERRUPTED)
    except BrokenPipeError:  # the reader of the output closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if os.environ.get("WIDEMARGIN_TRACEBACK") and not isinstance(error, _EXPECTED):
            raise
        _fail(in_words(error))


def in_words(error: Exception) -> str:
    """The one-line message of an error."""
    text = str(error)
    if isinstance(error, ModuleNotFoundError):
        extra = _EXTRAS.get((error.name or "").split(".")[0])
        text = text if extra is None else f"This command needs {error.name}: pip install 'widemargin[{extra}]'."
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}."
    elif isinstance(error, MemoryError):
        text = "Not enough memory."
    elif not isinstance(error, _EXPECTED):
        advice = "Set WIDEMARGIN_TRACEBACK=1 for a traceback, and please report it."
        text = f"Internal error: {type(error).__name__}: {error}. {advice}"
    return one_line(text)


def _fail(sentence: str, code: int = 2) -> NoReturn:
    sys.stderr.write(one_line(sentence) + "\n")
    raise SystemExit(code) from None
