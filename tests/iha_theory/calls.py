"""What `test_processes` has other processes do."""

import os
import sys
import time
from pathlib import Path


def die_once(folder, number, how):
    """Its process dies at the first call with this number, and later if `how` is negative at every one."""
    file = Path(folder, str(number))
    if how and (how < 0 or not file.exists()):
        file.touch()
        os.kill(os.getpid(), abs(how))
    print("this is for people")
    return number**2, os.getpid()


def fail(error):
    raise error


def leave():
    sys.exit(3)


def wait(folder):
    Path(folder, str(os.getpid())).touch()
    total = sum(range(10**8))  # no pause in which another thread could look up
    time.sleep(1000)
    return total
