"""`cgins cache ls`, `prune` and `path`."""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import asdict

from pytest_cgins.app.commands.options import Subparsers, command, flag, group, option
from pytest_cgins.building.cache import space
from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.core.console import print_table
from pytest_cgins.core.text import counted

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    commands = group(
        subparsers,
        "cache  list, prune or locate built kernels",
        "The build cache is in $CGINS_CACHE_DIR/builds, else in a folder of the user. It stays near or below "
        "$CGINS_CACHE_SIZE (default 5GiB): the least recently used builds are removed first.",
    )
    listing = command(commands, "ls  list the builds, last used first", run_ls)
    flag(listing, "--json  print JSON, with keys and folders")
    prune = command(
        commands,
        "prune  remove builds",
        run_prune,
        "Remove builds, longest unused first; without options, down to $CGINS_CACHE_SIZE. Builds that a running "
        "process uses stay.",
    )
    option(prune, "--max-size SIZE  remove until the rest is no larger, e.g. 500MB, 2GiB", type=size)
    option(prune, "--older-than AGE  remove builds that were not used for so long, e.g. 12h, 30d", type=age)
    flag(prune, "--all  remove all builds")
    flag(prune, "--dry-run  list what would be removed, and remove nothing")
    command(commands, "path  print the folder", run_path)


def size(text: str) -> int:
    """Type of an argument: bytes of `500MB`."""
    try:
        return space.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}: write 500MB or 2GiB") from None


def age(text: str) -> float:
    """Type of an argument: seconds of `12h` or `30d`."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhdw])", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f'"{text}" is not an age: write 30m, 12h, 30d or 4w')
    return float(found[1]) * SECONDS[found[2]]


def run_ls(arguments: argparse.Namespace) -> int:
    """Print what the cache holds."""
    from rich.filesize import decimal

    folder = default_cache()
    entries = space.stored(folder)
    if arguments.json:
        builds = [{**asdict(entry), "folder": str(entry.folder)} for entry in entries]
        document = {
            "folder": str(folder),
            "limit_nbytes": space.limit_nbytes(),
            "nbytes": sum(entry.nbytes for entry in entries),
            "builds": builds,
        }
        print(json.dumps(document, indent=1))
        return 0
    if entries:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="")
        table.add_column("kernel", overflow="fold")
        for column in ("contract", "device", "arch"):
            table.add_column(column, no_wrap=column != "arch", overflow="fold")
        for column in ("size", "built", "used", "build s"):
            table.add_column(column, justify="right", no_wrap=True)
        now = time.time()
        for entry in entries:
            table.add_row(
                entry.name + (" (refused)" if entry.refused else ""), entry.contract, entry.device,
                " ".join(entry.archs), decimal(entry.nbytes), shown_age(now - entry.built_at),
                shown_age(now - entry.used_at), f"{entry.build_seconds:.2f}",
            )  # fmt: skip
        print_table(table)
    total = sum(entry.nbytes for entry in entries)
    limit = decimal(space.limit_nbytes())
    print(f"{counted(len(entries), 'build')}, {decimal(total)} of at most {limit} in {folder}")
    return 0


def run_prune(arguments: argparse.Namespace) -> int:
    """Remove builds and say how much."""
    from rich.filesize import decimal

    folder = default_cache()
    chosen = arguments.all or arguments.max_size is not None or arguments.older_than is not None
    removed = space.prune(
        folder,
        max_nbytes=arguments.max_size if chosen else space.limit_nbytes(),
        older_than_s=arguments.older_than,
        everything=arguments.all,
        dry_run=arguments.dry_run,
    )
    left = space.stored(folder)
    if arguments.dry_run:
        gone = {entry.key for entry in removed}
        left = [entry for entry in left if entry.key not in gone]
    verb = "would be removed" if arguments.dry_run else "removed"
    print(
        f"{counted(len(removed), 'build')}, {decimal(sum(entry.nbytes for entry in removed))} {verb} from {folder}"
    )
    print(f"{counted(len(left), 'build')}, {decimal(sum(entry.nbytes for entry in left))} left")
    return 0


def run_path(_: argparse.Namespace) -> int:
    """Print the cache's folder."""
    print(default_cache())
    return 0


def shown_age(age_s: float) -> str:
    """`3 h`: how long ago something was, in its largest unit."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if age_s >= length:
            return f"{age_s / length:.0f} {unit}"
    return f"{max(0.0, age_s):.0f} s"
