"""`make release` writes a bill of materials and checksums, and fails if a file is missing."""

import functools
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from support import release
from support.isolated import ended

ROOT = Path(__file__).parents[2]
VERSION = "1.2.0"
PACKAGES = ("quadrat", "numpy", "torch", "transformers", "pybind11")


def environment(folder, wanted, *, with_pip=False):
    """The interpreter of a new environment, with those packages of this one that are wanted by name."""
    venv.create(folder, with_pip=with_pip)
    (folder / "others").mkdir()
    for entry in Path(importlib.metadata.distribution("numpy").locate_file("")).iterdir():
        if wanted(entry.name.lower()):
            (folder / "others" / entry.name).symlink_to(entry)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{folder / 'others'}\n")
    for bundled in site.glob("setuptools*"):  # older than what torch asks for
        shutil.rmtree(bundled)
    return folder / "bin" / "python"


def run(*command):
    """Without the settings of pip and of Python that this process may have."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    alone = kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=alone, check=False)


@pytest.mark.slow
def test_pip_finds_the_wheel(wheel, tmp_path):
    python = environment(tmp_path / "venv", lambda name: "quadrat" not in name, with_pip=True)
    options = ("--no-cache-dir", "--no-index", "--find-links", wheel.parent)
    done = run(python, "-m", "pip", "install", *options, "quadrat[transformers]")
    assert done.returncode == 0, done.stderr
    assert wheel.name in done.stdout
    where = run(python, "-I", "-c", "import quadrat; print(quadrat.__file__)").stdout
    assert Path(where).is_relative_to(tmp_path / "venv")
    used = run(python, ROOT / "tests" / "support" / "random_cases.py", "3")
    assert "all are equal" in used.stdout, used.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning:cyclonedx")
def test_bill_of_materials(wheel, tmp_path):
    """It has the packages of an environment, and what the wheel says it contains."""
    pytest.importorskip("cyclonedx", reason="the dependency group `check` has it")
    environment(tmp_path / "venv", lambda name: name.startswith(PACKAGES))
    release.write_bill(tmp_path / "bill.json", tmp_path / "venv", [wheel])
    bill = json.loads((tmp_path / "bill.json").read_text())
    (quadrat, project) = bill["metadata"]["component"], release.project()["project"]
    assert (quadrat["name"], quadrat["version"]) == ("quadrat", project["version"])
    assert quadrat["licenses"][0]["license"]["id"] == project["license"] == "Apache-2.0"
    (dependencies,) = (entry["dependsOn"] for entry in bill["dependencies"] if entry["ref"] == quadrat["bom-ref"])
    components = {component["bom-ref"]: component for component in bill["components"]}
    versions = {components[reference]["name"]: components[reference]["version"] for reference in dependencies}
    for name in ("numpy", "torch", "transformers"):
        assert versions[name] == importlib.metadata.version(name)
    contained = {part["name"]: part for part in release.parts_of(wheel)}
    assert "pybind11" in contained
    for name, part in contained.items():
        assert versions[name] == part["version"]
        (match,) = (
            component
            for component in components.values()
            if component["name"] == name and component["licenses"] == part["licenses"]
        )
        assert match["bom-ref"] in dependencies


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum (coreutils)")
def test_checksums(tmp_path):
    for name in ("a.whl", "b.tar.gz"):
        (tmp_path / name).write_text(name)
    for _ in range(2):  # the second time, the file of checksums is there
        release.write_checksums(tmp_path)
    check = functools.partial(
        subprocess.run, ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=False, text=True
    )
    assert check(capture_output=True).stdout == "a.whl: OK\nb.tar.gz: OK\n"
    (tmp_path / "a.whl").write_text("b")
    assert check(capture_output=True).returncode == 1


def test_each_file_that_is_missing_is_named():
    tags = release.pythons()
    assert {"cp311", "cp314"} <= set(tags)
    whole = [name.replace("*", "2_17") for name in release.missing([], VERSION, tags, release.PLATFORMS)]
    assert len(whole) == 1 + len(tags) * len(release.PLATFORMS)
    assert f"quadrat-{VERSION}-cp314-cp314t-win_amd64.whl" in whole
    assert release.missing(whole, VERSION, tags, release.PLATFORMS) == []
    for name in whole:
        rest = [file for file in whole if file != name]
        (lacking,) = release.missing(rest, VERSION, tags, release.PLATFORMS)
        assert lacking.replace("*", "2_17") == name


@pytest.mark.parametrize(("files", "said"), [((), "dist/ lacks {name}.tar.gz"), (("quadrat-0.0.1.tar.gz",), "lacks")])
def test_the_command_fails_if_a_file_is_missing(files, said, tmp_path, monkeypatch, capsys):
    for name in ("DIST", "WORK"):
        monkeypatch.setattr(release, name, tmp_path / name)
    (tmp_path / "DIST").mkdir()
    for name in files:
        (tmp_path / "DIST" / name).touch()
    monkeypatch.setattr(sys, "argv", ["release.py", "--built"])
    assert release.main() == 1
    version = release.project()["project"]["version"]
    assert said.format(name=f"quadrat-{version}") in capsys.readouterr().out


def test_a_step_that_fails_shows_the_end_of_its_output(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "WORK", tmp_path)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert release.step("A step", sys.executable, "-c", "print('said')") == "said\n"
    with pytest.raises(release.ReleaseError, match=r"A step:\nwhy\n\nAll of its output is in a-step\.log"):
        release.step("A step", sys.executable, "-c", "print('why'); raise SystemExit(3)")


def test_an_interpreter_that_does_not_run_is_passed_over(tmp_path, monkeypatch):
    """pyenv has stand-ins for versions that are not switched on."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (shim := tmp_path / name).write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert release.interpreters([tag]) == {}
    folder = Path(sys.base_prefix) / "bin"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{folder}")
    assert release.interpreters([tag]) == {tag: folder / name}


PLANTED = """
from transformers import DataCollatorWithPadding
original = DataCollatorWithPadding.__call__
def changed(self, features):
    batch = original(self, features)
    if "input_ids" in batch and len(features) == 1:
        batch["input_ids"] = batch["input_ids"] + 1
    return batch
DataCollatorWithPadding.__call__ = changed
"""


@pytest.mark.parametrize("planted", [False, True])
def test_random_cases(planted):
    code = PLANTED * planted + "import sys; from support import random_cases; sys.exit(random_cases.main(12))"
    done = ended("-c", code)
    assert done.returncode == int(planted), done.stdout + done.stderr
    compared = dict(re.findall(r"(\S+): (\d+) of 12 batches compared", done.stdout))
    assert len(compared) > 8
    assert all(int(number) > 0 for number in compared.values()), done.stdout
    assert re.search(
        "^DataCollatorWithPadding differs from transformers" if planted else "^all are equal$", done.stdout, re.M
    )
