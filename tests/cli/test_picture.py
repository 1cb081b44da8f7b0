"""`python -m quadrat waste --png`: what is drawn, and what is refused before any work."""

import os
import socket

import pytest

from support.command import here, refused, run

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib", reason="it draws the picture")


def test_a_saved_data_set_and_a_picture(folder):
    done = run("waste", "rows", "--split", "train", "--png", "picture.png", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "200 rows" in done.stdout
    assert "the lists in column 'input_ids'" in done.stdout
    assert "picture.png written" in done.stdout
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_is_named_as_asked(folder, tmp_path, capsys):
    path = tmp_path / "picture"
    status, said, _ = here(capsys, "waste", folder / "fixed", "--png", path)
    assert status == 0
    assert f"{path}written." in "".join(said.split())
    assert [file.name for file in tmp_path.iterdir()] == ["picture"]
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("ending", ["svg", "PDF", "jpg"])
def test_the_ending_chooses_the_format(ending, folder, tmp_path, capsys):
    path = tmp_path / f"picture.{ending}"
    assert here(capsys, "waste", folder / "fixed", "--png", path)[0] == 0
    begins = {"svg": b"<?xml", "PDF": b"%PDF", "jpg": b"\xff\xd8"}[ending]
    assert path.read_bytes().startswith(begins)


def listens(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("picture.xyz", None, "'.xyz' is not a picture format; expected one of .avif, .eps, "),
        ("picture.docx", None, "'.docx' is not a picture format"),
        ("picture.pgf", None, "'.pgf' is not a picture format"),  # it is a program for TeX, which may not be there
        ("no/such/folder.png", None, "No such file or directory"),
        ("picture.png", os.mkdir, "Is a directory"),
        ("picture.png", os.mkfifo, "not a file"),
        ("picture.png", listens, "No such device or address"),
        ("n" * 300 + ".png", None, "File name too long"),
    ],
)
def test_what_cannot_be_drawn_is_said_before_the_work(*, name, make, message, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("quadrat.cli.waste_report.examine", None)
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    if make is not None:
        make(name)
    before = list(tmp_path.iterdir())
    said = refused(capsys, "waste", folder / "fixed", "--png", name)
    assert f"{name}: " in said
    assert message in said
    assert list(tmp_path.iterdir()) == before


def test_what_matplotlib_cannot_write_is_said_before_the_work(folder, tmp_path, capsys, monkeypatch):
    from matplotlib.figure import Figure

    def fails(*arguments, **options):
        raise RuntimeError("no such program:\nlatex")

    monkeypatch.setattr("quadrat.cli.waste_report.examine", None)
    monkeypatch.setattr(Figure, "savefig", fails)
    said = refused(capsys, "waste", folder / "fixed", "--png", tmp_path / "a.png")
    assert "a.png: no such program: latex" in said
    assert list(tmp_path.iterdir()) == []


def test_a_picture_is_there_as_before_where_the_work_fails(tmp_path, capsys):
    path = tmp_path / "picture.png"
    for before in (None, b"an older picture"):
        if before is not None:
            path.write_bytes(before)
        assert here(capsys, "waste", tmp_path / "none.txt", "--png", path)[0] == 2
        assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize("name", [r"$\frac{$", "a_b%c", "文", "a\x1bb"])
def test_names_are_drawn_as_they_are(name, tmp_path):
    (tmp_path / f"{name}.txt").write_text("text\nanother text")
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")  # settings for other pictures
    done = run("waste", f"{name}.txt", "--png", "a.png", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
