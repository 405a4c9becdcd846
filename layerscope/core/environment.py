"""The versions that a result keeps."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import Any

PACKAGES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "scikit-learn",
)


def versions() -> dict[str, Any]:
    """Return the versions a manifest keeps: ours, Python's and those of the packages that compute."""
    installed = dict.fromkeys(("layerscope", *PACKAGES), "unknown")
    for name in installed:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return {
        "layerscope": installed.pop("layerscope"),
        "versions": {"python": python_version(), **installed},
    }
