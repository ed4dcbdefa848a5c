"""Documentation that can drift is checked here."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from membench.cli import cli
from membench.engine.protocols.protocol import PROTOCOLS
from membench.interface import hookspecs
from membench.interface.options import options_of
from membench.interface.registry import Registry

ROOT = Path(__file__).parents[2]
PAGES = {path: path.read_text("utf-8") for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
EVERYTHING = "\n".join(PAGES.values())
REGISTRY = Registry()
CONTEXT = click.Context(cli)


def options(command: click.Command) -> list[str]:
    return [name for parameter in command.params for name in parameter.opts if name.startswith("-")]


def test_every_verb_and_option_is_documented() -> None:
    commands = PAGES[ROOT / "docs" / "commands.md"]
    sections = re.split(r"^## ", commands, flags=re.M)[1:]
    (of_run,) = (section for section in sections if section.startswith("`membench run`"))
    for verb in cli.list_commands(CONTEXT):
        command = cli.get_command(CONTEXT, verb)
        assert command is not None
        own = "".join(section for section in sections if f"membench {verb}" in section.split("\n")[0])
        # many say which options they share with run; --json is said once for all
        known = own + of_run if "`run`" in own else own
        missing = [name for name in options(command) if f"`{name}" not in known and f" {name} " not in known]
        assert own, verb
        assert set(missing) <= {"--json"}, (verb, missing)


def test_every_hook_is_documented() -> None:
    hooks = [name for name in vars(hookspecs) if name.startswith("membench_")]
    assert len(hooks) >= 3
    assert [name for name in hooks if name not in EVERYTHING] == []


@pytest.mark.parametrize("name", [*REGISTRY.architectures, *REGISTRY.tasks, *PROTOCOLS])
def test_every_architecture_task_and_protocol_is_documented_with_its_options(name: str) -> None:
    item = {**REGISTRY.architectures, **REGISTRY.tasks, **PROTOCOLS}[name]
    section = re.search(rf"^### `{re.escape(name)}`\n(.*?)(?=^##|\Z)", EVERYTHING, re.M | re.S)
    assert section, f"no section '### `{name}`' in README or docs"
    missing = [option for option in options_of(item.config) if f"`{option}`" not in section[1]]
    assert not missing


def test_links_between_pages_lead_somewhere() -> None:
    for page, text in PAGES.items():
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_on_the_site() -> None:
    import yaml

    listed = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    pages = [page for section in listed for entries in section.values() for entry in entries for page in entry.values()]
    assert sorted(pages) == sorted(path.name for path in PAGES if path.parent.name == "docs")


def test_markdown_leaves_formulas_alone() -> None:
    """On a line of text it takes these for characters that it should not read, before the formula is seen."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$", "", EVERYTHING, flags=re.S)
    formulas = re.findall(r"\$[^$\n]+\$", text)
    assert len(formulas) > 500
    assert [one for one in formulas if re.search(r"\\[\\`*_{}\[\]()>#+.!|~-]", one)] == []


def test_the_two_commands_of_the_readme_are_there() -> None:
    readme = PAGES[ROOT / "README.md"]
    assert "pip install -c constraints.txt . && membench run --model aot --task bigram" in readme
    assert "pip install -c constraints.txt -e '.[test]' && pytest" in readme
    assert "pip install -c constraints.txt -e '.[test]' && pytest" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_plugin_in_the_readme_works(tmp_path: Path) -> None:
    import numpy as np
    import torch

    from membench.api import Shape
    from membench.interface.registry import Selection

    snippets = re.findall(r"```python\n(.*?)```", PAGES[ROOT / "README.md"], re.S)
    (code,) = [snippet for snippet in snippets if "hookimpl" in snippet]
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    registry = Registry(Selection(files=(str(tmp_path / "mine.py"),)))
    (plugin,) = [plugin for plugin in registry.plugins if plugin.name == "mine"]
    assert plugin.status == "loaded", plugin.reason
    (architecture,) = plugin.architectures
    module = architecture.build(Shape(7, 2, 5), architecture.config())
    assert module(torch.from_numpy(np.zeros((3, 2), dtype=np.int64))).shape == (3, 5)
    assert len([line for line in code.splitlines() if line.strip()]) <= 18
