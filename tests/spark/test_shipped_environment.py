"""What ``headgate run --ship`` packs for the workers, and what it leaves out."""

import os
import sys
import tarfile
from errno import EACCES
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.base.errors import PathUnusable
from headgate.cli.run import run
from headgate.spark.shipped_environment import (
    find_environment,
    importable,
    left_out,
    ship_options,
    unknown_names,
)


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def install(site: Path, name: str, *files: str) -> Path:
    """As pip does it: the files, and a list of them."""
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    write(site, *files)
    write(site, f"{info}/METADATA", f"{info}/RECORD")
    (site / info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    listed = [*files, f"{info}/METADATA", f"{info}/RECORD", f"../../bin/{name}"]
    (site / info / "RECORD").write_text("".join(f"{file},,\n" for file in listed))
    return site


def names(path: list[Path], *without: str) -> set[str]:
    """What is packed of these places."""
    return {name for _, name in find_environment([*map(str, path)], without).files}


def test_of_a_project_only_modules_and_packages_are_packed(tmp_path: Path) -> None:
    project = write(
        tmp_path / "project",
        *("job.py", "shop/__init__.py", "shop/prices.csv", "shop/deep/orders.py"),
        *("data/big.csv", "notes.txt", ".hidden.py", "shop/__pycache__/orders.cpython-311.pyc"),
    )
    shipped = find_environment([str(project)])
    wanted = {"job.py", "shop/__init__.py", "shop/prices.csv", "shop/deep/orders.py"}
    assert shipped.size == sum(map(len, wanted))
    assert shipped.packages == (("shop", shipped.size - len("job.py")), ("job.py", len("job.py")))
    with tarfile.open(shipped.pack(tmp_path)) as files:
        assert {*files.getnames()} == wanted
        assert {(file.uid, file.uname, file.isreg()) for file in files} == {(0, "", True)}


def test_of_installed_packages_everything_is_packed_but_hooks_and_what_workers_have(
    tmp_path: Path,
) -> None:
    wanted = ("shop/__init__.py", "shop-1.0.dist-info/METADATA", "shop.libs/libshop.so")
    site = write(
        tmp_path / "site-packages",
        *(*wanted, "space/a.py", "hooks.pth", "pip/a.py"),
        *("pyspark/__init__.py", "py4j/__init__.py", "torch/__init__.py"),
    )
    assert names([site], "torch") == {*wanted, "space/a.py"}


def test_of_a_namespace_package_only_the_files_of_the_distribution_stay_here(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site-packages"
    install(site, "google-cloud-storage", "google/cloud/storage/__init__.py")
    install(site, "protobuf", "google/protobuf/__init__.py", "google/_upb.so")
    install(site, "azure", "azure/common.py")
    write(site, "azure/blobs/__init__.py")  # of an installer without lists
    shipped = find_environment([str(site)], ["protobuf", "azure"])
    assert {name for _, name in shipped.files if "dist-info" not in name} == {
        *("google/cloud/storage/__init__.py", "azure/blobs/__init__.py"),
    }
    assert {name for name, _ in shipped.packages} == {"google-cloud-storage", "azure"}
    assert not [name for name in names([site], "google") if name.startswith("google/")]


def test_a_distribution_without_a_list_of_files_stays_here_by_its_modules(tmp_path: Path) -> None:
    site = write(tmp_path / "dist-packages", "old.egg-info/PKG-INFO", "shelf/__init__.py", "b.py")
    (site / "old.egg-info" / "PKG-INFO").write_text("Name: old-shop\nVersion: 1.0\n")
    (site / "old.egg-info" / "top_level.txt").write_text("shelf\n")
    os.rename(site / "old.egg-info", site / "old_shop-1.0.egg-info")
    assert "shelf/__init__.py" in names([site])
    assert "shelf/__init__.py" not in names([site], "old-shop")


def test_the_first_place_on_the_module_path_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "first", "shop/__init__.py", "tea.py")
    second = write(tmp_path / "second", "shop/__init__.py", "more.py", "tea/__init__.py")
    found = dict(importable([str(first), str(second), str(tmp_path / "missing")]))
    assert found == {
        "shop": first / "shop",
        "tea.py": first / "tea.py",
        "more.py": second / "more.py",
    }


def test_a_namespace_package_is_the_sum_of_its_places(tmp_path: Path) -> None:
    first = write(tmp_path / "first" / "site-packages", "google/a.py", "shop/prices.py")
    second = write(tmp_path / "second" / "site-packages", "google/b.py", "google/a.py")
    third = write(tmp_path / "third" / "site-packages", "shop/__init__.py")
    shipped = find_environment([*map(str, (first, second, third))])
    assert {name: Path(file).parts[-4] for file, name in shipped.files} == {
        "google/a.py": "first",
        "google/b.py": "second",
        "shop/__init__.py": "third",
    }, "Python, too, takes a package before parts of a namespace"


def test_pythons_own_modules_stay_where_they_are() -> None:
    assert not [name for name, _ in importable(sys.path) if name in ("json", "os.py", "asyncio")]


def test_linked_files_are_packed_and_a_link_to_a_folder_around_ends(tmp_path: Path) -> None:
    cache = write(tmp_path / "cache", "real.py")
    shop = write(tmp_path / "project", "shop/__init__.py") / "shop"
    (shop / "linked.py").symlink_to(cache / "real.py")
    (shop / "broken.py").symlink_to(cache / "gone.py")
    (shop / "again").symlink_to(shop)
    shipped = find_environment([str(shop.parent)])
    assert {name for _, name in shipped.files} == {"shop/__init__.py", "shop/linked.py"}
    with tarfile.open(shipped.pack(tmp_path)) as files:
        assert files.getmember("shop/linked.py").isreg()


def test_links_that_lead_to_each_other_end(tmp_path: Path) -> None:
    shop = (
        write(tmp_path / "project", "shop/__init__.py", "shop/a/one.py", "shop/b/two.py") / "shop"
    )
    (shop / "a" / "other").symlink_to(shop / "b")
    (shop / "b" / "other").symlink_to(shop / "a")
    (shop / "up").symlink_to(shop.parent)
    assert names([shop.parent]) == {
        *("shop/__init__.py", "shop/a/one.py", "shop/b/two.py"),
        *("shop/a/other/two.py", "shop/b/other/one.py"),
    }


def test_hidden_files_stay_here_but_not_libraries(tmp_path: Path) -> None:
    project = write(
        tmp_path / "project",
        *("shop/__init__.py", "shop/.env", "shop/.git/config", "shop/.libs/libshop.so"),
    )
    site = write(tmp_path / "site-packages", ".netrc", "more/__init__.py")
    assert names([project, site]) == {
        *("shop/__init__.py", "shop/.libs/libshop.so", "more/__init__.py"),
    }


def test_a_distribution_is_left_out_with_all_its_names() -> None:
    found = left_out(["PyYAML"], sys.path)
    assert {"yaml/__init__.py", "_yaml/__init__.py"} <= found.files
    assert any(name.lower().startswith("pyyaml-") for name in found.files)


def test_names_that_nobody_has_are_found(tmp_path: Path) -> None:
    path = [str(write(tmp_path, "beside_the_script.py")), *sys.path]
    names = ["pyarrow", "json", "beside_the_script", "no-such-thing", "a.b", ""]
    assert unknown_names(names, path) == ["no-such-thing", "a.b", ""]


def test_archives_and_module_paths_of_the_user_stay() -> None:
    own = {"spark.archives": "data.zip#data", "spark.executorEnv.PYTHONPATH": "/opt/site"}
    assert ship_options("/tmp/e.tar.gz", own) == {
        "spark.archives": "data.zip#data,/tmp/e.tar.gz#headgate-environment",
        "spark.executorEnv.PYTHONPATH": f"./headgate-environment{os.pathsep}/opt/site",
    }


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(PathUnusable, match="gone.*cannot be packed for the workers: No such file"):
        find_environment([]).pack(tmp_path / "gone")


def test_a_folder_that_cannot_be_read_is_named_instead_of_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(tmp_path, "shop/__init__.py", "shop/deep/orders.py")
    listed = os.scandir

    def scandir(folder: str) -> object:  # modes of files do not stop root
        if str(folder).endswith("deep"):
            raise PermissionError(EACCES, "Permission denied", folder)
        return listed(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PathUnusable, match="shop/deep.*cannot be packed.*: Permission denied"):
        names([project])


def test_a_file_that_is_gone_before_it_is_packed_is_named(tmp_path: Path) -> None:
    project = write(tmp_path / "project", "shop/__init__.py", "shop/orders.py")
    shipped = find_environment([str(project)])
    (project / "shop" / "orders.py").unlink()
    with pytest.raises(PathUnusable, match="orders.py.*cannot be packed.*: No such file"):
        shipped.pack(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ship", "--master", "local[2]"), "--ship has no effect"),
        (("--ship", "--ship-without", "no-such-thing"), "'no-such-thing' is not there"),
        (
            ("--master", "spark://here:1", "--ship", "-D", "headgate.ship.max-size=1mb"),
            "more than headgate.ship.max-size allows (1 MiB); the largest are ",
        ),
    ],
)
def test_what_cannot_be_shipped_is_said(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    script = write(tmp_path, "job.py") / "job.py"
    script.write_text("pass")
    done = CliRunner().invoke(run, [str(script), *words])
    assert message in " ".join(done.output.replace("│", " ").split())
