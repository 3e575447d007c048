"""Says by its exit code whether every expected test is among those that passed."""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ET

passed = set()
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.xml")):
    for case in ET.parse(path).iter("testcase"):
        name = re.sub(r"\[.*\]$|@[0-9a-f]+$", "", case.get("name", ""))
        if not any(child.tag in ("failure", "error", "skipped") for child in case):
            passed.add(f"{case.get('classname')}.{name}")
expected = json.loads(pathlib.Path(sys.argv[2]).read_text())
wanted = {test for kind in ("f2p", "p2p", "s2p", "n2p") for test in expected[f"{kind}_tests"]}
missing = sorted(wanted - passed)
print("\n".join(missing))
sys.exit(1 if missing else 0)
