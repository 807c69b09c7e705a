"""Old backups of `flowql backup` are deleted by number and age, and what a killed one has left, but nothing that somebody may need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowql.backup.lay import restore_backup
from flowql.backup.take import delete_old, take_backup
from flowql.deploy.settings import Settings
from flowql.doctor.stored import examine_backups
from flowql.errors import CommandError
from flowql.runtime.backup.keeping import Keep, superfluous
from flowql.runtime.backup.place import Place
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.remote.objects import objects_at
from tests.flowql.backup.world import Feed, hosted, send, settings_in

HOUR_S, DAY_S = 3_600, 86_400


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A stopped one."""
    settings = settings_in(tmp_path_factory.mktemp("kept") / "live")
    with hosted(settings) as host:
        Feed().send(host.engine.instance.log, 100)
    return settings


def backed_up(project: Settings, place: Path, ages_s: list[int]) -> list[str]:
    """One backup for each age, the oldest first; the names of their manifests. Each has records that the one before does not have."""
    made = []
    for n, age_s in enumerate(ages_s):
        log = EmbeddedLog(project.log_dir)
        send(log, [[(f"k{n}", n)], []])
        log.close()
        made.append(take_backup(project, str(place)).object)
        now_s = max(p.stat().st_mtime for p in place.rglob("*") if p.is_file())
        for path in place.rglob("*") if age_s else ():
            is_new = path.is_file() and path.stat().st_mtime > now_s - 1
            if is_new and str(path.relative_to(place)) not in made[:-1]:
                os.utime(path, (now_s - age_s,) * 2)
    return made


def manifests(place: Path) -> set[str]:
    return {m.object for m in Place(objects_at(place.as_uri()), "demo").manifests()}


def test_the_newest_stay_and_each_can_be_restored(project: Settings, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    made = backed_up(project, place, [9 * HOUR_S, 7 * HOUR_S, 5 * HOUR_S, 3 * HOUR_S, 0])
    before = sum(p.is_file() for p in place.rglob("*"))
    deleted = delete_old(project, str(place), Keep(2))
    assert manifests(place) == set(made[2:]), "the third was pushed out just now, and somebody may restore it"
    assert len(deleted.names) == before - sum(p.is_file() for p in place.rglob("*"))
    assert any("/files/" in name for name in deleted.names)
    assert [f.state for f in examine_backups(str(place))] == ["ok"]
    for name in made[2:]:
        commit = next(m for m in Place(objects_at(place.as_uri()), "demo").manifests() if m.object == name)
        elsewhere = settings_in(tmp_path / name[-40:-20])
        manifest, _ = Place(objects_at(place.as_uri()), "demo").read(commit)
        assert restore_backup(elsewhere, str(place), commit=manifest.commit).manifest.commit == manifest.commit


@pytest.mark.parametrize(
    ("keep", "stay"),
    [(Keep(), 3), (Keep(1), 2), (Keep(None, 2 * DAY_S * 1000), 2), (Keep(1, 9 * DAY_S * 1000), 3), (Keep(None, 1), 1)],
)
def test_a_backup_stays_if_one_rule_keeps_it(project: Settings, tmp_path: Path, keep: Keep, stay: int) -> None:
    """Ages: five days, one day, new. The newest always stays."""
    place = tmp_path / "backups"
    made = backed_up(project, place, [5 * DAY_S, DAY_S, 0])
    delete_old(project, str(place), keep)
    assert manifests(place) == set(made[-stay:])


def test_what_a_killed_backup_has_left_goes_after_a_day(project: Settings, tmp_path: Path) -> None:
    place = tmp_path / "backups"
    take_backup(project, str(place))
    files = Place(objects_at(place.as_uri()), "demo")
    for name, age_s in (("old", DAY_S + 9), ("new", DAY_S - 900)):
        files.objects.put_new(f"demo/instance/files/log/{name}/0-1-x-{9:016x}", b"x")
        path = place / f"demo/instance/files/log/{name}/0-1-x-{9:016x}"
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    assert [name.split("/")[4] for name in superfluous(files, Keep()).names] == ["old"]


def test_nothing_is_deleted_beside_a_damaged_manifest(project: Settings, tmp_path: Path) -> None:
    """It may need anything."""
    place = tmp_path / "backups"
    made = backed_up(project, place, [9 * HOUR_S, 7 * HOUR_S, 0])
    path = place / made[-1]
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CommandError, match="not as it was written") as error:
        delete_old(project, str(place), Keep(1))
    assert error.value.code == "FQ5701"
    assert manifests(place) == set(made)
