"""``widemargin peer``: one peer of a network, in a terminal or on a machine of its own."""

from __future__ import annotations

import io
import math
import os
import secrets
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from widemargin.cli._rows import FileRows, read_rows
from widemargin.comm.zmq_peers import Keys, ZmqPeers, ask, check_address
from widemargin.data.files import write_whole
from widemargin.peers.admm import GossipADMM
from widemargin.peers.loop import Limits, PeerLoop, Report
from widemargin.peers.peer import LIFE, Peer
from widemargin.peers.rows import PeerRows
from widemargin.peers.wire import HIGHEST_NUMBER, Form
from widemargin.problems.mean_hinge import MeanHinge

_FULL_METRIC = 512  # features up to which the metric is a matrix
_ANSWER_TIME = 10.0  # seconds to wait for a member's answer
_HIGHEST_LIFE = 1 << 22

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@app.callback()
def _commands() -> None:
    """Support vector machines, each answer with a proof of how good it is."""


class Terms(NamedTuple):
    """What all peers of a network agree on; whoever begins it decides."""

    alpha: float
    tol: float
    classes: list[Any]  # numbers or strings, in order
    n_features: int  # without the constant one
    has_constant: bool
    is_metric_full: bool
    fan_out: int
    degree: int
    at_least: int

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Terms:
        """What a member answered; ValueError if it makes no sense."""
        try:
            terms = cls(**answer)
            kinds = {type(each) for each in terms.classes}
            is_good = (
                terms.alpha > 0
                and terms.tol >= 0
                and len(set(terms.classes)) == len(terms.classes) >= 2
                and (kinds == {str} or kinds <= {int, float})
                and min(terms.n_features, terms.fan_out, terms.degree, terms.at_least) >= 1
            )
        except TypeError:
            is_good = False
        if not is_good:
            raise ValueError("The terms of this network are not understood by this version.")
        return terms


def _option(text: str, *names: str) -> Any:
    """Of the terms of a network."""
    return typer.Option(*names, help=text, rich_help_panel="Where a network begins (without --join)")


@app.command(no_args_is_help=True)
def peer(
    data: Annotated[
        Path, typer.Option(help="Rows of this peer: LIBSVM text, .csv (label last) or .npz; .xz, .gz, .bz2.")
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
    console = Console(highlight=False, soft_wrap=True)
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
    try:
        keys = Keys.of(_secret(secret, secret_file))
        check_address(listen)
        _check_can_be_written(model)
        own = secrets.randbelow(HIGHEST_NUMBER) if number is None else number
        if own >= HIGHEST_NUMBER:
            raise ValueError(f"--number {own} must be below {HIGHEST_NUMBER}.")
        rows = read_rows(data)
        if join is None:
            terms, life, known = _begin(begins, rows, data), 0, {}
        else:
            given = [name for name, value in begins.items() if value is not None]
            if given:
                raise ValueError(
                    f"--{given[0].replace('_', '-')} is decided by whoever begins a network, not by who joins."
                )
            welcome = ask(join, keys, own, _ANSWER_TIME)
            terms, life, known = Terms.of(welcome.terms), welcome.life, welcome.peers
            if not 0 <= life < _HIGHEST_LIFE:
                raise ValueError(f"--number {own} has been used too often; leave it out to have another.")
            known = _chosen(known, welcome.number, terms.degree)
        owner = _make_peer(own, life, sorted(known), terms, _encoded(rows, terms, data))
        transport = ZmqPeers(own, listen, keys, Form.of(owner).limit_bytes, advertise)
        for each, address in known.items():
            transport.link(each, address)
        transport.host(lambda asking: {"terms": terms._asdict(), "life": _next_life(owner, asking)})
        console.print(f"peer {own} listens at {transport.address}, {owner.algorithm.rows.n_rows} rows")
        with _signals() as has_to_stop, _Line(console, every) as line:

            def watch(loop: PeerLoop) -> bool:
                line.show(loop)
                return bool(has_to_stop)

            report = PeerLoop(owner, transport, Limits(terms.tol, at_least=terms.at_least, **limits), watch).run()
        _print_end(console, report, terms)
        if model is not None:
            _save(model, report, terms)
            console.print(f"model saved as {model}", markup=False)
    except ValueError as error:
        _say_wrong(str(error))
        raise typer.Exit(2) from None


# -- before ------------------------------------------------------------------------------------------------------------


def _say_wrong(sentence: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(sentence, markup=False)


def _secret(given: str | None, path: Path | None) -> str:
    if path is None and given is None:
        raise ValueError("Peers need a secret that they share: give --secret-file, or set WIDEMARGIN_SECRET.")
    if path is None:
        assert given is not None
        return given.strip()
    try:
        if os.name == "posix" and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            _say_wrong(f"Others on this machine can read the secret in {path}; chmod 600 keeps it from them.")
        return path.read_text(encoding="utf8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"The secret cannot be read from {path}: {getattr(error, 'strerror', error)}.") from error


def _check_can_be_written(path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise ValueError(f"There is no folder {path.parent} to save the model in.")


def _begin(given: dict[str, Any], rows: FileRows, path: Path) -> Terms:
    """The terms of a new network."""

    def default(name: str, value: Any) -> Any:
        return value if given[name] is None else given[name]

    labels = np.unique(rows.y).tolist()
    if given["classes"] is not None:
        texts = [each.strip() for each in given["classes"].split(",")]
        try:
            labels = sorted(texts) if isinstance(labels[0], str) else sorted(float(each) for each in texts)
        except ValueError:
            raise ValueError(f"--classes {given['classes']} must be numbers, as the labels in {path} are.") from None
    if len(set(labels)) < 2 or len(set(labels)) < len(labels):
        raise ValueError(f"There must be at least two different classes, not {labels}; --classes names all of them.")
    for name in ("alpha", "peers", "features", "degree", "fan_out"):
        if given[name] is not None and not 0 < given[name] < math.inf:
            raise ValueError(f"--{name.replace('_', '-')} {given[name]} must be positive.")
    if given["tol"] is not None and not 0 <= given["tol"] < math.inf:
        raise ValueError(f"--tol {given['tol']} must be at least 0.")
    n_features = int(default("features", rows.X.shape[1]))
    return Terms(
        alpha=float(default("alpha", 1e-4)),
        tol=float(default("tol", 1e-3)),
        classes=labels,
        n_features=n_features,
        has_constant=bool(default("intercept", True)),
        is_metric_full=n_features < _FULL_METRIC,
        fan_out=int(default("fan_out", 3)),
        degree=int(default("degree", 3)),
        at_least=int(default("peers", 2)),
    )


def _encoded(rows: FileRows, terms: Terms, path: Path) -> PeerRows:
    """The rows as the network has them: its features and its classes."""
    X, d = rows.X, rows.X.shape[1]
    if d > terms.n_features or (d < terms.n_features and not sp.issparse(X)):
        raise ValueError(
            f"{path} has {d} features and the network {terms.n_features}: --features says how many when it begins."
        )
    if d < terms.n_features:
        X = sp.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], terms.n_features))
    classes = np.array(terms.classes)
    if (classes.dtype.kind == "U") != (rows.y.dtype.kind == "U"):
        raise ValueError(f"{path} has labels {np.unique(rows.y).tolist()}; those of the network are {terms.classes}.")
    codes = np.searchsorted(classes, rows.y).clip(max=len(classes) - 1)
    unknown = np.unique(rows.y[classes[codes] != rows.y]).tolist()
    if unknown:
        raise ValueError(
            f"{path} has labels {unknown}, which are not among those of the network, {terms.classes}: --classes names "
            "all of them when it begins."
        )
    return PeerRows.of(X, codes, np.ones(len(codes)), len(classes), has_constant=terms.has_constant)


def _chosen(known: dict[int, str], first: int, degree: int) -> dict[int, str]:
    """The member that was asked, and others by chance."""
    others = sorted(set(known) - {first})
    chosen = np.random.default_rng().permutation(others)[: degree - 1].tolist() if others else []
    return {each: known[each] for each in ([first] if first in known else []) + chosen}


def _make_peer(number: int, life: int, neighbours: list[int], terms: Terms, rows: PeerRows) -> Peer:
    problem = MeanHinge(terms.alpha)
    of_work, of_letters = np.random.default_rng().spawn(2)
    algorithm = GossipADMM(problem, rows, of_work, terms.is_metric_full)
    return Peer(number, problem, algorithm, neighbours, terms.fan_out, of_letters, life)


def _next_life(owner: Peer, number: int) -> int:
    """A life that a peer of this number has not led, as far as is known here."""
    said = [newest[number].number for newest in owner.table.newest.values() if number in newest]
    return max(said) // LIFE + 1 if said else 0


# -- while it runs -----------------------------------------------------------------------------------------------------


class _Stop:
    """Whether a signal has come."""

    def __init__(self) -> None:
        self._has_come = False

    def __bool__(self) -> bool:
        return self._has_come

    def come(self, *reason: Any) -> None:
        self._has_come = True


@contextmanager
def _signals() -> Iterator[_Stop]:
    """The first Ctrl-C, or wish to terminate, ends the peer with what it has; a second Ctrl-C ends it at once."""
    stop = _Stop()
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def note(*reason: Any) -> None:
        stop.come()
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    for each in before:
        signal.signal(each, note)
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class _Line:
    """A line that changes, on a terminal; and lines from time to time, where they are asked for."""

    def __init__(self, console: Console, every: float | None) -> None:
        self._console, self._every, self._due = console, every, 0.0
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None

    def __enter__(self) -> _Line:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *reason: Any) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, loop: PeerLoop) -> None:
        now = time.monotonic()
        is_due = self._every is not None and now >= self._due
        if is_due or (self._live is not None and now >= self._due):
            text = _figures(loop.report())
            self._due = now + (self._every or 0.1)
            if self._live is not None:
                self._live.update(Text(text, no_wrap=True, overflow="ellipsis"))
            if is_due:
                self._console.print(text, markup=False)


def _figures(report: Report) -> str:
    optimum = "" if (proof := report.certificate) is None else f"  optimum in [{proof.dual:.9g}, {proof.primal:.9g}]"
    return (
        f"tick {report.ticks}  gap {report.gap:.2e}  consensus {report.consensus:.2e}  peers {len(report.members)}  "
        f"neighbours {len(report.live_neighbours)}  sent {report.messages_sent} ({_size(report.bytes_sent)})  "
        f"received {report.messages_received} ({_size(report.bytes_received)})  refused {report.refused}  "
        f"{report.seconds:.1f} s{optimum}"
    )


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.1f} kB"


# -- afterwards --------------------------------------------------------------------------------------------------------

_ENDS = {
    "gap": "all peers have certified what was asked for",
    "max_time": "its time is over",
    "max_ticks": "its ticks are over",
    "interrupted": "it was interrupted",
}


def _print_end(console: Console, report: Report, terms: Terms) -> None:
    console.print(_figures(report), markup=False)
    console.print(f"ends: {_ENDS[str(report.stop_reason)]}")
    certificate = report.certificate
    if certificate is None:
        console.print("certificate: none for the network as it is now; the model is this peer's own")
    else:
        console.print(
            f"certificate: optimum in [{certificate.dual:.9g}, {certificate.primal:.9g}], "
            f"gap {certificate.relative:.2e} (tol {terms.tol:.0e}), for the rows of {len(report.members)} peers",
            markup=False,
        )


def _save(path: Path, report: Report, terms: Terms) -> None:
    coef, intercept = report.model, np.zeros(len(report.model))
    if terms.has_constant:
        coef, intercept = report.model[:, :-1], report.model[:, -1]
    content = io.BytesIO()
    np.savez(content, coef=coef, intercept=intercept, classes=np.array(terms.classes))
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        raise ValueError(f"The model cannot be saved as {path}: {error.strerror}.") from error
