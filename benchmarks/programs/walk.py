"""Yardstick: import doit, and read the stat values of every file below a folder."""

import os
import sys

import doit

assert doit
pending = [sys.argv[1]]
while pending:
    with os.scandir(pending.pop()) as found:
        for item in found:
            if item.is_dir(follow_symlinks=False):
                pending.append(item.path)
            else:
                item.stat(follow_symlinks=False)
