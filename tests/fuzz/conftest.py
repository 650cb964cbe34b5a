"""Helpers lie beside the tests, and beside those of run folders and trainings."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "runs"), str(HERE.parent / "training")]
