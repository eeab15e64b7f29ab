"""Every file of a folder names a type that there is."""

import json
import pathlib
import sys

for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    kind = json.loads(path.read_text())["type"]
    if kind not in ("string", "number"):
        sys.exit(f"{path.name}: unknown type '{kind}'")
    print(path.name, kind)
