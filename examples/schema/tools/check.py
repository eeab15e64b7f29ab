"""Every file of a folder names a type that there is."""

import json
import pathlib
import sys

paths = sorted(pathlib.Path(sys.argv[1]).glob("*.json"))
if not paths:
    sys.exit("there is no schema to check")
for path in paths:
    kind = json.loads(path.read_text())["type"]
    if kind not in ("string", "number"):
        sys.exit(f"{path.name}: unknown type '{kind}'")
    print(path.name, kind)
