"""Build and install: `pip install --no-build-isolation .`, so that the torch that is installed is used."""

import json
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))

import build_kernels

NAMESPACE = json.loads(Path(__file__).with_name("libraries.json").read_text(encoding="utf-8"))["namespace"]


class CompileFirst(build_py):
    """Compiles the kernels before the package's files are gathered."""

    def run(self):
        """Compile, then gather."""
        build_kernels.main()
        super().run()


class PlatformWheel(bdist_wheel):
    """The libraries use torch's stable ABI and no Python: any Python 3, this platform."""

    def finalize_options(self):
        """Not a wheel of Python only."""
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        """The wheel's tag."""
        return "py3", "none", super().get_tag()[2]


setup(
    packages=[NAMESPACE],
    package_dir={"": "src"},
    package_data={NAMESPACE: ["*.so"]},
    cmdclass={"build_py": CompileFirst, "bdist_wheel": PlatformWheel},
)
