"""What Python code of a kernel may import, and what it may not name."""

from __future__ import annotations

REMEDY = {
    "import": "import torch, triton, cutlass, math, functools and the like, or what the kernel's source imported before",
    "calls-op": "compute the answer in a kernel of your own; of torch take only allocation, views and shapes",
    "process": "a kernel only computes: raise ValueError or TypeError for a call that it does not take",
    "file-access": "a kernel reads its arguments and writes its outputs, and no files",
    "network": "a kernel has no network",
    "environment": "a kernel's answer depends on its arguments only",
    "threads": "leave parallel work to the kernel that is launched",
    "dynamic-code": "write code out: nothing is built from texts or looked up by computed names",
    "introspection": "a kernel does not look into the interpreter, its frames or other objects' insides",
    "patches-torch": "leave torch and other modules, their flags and defaults as they are",
    "device-state": "leave the device as it is: it is chosen and set up by the caller",
    "self-recognition": "a kernel behaves the same whoever calls it",
    "syntax": "correct the syntax",
}
"""What to do instead, by code."""


def _by_name(names: dict[str, str]) -> dict[str, str]:
    """Codes by name, from names by code."""
    return {name: code for code, some in names.items() for name in some.split()}


IMPORTS = frozenset(
    {
        "__future__", "abc", "cmath", "collections", "contextlib", "cuda", "cutlass", "dataclasses", "enum", "fractions",
        "functools", "itertools", "math", "numbers", "torch", "triton", "typing", "typing_extensions", "types", "warnings",
        "triton_kernels", "cuda.bindings", "cuda.tile",
    }
)  # fmt: skip
"""Modules that any kernel may import, with what is in them."""
OF_IMPORT = {
    "file-access": {
        "io", "pathlib", "shutil", "tempfile", "glob", "fileinput", "mmap", "pickle", "shelve", "dbm", "sqlite3", "zipfile",
        "tarfile", "gzip", "bz2", "lzma", "csv", "json", "marshal", "safetensors", "h5py", "fnmatch", "linecache", "stat",
    },
    "process": {
        "os", "subprocess", "signal", "atexit", "ctypes", "cffi", "pty", "resource", "posix", "faulthandler", "sched",
        "errno", "fcntl", "_ctypes", "_posixsubprocess", "cppyy", "numba", "cupy", "pybind11", "setuptools", "distutils",
    },
    "network": {
        "socket", "ssl", "urllib", "http", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "select", "selectors",
        "socketserver", "xmlrpc", "asyncore", "websockets",
    },
    "threads": {"threading", "multiprocessing", "asyncio", "concurrent", "_thread", "queue", "joblib"},
    "introspection": {"sys", "inspect", "gc", "traceback", "weakref", "dis", "tracemalloc", "ast", "symtable", "pdb", "bdb", "trace"},
    "dynamic-code": {"importlib", "builtins", "imp", "runpy", "code", "codeop", "pkgutil", "operator", "zipimport"},
    "environment": {"platform", "getpass", "pwd", "site", "sysconfig", "argparse", "locale", "uuid", "secrets"},
    "patches-torch": {"unittest", "mock", "wrapt"},
    "self-recognition": {"pytest", "_pytest", "pytest_cgins", "hypothesis", "pluggy"},
}  # fmt: skip
"""Codes of imports whose purpose is known; all others are `import`."""

BUILTINS = _by_name(
    {
        "file-access": "open __file__",
        "dynamic-code": "exec eval compile __import__ __builtins__ __loader__ __spec__",
        "introspection": "globals locals vars dir",
        "process": "breakpoint input exit quit SystemExit KeyboardInterrupt GeneratorExit BaseException",
        "patches-torch": "setattr delattr",
    }
)
"""Builtins that are not named."""


_ANYONES = (
    "init call name doc version len iter next getitem setitem contains enter exit repr str hash eq ne lt le gt ge "
    "post_init add radd sub rsub mul rmul truediv floordiv mod pow neg all annotations future main matmul and or xor "
    "slots"
)
DUNDERS = frozenset(f"__{name}__" for name in _ANYONES.split())
"""Names with two underscores that are anyone's."""

TORCH = _by_name(
    {
        "calls-op": "torch.compile torch.jit torch.ops torch.classes torch._C torch._VF torch._refs torch._prims "
        "torch._decomp torch._dynamo torch._inductor torch._higher_order_ops torch._torch_function torch.fx "
        "torch.onnx torch.autograd.grad torch.autograd.backward torch.autograd.functional torch.func "
        "torch.library.get_kernel",
        "patches-torch": "torch.library.Library torch.library.impl torch.library.register_kernel "
        "torch.library.register_torch_dispatch torch.library._impls torch.library.get_ctx torch._library "
        "torch.backends torch.overrides torch.utils._python_dispatch torch.utils._device "
        "torch.use_deterministic_algorithms torch.manual_seed torch.seed torch.random torch.cuda.manual_seed "
        "torch.cuda.manual_seed_all",
        "device-state": "torch.cuda.set_device torch.cuda.cudart torch.cuda.set_per_process_memory_fraction torch.cuda.memory "
        "torch.cuda.empty_cache torch.cuda.profiler torch.cuda.reset_peak_memory_stats",
        "file-access": "torch.load torch.save torch.from_file torch.serialization torch.package torch.export "
        "torch.profiler.profile torch.profiler.tensorboard_trace_handler torch.profiler._utils "
        "torch.utils.data",
        "process": "torch.utils.cpp_extension torch.utils.collect_env torch.utils.benchmark torch.os torch.ctypes",
        "threads": "torch.multiprocessing torch.threading",
        "network": "torch.hub torch.distributed",
        "introspection": "torch.sys torch.inspect",
        "dynamic-code": "torch.builtins torch.importlib",
    }
)
"""Parts of torch that a kernel does not use, with all that is in them."""
SETTERS_ALLOWED = frozenset({"torch.set_grad_enabled"})
"""`torch.set_…` that are legal."""
MODULES_OF_MODULES = frozenset(
    {"os", "sys", "subprocess", "importlib", "inspect", "builtins", "ctypes", "socket", "threading", "pickle", "gc", "shutil", "io"}
)  # fmt: skip
"""Modules that are reached as attributes of others: `functools.sys`."""
METHODS = _by_name(
    {
        "calls-op": "backward",
        "file-access": "tofile",
        "process": "share_memory_",
        "introspection": "__class__ tb_frame gi_frame cr_frame f_back f_globals f_locals f_builtins _getframe settrace "
        "setprofile func_globals",
    }
)
"""Attributes that are refused on anything."""
