"""Labels of image files in a table: a CSV file with a column of file names and one of labels."""

import collections
import contextlib
import csv
import io
import os
import re
import unicodedata

from keras_capsule_poe.data.array_names import column_of
from keras_capsule_poe.data.listing import Entries
from keras_capsule_poe.data.trees import Folder
from keras_capsule_poe.errors import DataError, counted, listing
from keras_capsule_poe.io.atomic import user_path

# Usual names of the two columns, in lower case without spaces and underscores, the best first.
_FILES = (
    *("filename", "filepath", "file", "imagename", "imagepath", "image", "imagefile", "path"),
    *("imageid", "imgname", "img", "fname", "id", "name"),
)
_LABELS = ("label", "labels", "class", "classname", "category", "target", "y", "classid", "labelid")
# Bytes of a table of labels. Rows of a hundred bytes for ten million images fit.
_LARGEST = 2**30


class Table:
    """Labels by file name.

    Args:
        path: path of the file, which may lie in the folder of images.
        column: str, name of the column of labels, or None for the usual ones.
        tree: `Folder` or `Archive` that holds the file.

    Attributes:
        path: path (str) of the file.
        column: name of the column of labels.
        words: list of the labels (str) in the order of the rows.
    """

    def __init__(self, path, column=None, tree=None):
        self.path = os.fspath(path)
        rows = _rows(self.path, tree or Folder(None))
        pairs, self.column, unused = _columns(self.path, rows, column)
        self.notes = [f"Not used of {self.path}: columns {listing(unused)}."] if unused else []
        self._rows, self._short, self.words = {}, collections.defaultdict(set), []
        for number, (name, word) in enumerate(pairs):
            self._add(number, name, word)

    def _add(self, number, name, word):
        key = _plain(name)
        before = self._rows.setdefault(key, (number, name, word))
        if before[2] != word:
            raise DataError(
                f"{self.path} must give every file one label. "
                f"Received: {before[2]} and {word} for {name}."
            )
        base = key.rpartition("/")[2]
        for short in {base, base.rpartition(".")[0] or base}:
            self._short[short].add(key)
        self.words.append(word)

    def row_of(self, path, is_exact=True):
        """Return the row (number, name, label) of an image file, or None.

        Args:
            path: str.
            is_exact: bool; if False, folders of the table that do not exist here are left out.
        """
        parts = _plain(path).split("/")
        endings = parts[-1], parts[-1].rpartition(".")[0] or parts[-1]
        if not is_exact:
            keys = next((self._short[each] for each in endings if each in self._short), ())
            return self._rows[next(iter(keys))] if len(keys) == 1 else None
        # The most of the path first, with and without the ending of the name.
        for ending in endings:
            for start in range(len(parts)):
                found = self._rows.get("/".join([*parts[start:-1], ending]))
                if found:
                    return found
        return None

    def labels(self, parts):
        """Return the labels (str or int, or None) of `Listing`s by split, and notes on them."""
        for is_exact in (True, False):
            found, used, missing = self._matched(parts, is_exact)
            if any(word is not None for words in found.values() for word in words):
                break
        else:
            shown = next(iter(self._rows.values()))[1] if self._rows else "nothing"
            raise DataError(
                f"no image has a label in {self.path}, whose first row names {shown}. "
                f"Received: images such as {missing[0]}."
            )
        notes = [f"Labels: column {self.column} of {self.path}.", *self.notes]
        if missing:
            notes.append(
                f"Left out: {counted(len(missing), 'file')} without a label in {self.path} "
                f"({missing[0]} first)."
            )
        unused = [name for number, name, _ in self._rows.values() if number not in used]
        if unused:
            rows = counted(len(unused), "row")
            notes.append(f"Left out: {rows} of {self.path} without an image ({unused[0]} first).")
        return _as_numbers(found), notes

    def _matched(self, parts, is_exact):
        """Return labels by split, the file of each row, and the files without a label."""
        used, missing, found = {}, [], {}
        for split, part in parts.items():
            found[split] = []
            for path, count in part.counted():
                row = self.row_of(path, is_exact)
                word = row[2] if row else ""
                if not word:
                    missing.append(path)
                if row and used.setdefault(row[0], path) != path:
                    raise DataError(
                        f"{self.path} must name every file by its path. Received: {row[1]}, which "
                        f"may be {used[row[0]]} or {path}."
                    )
                found[split] += [word or None] * count
        return found, used, missing


def _as_numbers(found):
    """Return labels by split as integers if all of them are, also if they are written as 1.0."""
    words = {word for each in found.values() for word in each if word is not None}
    if not all(re.fullmatch(r"(-?[1-9]\d*|0)(\.0+)?", word) for word in words):
        return found
    table = {None: None, **{word: int(word.partition(".")[0]) for word in words}}
    return {split: [table[word] for word in each] for split, each in found.items()}


def _plain(name):
    """Return a path as tables and file systems may both write it."""
    text = unicodedata.normalize("NFC", str(name).strip().replace("\\", "/"))
    return text.removeprefix("./").strip("/")


def given_table(path, column, tree, folder):
    """Return the `Table` of a path, which may be relative to the folder of images."""
    path = user_path(path)
    inside = os.path.join(folder, path)
    if path.exists() or not tree.exists(inside):
        return Table(path, column)
    return Table(inside, column, tree)


def find_table(tree, folder, parts):
    """Return the path of a table, among the images or beside their folder, that has their labels.

    Returns None if there is none.
    """
    found = [path for part in parts.values() for path in part.left_out.tables]
    places = [part.root for part in parts.values()] + [folder, os.path.abspath(folder)]
    for place in dict.fromkeys(map(os.path.dirname, places)):
        if tree.is_folder(place):
            found += [os.path.join(place, name) for name in Entries(tree, place).tables]
    for path in dict.fromkeys(found):
        with contextlib.suppress(DataError):
            Table(path, tree=tree).labels(parts)
            return path
    return None


def _rows(path, tree):
    """Return the rows of a CSV file, lists of str, the header first."""
    try:
        with tree.open(path) as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise DataError(
            f"`labels` must be a CSV file that can be read ({error.strerror or error}). "
            f"Received: {path}."
        ) from error
    if len(content) > _LARGEST:
        raise DataError(f"`labels` must have at most {_LARGEST:,} bytes. Received: {path}.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"`labels` must be a CSV file in UTF-8; save it so. Received: {path}."
        ) from error
    first = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    delimiter = delimiter if delimiter in first else " "
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise DataError(f"`labels` must be a CSV file ({error}). Received: {path}.") from error
    rows = [[cell.strip() for cell in row] for row in rows if any(cell.strip() for cell in row)]
    if not rows or min(map(len, rows[:1])) < 2:
        raise DataError(
            "`labels` must have a column of file names and one of labels. "
            f"Received: {path} with {len(rows)} rows, the first of {len(rows[0]) if rows else 0}."
        )
    return rows


def _columns(path, rows, column):
    """Return pairs (file name, label), the name of the column of labels, and unused columns."""
    header = rows[0]
    plain = ["".join(name.lower().split()).replace("_", "") for name in header]
    known = [name for name in _FILES if name in plain]
    labels = (
        [column] if column else [header[plain.index(name)] for name in _LABELS if name in plain]
    )
    if not known and not labels and len(header) == 2:
        # No header.
        return [row[:2] for row in rows if len(row) > 1], "2", []
    files = plain.index(known[0]) if known else 0
    others = [name for number, name in enumerate(header) if number != files]
    what = f"the column of labels of {path}"
    chosen = column_of("label_column", next(iter(labels), None), others, what, header)
    place = next(n for n, name in enumerate(header) if name == chosen and n != files)
    # The label of a row that ends before it is empty.
    whole = [[*row, *[""] * (len(header) - len(row))] for row in rows[1:]]
    pairs = [(row[files], row[place]) for row in whole]
    return pairs, chosen, [name for name in others if name != chosen]
