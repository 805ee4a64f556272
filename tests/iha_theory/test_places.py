"""Files that are written at once."""

import os
import threading
from pathlib import Path

import pytest

from constructions import bank
from constructions.heads.files import WeightFile, write
from iha_theory.cli import output
from iha_theory.places import replace, try_file

OLD = b"what was there"


def weights(file):
    import torch

    construction = bank("mha", lambda t: torch.eye(2, dtype=torch.float64), terms=2, width=1)
    write(file, WeightFile("g", 2, "none", 0.0, {"mha": construction}))


@pytest.mark.parametrize(
    "written", [weights, lambda file: output.write_json(str(file), "x", {"a": 1})], ids=["weights", "json"]
)
def test_a_write_that_stops_half_way_leaves_what_was_there(written, tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_bytes(OLD)
    real = Path.write_bytes

    def half(path, content):
        real(path, content[: len(content) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(KeyboardInterrupt):
            written(file)
    assert file.read_bytes() == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    written(file)
    assert file.read_bytes() != OLD
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_mode_and_link_stay(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(OLD)
    file.chmod(0o640)
    link.symlink_to(file)
    replace(link, b"new")
    assert link.is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o640)


def test_a_users_file_beside_it_is_left_alone(tmp_path):
    kept, link, file = tmp_path / "o.json.partial", tmp_path / "p.json.partial", tmp_path / "o.json"
    kept.write_bytes(OLD)
    link.symlink_to(kept)
    for target in (file, tmp_path / "p.json"):
        replace(target, b"new")
        assert target.read_bytes() == b"new"
    assert kept.read_bytes() == OLD
    assert link.is_symlink()
    (tmp_path / "plain").write_bytes(b"")
    assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_to_itself_is_refused(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(link)
    for write_to in (try_file, lambda file: replace(file, b"new")):
        with pytest.raises(OSError, match="is a link that leads to itself: give another name"):
            write_to(link)


def test_what_is_no_file_is_written_as_it_is(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    replace(pipe, b"new")
    reader.join()
    assert read == [b"new"]
    assert pipe.is_fifo()
    replace(Path("/dev/null"), b"new")
    assert Path("/dev/null").is_char_device()
