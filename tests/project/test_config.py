"""Tests of configuration files: errors name the key, and a written configuration reads back equal."""

from __future__ import annotations

import pytest

from seer.config import load_config, write_config
from seer.errors import ConfigError
from seer.reading.policy import ReadingPolicy
from seer.schema import PageStyle, Record


class Inner(Record):
    rate: float = 1.0
    name: str = "x"


class Named(Record):
    name: str


class Outer(Record):
    inner: Inner = Inner()
    steps: int = 3
    pages: tuple[int, ...] = ()
    limit: int | None = None


def test_load_config_overrides_replace_values_of_the_file(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("steps = 5\n[inner]\nrate = 3e-6\n")
    config = load_config(Outer, path, ["inner.name=hello world", "pages=[1, 2]", "steps=7"])
    assert config == Outer(inner=Inner(rate=3e-6, name="hello world"), steps=7, pages=(1, 2))


def test_write_config_read_back_is_equal(tmp_path):
    config = Outer(inner=Inner(name='quo"te\n'), pages=(3,))
    write_config(config, tmp_path / "c.toml")
    assert load_config(Outer, tmp_path / "c.toml") == config


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["stps=3"], "did you mean 'steps'"),
        (["inner.rat=3"], "did you mean 'rate'"),
        (["steps=many"], "steps"),
        (["steps"], "not an override"),
        (["=3"], "not an override"),
        (["steps=3", "steps.x=1"], "is a value, not a section"),
        (["inner=3"], "inner"),
    ],
)
def test_load_config_error_names_the_key(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config(Outer, None, overrides)


def test_load_config_rejects_missing_or_broken_file(tmp_path):
    with pytest.raises(ConfigError, match="no configuration at"):
        load_config(Outer, tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("steps = = 3")
    with pytest.raises(ConfigError, match=r"bad.toml' is not TOML: .*; correct its syntax"):
        load_config(Outer, tmp_path / "bad.toml")
    (tmp_path / "bin.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(Outer, tmp_path / "bin.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory; give the path of a readable TOML file"):
        load_config(Outer, tmp_path)


def test_load_config_error_states_what_a_value_must_be():
    with pytest.raises(ConfigError, match=r"the command line: max_pages: must be greater than or equal to 1 \(got 0\)"):
        load_config(ReadingPolicy, None, ["max_pages=0"])
    with pytest.raises(ConfigError, match=r"max_pages: must be a valid integer, .* \(got 'few'\)"):
        load_config(ReadingPolicy, None, ["max_pages=few"])
    with pytest.raises(ConfigError, match="name: is missing; set it"):
        load_config(Named, None)


def test_record_is_frozen_and_rejects_unknown_keys():
    with pytest.raises(ValueError, match="frozen"):
        ReadingPolicy().rounds = 3
    with pytest.raises(ValueError, match="did you mean 'font_size_pt'"):
        PageStyle(font_size=9)


def test_page_style_rejects_margins_without_room_for_text():
    with pytest.raises(ValueError, match="make the page larger or the margins smaller"):
        PageStyle(page_width_px=28, margin_x_px=20)


def test_page_style_digest_ignores_the_name():
    assert PageStyle(name="a").digest == PageStyle(name="b").digest
    assert PageStyle().digest != PageStyle(font_size_pt=8).digest
