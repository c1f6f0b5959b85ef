"""Files of lines: texts and JSON objects, read with their places and written whole or not at all."""

import contextlib
import gzip
import pathlib
import zlib

from data.corpus.json_lines import object_of
from data.store.atomic import replace_file


def read_lines(path):
    """Yield (place, line) of each line of a UTF-8 file, gzipped where its name ends in .gz, that is not blank; a place is "file:number"."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    with (gzip.open if path.suffix == ".gz" else open)(
        path, "rt", encoding="utf-8-sig", newline="\n"
    ) as file:
        try:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\r\n")
                if line.strip():
                    yield f"{path}:{number}", line
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 ({error})") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: the gzip file is broken or cut off ({error})") from error


def read_objects(path):
    """Yield (place, object) of a JSONL file. Raises ValueError, which names the line, for anything but an object."""
    for place, line in read_lines(path):
        yield place, object_of(line, place)


@contextlib.contextmanager
def sink(path):
    """A function that writes a line: to the terminal, or to a file that appears when all are written."""
    if path is None:
        yield print
        return
    with replace_file(path) as new, open(new, "w", encoding="utf-8") as file:
        yield lambda line: file.write(line + "\n")
