"""Configuration from a TOML file and dotted overrides, validated into one frozen record.

config = load_config(TrainConfig, "configs/seer-9b.toml", ["optimizer.lr=3e-6"])
write_config(config, run_dir / "config.toml")
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from seer.errors import ConfigError
from seer.storage import write_text

Config = TypeVar("Config", bound=BaseModel)


def load_config(kind: type[Config], path: str | Path | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read the TOML file at `path`, apply `a.b=value` overrides in order and validate the result into `kind`.

    Without a path, the overrides alone are validated. Raises ConfigError for a missing file, invalid TOML, an unknown
    key (the message names the nearest known key) or an invalid value.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise ConfigError(f"no configuration at '{path}'; give the path of a TOML file") from None
        except (ValueError, RecursionError) as error:  # includes numbers and nesting beyond Python's limits
            raise ConfigError(f"'{path}' is not TOML: {error}; correct its syntax") from None
        except OSError as error:
            raise ConfigError(
                f"'{path}' cannot be read: {error.strerror}; give the path of a readable TOML file"
            ) from None
    for override in overrides:
        _apply(values, override)
    return build_config(kind, values, where=str(path) if path else "the command line")


def build_config(kind: type[Config], values: Mapping[str, Any], *, where: str) -> Config:
    """Validate `values` into `kind`.

    where: the origin of the values, which begins the error message.

    Raises ConfigError that lists every invalid value with its dotted key.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(_describe(fault) for fault in error.errors())) from None


def write_config(config: BaseModel, path: str | Path) -> None:
    """Write the resolved configuration atomically as TOML, without keys whose value is None."""
    import tomli_w

    write_text(path, tomli_w.dumps(config.model_dump(mode="json", exclude_none=True)))


def _apply(values: dict[str, Any], override: str) -> None:
    """Set the value of one `a.b=value` override in `values`."""
    key, equals, text = override.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise ConfigError(f"'{override}' is not an override; write it as key=value or section.key=value")
    node = values
    # Sections above the key are created if the file does not have them.
    for name in names[:-1]:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise ConfigError(f"'{override}': '{name}' is a value, not a section; override '{name}' itself")
    node[names[-1]] = _parse_value(text.strip())


def _parse_value(text: str) -> Any:
    """Parse a TOML value such as 3e-6, true, [1, 2] or "x"; any other text is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _describe(fault: Any) -> str:
    """One line about a pydantic error: dotted key, rule and value."""
    key = ".".join(str(part) for part in fault["loc"])
    message = str(fault["msg"]).removeprefix("Value error, ")
    # pydantic speaks of inputs and fields; the messages of this package say what a value must be.
    message = message.replace("Input should be", "must be").replace("Field required", "is missing; set it")
    if message.startswith("unknown key"):
        return f"{key}: {message}" if key else message
    got = f" (got {fault['input']!r})" if not isinstance(fault.get("input"), dict) else ""
    return f"{key}: {message}{got}" if key else message
