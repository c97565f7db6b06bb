"""A service in pytest's own process, for debuggers: what `WorkerProcess` does, without any isolation.

Nothing protects pytest here: a crash ends the run, a hang hangs it, and no limit holds. What the service prints
goes where pytest's own output goes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.run.process import Reply, service_error
from pytest_cgins.run.worker import describe, make_service, method_of


class LocalWorker:
    """A service object that is called as a worker is. It is made, and torch imported, at the first call."""

    alive = True
    """The service always lives: it ends only with pytest."""

    def __init__(self, service: str, *, name: str) -> None:
        self.name = name
        self._made_of = service
        self._service: Any = None

    @property
    def pid(self) -> int:
        """The process id of pytest itself."""
        return os.getpid()

    def call(
        self, method: str, params: Mapping[str, Any], buffers: Sequence[Buffer] = (), *, timeout_s: float
    ) -> Reply[Any]:
        """Call a method of the service. `timeout_s` is not kept to: nobody could end the call.

        Raises:
            ServiceError: the service raised.
            KeyboardInterrupt: the user wants to stop.
        """
        del timeout_s
        try:
            if self._service is None:
                self._service = make_service(self._made_of)
            result, answered = method_of(self._service, method)(_plain(params), list(buffers))
            return Reply(_plain(result), tuple(answered))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise service_error(self.name, describe(error)) from error
        finally:
            if getattr(self._service, "fatal", False):
                self._service = None

    def close(self) -> None:
        """Forget the service; the next call makes a new one."""
        self._service = None


def _plain(value: Any) -> Any:
    """What would arrive on the other side of a pipe: plain JSON values, and no object of ours."""
    return json.loads(json.dumps(value, allow_nan=False))
