"""Builds the native kernels. The extension is optional: without a compiler the package installs and runs `masked`."""

from pathlib import Path

from setuptools import Extension, setup

CSRC = Path("src/regrow/csrc")

setup(
    ext_modules=[
        Extension(
            "regrow._kernels",
            sources=sorted(str(path) for path in CSRC.glob("*.cpp")),
            depends=sorted(str(path) for pattern in ("*.h", "*.inl", "*.inc") for path in CSRC.glob(pattern)),
            extra_compile_args=[
                "-O3",
                "-std=c++17",
                "-fopenmp",
                "-ffp-contract=fast",
                "-fno-math-errno",
                "-fvisibility=hidden",
                "-Wno-psabi",
            ],
            extra_link_args=["-fopenmp"],
            optional=True,
        )
    ]
)
