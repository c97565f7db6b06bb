"""What a sandbox shall be, as words of a command line: `wrap` writes them, the launcher reads them.

    parent=PID  way=PATH-of-bwrap  empty=PATH  scratch=PATH  show=PATH  link=PATH  hide=PATH  write=PATH  device=PATH
    tool=1  memory=BYTES  data=BYTES  cpu=SECONDS  processes=N  file=BYTES  files=N  room=BYTES  --  COMMAND…

All paths are absolute and without symbolic links, but for a `link`'s last part.
"""

from __future__ import annotations

PATHS = ("empty", "scratch", "show", "link", "hide", "write", "device")
NUMBERS = ("parent", "memory", "data", "cpu", "processes", "file", "files", "room", "status", "tool")


class Fence:
    """The words, taken apart."""

    __slots__ = ("bwrap", "command", "numbers", "paths", "words")

    def __init__(self, argv: list[str]) -> None:
        """Read what stands before `--`; what follows is the command.

        Raises:
            ValueError: for a word that is none of these.
        """
        end = argv.index("--")
        self.words = argv[:end]
        self.command = argv[end + 1 :]
        self.bwrap = ""
        """Path of bubblewrap; "" to make the namespaces ourselves."""
        self.paths: dict[str, list[str]] = {name: [] for name in PATHS}
        """Paths by the name of their option, in the order given."""
        self.numbers: dict[str, int] = {}
        """Limits by name; an absent one is not limited."""
        for word in self.words:
            name, _, value = word.partition("=")
            if name in self.paths:
                self.paths[name].append(value)
            elif name in NUMBERS:
                self.numbers[name] = int(value)
            elif name == "way":
                self.bwrap = value
            else:
                raise ValueError(f"no such word: {word}")
