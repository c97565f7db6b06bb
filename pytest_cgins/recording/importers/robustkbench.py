"""Tasks of robust-kbench: `func_forward.py`, `func_backward.py` and a `config_*.json` for each.

The op is `forward_fn` with the parameters of `Model`; the backward is that of `forward_fn` with respect to every
argument that requires a gradient. A configuration is one of each of the settings for inputs, initialisation, and
both.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.text import counted
from pytest_cgins.packs import backward, ops
from pytest_cgins.packs.signature import bind
from pytest_cgins.recording.importers.collect import Collector, check_size, mapped, on, tensors_in
from pytest_cgins.recording.importers.files import objects, read_json, read_text, required
from pytest_cgins.recording.importers.references import References, module_name

DIRECTIONS = ("forward", "backward")
MAX_CONFIGURATIONS = 10_000
"""Of one task: every combination of three lists is one."""


def run(args: argparse.Namespace, collector: Collector) -> None:
    """Record a call for every configuration, seed and direction of every task, of a folder or of those in it.

    In tier `recipe` traces of one form are told apart by statistics only.

    Raises:
        RecordError: if there is no task.
    """
    source, references = args.source, References(args.references)
    tasks = sorted({path.parent for path in source.rglob("func_*.py")}) if source.is_dir() else []
    required(tasks, source, "func_forward.py", "name a task folder of robust-kbench")
    if args.seeds > 1 and collector.tier == "recipe":
        collector.report.note(
            "tier recipe keeps statistics, not values: the seeds of a configuration give traces that differ little; "
            "--tier full keeps their values"
        )
    for task in tasks:
        for direction in DIRECTIONS:
            code, config = task / f"func_{direction}.py", task / f"config_{direction}.json"
            if not code.is_file():
                continue
            entry = f"{task.name}/{direction}"
            with collector.leaving_out(entry):
                name = module_name("rkb", task.name, direction)
                module = references.write(name, read_text(code), f"{task.name}/{code.name}")
                settings = enumerate(list(_settings(config, args.configs)))
                op = references.op(name, "forward_fn")
                recorder = _Task(entry, module, op, collector, device=args.device, max_mib=args.max_mib)
                for (number, (init, inputs)), seed in itertools.product(settings, range(args.seeds)):
                    with collector.leaving_out(case := f"{entry} config {number} seed {seed}"):
                        recorder.take(case, init, inputs, seed, direction)


def _settings(path: Path, configs: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Arguments of `Model` and of `get_inputs`, one pair a configuration; shared settings win."""
    config = read_json(path)
    if not isinstance(config, dict):
        raise RecordError(f"{path} is not a JSON object", remedy="name a task folder of robust-kbench")

    def listed(kind: str) -> list[dict[str, Any]]:
        found = config.get(f"{configs}_{kind}_configs", config.get(f"single_{kind}_configs"))
        return objects(found or [{}], path, f"{configs}_{kind}_configs")

    lists = [listed(kind) for kind in ("init", "input", "shared")]
    if (count := math.prod(map(len, lists))) > MAX_CONFIGURATIONS:
        raise RecordError(
            f"{path} combines to {counted(count, 'configuration')}; {MAX_CONFIGURATIONS} are allowed",
            remedy="pass --configs single, or list fewer settings",
        )
    for init, inputs, shared in itertools.product(*lists):
        yield {**init, **shared}, {**inputs, **shared}


class _Task:
    """One direction of one task."""

    def __init__(
        self, entry: str, module: ModuleType, op: str, collector: Collector, *, device: str, max_mib: float
    ) -> None:
        self._entry = entry
        self._module = module
        self._op = op
        self._collector = collector
        self._device = device
        self._max_mib = max_mib

    def take(
        self, entry: str, init: dict[str, Any], inputs: dict[str, Any], seed: int, direction: str
    ) -> None:
        """Record one configuration."""
        args, kwargs = self._arguments(init, inputs, seed)
        check_size([args, kwargs], self._max_mib)
        if direction == "backward":
            op, call = self._backward(args, kwargs, seed)
        else:
            op, call = self._op, lambda: ops.locate(self._op)(*args, **kwargs)
        self._collector.record(entry, op, call)

    def _arguments(
        self, init: dict[str, Any], inputs: dict[str, Any], seed: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What `Model` passes to its `fn`.

        The task runs on tensors without memory first: what is too big is never made, and `fn` computes nothing.
        """
        drawn, built = self._known(self._module.get_inputs, inputs), self._known(self._module.Model, init)
        with torch.random.fork_rng(), torch.no_grad():
            planned = True
            try:
                with torch.device("meta"):
                    seen = self._seen(drawn, built, self._module.forward_fn)
            except Exception:  # noqa: BLE001 - some code needs values, and what is wrong the real call tells
                planned = False
            if planned:
                check_size(seen, self._max_mib)
            torch.manual_seed(seed)
            seen = self._seen(drawn, built, _stop if planned else self._module.forward_fn)
        return on(self._device, seen)  # type: ignore[no-any-return]

    def _seen(
        self, inputs: dict[str, Any], init: dict[str, Any], function: Callable[..., Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the one call that a new `Model` makes of its `fn`, for which `function` stands."""
        seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def spy(*args: Any, **kwargs: Any) -> Any:
            seen.append((args, kwargs))
            return function(*args, **kwargs)

        drawn = self._module.get_inputs(**inputs)
        with suppress(_Stopped):
            self._module.Model(**init)(*drawn, fn=spy)
        if len(seen) != 1:
            raise RecordError(
                f"Model called its fn {counted(len(seen), 'time')}",
                remedy="a task's Model calls fn once, with tensors and plain values",
            )
        return seen[0]

    def _known(self, function: Callable[..., Any], settings: dict[str, Any]) -> dict[str, Any]:
        """Settings that the function has parameters for: shared ones are meant for either."""
        parameters = inspect.signature(function).parameters
        if unknown := sorted(set(settings) - set(parameters)):
            self._collector.report.note(
                f"{self._entry}: {function.__name__} takes no {', '.join(unknown)}; left out of its settings"
            )
        return {name: value for name, value in settings.items() if name in parameters}

    def _backward(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
    ) -> tuple[str, Callable[[], Any]]:
        """The op of the backward, and a call of it with a random gradient."""
        named = [
            argument.name
            for argument in bind(self._module.forward_fn, args, kwargs)
            if any(tensor.requires_grad for tensor in tensors_in(argument.value))
        ]
        if not named:
            raise RecordError("no argument of forward_fn requires a gradient")
        op = backward.name_of(self._op, named)
        with torch.random.fork_rng(), torch.no_grad():
            result = self._module.forward_fn(*args, **kwargs)
            torch.manual_seed(seed)
            gradients = [torch.randn(out.shape).to(out) for out in tensors_in(result)]
        if len(gradients) == 1:
            first, named_gradients = gradients, {}
        else:
            first = []
            named_gradients = {f"{backward.SEVERAL}.{i}": made for i, made in enumerate(gradients)}
        plain_args, plain_kwargs = _detached(args), _detached(kwargs)
        return op, lambda: backward.resolve(op)(*first, *plain_args, **plain_kwargs, **named_gradients)


class _Stopped(Exception):
    """A task's function was called, and its arguments are known."""


def _stop(*_: Any, **__: Any) -> Any:
    raise _Stopped


def _detached(values: Any) -> Any:
    return mapped(values, lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf)
