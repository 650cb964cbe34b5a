"""Large pages of memory, for who trains on a CPU."""

import os
import sys
from pathlib import Path

OFFERED = Path("/sys/kernel/mm/transparent_hugepage/enabled")  # of Linux
SETTING = "glibc.malloc.hugetlb"


def in_large_pages() -> None:
    """Start this program again with memory in large pages, where the system has them for who asks.

    The C library can be told to ask at a program's start only. What an update works on is handed out anew every time,
    page by page of 4 KB: for VCR on Atari a fifth of its time on a CPU, for continuous agents a third.
    """
    told = os.environ.get("GLIBC_TUNABLES", "")
    try:
        on_request = "[madvise]" in OFFERED.read_text()
    except OSError:
        return
    if not on_request or SETTING in told:
        return
    os.environ["GLIBC_TUNABLES"] = ":".join(filter(None, [told, f"{SETTING}=1"]))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
