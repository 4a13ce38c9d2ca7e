"""A LangGraph store whose items end: put, search, and let a shelf life do the tidying. Run it beside ``amnesia up``."""

import os

from amnesiad.integrations.langgraph import AmnesiaStore


def main() -> None:
    """Keep two preferences of a user for a while, and find one of them again."""
    with AmnesiaStore(workspace=os.environ.get("AMNESIA_WORKSPACE", "example"), ttl={"default_ttl": 60}) as store:
        store.put(("users", "ada"), "tea", {"likes": "green tea", "since": 2024})
        store.put(("users", "ada"), "editor", {"likes": "vim", "since": 1999}, ttl=5)
        for item in store.search(("users",), query="which tea", filter={"since": {"$gt": 2000}}):
            print(item.namespace, item.key, item.value)
        store.delete(("users", "ada"), "tea")
        print([item.key for item in store.search(("users",))])


if __name__ == "__main__":
    main()
