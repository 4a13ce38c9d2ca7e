"""Notes that govern the items of another store: when a note ends, its item is deleted there. Run it beside ``amnesia
up``.

The other store is LangGraph's own, in memory; a mem0 ``Memory`` goes in ``Mem0Items``, and any object with
``delete(id)`` as it is.
"""

import asyncio
import os

from langgraph.store.memory import InMemoryStore

from amnesiad import AsyncClient
from amnesiad.integrations.govern import Governor, LangGraphItems, mirror_ref


async def main() -> None:
    """Mirror an item by a note, forget the note, and see the item gone and its end in the note's history."""
    workspace = os.environ.get("AMNESIA_WORKSPACE", "example")
    store = InMemoryStore()
    await store.aput(("users", "ada"), "tea", {"likes": "green tea"})
    item = LangGraphItems.reference(("users", "ada"), "tea")
    async with (
        AsyncClient(workspace=workspace) as client,
        Governor({"store": LangGraphItems(store)}, workspace=workspace) as governor,
    ):
        note = await client.remember("Ada likes green tea.", ttl_ms="90d", source_ref=mirror_ref({"store": item}))
        await client.forget(id=note.id)
        await governor.sweep()  # a service of its own would await governor.run(), which follows what happens
        history = (await client.history(note.id)).events
        print([event.type for event in history], history[-1].facts)
        print(await store.aget(("users", "ada"), "tea"))


if __name__ == "__main__":
    asyncio.run(main())
