"""A driver of ours in CUDA's place: two GPUs, which are lost when a test says so. Nothing computes on them."""

from __future__ import annotations

import subprocess
from pathlib import Path

DRIVER = """\
#include <stdlib.h>
#include <string.h>
static char letter(void) { const char* v = getenv("CUDA_VISIBLE_DEVICES"); return v && *v ? v[4] : 'a'; }
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int* device, int index) { return *device = 0; }
int cuDeviceGetUuid_v2(unsigned char* raw, int device) { memset(raw, letter() == 'a' ? 0xaa : 0xbb, 16); return 0; }
int cuDeviceGetName(char* text, int nbytes, int device) { const char* name = getenv("TWIN_NAME"); strcpy(text, name ? name : "NVIDIA Twin"); return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) {
  const char* lost = getenv("TWIN_LOST");
  return lost && strchr(lost, letter()) ? 214 : 0;
}
int cuCtxSetCurrent(void* context) { return 0; }
int cuMemGetInfo_v2(size_t* nfree, size_t* total) { *nfree = 9; *total = 10; return 0; }
int cuMemAlloc_v2(unsigned long long* memory, size_t nbytes) { return getenv("TWIN_FULL") ? 2 : 0; }
int cuMemsetD32_v2(unsigned long long memory, unsigned value, size_t count) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuGetErrorName(int status, const char** name) { *name = "CUDA_ERROR_ECC_UNCORRECTABLE"; return 0; }
"""


def build(folder: Path) -> None:
    """Make the library, for LD_LIBRARY_PATH."""
    (folder / "driver.c").write_text(DRIVER)
    command = ["gcc", "-shared", "-fPIC", "-w", "-o", folder / "libcuda.so.1", folder / "driver.c"]
    subprocess.run(command, check=True)
