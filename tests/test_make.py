"""The Makefile where it may go wrong before there is anything to test."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("target", ["up", "test"])
def test_an_older_python_is_refused_before_anything_is_made(tmp_path: Path, target: str) -> None:
    """Whoever has one is told so and how to name another; no .venv of the old one is left for the next try."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "old"
    old.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.version_info = (3, 9); exec(sys.argv[1])" "$2"\n'
    )
    old.chmod(0o700)
    made = subprocess.run(["make", target, "PYTHON=./old"], cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode != 0
    assert "./old is Python 3.9, and 3.11 is needed" in made.stderr
    assert f"make {target} PYTHON=" in made.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "old", "pyproject.toml"]
