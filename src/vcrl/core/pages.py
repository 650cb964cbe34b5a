"""Large pages of memory: what a CPU works on while it trains is handed out anew at every update."""

import contextlib
import os
import sys
from pathlib import Path

OFFERED = Path("/sys/kernel/mm/transparent_hugepage/enabled")  # of Linux
SETTING = "glibc.malloc.hugetlb"
ASKED = "VCRL_LARGE_PAGES"  # in the environment of who has been started again; or 0, for who wants none


def in_large_pages() -> None:
    """Start this program again with memory in large pages, where the system has them for who asks.

    The C library can be told to ask at a program's start only. Page by page of 4 KB takes a fifth of an update of VCR
    on Atari on a CPU. Whether a GPU will train instead is not known yet.
    """
    told = os.environ.get("GLIBC_TUNABLES", "")
    try:
        on_request = "[madvise]" in OFFERED.read_text()
    except OSError:
        return
    # Not by the setting alone, which the C library erases where it does not trust a program's caller.
    if not on_request or SETTING in told or ASKED in os.environ:
        return
    os.environ |= {"GLIBC_TUNABLES": ":".join(filter(None, [told, f"{SETTING}=1"])), ASKED: "1"}
    with contextlib.suppress(OSError):  # then without
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
