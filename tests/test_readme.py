import re
from pathlib import Path

import pytest

from pamc.cli.app import run
from pamc.lab.pages.contents import path_of

README = path_of("README")
TEXT = README.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_python_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(blocks) == 2
    few = "n_epochs=2, advanced={'pretrain_epochs': 1, 'hidden': (32,)}"
    for block in blocks:
        fast = block.replace("random_state=0)", f"random_state=0, {few})")
        exec(compile(fast, "README.md", "exec"), {})
    assert "acc" in capsys.readouterr().out
    assert Path("digits-run/labels.csv").is_file()


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`pamc (\w+)`", TEXT))))
def test_every_command_that_is_named_exists(command, capsys):
    assert run([command, "--help"]) == 0
    assert command in capsys.readouterr().out


def test_the_documents_do_not_name_this_machine():
    for path in Path(README).parent.glob("*.md"):
        assert "/work/" not in path.read_text(encoding="utf-8")
