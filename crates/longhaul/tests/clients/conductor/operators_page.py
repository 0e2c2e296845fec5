"""Registers and runs every example on the page about operators."""

from __future__ import annotations

import json
import re
from pathlib import Path

from common import METADATA, Workers, ended, main, start

PAGE = Path(__file__).resolve().parents[5] / "docs/conductor-operators.md"
EXAMPLE = re.compile(r"```json\n(.*?)```\n\nInput `(.*?)` gives\s+`(.*?)`\.", re.DOTALL)


def equals(expected, found) -> bool:
    """Whether a value is as the page says. `<id>` is any id."""
    if expected == "<id>":
        return isinstance(found, str) and len(found) == 36
    if isinstance(expected, dict):
        return isinstance(found, dict) and expected.keys() == found.keys() and all(
            equals(value, found[name]) for name, value in expected.items()
        )
    return expected == found


def every_example() -> None:
    text = PAGE.read_text()
    examples = [tuple(json.loads(part) for part in parts) for parts in EXAMPLE.findall(text)]
    assert len(examples) == text.count("```json") >= 14, "an example has no output"
    for definition, _, _ in examples:
        METADATA.register_workflow_def(definition, overwrite=True)
    echo = lambda task: task.input_data
    with Workers(op_echo=echo, OP_OWN_TYPE=echo):
        for definition, given, expected in examples:
            run = ended(start(definition["name"], **given))
            assert run.status == "COMPLETED", (definition["name"], run.reason_for_incompletion)
            assert equals(expected, run.output), (definition["name"], run.output)


if __name__ == "__main__":
    main(every_example)
