"""A service whose module starts a thread as it is imported."""

from __future__ import annotations

import threading
import time

from toys import Toy

threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


class Service(Toy):
    """As every toy."""
