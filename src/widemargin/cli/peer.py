"""``widemargin peer``: one peer of a network, in a terminal or on a machine of its own."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Annotated, Any

import typer

from widemargin.cli._say import remark


def _option(text: str, *names: str) -> Any:
    """Of the terms of a network."""
    return typer.Option(*names, help=text, rich_help_panel="Where a network begins (without --join)")


def peer(
    data: Annotated[
        Path, typer.Option(help="Rows of this peer: LIBSVM text, .csv or .parquet (label last), .npz; .xz, .gz, .bz2.")
    ],
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen at; port 0 is any that is free.")] = "127.0.0.1:0",
    join: Annotated[str | None, typer.Option(help="HOST:PORT of a member; without it, a network begins here.")] = None,
    secret_file: Annotated[Path | None, typer.Option(help="File with the secret that all peers share.")] = None,
    secret: Annotated[
        str | None, typer.Option(envvar="WIDEMARGIN_SECRET", help="The secret itself; better in the environment.")
    ] = None,
    advertise: Annotated[str | None, typer.Option(help="HOST:PORT by which others reach this peer.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Where to save the model, as .npz: coef, intercept, classes.")
    ] = None,
    max_time: Annotated[float | None, typer.Option(min=0, help="Seconds after which to end in any case.")] = None,
    max_ticks: Annotated[
        int | None, typer.Option(min=1, help="Ticks of this peer after which to end in any case.")
    ] = None,
    pace: Annotated[float, typer.Option(min=0, help="Seconds from tick to tick, at least.")] = 0.02,
    silence: Annotated[float, typer.Option(min=0.1, help="Seconds after which a silent neighbour is given up.")] = 2.0,
    every: Annotated[
        float | None, typer.Option(min=0.01, help="Print a line of figures every so many seconds.")
    ] = None,
    number: Annotated[int | None, typer.Option(min=0, help="Of a peer that comes back; by chance otherwise.")] = None,
    zero_based: Annotated[
        bool, typer.Option("--zero-based", help="LIBSVM text that counts features from 0, not from 1.")
    ] = False,
    alpha: Annotated[float | None, _option("Weight of the penalty; 1e-4 if not given.")] = None,
    tol: Annotated[float | None, _option("The certified gap to end at; 1e-3 if not given.")] = None,
    peers: Annotated[int | None, _option("How many must have met before all may end; 2 if not given.")] = None,
    classes: Annotated[
        str | None, _option("All labels, with commas between them; those of the file if not given.")
    ] = None,
    features: Annotated[int | None, _option("Number of features; that of the file if not given.")] = None,
    degree: Annotated[int | None, _option("Neighbours that a newcomer looks for; 3 if not given.")] = None,
    fan_out: Annotated[int | None, _option("Neighbours written to in each tick; 3 if not given.")] = None,
    intercept: Annotated[bool | None, _option("With one if not given.", "--intercept/--no-intercept")] = None,
) -> None:
    """Train a linear SVM together with others, each of whom keeps its rows.

    One begins a network, and the others join it; they agree on the model of all rows, and each knows how good it is.

    [bold]Example[/bold], in three terminals:

      python -c "import secrets; print(secrets.token_urlsafe(32))" > secret

      widemargin peer --data part1.svm --secret-file secret --listen 127.0.0.1:5555 --peers 3 --model out.npz

      widemargin peer --data part2.svm --secret-file secret --join 127.0.0.1:5555

      widemargin peer --data part3.svm --secret-file secret --join 127.0.0.1:5555

    Ctrl-C ends a peer with the best model it has; the others go on without it.
    """
    from widemargin.cli._peer_run import Wish, run

    begins = {
        "alpha": alpha, "tol": tol, "peers": peers, "classes": classes, "features": features,
        "degree": degree, "fan_out": fan_out, "intercept": intercept,
    }  # fmt: skip
    limits = {
        "max_time": math.inf if max_time is None else max_time,
        "max_ticks": math.inf if max_ticks is None else max_ticks,
        "pace": pace,
        "silence": silence,
    }
    shared = _secret(secret, secret_file)
    run(Wish(data, shared, listen, join, advertise, model, number, every, zero_based, limits, begins))


def _secret(given: str | None, path: Path | None) -> str:
    if path is None and given is None:
        raise ValueError("Peers need a secret that they share: give --secret-file, or set WIDEMARGIN_SECRET.")
    if path is None:
        assert given is not None
        return given.strip()
    try:
        if os.name == "posix" and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            remark(f"Others on this machine can read the secret in {path}; chmod 600 keeps it from them.")
        return path.read_text(encoding="utf8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"The secret cannot be read from {path}: {getattr(error, 'strerror', error)}.") from error
