"""A mode of torch that sees the operators of one thread, from Python and from C++."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, `dispatch` runs in the place of every operator that reaches a backend."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True would wrap every call, the first of which imports torch's compiler: seconds in each worker.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Torch calls this."""
        del types
        return self.dispatch(func, args, kwargs or {})

    def dispatch(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run an operator, or something in its place."""
        raise NotImplementedError
