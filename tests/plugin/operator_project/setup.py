"""Builds the package's operators: `python setup.py build_ext --inplace`."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="fused_ops",
    packages=["fused_ops"],
    ext_modules=[
        CppExtension(
            "fused_ops._C",
            ["csrc/torch_bindings.cpp", "csrc/layernorm.cpp", "csrc/activation.cpp"],
            extra_compile_args=["-O0"],
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
