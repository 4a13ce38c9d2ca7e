"""The settings of a process: where values come from, and the sentence that stops the start."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from amnesiad.addresses import mask_url
from amnesiad.core.kinds import DAY_MS
from amnesiad.core.policy import LIVE_SETTINGS
from amnesiad.errors import ConfigError
from amnesiad.settings import CLIENT_VARIABLES, RULES, Settings, load_settings, show_setting

DEPLOYED = Path(__file__).parents[2] / "deploy" / "amnesia.toml"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose user directories are empty ones of the test."""
    for name in ("config", "state", "run"):
        (tmp_path / name).mkdir()
    return {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
    }


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_with_nothing_set_every_value_is_the_specifications(environ: dict[str, str], tmp_path: Path) -> None:
    """Section 12: without file and environment the documented defaults hold, and all are marked as defaults."""
    settings = load_settings(environ=environ)
    assert settings.redis_url is None
    assert settings.socket == tmp_path / "run" / "amnesia" / "amnesia.sock"
    assert settings.state_dir == tmp_path / "state" / "amnesia"
    assert settings.http is None
    assert settings.http_address is None
    assert (settings.erase_within, settings.session_lease, settings.child_lease) == (60_000, 30 * DAY_MS, DAY_MS)
    assert (settings.embedder, settings.durability, settings.log_level) == ("none", "everysec", "info")
    assert settings.kinds_file is None
    assert settings.config_file is None
    assert settings.policy.default_ttl == 30 * DAY_MS
    assert settings.policy.trust_user_stated == 0.9
    assert {row.origin for row in settings.describe()} == {"default"}
    assert {row.name for row in settings.describe()} == set(RULES) == set(Settings.model_fields)


def test_arguments_beat_the_environment_beats_the_file_beats_defaults(environ: dict[str, str], tmp_path: Path) -> None:
    """Section 12: each layer overrides the one below it, and the origin of a value says which won."""
    path = _write(
        tmp_path / "a.toml", 'default_ttl = "1d"\nmax_deterrents = 1\nstale_strength = 0.4\nlog_level = "error"\n'
    )
    environ |= {"AMNESIA_MAX_DETERRENTS": "2", "AMNESIA_STALE_STRENGTH": "0.5", "AMNESIA_RESTORABLE": ""}
    settings = load_settings(path, environ, stale_strength="0.6", log_level=None)
    policy = settings.policy
    assert (policy.default_ttl, policy.max_deterrents, policy.stale_strength) == (DAY_MS, 2, 0.6)
    assert settings.log_level == "error"
    origins = {row.name: row.origin for row in settings.describe()}
    assert origins["stale_strength"] == "argument"
    assert origins["max_deterrents"] == "environment"
    assert origins["default_ttl"] == settings.origin("default_ttl") == "file"
    assert origins["restorable"] == "default"


def test_the_file_is_the_named_one_or_the_users_own(environ: dict[str, str], tmp_path: Path) -> None:
    """Section 12: --config goes before AMNESIA_CONFIG, which goes before the user's configuration directory."""
    own = _write(tmp_path / "config" / "amnesia" / "amnesia.toml", "max_deterrents = 1")
    assert load_settings(environ=environ).policy.max_deterrents == 1
    assert load_settings(environ=environ).config_file == own
    environ["AMNESIA_CONFIG"] = str(_write(tmp_path / "b.toml", "max_deterrents = 2"))
    assert load_settings(environ=environ).policy.max_deterrents == 2
    assert load_settings(_write(tmp_path / "c.toml", "max_deterrents = 4"), environ).policy.max_deterrents == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("record_ttl", "-1"),
        ("record_ttl", "nan"),
        ("record_ttl", "0"),
        ("default_ttl", "1000000000000000000"),
        ("default_ttl", "1000000000000000000d"),
        ("default_ttl", "30"),
        ("ebbinghaus_k", "nan"),
        ("trust_human", "2"),
        ("max_item_bytes", "1TiB"),
        ("erase_within", "0s"),
        ("erase_within", "2d"),
        ("session_lease", "none"),
        ("embedder", "bert"),
        ("durability", "never"),
        ("log_level", "loud"),
        ("http", "0.0.0.0:8765"),
        ("http", "127.0.0.1"),
        ("http", "127.0.0.1:0"),
        ("http", "[::1"),
        ("http", "user@127.0.0.1:80"),
        ("redis_url", "http://127.0.0.1"),
        ("redis_url", "redis://"),
        ("redis_url", "redis://h:99999"),
        ("state_dir", "$NO_SUCH_VARIABLE/amnesia"),
        ("state_dir", "a\nb"),
        ("socket", "\ud800"),
    ],
)
def test_a_wrong_value_stops_the_start_by_name(environ: dict[str, str], name: str, value: str) -> None:
    """V11: one sentence names the setting, the value, what is accepted and the variable; never a validator's dump."""
    environ[f"AMNESIA_{name.upper()}"] = value
    with pytest.raises(ConfigError) as refusal:
        load_settings(environ=environ)
    message = refusal.value.message
    assert refusal.value.field == name
    assert message.startswith(f"{name} must be ")
    assert message.endswith(f" (environment variable AMNESIA_{name.upper()})")
    assert ", not " in message
    assert "\n" not in message
    assert "pydantic" not in message


@pytest.mark.parametrize("name", ["http", "redis_url", "socket", "state_dir", "embedder", "kinds_file", "auto_expire"])
@pytest.mark.parametrize("value", ["3", "[]", "{ a = 1 }", "nan", "2030-01-01", '""', '"\\u0000"'])
def test_a_value_of_another_type_is_refused_by_name(
    environ: dict[str, str], tmp_path: Path, name: str, value: str
) -> None:
    """V11: whatever TOML can hold, a setting of the wrong type is one sentence that names it and the file."""
    path = _write(tmp_path / "a.toml", f"{name} = {value}")
    with pytest.raises(ConfigError, match=f"^{name} must be .*, not ") as refusal:
        load_settings(path, environ)
    assert refusal.value.message.endswith(f"(in {path})")


def test_a_home_that_cannot_be_entered_holds_no_settings(environ: dict[str, str], tmp_path: Path) -> None:
    """Section 12: directories that the system refuses to look into are passed over, not an end of the process."""
    environ |= {"XDG_CONFIG_HOME": "/" + "x" * 300, "XDG_RUNTIME_DIR": "/" + "x" * 300}
    settings = load_settings(environ=environ)
    assert settings.config_file is None
    assert settings.socket == tmp_path / "state" / "amnesia" / "run" / "amnesia.sock"


def test_the_environment_of_the_process_is_the_default(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Section 12: without an explicit environment the process's own is read, and the user's directories found."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AMNESIA_MAX_DETERRENTS", "7")
    assert load_settings().policy.max_deterrents == 7
    monkeypatch.setenv("HOME", str(tmp_path))
    without_home = {"AMNESIA_MAX_DETERRENTS": "8", "XDG_CONFIG_HOME": "relative"}
    state = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
    assert load_settings(environ=without_home).state_dir == tmp_path / state / "amnesia"


def test_a_path_from_an_unknown_home_is_refused(environ: dict[str, str]) -> None:
    """V11: a home directory that does not exist cannot be expanded, and the setting is named."""
    with pytest.raises(ConfigError, match=r"^state_dir must be a path, not '~nobody-by-that-name/s'"):
        load_settings(environ=environ, state_dir="~nobody-by-that-name/s")


def test_settings_at_odds_stop_the_start(environ: dict[str, str]) -> None:
    """V11: values that are each in range but contradict one another are refused by name."""
    with pytest.raises(ConfigError, match="forgotten_strength must be below stale_strength"):
        load_settings(environ=environ, forgotten_strength=0.5)


def test_settings_at_odds_name_the_one_that_was_set(environ: dict[str, str]) -> None:
    """V11: of two settings the default one needs no mending: the place of the other is told."""
    with pytest.raises(ConfigError, match=r"stale_strength \(0\.01\).*\(environment variable AMNESIA_STALE_STRENGTH\)"):
        load_settings(environ={**environ, "AMNESIA_STALE_STRENGTH": "0.01"})


def test_a_user_without_a_home_is_told_what_to_set(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container that runs as nobody the machine knows, the sentence says what is missing."""

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(
        ConfigError, match=r"'~/.*amnesia' \(this user has no home directory: set HOME, or this setting\)"
    ):
        load_settings(environ={name: value for name, value in environ.items() if not name.startswith("XDG_")})


@pytest.mark.parametrize("name", ["socket", "state_dir", "kinds_file"])
def test_a_variable_in_a_path_that_is_not_set_is_named(environ: dict[str, str], name: str) -> None:
    """A path with a variable that nobody set is no directory of that name, and is told of as what it is."""
    with pytest.raises(ConfigError, match=rf"{name} must be a path.*\(\$NO_SUCH_THING is not set\)"):
        load_settings(environ={**environ, f"AMNESIA_{name.upper()}": "$NO_SUCH_THING/x"})


@pytest.mark.parametrize("line", ["default_ttl = 30", "default_ttl = 30.0", "erase_within = 60"])
def test_a_duration_in_a_file_carries_its_unit(environ: dict[str, str], tmp_path: Path, line: str) -> None:
    """V11: a bare number in a file, which could be meant as days, is refused with the way to write it."""
    path = _write(tmp_path / "a.toml", line)
    with pytest.raises(ConfigError, match="bare number") as refusal:
        load_settings(path, environ)
    assert str(path) in refusal.value.message
    assert "unit" in refusal.value.hint


@pytest.mark.parametrize("name", ["defualt_ttl", "redis", "kinds", "model_config", "amnesia"])
def test_an_unknown_setting_stops_the_start_by_name(environ: dict[str, str], tmp_path: Path, name: str) -> None:
    """V11: a key or variable that is no setting is named, wherever it stands."""
    arguments: dict[str, Any] = {name: 1}
    with pytest.raises(ConfigError, match=f"^{name} is not a setting"):
        load_settings(_write(tmp_path / "a.toml", f"{name} = 1"), environ)
    with pytest.raises(ConfigError, match=f"AMNESIA_{name.upper()} is not a setting"):
        load_settings(environ=environ | {f"AMNESIA_{name.upper()}": "1"})
    with pytest.raises(ConfigError, match=f"^{name} is not a setting"):
        load_settings(None, environ, **arguments)


def test_a_misspelt_setting_is_answered_with_the_likely_one(environ: dict[str, str], tmp_path: Path) -> None:
    """V11: the refusal suggests the setting that was meant."""
    with pytest.raises(ConfigError) as refusal:
        load_settings(_write(tmp_path / "a.toml", "defualt_ttl = 1"), environ)
    assert refusal.value.hint == "did you mean default_ttl?"
    with pytest.raises(ConfigError) as refusal:
        load_settings(environ=environ | {"AMNESIA_DEFUALT_TTL": "1d"})
    assert refusal.value.hint == "did you mean AMNESIA_DEFAULT_TTL?"
    with pytest.raises(ConfigError) as refusal:
        load_settings(environ=environ | {"AMNESIA_FOO": "1"})
    assert refusal.value.hint == "unset it"  # that every variable begins alike makes none of them a likely one


def test_variables_of_clients_and_of_clusters_are_no_settings(environ: dict[str, str]) -> None:
    """V11: an agent's variables and a Kubernetes service called amnesia do not stop the daemon."""
    environ |= dict.fromkeys(CLIENT_VARIABLES - {"AMNESIA_CONFIG"}, "x")
    environ |= {"AMNESIA_SERVICE_HOST": "10.0.0.1", "AMNESIA_PORT": "tcp://10.0.0.1:80"}
    environ |= {"AMNESIA_PORT_80_TCP_ADDR": "10.0.0.1", "AMNESIA_REDIS_SERVICE_PORT_MAIN": "6379"}
    assert load_settings(environ=environ).policy


@pytest.mark.parametrize("content", [b"default_ttl = ", b"\xff\xfe", b"max_deterrents = " + b"9" * 5000])
def test_a_file_that_is_no_toml_is_named(environ: dict[str, str], tmp_path: Path, content: bytes) -> None:
    """V11: a broken file stops the start with its path."""
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        load_settings(path, environ)


def test_a_named_file_must_exist(environ: dict[str, str], tmp_path: Path) -> None:
    """V11: a file that was asked for is never silently left out, nor is a table of kinds."""
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(tmp_path / "none.toml", environ)
    with pytest.raises(ConfigError, match=r"kinds_file names .* cannot be read"):
        load_settings(environ=environ, kinds_file=tmp_path / "none.toml")


def test_a_kinds_file_replaces_the_tables_or_stops_the_start(environ: dict[str, str], tmp_path: Path) -> None:
    """V11: a half-life of 0 or a missing kind in the operator's tables stops the start with the row's name."""
    shipped = (Path(__file__).parents[2] / "daemon" / "amnesiad" / "kinds.toml").read_text()
    path = _write(tmp_path / "kinds.toml", shipped.replace("task = 21", "task = 2"))
    settings = load_settings(environ=environ, kinds_file=path)
    assert settings.policy.kinds.half_life_ms["task"] == 2 * DAY_MS
    _write(path, shipped.replace("task = 21", "task = 0"))
    with pytest.raises(ConfigError, match=r"half_life_days.task must lie above 0") as refusal:
        load_settings(environ=environ, kinds_file=path)
    assert refusal.value.field == "half_life_days.task"
    _write(path, shipped.replace("task = 21\n", ""))
    with pytest.raises(ConfigError, match=r"'task' has no row in the table half_life_days"):
        load_settings(environ=environ, kinds_file=path)


@pytest.mark.parametrize("runtime", ["", "relative", "/nonexistent/amnesia-runtime"])
def test_without_a_runtime_directory_the_socket_is_under_the_state_directory(
    environ: dict[str, str], tmp_path: Path, runtime: str
) -> None:
    """Section 12: where no runtime directory of ours exists, the socket moves to one under the state directory."""
    environ["XDG_RUNTIME_DIR"] = runtime
    settings = load_settings(environ=environ, state_dir=tmp_path / "s")
    assert settings.socket == tmp_path / "s" / "run" / "amnesia.sock"


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of 107 bytes is Linux's")
def test_a_socket_path_is_bounded_by_its_bytes(environ: dict[str, str]) -> None:
    """Section 12: 107 bytes fit a Unix socket address and 108 do not, whether given or derived, in any alphabet."""
    fits = "/" + "é" * 53
    assert load_settings(environ=environ, socket=fits).socket == Path(fits)
    with pytest.raises(ConfigError, match=r"socket must be a path of at most 107 bytes.*\(108 bytes\)"):
        load_settings(environ=environ, socket=fits + "x")
    environ["XDG_RUNTIME_DIR"] = ""
    with pytest.raises(ConfigError, match=r"socket must be a path of at most 107 bytes"):
        load_settings(environ=environ, state_dir="/" + "d" * 100)


def test_paths_are_expanded_and_made_absolute(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 12: a path may start at home, at a variable or at the current directory, and is absolute ever after."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for given in ("~/s", "$HOME/s", "s"):
        assert load_settings(environ=environ, state_dir=given).state_dir == tmp_path / "s"


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hunter2@10.0.0.1:6379/0",
        "rediss://:hun@ter2/hunter2@10.0.0.1",
        "redis://10.0.0.1/0?username=hunter2&password=hunter2",
        "unix:///run/redis.sock?password=hunter2",
        "unix://hunter2@/run/redis.sock",
    ],
)
def test_a_stores_password_is_never_shown(environ: dict[str, str], url: str) -> None:
    """Section 12: neither repr nor the table of settings nor an error repeats the credentials in an address."""
    try:
        settings = load_settings(environ=environ, redis_url=url)
    except ConfigError as refusal:
        assert "hunter2" not in f"{refusal.message} {refusal!r}"  # noqa: PT017
        return
    assert settings.redis_url == url
    assert "hunter2" not in f"{settings!r} {settings} {settings.describe()} {show_setting('redis_url', url)}"


@pytest.mark.parametrize("url", ["http://user:hunter2@h", "user:hunter2@h", "redis://u:hunter2@h:port", "//:hunter2@"])
def test_a_refused_address_is_masked(environ: dict[str, str], url: str) -> None:
    """Section 12: the sentence that refuses an address does not print its password."""
    with pytest.raises(ConfigError, match=r"redis_url must be .*\*\*\*@") as refusal:
        load_settings(environ=environ, redis_url=url)
    assert "hunter2" not in f"{refusal.value!r} {refusal.value.__cause__!r}"
    assert mask_url("redis://h/0") == "redis://h/0"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("none", True),
        ("unix:///run/redis.sock", True),
        ("redis://localhost", True),
        ("redis://127.0.0.2:6379", True),
        ("redis://[::1]/0", True),
        ("redis://10.0.0.1", False),
        ("rediss://redis.example", False),
    ],
)
def test_a_store_elsewhere_is_known_to_be_elsewhere(environ: dict[str, str], url: str, local: bool) -> None:
    """Section 12: only a store on this machine lets a path stand for a workspace."""
    assert load_settings(environ=environ, redis_url=url).store_is_local is local


@pytest.mark.parametrize(
    ("http", "address"),
    [("127.0.0.1:8765", ("127.0.0.1", 8765)), ("[::1]:80", ("::1", 80)), ("localhost:1", ("localhost", 1))],
)
def test_http_is_loopback(environ: dict[str, str], http: str, address: tuple[str, int]) -> None:
    """Section 12: the TCP door opens on this machine alone."""
    assert load_settings(environ=environ, http=http).http_address == address


def test_values_are_shown_as_people_write_them(environ: dict[str, str]) -> None:
    """Section 12: durations, sizes and none are shown in the form in which they are set."""
    shown = {row.name: row.value for row in load_settings(environ=environ).describe()}
    assert (shown["default_ttl"], shown["max_store_bytes"], shown["ended_retention"]) == ("30d", "256KiB", "none")
    assert (shown["auto_expire"], shown["record_ttl"], shown["trust_auto"]) == (True, "off", 0.4)
    assert shown["redis_url"] == "none"


def test_the_deployed_file_lists_every_setting_with_its_true_default(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V11: deploy/amnesia.toml changes nothing as it is, and uncommented it names every setting with its default."""
    text = DEPLOYED.read_text()
    assert tomllib.loads(text) == {}
    uncommented = re.sub(r"(?m)^# (?=[a-z_0-9]+ = )", "", text)
    assert set(tomllib.loads(uncommented)) == set(RULES)
    assert len(re.findall(r"(?m)^[a-z_0-9]+ = ", uncommented)) == len(RULES)

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", environ["XDG_RUNTIME_DIR"])
    environ["XDG_STATE_HOME"] = str(tmp_path / ".local" / "state")
    listed = load_settings(_write(tmp_path / "a.toml", uncommented), environ)
    defaults = load_settings(environ=environ)
    assert listed.model_dump() == defaults.model_dump()
    assert {row.origin for row in listed.describe()} == {"file"}


def test_the_deployed_file_marks_what_is_live() -> None:
    """Section 12: the settings under the headings called live are exactly those that can be changed live."""
    process, _, live = DEPLOYED.read_text().partition("## Live")
    listed = re.compile(r"(?m)^# ([a-z_0-9]+) = ")
    assert set(listed.findall(live)) == LIVE_SETTINGS
    assert set(listed.findall(process)) == set(RULES) - LIVE_SETTINGS
