"""Places for output: tried before work begins, and folders with one writer at a time."""

import contextlib
import errno
import fcntl
import os
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PARTIAL = ".partial"
"""Behind the name of a file that is still being written."""
PARTIAL_NAME = r"\.[0-9a-f]{8}\.partial"
"""What `replace` puts behind a name, as a pattern."""
LOCK = ".writer"
"""The file in a folder that its writer holds locked; the kernel lets go of it when the process ends, however."""


def replace(file: Path, content: bytes) -> None:
    """Writes a file that is whole at every moment; its mode stays, and a link to it.

    What is no regular file, such as /dev/null or a pipe, is written as it is; so is a file in a folder that cannot be.
    """
    require_no_loop(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    there = file.exists()
    if there and not (file.is_file() and os.access(file.resolve().parent, os.W_OK)):
        file.write_bytes(content)
        return
    file = file.resolve()
    temporary = file.with_name(f"{file.name}.{secrets.token_hex(4)}{PARTIAL}")
    temporary.touch(exist_ok=False)  # a name of nobody's, and no link; the mode is the user's
    try:
        temporary.write_bytes(content)
        if there:
            shutil.copymode(file, temporary)
        os.replace(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def require_no_loop(path: Path) -> None:
    """Refuses a link that leads to itself.

    Raises:
        OSError: it does.
    """
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(f"{path} is a link that leads to itself: give another name") from None


def try_file(file: str | Path) -> None:
    """Makes sure that a file can be written, now; leaves nothing behind.

    Raises:
        OSError: it cannot.
    """
    path = Path(file)
    require_no_loop(path)
    if path.is_dir():
        raise IsADirectoryError(f"a file is needed, {file} is a folder")
    if not path.exists():
        try_folder(path.absolute().parent)
    elif not os.access(path, os.W_OK):
        raise PermissionError(f"cannot write {file}")


def try_folder(folder: Path) -> None:
    """Makes sure that files can be written into a folder, which may be still to make; leaves nothing behind.

    Raises:
        OSError: they cannot.
    """
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"a folder is needed, {folder} is a file")
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise type(error)(f"cannot write into the folder {folder}: {error.strerror}") from error
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """A folder, made if need be, that no other process writes in the block, if it asks in the same way.

    Raises:
        OSError: another process does, which is named; or as `try_folder`.
    """
    try_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+", encoding="utf-8", errors="backslashreplace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read() or "another process"
            raise BlockingIOError(f"{folder} is in use by {holder}: wait for it, or choose another folder") from None
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} ({command}) since {time.strftime('%Y-%m-%d %H:%M:%S')}")
            file.flush()
            yield
        finally:
            file.truncate(0)
