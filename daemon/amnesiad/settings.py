"""The settings of a process: where each value comes from, and the one sentence that refuses a wrong one.

Precedence, highest first: arguments of the command line, ``AMNESIA_*`` environment variables, one TOML file, defaults.
The file is the one that ``--config`` or ``AMNESIA_CONFIG`` names, else ``amnesia/amnesia.toml`` in the user's
configuration directory if it exists. Anything unknown or out of range raises ``ConfigError``, and nothing starts.

What a value may be is never stated here twice: settings that can also be changed live are the fields of
``core.policy.Policy`` with their rules, and the rest carry rules of the same kind (``addresses`` has those of paths). A
workspace's live overrides are stored with the workspace and validated by ``core.policy``.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

import msgspec
from pydantic import Field, PrivateAttr, ValidationInfo, create_model, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from amnesiad.addresses import AbsolutePath, LoopbackAddress, RedisUrl, SocketPath, is_loopback
from amnesiad.core.kinds import DAY_MS, load_kinds
from amnesiad.core.policy import LIVE_RULES, LIVE_SETTINGS, Policy, validate
from amnesiad.core.rules import Choice, Duration, Rule, suggestion
from amnesiad.core.times import HOUR_MS, SECOND_MS, quoted
from amnesiad.errors import ConfigError, Invalid
from amnesiad.places import config_file, default_socket, default_state_dir

__all__ = [
    "CLIENT_VARIABLES",
    "LIVE_SETTINGS",
    "RULES",
    "Origin",
    "SettingRow",
    "Settings",
    "load_settings",
    "show_setting",
]

ENV_PREFIX: Final = "AMNESIA_"

CLIENT_VARIABLES: Final = frozenset(
    {
        "AMNESIA_CONFIG",  # the TOML file to read
        "AMNESIA_WORKSPACE",  # the rest say for whom a client speaks; the daemon ignores them
        "AMNESIA_SESSION",
        "AMNESIA_TEAM",
        "AMNESIA_AGENT",
        "AMNESIA_AGENT_KIND",
        "AMNESIA_HOOK_DEBUG",  # the shims': say why a hook printed nothing
        "AMNESIA_EXPECTED",  # and miss a daemon that does not answer
    }
)
"""Variables with our prefix that are no settings."""

# A Kubernetes service called amnesia, or a linked container, puts these beside ours; they are nobody's mistake.
_SERVICE_LINK: Final = re.compile(
    r"AMNESIA_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)

LogLevel = Literal["debug", "info", "warning", "error"]
Embedder = Literal["none", "use", "e5"]
Durability = Literal["everysec", "always"]
Origin = Literal["argument", "environment", "file", "default"]


if TYPE_CHECKING:

    class _LiveSettings(BaseSettings):
        """To the type checker the live settings exist on ``Settings.policy`` alone, where they have been validated."""
else:
    _LiveSettings = create_model(
        "_LiveSettings",
        __base__=BaseSettings,
        **{
            field.name: (Annotated[Any, LIVE_RULES[field.name]], field.default)
            for field in msgspec.structs.fields(Policy)
            if field.name in LIVE_RULES
        },
    )


class Settings(_LiveSettings):
    """Everything a process is told. Frozen; built by ``load_settings``. Durations are milliseconds."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    redis_url: Annotated[str | None, RedisUrl(words=("none",))] = Field(default=None, repr=False)
    socket: Annotated[Path, SocketPath()]
    state_dir: Annotated[Path, AbsolutePath()]
    http: Annotated[str | None, LoopbackAddress(words=("none",))] = None
    durability: Annotated[Durability, Choice(names=get_args(Durability))] = "everysec"
    erase_within: Annotated[int, Duration(at_most=DAY_MS)] = 60 * SECOND_MS
    session_lease: Annotated[int, Duration()] = 30 * DAY_MS
    child_lease: Annotated[int, Duration()] = 24 * HOUR_MS
    embedder: Annotated[Embedder, Choice(names=get_args(Embedder))] = "none"
    kinds_file: Annotated[Path | None, AbsolutePath(words=("none",))] = None
    log_level: Annotated[LogLevel, Choice(names=get_args(LogLevel))] = "info"

    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)
    _config_file: Path | None = PrivateAttr(default=None)

    @field_validator("*", mode="plain")
    @classmethod
    def _by_rule(cls, value: object, info: ValidationInfo) -> object:
        # Invalid is no ValueError, so it passes through pydantic unwrapped and keeps its sentence.
        name = str(info.field_name)
        return RULES[name].parse(value, field=name)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what ``load_settings`` passes: it reads the layers itself, to know where each value came from."""
        return (init_settings,)

    @cached_property
    def policy(self) -> Policy:
        """The live settings as the core takes them, with the tables of kinds. Raises ``ConfigError`` or ``Invalid``."""
        kinds = load_kinds(_read_kinds(self.kinds_file))
        return validate(Policy(kinds=kinds, **{name: getattr(self, name) for name in LIVE_RULES}))

    @property
    def config_file(self) -> Path | None:
        """The TOML file that was read, if any."""
        return self._config_file

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port of ``http``, or ``None`` where it is off."""
        if self.http is None:
            return None
        url = urlsplit("//" + self.http)
        return str(url.hostname), int(url.port or 0)

    @property
    def store_is_local(self) -> bool:
        """Whether the store can be reached from this machine alone, so that a path names one workspace."""
        url = urlsplit(self.redis_url or "unix:")
        return url.scheme == "unix" or is_loopback(url.hostname)

    def origin(self, name: str) -> Origin:
        """Which layer the value of a setting came from."""
        return self._origins.get(name, "default")

    def describe(self) -> list[SettingRow]:
        """Every setting with its value in human form and its origin; passwords are masked."""
        return [SettingRow(name, show_setting(name, getattr(self, name)), self.origin(name)) for name in RULES]


class SettingRow(NamedTuple):
    """One line of ``Settings.describe``."""

    name: str
    value: object
    origin: Origin


def _rules() -> dict[str, Rule]:
    found = {
        name: next(rule for rule in field.metadata if isinstance(rule, Rule))
        for name, field in Settings.model_fields.items()
    }
    # The process first, the policy after it; a live setting keeps the very rule that overrides are held to.
    return {name: rule for name, rule in found.items() if name not in LIVE_RULES} | dict(LIVE_RULES)


RULES: Final[Mapping[str, Rule]] = _rules()
"""Every setting with its rule."""


def show_setting(name: str, value: object) -> object:
    """The human form of a setting's value: ``30d``, ``256KiB``, ``none``; a store's password is masked."""
    return RULES[name].show(value)


def load_settings(
    config: Path | None = None, environ: Mapping[str, str] | None = None, **overrides: object
) -> Settings:
    """Read all layers and return valid settings.

    ``overrides`` come from the command line; ``None`` there means not given (the word ``none`` unsets a value). An
    empty environment variable counts as unset. Without ``XDG_CONFIG_HOME`` and ``XDG_STATE_HOME`` in ``environ`` the
    user's own directories are used. Raises ``ConfigError`` with one sentence that names the setting, the value, what
    is accepted and where the value stands.
    """
    environ = os.environ if environ is None else environ
    path = config_file(environ) if config is None else config
    layers: dict[Origin, Mapping[str, object]] = {
        "default": {"state_dir": default_state_dir(environ)},
        "file": {} if path is None else _read_config(path),
        "environment": _read_environ(environ),
        "argument": {name: value for name, value in overrides.items() if value is not None},
    }
    for name in layers["argument"]:
        if name not in RULES:
            raise ConfigError(f"{name} is not a setting", field=name)
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for origin, layer in layers.items():  # from the weakest to the strongest
        values.update(layer)
        origins.update(dict.fromkeys(layer, origin))

    try:
        state_dir: Path = RULES["state_dir"].parse(values["state_dir"], field="state_dir")
        if "socket" not in values:
            values["socket"] = default_socket(environ, lambda: state_dir)
        settings = Settings(**values)
        settings._origins.update(origins)
        settings._config_file = path
        _ = settings.policy  # built now, so that a policy at odds with itself stops the start
    except Invalid as refusal:
        raise _config_error(refusal, origins, path) from None
    return settings


def _config_error(refusal: Invalid, origins: Mapping[str, Origin], path: Path | None) -> ConfigError:
    """The same sentence with the place where the value stands, so that a person knows which line to mend."""
    field = refusal.field or ""
    # A row of the tables of kinds (``ttl_days.task``) comes from the file that this setting names. Of two settings that
    # are at odds, the one that somebody set is the one to mend.
    setting = field if field in RULES else "kinds_file"
    if origins.get(setting, "default") == "default":
        named = [name for name in re.findall(r"\w+", refusal.message) if name in RULES]
        setting = next((name for name in named if origins.get(name, "default") != "default"), setting)
    place = {
        "environment": f" (environment variable {ENV_PREFIX}{setting.upper()})",
        "file": f" (in {path})",
        "argument": f" (argument --{setting.replace('_', '-')})",
        "default": "",
    }[origins.get(setting, "default")]
    return ConfigError(refusal.message + place, hint=refusal.hint, field=field)


def _read_toml(path: Path, field: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as failure:
        reason = failure.strerror or type(failure).__name__
    except ValueError as failure:  # TOML, UTF-8, or a number of more digits than Python reads
        reason = f"not valid TOML: {failure}"
    raise ConfigError(f"{field} names {path}, which cannot be read: {reason}", field=field)


def _read_config(path: Path) -> dict[str, object]:
    values: dict[str, object] = _read_toml(path, "config")
    for name, value in values.items():
        if name not in RULES:
            raise ConfigError(f"{name} is not a setting (in {path})", hint=suggestion(name, RULES), field=name)
        if isinstance(RULES[name], Duration) and isinstance(value, int | float) and not isinstance(value, bool):
            # On the wire a bare number is milliseconds; in a file a person may well mean days.
            raise ConfigError(
                f"{name} must be {RULES[name].accepts}, not the bare number {quoted(value)} (in {path})",
                hint='write the unit, as in "30d"',
                field=name,
            )
    return values


def _read_environ(environ: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for variable, value in environ.items():
        if not variable.startswith(ENV_PREFIX) or variable in CLIENT_VARIABLES or _SERVICE_LINK.fullmatch(variable):
            continue
        name = variable.removeprefix(ENV_PREFIX).lower()
        if name not in RULES:
            known = {setting.upper() for setting in RULES} | {
                each.removeprefix(ENV_PREFIX) for each in CLIENT_VARIABLES
            }
            raise ConfigError(
                f"the environment variable {variable} is not a setting",
                hint=suggestion(name.upper(), sorted(known), ENV_PREFIX) or "unset it",
                field=variable,
            )
        if value.strip():
            values[name] = value
    return values


def _read_kinds(path: Path | None) -> dict[str, Any]:
    if path is not None:
        return _read_toml(path, "kinds_file")
    return tomllib.loads((resources.files("amnesiad") / "kinds.toml").read_text(encoding="utf-8"))
