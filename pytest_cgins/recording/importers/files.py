"""Reading the files of other systems: bounded, and with errors that name the file."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_cgins.core import documents
from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.text import counted
from pytest_cgins.packs import backward

MAX_TEXT_BYTES = 256 * 2**20
MAX_JSON_DEPTH = 96
MAX_JSON_VALUES = 2**22
"""Numbers, texts and containers of one JSON text: each costs its reader far more bytes than its writer."""


def read_text(path: Path) -> str:
    """Content of a text file.

    Raises:
        RecordError: if it is not there, is not a regular file, is too long, or is not UTF-8.
    """
    try:
        status = path.stat()
        # A FIFO would be waited for, and a device has no end.
        if not stat.S_ISREG(status.st_mode):
            raise RecordError(f"{path} is not a regular file", remedy="name a file that can be read")
        if status.st_size > MAX_TEXT_BYTES:
            raise RecordError(
                f"{path} has {counted(status.st_size, 'byte')}; at most {MAX_TEXT_BYTES} are read",
                remedy="split the file",
            )
        # Editors of Windows begin a file with a byte order mark.
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}", remedy="name a file that can be read") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not UTF-8 at byte {error.start}", remedy="name a text file") from error


def numbered_lines(path: Path) -> list[tuple[int, str]]:
    """Lines of a text file with their numbers, without blank ones.

    Raises:
        RecordError: as of `read_text`.
    """
    return [(number, line) for number, line in enumerate(read_text(path).splitlines(), 1) if line.strip()]


def read_json(path: Path) -> Any:
    """Content of a JSON file.

    Raises:
        RecordError: if it cannot be read or is not JSON.
    """
    return parse_json(read_text(path), str(path))


def parse_json(text: str, where: str) -> Any:
    """A JSON text as plain objects.

    Raises:
        RecordError: if it is not JSON, is nested too deeply, or has too many values.
    """
    values, depth = documents.extent(text.encode("utf-8", "surrogatepass"), MAX_JSON_VALUES)
    if values > MAX_JSON_VALUES:
        raise RecordError(f"{where} has more than {MAX_JSON_VALUES} values", remedy="split it")
    if depth > MAX_JSON_DEPTH:
        raise RecordError(
            f"{where} is nested {depth} deep; {MAX_JSON_DEPTH} is allowed",
            remedy="check the file and the KIND",
        )
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where} is not JSON: {error}", remedy="check the file and the KIND") from error


def require_torch_op(op: str) -> None:
    """Refuse an op that is not torch's before anything is imported: to look it up is to run its module.

    Raises:
        TraceError: if a file names another function, or one of torch that is no op.
    """
    if not op.startswith("torch."):
        raise RecordError(
            f"{op[:80]} is not a torch op, and a foreign file must not have other code run",
            remedy="name an op of torch, such as torch.matmul; record calls of your own functions with cgins record",
        )
    backward.resolve(op)


def required(files: Sequence[Path], source: Path, what: str, remedy: str) -> Sequence[Path]:
    """The files of a source.

    Raises:
        RecordError: there are none.
    """
    if not files:
        raise RecordError(f"{source} has no {what}", remedy=remedy)
    return files


def objects(value: Any, where: object, what: str) -> list[dict[str, Any]]:
    """A list of JSON objects.

    Raises:
        RecordError: if it is something else.
    """
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RecordError(
            f"{where}: {what} should be a list of objects", remedy="check the file and the KIND"
        )
    return value


def text_of(document: dict[str, Any], key: str) -> str:
    """A text in a JSON object.

    Raises:
        RecordError: if it is missing or no text.
    """
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise RecordError(
            f"{json.dumps(document)[:120]} has no text {key!r}", remedy=f"add {key!r}, as the format has it"
        )
    return value
