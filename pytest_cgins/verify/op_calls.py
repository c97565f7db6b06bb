"""Which operators torch's own op runs: what a kernel that replaces it must not call."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from pytest_cgins.core.layout import Layout
from pytest_cgins.core.model import Context, OpCall
from pytest_cgins.verify.probes.op_callback import Counter
from pytest_cgins.verify.reference import answer


def op_calls(call: OpCall, inputs: Layout, context: Context, device: str) -> dict[str, int]:
    """Run the op once more, in the case's own context.

    Returns:
        Operators by plain name, with the elements of the greatest tensor of each of their calls, in sum;
        "" has those of the greatest input.
    """
    with _Counting() as counting:
        answer(call, inputs, context, device)
    calls: dict[str, int] = counting.counter.calls
    return calls | {"": max((meta.numel for meta in inputs.metas), default=0)}


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counter = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap every call, the first of which imports torch's compiler: seconds in each worker.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Torch calls this for every operator that reaches a backend while the mode is active."""
        del types
        named = kwargs or {}
        result = func(*args, **named)
        self.counter.add(func, (*args, *named.values()), result)
        return result
