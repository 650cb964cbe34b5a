"""One update in plain eager PyTorch, one seed at a time: what this project's speed is compared with.

    python benchmarks/eager.py --methods rainbow spr vcr    milliseconds an update
    python benchmarks/eager.py --check                      is it the same mathematics as the JAX agent's?

PyTorch is no dependency of this project and is imported only when something is measured. The update itself is in
`torch_agent.py`, the comparison in `torch_check.py`. Timing needs neither JAX nor anything else of the project's
dependencies, so it also runs in an environment that has only PyTorch.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from statistics import median

from vcrl.core.spec import Discrete, EnvSpec
from vcrl.methods.library import resolve

# What an environment looks like, and the suite whose settings go with it.
SHAPES = {
    "atari": (EnvSpec((84, 84, 1), Discrete(18)), None),
    "toy": (EnvSpec((16, 16, 1), Discrete(3)), "toy"),
}
METHODS = ("rainbow", "spr", "vcr")  # what is written in PyTorch
CHUNKS = 5


def available(device: str = "cpu") -> bool:
    """Whether PyTorch is there and can use the device."""
    if find_spec("torch") is None:
        return False
    import torch

    return device == "cpu" or torch.cuda.is_available()


def milliseconds(
    method: str, actions: int, updates: int, device: str, shape: str = "atari", capacity: int = 100_000
) -> float:
    """Milliseconds of one update of one seed, sampling from a full replay and new priorities included."""
    import torch
    from torch_agent import TorchAgent

    # What JAX does by default on such a GPU: products of float32 in tf32. Convolutions have that in PyTorch anyway.
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    spec, suite = SHAPES[shape]
    agent = TorchAgent(resolve(method, suite), spec.frame, actions, capacity, device)
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    return timed(agent.update, updates, wait, warm_up=10 if device != "cpu" else 2)


def timed(step: Callable[[], object], times: int, wait: Callable[[], object], warm_up: int = 5) -> float:
    """Milliseconds a step: the median of a few chunks, each waited for at its end only."""
    for _ in range(warm_up):
        step()
    wait()
    each, size = [], max(times // CHUNKS, 1)
    for _ in range(CHUNKS):
        began = time.perf_counter()
        for _ in range(size):
            step()
        wait()
        each.append((time.perf_counter() - began) / size * 1e3)
    return median(each)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--shape", choices=SHAPES, default="atari")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--device", help="cpu or cuda; the latter where there is one")
    parser.add_argument("--check", action="store_true", help="compare with the JAX agent instead of timing")
    parser.add_argument("--json", action="store_true", help="one line of JSON, null where PyTorch is not")
    options = parser.parse_args()
    device = options.device or ("cuda" if available("cuda") else "cpu")

    if not available(device):
        if options.json:
            print("null")
            return
        sys.exit(f"PyTorch for {device} is not installed in {sys.executable}")
    if options.check:
        from torch_check import check

        sys.exit(0 if check(options.methods, options.shape, device) else 1)
    spec = SHAPES[options.shape][0]
    found = {
        method: milliseconds(method, spec.actions.n, options.updates, device, options.shape, options.capacity)
        for method in options.methods
    }
    if options.json:
        print(json.dumps({"torch": torch_version(), "milliseconds": found}))
        return
    print(f"PyTorch {torch_version()} eager, {device}, {options.shape} frames, one seed")
    for method, each in found.items():
        print(f"{method:10s} {each:8.2f} ms an update")


def torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    main()
