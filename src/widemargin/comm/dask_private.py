"""Every name of distributed that its documentation does not promise; ``test_dask_private.py`` says which has moved."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import Any

from distributed import Client, Worker

PATIENCE = 12.0  # seconds within which a scheduler answers, unless it is dead
BOARD = "widemargin_board"  # the name of our handler on the scheduler


def event_loop(worker: Worker) -> asyncio.AbstractEventLoop:
    """The event loop of a worker, which runs in another thread than its tasks."""
    loop: Any = worker.loop
    asyncio_loop: asyncio.AbstractEventLoop = loop.asyncio_loop
    return asyncio_loop


def n_threads_of(worker: Worker) -> int:
    """How many tasks a worker runs side by side."""
    return int(worker.state.nthreads)


def call_from_client(client: Client, handler: str, **arguments: Any) -> Any:
    """What a handler of the scheduler answers; OSError if it does not within ``PATIENCE``."""
    if client.status != "running":
        raise OSError(f"the client is {client.status}")
    return client.sync(getattr(client.scheduler, handler), callback_timeout=PATIENCE, **arguments)


def call_from_worker(worker: Worker, handler: str, **arguments: Any) -> ThreadFuture[Any]:
    """The answer of a handler of the scheduler, to come."""
    call = getattr(worker.scheduler, handler)(**arguments)
    return asyncio.run_coroutine_threadsafe(call, event_loop(worker))


def remove_worker(client: Client, address: str) -> None:
    """Have the scheduler drop a worker that no longer answers, so that what it held is computed elsewhere."""

    async def remove(dask_scheduler: Any) -> None:
        if address in dask_scheduler.workers:
            await dask_scheduler.remove_worker(address=address, stimulus_id="widemargin-peer-lost", close=False)

    client.run_on_scheduler(remove, callback_timeout=PATIENCE)


def put_up_board(client: Client) -> None:
    """Have the scheduler keep a board of jobs, unless it has one; it takes the board down with the last job.

    What a job leaves elsewhere on a scheduler (topics, variables, locks) stays there for ever if a member comes late or
    a driver dies. Here all of it goes with the job, and what comes later is refused. The scheduler may not have this
    package: the function is sent there as it is.
    """

    def put_up(board: str, dask_scheduler: Any) -> None:
        import asyncio

        from distributed.metrics import time

        jobs: dict[str, dict[str, Any]] = {}

        def open_(job: str, owner: str, workers: list[str]) -> bool:
            """Whether the job has these workers for itself now."""
            is_free = not any(set(workers) & set(each["workers"]) for each in jobs.values())
            if is_free:
                jobs[job] = {"owner": owner, "workers": workers, "addresses": {}, "stopped": set(), "reports": []}
            return is_free

        def close(job: str) -> bool:
            jobs.pop(job, None)
            if not jobs and dask_scheduler.handlers.get(board) is answer:
                del dask_scheduler.handlers[board]
            return True

        async def address(job: str, number: int, wait: float) -> str | None:
            """Where a member listens; "" if it has not said so after ``wait`` seconds."""
            until = time() + wait
            while job in jobs and number not in jobs[job]["addresses"] and time() < until:
                await asyncio.sleep(0.02)
            return jobs[job]["addresses"].get(number, "") if job in jobs else None

        def leave(job: str, number: int, address: str) -> bool:
            jobs[job]["addresses"][number] = address
            return True

        def stop(job: str, part: int) -> bool:
            jobs[job]["stopped"].add(part)
            return True

        def is_stopped(job: str, part: int) -> bool:
            return part in jobs[job]["stopped"]

        def report(job: str, report: Any) -> bool:
            jobs[job]["reports"].append(report)
            return True

        def look(job: str) -> tuple[list[Any], dict[str, float]]:
            """New reports, and for every worker that is there the seconds since it was heard of."""
            reports, jobs[job]["reports"] = jobs[job]["reports"], []
            return reports, {each: time() - state.last_seen for each, state in dask_scheduler.workers.items()}

        verbs: dict[str, Callable[..., Any]] = {
            "open": open_, "close": close, "address": address, "leave": leave, "stop": stop, "is_stopped": is_stopped,
            "report": report, "look": look,
        }  # fmt: skip

        async def answer(job: str, verb: str, **arguments: Any) -> Any:
            """None to whoever belongs to a job that is not open, or no longer."""
            for name in [name for name, each in jobs.items() if each["owner"] not in dask_scheduler.clients]:
                del jobs[name]  # its driver is gone
            if job not in jobs and verb not in ("open", "close"):
                return None
            said = verbs[verb](job, **arguments)
            return await said if asyncio.iscoroutine(said) else said

        dask_scheduler.handlers.setdefault(board, answer)

    client.run_on_scheduler(put_up, BOARD, callback_timeout=PATIENCE)
