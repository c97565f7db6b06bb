"""Prints the CUDA version that the driver library supports, as one line of JSON."""

import ctypes
import json
import sys

number = ctypes.c_int()
library = ctypes.CDLL(sys.argv[1])
status = library.cuDriverGetVersion(ctypes.byref(number))
print(json.dumps({"status": status, "version": number.value}))
