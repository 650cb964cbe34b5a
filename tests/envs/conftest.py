import sys
from pathlib import Path

# Test modules are imported by path, so a helper beside them is found only if its folder is known.
sys.path.insert(0, str(Path(__file__).parent))
