"""Which artifact of a run is meant, out of GitHub's list on standard input. Standard library only.

    python find_artifact.py NAME [SINCE]

Prints its number and its size, or nothing where there is none. Each attempt of a run leaves one of the same name, and
GitHub lists the oldest first: the newest is taken, and none that is older than SINCE.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any


def moment(text: str) -> datetime:
    """A time as GitHub writes it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def newest(artifacts: list[dict[str, Any]], name: str, since: str = "") -> dict[str, Any] | None:
    """The last one of a name that has not expired; None if there is none."""
    found = [one for one in artifacts if one["name"] == name and not one.get("expired")]
    if since:
        found = [one for one in found if moment(one["created_at"]) >= moment(since)]
    return max(found, key=lambda one: int(one["id"]), default=None)


def main() -> int:
    """Print it; 2 if the list is none."""
    try:
        found = newest(json.load(sys.stdin)["artifacts"], *sys.argv[1:])
    except (KeyError, TypeError, ValueError):
        return 2
    if found is not None:
        print(found["id"], found["size_in_bytes"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
