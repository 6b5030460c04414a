"""A user's modules on their way: folders are zipped so that the workers can import from the zip."""

import zipfile
from pathlib import Path

from headgate.spark.job_files import import_root, zip_folder, zipped


def names(archive: str) -> set[str]:
    with zipfile.ZipFile(archive) as opened:
        return {name for name in opened.namelist() if name.endswith(".py")}


def make_package(folder: Path) -> Path:
    package = folder / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "prices.py").write_text("")
    return package


def test_a_package_is_zipped_with_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    found = zip_folder(make_package(tmp_path), tmp_path / "out")
    assert names(found) == {"shop/__init__.py", "shop/prices.py"}


def test_of_another_folder_what_is_in_it_is_zipped(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    make_package(tmp_path / "modules")
    (tmp_path / "modules/one.py").write_text("")
    found = zip_folder(tmp_path / "modules", tmp_path)
    assert names(found) == {"one.py", "shop/__init__.py", "shop/prices.py"}


def test_a_folder_is_zipped_once(tmp_path: Path) -> None:
    package = str(make_package(tmp_path))
    assert zipped(package) == zipped(package)
    assert Path(zipped(package)).name == "shop.zip"


def test_the_driver_imports_from_where_the_module_lies(tmp_path: Path) -> None:
    package = make_package(tmp_path)
    assert import_root(str(package)) == str(tmp_path)
    assert import_root(str(package / "prices.py")) == str(package)
    assert import_root(str(tmp_path)) == str(tmp_path)
    assert import_root(f" {tmp_path}/all.zip") == f"{tmp_path}/all.zip"
