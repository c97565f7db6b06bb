"""What C and C++ code of a kernel may not name, and what it may include."""

from __future__ import annotations

import re

REMEDY = {
    "process": "a kernel only computes: return a number other than 0, or use CGINS_CHECK, to report an error",
    "file-access": "a kernel reads its arguments and writes its outputs, and no files",
    "network": "a kernel has no network",
    "environment": "a kernel's answer depends on its arguments only: make it a constant or a template parameter",
    "threads": "on the CPU use OpenMP (#pragma omp parallel for); its threads are done when the function returns",
    "device-state": "leave the device as it is: it is chosen and set up by the caller; use the stream that is given",
    "torch-in-launcher": "a launcher sees DLTensor and cgins.h only, no torch: compute the answer yourself",
    "vendor-library": "write the computation out: calls into such libraries are not taken",
    "include": "include headers of C, C++, CUDA, CUTLASS or of this project, by their plain names",
    "calls-op": "compute the answer in the kernel: the op that it replaces must not be called, nor what does its work",
    "static-code": "code runs only when the kernel is called: no constructors, aliases or other linker tricks",
    "self-recognition": "a kernel behaves the same whoever calls it",
    "patches-torch": "leave torch as it is",
    "obfuscated": "write names out in full",
}
"""What to do instead, by code."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES = {
    "process": _words(
        "system popen pclose fork vfork execl execlp execle execv execvp execve execvpe fexecve execveat posix_spawn "
        "posix_spawnp syscall ptrace dlopen dlsym dlvsym dlmopen dlclose dl_iterate_phdr dladdr prctl mprotect mmap mmap64 mremap "
        "shm_open process_vm_readv process_vm_writev memfd_create setrlimit prlimit sched_setaffinity unshare setns "
        "chroot _exit _Exit quick_exit longjmp siglongjmp setjmp sigsetjmp _setjmp sigaction sigprocmask setitimer timer_create "
        "pthread_kill atexit at_quick_exit on_exit __cxa_atexit waitpid daemon setuid setgid nvrtcCompileProgram "
        "nvrtcCreateProgram __libc_start_main sigaltstack"
    ),
    "file-access": _words(
        "fopen fopen64 freopen fdopen fmemopen tmpfile mkstemp openat open64 creat opendir fdopendir readdir scandir "
        "nftw unlink unlinkat mkdir rmdir symlink readlink realpath ifstream ofstream fstream wifstream basic_ifstream "
        "basic_ofstream basic_fstream basic_filebuf filebuf sendfile inotify_init cuModuleLoad cuLibraryLoadFromFile cuModuleLoadFatBinary "
        "pread pwrite chmod chown fchmod"
    ),
    "network": _words(
        "socket socketpair getaddrinfo gethostbyname inet_addr inet_pton inet_aton sendto recvfrom sendmsg recvmsg"
    ),
    "environment": _words(
        "getenv secure_getenv setenv unsetenv putenv clearenv environ __environ getpid getppid gethostname getcwd "
        "getauxval program_invocation_name __progname"
    ),
    "threads": _words(
        "pthread_create pthread_detach thrd_create jthread timer_settime cudaLaunchHostFunc cuLaunchHostFunc "
        "cudaStreamAddCallback cuStreamAddCallback"
    ),
    "device-state": _words(
        "cudaDeviceReset cudaSetDevice cudaDeviceSetLimit cudaDeviceSetCacheConfig cudaDeviceSetSharedMemConfig "
        "cudaSetDeviceFlags cudaSetValidDevices cudaInitDevice cudaCtxResetPersistingL2Cache cudaDeviceEnablePeerAccess "
        "cudaThreadExit cudaThreadSetLimit cuCtxCreate cuCtxDestroy cuCtxSetLimit cuCtxSetCacheConfig cuCtxSetCurrent "
        "cuCtxPushCurrent cuCtxPopCurrent cuCtxResetPersistingL2Cache cuDevicePrimaryCtxReset cuDevicePrimaryCtxSetFlags "
        "cudaProfilerStart cudaProfilerStop cudaIpcOpenMemHandle cudaIpcGetMemHandle cudaDeviceSetMemPool"
    ),
}
"""Names that nothing in a kernel has, whether they are called or only named."""
TORCH_HEADERS = re.compile(r"(?:torch|ATen|c10|caffe2)/\S+|torch\.h|pybind11/\S+")
LIBRARY_HEADERS = re.compile(
    r"(?:cublas|cudnn|cusparse|cusolver|cufft|cutensor|nvml|nvblas|rocblas|hip/|dnnl|oneapi/|onednn|mkl|cblas|lapack|"
    r"openblas|Eigen/|armadillo|tbb/|arm_compute).*"
)
OTHER_HEADERS = (
    (
        re.compile(r"unistd\.h|sys/.*|spawn\.h|dlfcn\.h|link\.h|c?signal(?:\.h)?|c?setjmp(?:\.h)?|nvrtc\.h|Python\.h|sched\.h|ucontext\.h|linux/.*|asm/.*"),
        "process",
    ),
    (re.compile(r"fstream|filesystem|experimental/filesystem|fcntl\.h|dirent\.h|ftw\.h|glob\.h"), "file-access"),
    (re.compile(r"netdb\.h|netinet/.*|arpa/.*|poll\.h|net/.*"), "network"),
    (re.compile(r"thread|future|stop_token|pthread\.h|threads\.h|execution"), "threads"),
)  # fmt: skip
"""Headers that are for what a kernel may not do, with its code."""
