"""The rate of this machine's time stamp counter, in kHz.

A guest without hardware acceleration reads the same counter. Its own measurement of the rate takes some milliseconds, and on a
busy machine it can be wrong by tens of per cent: its seconds, and all its time-outs, would be that much too short or too long.
"""
import ctypes
import mmap
import time

# rdtsc; shl rdx, 32; or rax, rdx; ret
CODE = bytes.fromhex("0f31 48c1e220 4809d0 c3")
SECONDS = 0.2
TRIES = 50


def counter():
    """A function that reads the counter, and the object that keeps its code in memory."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(CODE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_uint64)(address), page


def instant(read):
    """Counter and clock at one moment: the closest pair of some tries, so that an interruption does not count."""
    best = None
    for _ in range(TRIES):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        ticks = read()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        if best is None or after - before < best[0]:
            best = (after - before, ticks, (before + after) // 2)
    return best[1:]


def kilohertz():
    """Takes 0.2 s."""
    read, _page = counter()
    first_ticks, first_time = instant(read)
    time.sleep(SECONDS)
    last_ticks, last_time = instant(read)
    return round((last_ticks - first_ticks) * 1_000_000 / (last_time - first_time))
