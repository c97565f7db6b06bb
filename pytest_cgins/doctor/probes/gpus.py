"""Prints what NVIDIA's management library tells of the driver and of each GPU, as JSON; {} where there is none."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pynvml

answer: dict[str, Any] = {}
try:
    # It is a part of the driver.
    with suppress(pynvml.NVMLError_LibraryNotFound):
        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        answer = {
            "release": pynvml.nvmlSystemGetDriverVersion(),
            "cuda": pynvml.nvmlSystemGetCudaDriverVersion_v2(),
            "gpus": [
                [pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetCudaComputeCapability(device)]
                for device in devices
            ],
        }
except pynvml.NVMLError as error:
    answer = {"trouble": str(error)}
print(json.dumps(answer))
