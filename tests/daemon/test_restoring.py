"""Restoring what was forgotten: from a copy that is still kept, once, and from none that its policy has given up."""

from __future__ import annotations

from typing import Any

import pytest
from tests.daemon.desk import DAY, ManualClock, call, problems, projection, recalled, refused, remember, sweep

from amnesiad.service import Service
from amnesiad.store import vault


async def grave_of(service: Service, note_id: str) -> vault.Tomb:
    """The tomb of a forgotten note, as it stands in the store."""
    (grave,) = await vault.tombs(service.redis, (await projection(service)).keys, [note_id])
    assert grave is not None
    return grave.tomb


async def unscrubbed(service: Service) -> int:
    """Erasures whose words the files may still hold."""
    return (await vault.totals(service.redis, (await projection(service)).keys)).get("unscrubbed", 0)


async def forgotten(service: Service, **fields: Any) -> str:
    """A note that was forgotten while copies were kept; its id."""
    await call(service, "policy", set={"restorable": True})
    note_id = await remember(service, "the vault opens at nine", **fields)
    await call(service, "forget", id=note_id)
    return note_id


@pytest.mark.parametrize("restorable", [False, True])
async def test_an_expired_perishable_comes_back_only_by_restore(
    service: Service, clock: ManualClock, restorable: bool
) -> None:
    """C09: renewing an expired perishable is refused with the way out; restore works exactly where a copy was kept."""
    await call(service, "policy", set={"restorable": restorable})
    note_id = await remember(service, "the staging password rotates weekly", ttl_ms="1d")
    clock.advance(2 * DAY)
    for swept in (False, True):
        if swept:
            await sweep(service)
        error = await refused(call(service, "renew", id=note_id))
        assert error.code == "refused"
        assert "restore" in error.hint
        assert await recalled(service, "staging") == []
    if restorable:
        new = (await call(service, "restore", id=note_id)).id
        view = (await call(service, "inspect", id=new)).note
        assert new != note_id
        assert (view.restored_from, view.ttl_ms) == (note_id, 30 * DAY)
        assert await recalled(service, "staging") == ["the staging password rotates weekly"]
        assert (await refused(call(service, "restore", id=note_id))).choices == (new,)
    else:
        assert (await refused(call(service, "restore", id=note_id))).code == "refused"


async def test_a_forgotten_note_is_restored_no_more_once_copies_are_off(service: Service) -> None:
    """C30: turning ``restorable`` off makes kept copies worthless at once, before any pass has purged them."""
    await call(service, "policy", set={"restorable": True})
    note_id = await remember(service, "to be kept")
    await call(service, "forget", id=note_id)
    assert (await call(service, "audit")).entries[0].restorable
    await call(service, "policy", set={"restorable": False})
    assert not (await call(service, "audit")).entries[0].restorable
    assert (await refused(call(service, "restore", id=note_id))).code == "refused"


async def test_copies_switched_on_again_bring_back_none_of_before(service: Service, second: Service) -> None:
    """C30: off and on again before any pass ran: what was kept before is gone, what is forgotten from then on is
    kept."""
    old = await forgotten(service)
    await call(service, "policy", set={"restorable": False})
    before = await unscrubbed(service)
    await call(second, "policy", set={"restorable": True})
    assert (await grave_of(service, old)).kept is None
    assert await unscrubbed(service) == before + 1
    for asked in (service, second):
        assert (await refused(call(asked, "restore", id=old))).rule == "nothing-kept"
    new = await forgotten(service)
    assert (await call(service, "restore", id=new)).restored_from == new
    assert await problems(service) == ()


async def test_copies_kept_again_by_a_reset_are_new_ones_too(service: Service) -> None:
    """C30: so it is where another setting is changed in between, and where the switch is a reset to what the operator
    has."""
    old = await forgotten(service)
    await call(service, "policy", reset=["restorable"])
    await call(service, "policy", set={"default_ttl": "5d"})
    await call(service, "policy", set={"restorable": True, "default_ttl": "6d"})
    assert (await refused(call(service, "restore", id=old))).rule == "nothing-kept"


async def test_a_copy_whose_time_is_up_is_gone_though_no_pass_has_taken_it(
    service: Service, clock: ManualClock
) -> None:
    """C10: after ``audit_retention`` nothing is restored, whether or not a worker was there to purge it."""
    await call(service, "policy", set={"audit_retention": "2d"})
    late, early = await forgotten(service), await forgotten(service)
    clock.advance(2 * DAY - 1)
    assert {entry.id for entry in (await call(service, "audit")).entries if entry.restorable} == {late, early}
    assert (await call(service, "restore", id=early)).restored_from == early
    clock.advance(1)
    assert (await refused(call(service, "restore", id=late))).rule == "nothing-kept"
    assert not any(entry.restorable for entry in (await call(service, "audit")).entries)


async def test_a_result_from_elsewhere_puts_no_copy_back(service: Service) -> None:
    """C30: a tomb is written anew before the passes have taken its copy out: what is kept no more goes with it."""
    note_id = await forgotten(service, source_ref="mem0:1")
    await call(service, "policy", set={"restorable": False, "audit_retention": "5d"})
    before = await unscrubbed(service)
    assert (await call(service, "mirror", id=note_id, target="mem0", result="deleted")).changed
    tomb = await grave_of(service, note_id)
    assert (tomb.kept, tomb.purge_at) == (None, tomb.note.state_at + 5 * DAY)
    assert tomb.content_hash is not None
    assert await unscrubbed(service) == before + 1


async def test_a_tomb_that_moves_while_it_is_restored_is_read_again(
    service: Service, second: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C50: somebody writes into the tomb between look and write: the note is restored all the same, once."""
    note_id = await forgotten(service, source_ref="mem0:1")
    look = vault.tombs

    async def look_then_lose(*args: Any) -> Any:
        found = await look(*args)
        monkeypatch.setattr(vault, "tombs", look)
        await call(second, "mirror", id=note_id, target="mem0", result="deleted")
        return found

    monkeypatch.setattr(vault, "tombs", look_then_lose)
    new = (await call(service, "restore", id=note_id)).id
    assert await recalled(service, "vault") == ["the vault opens at nine"]
    assert (await grave_of(service, note_id)).note.restored_to == new
    assert dict((await grave_of(service, note_id)).note.mirrored) == {"mem0": "deleted"}
    assert await problems(service) == ()


async def test_copies_are_kept_again_though_another_daemon_changed_the_policy_meanwhile(
    service: Service, second: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C30: one change by another daemon, which this one has not heard of yet, is no reason to give up."""
    await remember(service, "the gate opens at eight")
    caught_up = service.caught_up

    async def overtaken(name: str) -> Any:
        found = await caught_up(name)
        monkeypatch.undo()
        await call(second, "policy", set={"max_deterrents": 1})
        return found

    monkeypatch.setattr(service, "caught_up", overtaken)
    values = (await call(service, "policy", set={"restorable": True})).values
    assert (values["restorable"].value, values["max_deterrents"].value) == (True, 1)
