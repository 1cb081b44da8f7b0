"""A process that runs the code of docs/how-to/accelerate.md and writes the rows of each batch into a file.

Arguments: a folder with the tokenizer, and the number of the batch before which the process is killed, or None.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from support.pages import ROOT, snippets

LENGTHS = [1 + 7 * row % 30 for row in range(60)]
ROWS = [{"input_ids": [row + 200] * n, "attention_mask": [1] * n} for row, n in enumerate(LENGTHS)]
seen: list[Any] = []
names: dict[str, Any] = {}


def train_step(batch: Any) -> None:
    names["accelerator"].wait_for_everyone()  # as gradients that are averaged do
    if str(len(seen)) == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    seen.append([names["position"].epoch, (batch["input_ids"][:, 0] - 200).tolist()])
    Path(f"seen-{os.environ['RANK']}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    for snippet in snippets(ROOT / "docs/how-to/accelerate.md"):
        resumes = "load_state(" in snippet.code
        if "rows" in names:
            names.update(rows=ROWS, train_step=train_step)
        exec(snippet.code if resumes else snippet.code.partition("\nfor epoch")[0], names)
        if resumes:
            break
