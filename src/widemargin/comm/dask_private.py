"""Every name of distributed that its documentation does not promise; ``test_dask_private.py`` says which has moved."""

import asyncio
from typing import Any

from distributed import Client, Worker


def event_loop(worker: Worker) -> asyncio.AbstractEventLoop:
    """The event loop of a worker, which runs in another thread than its tasks."""
    loop: Any = worker.loop
    asyncio_loop: asyncio.AbstractEventLoop = loop.asyncio_loop
    return asyncio_loop


def is_cancelled(worker: Worker, key: str) -> bool:
    """Whether nobody wants the result of this task any more."""
    task = worker.state.tasks.get(key)
    return task is None or task.state == "cancelled"


def release_lock(worker: Worker, lock: str) -> None:
    """Release a MultiLock by its id, for a driver that is gone."""
    asyncio.run_coroutine_threadsafe(worker.scheduler.multi_lock_release(id=lock), event_loop(worker))


def remove_worker(client: Client, address: str) -> None:
    """Have the scheduler drop a worker that no longer answers, so that what it held is computed elsewhere."""

    async def remove(dask_scheduler: Any) -> None:
        if address in dask_scheduler.workers:
            await dask_scheduler.remove_worker(address=address, stimulus_id="widemargin-peer-lost", close=False)

    client.run_on_scheduler(remove)


def drop_events(client: Client, topic: str) -> None:
    """Have the scheduler drop the events of a topic, which it would keep for ever."""
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler._broker.truncate(topic))
