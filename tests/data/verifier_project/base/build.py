"""The build of a little project: runs each module's tests, writes one report a class."""

import os
import subprocess
import sys
import traceback
from pathlib import Path
from xml.sax.saxutils import quoteattr


class Skip(Exception):
    pass


def cases(module):
    found = {"Skip": Skip}
    for source in sorted(Path(module, "src/main").glob("*.py")):
        exec(compile(source.read_text(), source, "exec"), found)
    for source in sorted(Path(module, "src/test").glob("*.py")):
        tests = dict(found)
        exec(compile(source.read_text(), source, "exec"), tests)
        for name, test in tests["TESTS"]:
            yield source.stem, name, test


def status(test):
    try:
        test()
    except Skip:
        return "<skipped/>"
    except Exception:
        traceback.print_exc()
        return "<failure message='see the output'/>"
    return ""


def main():
    version = subprocess.run(["git", "rev-parse", "HEAD"], stdout=subprocess.PIPE, check=False)
    print("building", version.stdout.decode().strip(), os.environ["BUILD"])
    for module in ("app", "core"):
        reports = {}
        for owner, name, test in cases(module):
            line = f"<testcase classname={quoteattr(module + '.' + owner)} name={quoteattr(name)}>"
            reports.setdefault(owner, []).append(line + status(test) + "</testcase>")
        folder = Path(module, "build/test-results/test")
        folder.mkdir(parents=True, exist_ok=True)
        for owner, lines in reports.items():
            text = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuite>' + "\n".join(lines)
            Path(folder, f"TEST-{owner}.xml").write_text(text + "</testsuite>\n", encoding="utf-8")


sys.exit(main())
