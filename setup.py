"""Builds the native kernels. The extension is optional: without a compiler the package installs and runs `masked`.

The library has no Python in it, so one wheel serves every Python from 3.11 on.
"""

import os
import platform
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CSRC = Path("src/regrow/csrc")
MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


def own_flags(source: str) -> list[str]:
    """The instructions that a table of kernels may use here, from its source's line `// flags <machine>: ...`."""
    found = re.search(rf"^// flags {MACHINE}: (.*)$", Path(source).read_text(), re.MULTILINE)
    return found[1].split() if found else []


class SideBySide(build_ext):
    """Compiles the sources of an extension at once, one per core, each with its own instructions."""

    def build_extension(self, ext: Extension) -> None:
        """As setuptools does, with another way to compile."""
        one_by_one = self.compiler.compile

        def compile_all(sources: list[str], extra_postargs: list[str] | None = None, **options: Any) -> list[str]:
            def compile_one(source: str) -> list[str]:
                return one_by_one([source], extra_postargs=[*(extra_postargs or ()), *own_flags(source)], **options)

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                compiled = pool.map(compile_one, sorted(sources, key=lambda source: "kernels_" not in source))
                return [object_file for files in compiled for object_file in files]

        self.compiler.compile = compile_all
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = one_by_one


setup(
    cmdclass={"build_ext": SideBySide},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    ext_modules=[
        Extension(
            "regrow._kernels",
            sources=sorted(str(path) for path in CSRC.glob("*.cpp")),
            depends=sorted(str(path) for pattern in ("*.h", "*.inl", "*.inc") for path in CSRC.glob(pattern)),
            extra_compile_args=[
                "-O3",
                "-g0",
                "-std=c++17",
                "-fopenmp",
                "-ffp-contract=fast",
                "-fno-math-errno",
                "-fvisibility=hidden",
                "-Wno-psabi",
            ],
            extra_link_args=["-fopenmp"],
            py_limited_api=True,
            optional=True,
        )
    ],
)
