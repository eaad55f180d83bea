"""The one-shot search command: hits in a table, nothing found is said, bad use is one line."""

import pytest

from autotools.errors import ConfigError, DataError, UnknownCategoryError
from autotools.schema import ToolId, ToolSpec
from retriever.search import main


@pytest.fixture
def tools(tmp_path):
    specs = [
        ToolSpec(id=ToolId(category="Travel", tool="inn", api=api), tool_name="inn", api_name=api, description=text)
        for api, text in (("price_now", "current price of an inn"), ("find", "find an inn by name"))
    ]
    (tmp_path / "tools.jsonl").write_text("".join(spec.model_dump_json() + "\n" for spec in specs))
    return str(tmp_path)


def test_best_hit_comes_first(tools, capsys):
    assert main(["inn price", "--tools", tools, "--k", "2"]) == 0
    out = capsys.readouterr().out
    assert 0 < out.index("Travel.inn.price_now") < out.index("Travel.inn.find")
    assert main(["[weather]", "--tools", tools]) == 0
    assert "no tool matches '[weather]'" in capsys.readouterr().out


def test_bad_use(tools, tmp_path):
    with pytest.raises(ConfigError, match="missing key 'tools'"):
        main(["price"])
    with pytest.raises(UnknownCategoryError, match="close names: Travel"):
        main(["price", "--tools", tools, "--category", "travel"])
    with pytest.raises(DataError, match="does not exist"):
        main(["price", "--tools", str(tmp_path / "none.jsonl")])
    assert main(["price", "--tools", "nowhere", "--dry_run"]) == 0
