"""The messages that peers send each other, the traffic that each counts, and what an algorithm must provide."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from widemargin.peers.cutting_planes import Cut
from widemargin.peers.records import Moments, Record, Statement
from widemargin.peers.rows import PeerRows


class Message(NamedTuple):
    """What one peer sends to another."""

    sender: int
    number: int  # a message with a lower number than the last received is stale
    payload: np.ndarray  # of the algorithm
    records: Sequence[Record]
    ack: int  # number of the newest message received from the addressee
    ack_bits: int  # bit k: whether the message of number ack - k - 1 was received, too
    n_bytes: int  # of the numbers in it


class Notary(Protocol):
    """Signs the records of one peer, and checks the signatures of others."""

    def signed(self, record: Statement) -> Statement:
        """The same record with a signature."""

    def is_valid(self, record: Record) -> bool:
        """Whether a record, or all evidence of an accusation, is signed by the member that it names."""


class Algorithm(Protocol):
    """What one peer computes, and what it sends to neighbours; the last five are for algorithms with a metric."""

    rows: PeerRows
    model: np.ndarray  # (problems, d)
    has_cuts: ClassVar[bool]  # whether the peers also build a model of the objective together

    @property
    def payload_shape(self) -> tuple[int, ...]:
        """Of all payloads, sent and received."""

    def work(self) -> None:
        """One tick of work on the own rows."""

    def divide_among(self, addressees: Sequence[int]) -> None:
        """Prepare payloads for these neighbours, and for no others."""
        return

    def payload(self, to: int) -> np.ndarray:
        """The payload for a neighbour in this tick."""

    def receive(self, sender: int, payload: np.ndarray) -> None:
        """Use the payload that a neighbour sent."""

    def drop_neighbour(self, neighbour: int) -> None:
        """Forget a neighbour that has fallen silent."""

    def check_rows(self, rows: PeerRows) -> None:
        """Raise ValueError if these rows cannot be added to those present."""

    def add_rows(self, rows: PeerRows) -> None:
        """Check new rows and add them."""

    def bounds(self) -> Cut:
        """A and V of feasible dual variables of the own rows."""

    def moments(self, peer: int, number: int) -> Moments | None:
        """The second moments of the own rows; None if the algorithm has no metric."""
        return None

    def metric_of(self, moments: list[Moments]) -> Any:
        """The metric of these peers, which is the same at all that know them."""
        return None

    def set_metric(self, metric: Any) -> None:
        """Use this metric."""
        return

    def suggest_rho(self) -> float:
        """A positive penalty parameter; all peers use the median of their suggestions."""
        return 1.0

    def restart(self) -> None:
        """Forget what came from neighbours, as some of it was wrong."""
        return

    def set_rho(self, rho: float) -> None:
        """Use that median."""
        return


@dataclass
class Traffic:
    """What a peer has sent and received."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    refused: int = 0  # stale or malformed messages, and those of strangers
