"""``widemargin peer``: one peer of a network, in a shell or on its own machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from widemargin.cli._input import ZeroBased
from widemargin.cli._say import remark

_MAX_SECRET_LENGTH = 10_000  # characters


def _term(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Terms of a new network (without --join)")


def peer(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Option(help="Rows of this peer: LIBSVM text, .csv or .parquet (label last), .npz; .xz, .gz, .bz2."),
    ] = None,
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen at; port 0 means any free port.")] = "127.0.0.1:0",
    join: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a peer, NAME@HOST:PORT with --members. Default: begin a network."),
    ] = None,
    identity: Annotated[Path | None, typer.Option(help="NAME.key of this owner, from keygen; needs --members.")] = None,
    members: Annotated[
        Path | None, typer.Option(help="The list of members, from enroll. The peer reads newer lists while it runs.")
    ] = None,
    secret_file: Annotated[Path | None, typer.Option(help="File with the secret that all peers share.")] = None,
    secret: Annotated[
        str | None,
        typer.Option(envvar="WIDEMARGIN_SECRET", help="The secret itself; safer in the environment."),
    ] = None,
    advertise: Annotated[str | None, typer.Option(help="HOST:PORT that others use. Default: as --listen.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Save the model here, for predict, evaluate and inspect; .npz has arrays only."),
    ] = None,
    max_time: Annotated[float | None, typer.Option(min=0, help="Stop after so many seconds in any case.")] = None,
    max_ticks: Annotated[int | None, typer.Option(min=1, help="Stop after so many ticks of this peer.")] = None,
    pace: Annotated[float, typer.Option(min=0, help="Minimum seconds between two ticks.")] = 0.02,
    silence: Annotated[float, typer.Option(min=0.1, help="Drop a neighbour after so many seconds of silence.")] = 2.0,
    every: Annotated[
        float | None,
        typer.Option(min=0.01, help="Print figures, or redraw --watch, every so many seconds."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show gap, traffic, neighbours and events on the whole terminal.")
    ] = False,
    log: Annotated[Path | None, typer.Option(help="Append events to this file, one line of JSON each.")] = None,
    number: Annotated[int | None, typer.Option(min=0, help="Number of a peer that returns. Default: random.")] = None,
    zero_based: ZeroBased = False,
    alpha: Annotated[float | None, _term("Weight of the penalty. Default: 0.0001.")] = None,
    tol: Annotated[float | None, _term("Certified relative gap at which to stop. Default: 0.001.")] = None,
    peers: Annotated[int | None, _term("No peer stops before this many have met. Default: 2.")] = None,
    classes: Annotated[str | None, _term("All labels, separated by commas. Default: the labels in the file.")] = None,
    features: Annotated[int | None, _term("Number of features. Default: as in the file.")] = None,
    degree: Annotated[int | None, _term("Neighbours of each peer that joins. Default: 3.")] = None,
    fan_out: Annotated[int | None, _term("Neighbours that each peer writes to in a tick. Default: 3.")] = None,
    intercept: Annotated[bool | None, _term("Fit an intercept. Default: yes.", "--intercept/--no-intercept")] = None,
) -> None:
    """Train a linear SVM with other peers, each of which keeps its rows.

    One peer begins a network and the others join it. All get one model of
    all rows, with a certificate. The peers share a secret, as below, or have
    identities and a list of members (see keygen and enroll).

    [bold]Example[/bold], in three terminals:

      python -c "import secrets; print(secrets.token_urlsafe(32))" > secret

      chmod 600 secret

      widemargin peer --data part1.svm --secret-file secret --listen 127.0.0.1:5555 --peers 3

      widemargin peer --data part2.svm --secret-file secret --join 127.0.0.1:5555

      widemargin peer --data part3.svm --secret-file secret --join 127.0.0.1:5555

    Ctrl-C stops a peer and keeps its best model; the others continue without it.
    """
    if context.invoked_subcommand is not None:
        return
    if data is None:
        raise typer.BadParameter("Missing option '--data'.")
    from widemargin.cli._peer_run import Request, run

    begins = {
        "alpha": alpha, "tol": tol, "peers": peers, "classes": classes, "features": features,
        "degree": degree, "fan_out": fan_out, "intercept": intercept,
    }  # fmt: skip
    limits = max_time, max_ticks, pace, silence
    shared = None if identity is not None else _secret(secret, secret_file)
    if (identity is None) != (members is None):
        raise ValueError("--identity and --members go together: the list has the keys of all members.")
    if identity is not None and secret_file is not None:
        raise ValueError("--secret-file and --identity exclude each other: members have keys in place of a secret.")
    if identity is not None and number is not None:
        raise ValueError("--number is for peers that share a secret: the list gives each member its number.")
    where = listen, join, advertise, model
    run(Request(data, shared, identity, members, *where, number, every, zero_based, *limits, log, begins, watch))


def _secret(given: str | None, path: Path | None) -> str:
    if path is None and given is None:
        raise ValueError(
            "Peers need a shared secret (--secret-file or WIDEMARGIN_SECRET), or identities (--identity and --members)."
        )
    if path is None:
        assert given is not None
        return given.strip()
    try:
        from widemargin.comm.identity import is_open_to_others

        is_open = is_open_to_others(path)
        with path.open(encoding="utf8") as file:
            secret = file.read(_MAX_SECRET_LENGTH + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"Cannot read the secret from {path}: {getattr(error, 'strerror', error)}.") from error
    if len(secret) > _MAX_SECRET_LENGTH:
        raise ValueError(f"The secret in {path} has more than {_MAX_SECRET_LENGTH:,} characters: is it the right file?")
    if is_open:
        remark(f"Other users of this machine can read the secret in {path}; chmod 600 prevents that.")
    return secret
