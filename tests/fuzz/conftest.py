"""Helpers lie beside the tests, and beside those of run folders."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "runs")]
