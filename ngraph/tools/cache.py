"""`ngraph cache`: lists the cache of compiled programs, and `ngraph cache clear` deletes it."""

from __future__ import annotations

from typing import Any

from ngraph.config import config
from ngraph.runtime.cache import KINDS, cache
from ngraph.tools.ops import columns
from ngraph.verbs import Answer, verb

NOWHERE = "nothing is kept: NGRAPH_CACHE says so, or there is no folder for it"


def listed() -> dict[str, Any]:
    """Returns the cache's folder, the number and bytes of entries of each kind, and the hits and misses."""
    folder = cache().folder
    if folder is None:
        return {"folder": "", "limit": 0, "hits": 0, "misses": 0, "kinds": {}}
    kinds = {kind: {"count": 0, "bytes": 0} for kind in KINDS}
    for kind, _, facts in folder.entries():
        kinds[kind]["count"] += 1
        kinds[kind]["bytes"] += facts.st_size
    hits, misses = folder.told()
    return {"folder": config.cache, "limit": folder.limit, "hits": hits, "misses": misses, "kinds": kinds}


def shown(data: dict[str, Any]) -> str:
    """Returns the same as a table."""
    if not data["folder"]:
        return NOWHERE
    rows = [("", "entries", "bytes"), *((kind, str(k["count"]), f"{k['bytes']:,}") for kind, k in data["kinds"].items())]
    asked = data["hits"] + data["misses"]
    found = f"found {data['hits']:,} of {asked:,} requested entries"
    return f"{data['folder']}\n{columns(rows)}\n{found}; at most {data['limit']:,} bytes are kept"


def _arguments(parser: Any) -> None:
    parser.add_argument("action", nargs="?", choices=["clear"], help="clear: drop everything")


@verb("cache", "list what was compiled and is kept, or clear it", _arguments)
def run(arguments: Any) -> Answer:
    """Runs `ngraph cache` and `ngraph cache clear`."""
    folder = cache().folder
    if arguments.action == "clear" and folder is not None:
        dropped = folder.clear()
        return Answer(f"dropped {dropped} entries of {config.cache}", {"folder": config.cache, "dropped": dropped})
    data = listed()
    return Answer(shown(data), data)
