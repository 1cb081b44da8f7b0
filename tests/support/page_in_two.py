"""One of two processes that run the code of docs/how-to/accelerate.md, except what resumes (see `resumed_page`).

What each process got goes into a file.

Argument: a folder with the tokenizer.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from support.pages import ROOT, snippets

os.chdir(sys.argv[1])
names: dict[str, Any] = {}
for snippet in snippets(ROOT / "docs/how-to/accelerate.md"):
    if "load_state(" not in snippet.code:
        exec(snippet.code, names)
found = {"rows": len(names["rows"]), "predictions": names["predictions"].tolist(), "streamed": names["streamed"]}
Path(f"{os.environ['RANK']}.json").write_text(json.dumps(found))
