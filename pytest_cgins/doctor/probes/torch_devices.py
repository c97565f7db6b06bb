"""Prints what torch is and which GPUs it can use, as one line of JSON."""

import json
import warnings

import torch

warnings.simplefilter("ignore")
devices = []
trouble = ""
if torch.version.cuda:
    try:
        torch.ones(1, device="cuda")  # says why there is none
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            torch.ones(1, device=f"cuda:{index}").sum().item()
            devices.append([properties.name, properties.major, properties.minor, properties.total_memory])
    except Exception as error:  # noqa: BLE001
        trouble = str(error).partition("\n")[0]
answer = {
    "version": str(torch.__version__),
    "path": torch.__file__,
    "cuda": torch.version.cuda,
    "devices": devices,
    "trouble": trouble,
}
print(json.dumps(answer))
