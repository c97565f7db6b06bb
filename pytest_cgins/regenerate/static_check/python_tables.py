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

BUILTINS = {
    "open": "file-access",
    "exec": "dynamic-code",
    "eval": "dynamic-code",
    "compile": "dynamic-code",
    "__import__": "dynamic-code",
    "__builtins__": "dynamic-code",
    "__loader__": "dynamic-code",
    "__spec__": "dynamic-code",
    "__file__": "file-access",
    "globals": "introspection",
    "locals": "introspection",
    "vars": "introspection",
    "dir": "introspection",
    "breakpoint": "process",
    "input": "process",
    "exit": "process",
    "quit": "process",
    "SystemExit": "process",
    "KeyboardInterrupt": "process",
    "GeneratorExit": "process",
    "BaseException": "process",
    "setattr": "patches-torch",
    "delattr": "patches-torch",
}
"""Builtins that are not named."""


def _words(text: str) -> list[str]:
    return text.split()


DUNDERS = frozenset(
    f"__{name}__"
    for name in _words(
        "init call name doc version len iter next getitem setitem contains enter exit repr str hash eq ne lt le gt ge "
        "post_init add radd sub rsub mul rmul truediv floordiv mod pow neg all annotations future main matmul and or xor "
        "slots"
    )
)
"""Names with two underscores that are anyone's."""

TORCH = {
    "torch.compile": "calls-op",
    "torch.jit": "calls-op",
    "torch.ops": "calls-op",
    "torch.classes": "calls-op",
    "torch._C": "calls-op",
    "torch._VF": "calls-op",
    "torch._refs": "calls-op",
    "torch._prims": "calls-op",
    "torch._decomp": "calls-op",
    "torch._dynamo": "calls-op",
    "torch._inductor": "calls-op",
    "torch._higher_order_ops": "calls-op",
    "torch._torch_function": "calls-op",
    "torch.fx": "calls-op",
    "torch.onnx": "calls-op",
    "torch.autograd.grad": "calls-op",
    "torch.autograd.backward": "calls-op",
    "torch.autograd.functional": "calls-op",
    "torch.func": "calls-op",
    "torch.library.Library": "patches-torch",
    "torch.library.impl": "patches-torch",
    "torch.library.register_kernel": "patches-torch",
    "torch.library.register_torch_dispatch": "patches-torch",
    "torch.library._impls": "patches-torch",
    "torch.library.get_kernel": "calls-op",
    "torch.library.get_ctx": "patches-torch",
    "torch._library": "patches-torch",
    "torch.backends": "patches-torch",
    "torch.overrides": "patches-torch",
    "torch.utils._python_dispatch": "patches-torch",
    "torch.utils._device": "patches-torch",
    "torch.use_deterministic_algorithms": "patches-torch",
    "torch.manual_seed": "patches-torch",
    "torch.seed": "patches-torch",
    "torch.random": "patches-torch",
    "torch.cuda.manual_seed": "patches-torch",
    "torch.cuda.manual_seed_all": "patches-torch",
    "torch.cuda.set_device": "device-state",
    "torch.cuda.cudart": "device-state",
    "torch.cuda.set_per_process_memory_fraction": "device-state",
    "torch.cuda.memory": "device-state",
    "torch.cuda.empty_cache": "device-state",
    "torch.cuda.profiler": "device-state",
    "torch.cuda.reset_peak_memory_stats": "device-state",
    "torch.load": "file-access",
    "torch.save": "file-access",
    "torch.from_file": "file-access",
    "torch.serialization": "file-access",
    "torch.package": "file-access",
    "torch.export": "file-access",
    "torch.profiler.profile": "file-access",
    "torch.profiler.tensorboard_trace_handler": "file-access",
    "torch.profiler._utils": "file-access",
    "torch.utils.data": "file-access",
    "torch.utils.cpp_extension": "process",
    "torch.utils.collect_env": "process",
    "torch.utils.benchmark": "process",
    "torch.multiprocessing": "threads",
    "torch.hub": "network",
    "torch.distributed": "network",
    "torch.os": "process",
    "torch.sys": "introspection",
    "torch.builtins": "dynamic-code",
    "torch.importlib": "dynamic-code",
    "torch.inspect": "introspection",
    "torch.ctypes": "process",
    "torch.threading": "threads",
}
"""Parts of torch that a kernel does not use, with all that is in them."""
SETTERS_ALLOWED = frozenset({"torch.set_grad_enabled"})
"""`torch.set_…` that are legal."""
MODULES_OF_MODULES = frozenset(
    {"os", "sys", "subprocess", "importlib", "inspect", "builtins", "ctypes", "socket", "threading", "pickle", "gc", "shutil", "io"}
)  # fmt: skip
"""Modules that are reached as attributes of others: `functools.sys`."""
METHODS = {
    "backward": "calls-op",
    "tofile": "file-access",
    "share_memory_": "process",
    "__class__": "introspection",
    "tb_frame": "introspection",
    "gi_frame": "introspection",
    "cr_frame": "introspection",
    "f_back": "introspection",
    "f_globals": "introspection",
    "f_locals": "introspection",
    "f_builtins": "introspection",
    "_getframe": "introspection",
    "settrace": "introspection",
    "setprofile": "introspection",
    "func_globals": "introspection",
}
"""Attributes that are refused on anything."""
