"""Network check with a short timeout."""

import difflib
import re
import socket
import threading
import urllib.parse
import urllib.request

from keras_capsule_poe.data.sources.composed import ALIASES
from keras_capsule_poe.errors import DataError, first_line, listing
from keras_capsule_poe.io.atomic import user_path

# tensorflow-datasets retries for more than three minutes when offline.
TIMEOUT_SECONDS = 3.0


def is_online():
    """Return whether the main data host, or the proxy, accepts connections."""
    proxy = urllib.request.getproxies().get("https")
    address = urllib.parse.urlsplit(proxy or "https://storage.googleapis.com")
    host = address.hostname, address.port or 443
    answered = threading.Event()

    def connect():
        try:
            socket.create_connection(host, TIMEOUT_SECONDS).close()
            answered.set()
        except OSError:
            pass

    # In a thread, because name resolution has no timeout.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    return answered.is_set()


def prepared_builder(name, options):
    """Return the builder of data set `name` with its data downloaded and prepared."""
    builder = _find(name, options)
    # In this order, because tensorflow-datasets logs a warning for a missing folder.
    if not builder.data_path.exists() or not builder.is_prepared():
        _prepare(builder, options)
    return builder


def is_known(name):
    """Return whether tensorflow-datasets knows the plain name `name`."""
    import tensorflow_datasets as tfds

    return name in tfds.list_builders(with_community_datasets=False)


def _find(name, options):
    import tensorflow_datasets as tfds

    # tensorflow-datasets would look up `NAMESPACE:NAME` over the network.
    namespaced = re.match(r"\w*:[A-Za-z_]", name)
    try:
        if namespaced or not re.match(r"\w+", name):
            raise tfds.core.DatasetNotFoundError(name)
        return tfds.builder(name, data_dir=options.data_dir, try_gcs=False)
    except tfds.core.DatasetNotFoundError:
        pass
    except Exception as error:
        plain = _plain_name(name)
        if is_known(plain):
            known = tfds.builder(plain, data_dir=options.data_dir)
            configurations = listing(known.builder_configs) or "none"
            raise DataError(
                f"data set {plain!r} has version {known.version} and these configurations: "
                f"{configurations}. Received: {name!r}."
            ) from error
    names = ["digits", *ALIASES, *tfds.list_builders(with_community_datasets=False)]
    plain = re.sub(r"\W+", "_", _plain_name(name).lower())
    near = difflib.get_close_matches(plain, names, n=3)
    advice = f"did you mean {' or '.join(near)}?" if near else "use digits, mnist or fashion_mnist."
    raise DataError(
        "`dataset` must be 'digits', a folder of images, an .npz file or a tensorflow-datasets "
        f"name. Received: {name!r}, which is none of them; {advice}"
    )


def _plain_name(name):
    """Return `mnist` for `mnist/config:3.0.1`."""
    return re.split("[/:]", name)[0]


def _prepare(builder, options):
    import tensorflow_datasets as tfds

    name = builder.info.full_name
    config, download_dir = None, None
    if options.manual_dir is not None:
        _check_archives(builder, options.manual_dir)
        config = tfds.download.DownloadConfig(manual_dir=options.manual_dir)
        # One folder per data set: unpacked archives are cached by file name, and MNIST and
        # Fashion-MNIST use the same names.
        download_dir = builder.data_dir_root / "downloads" / "manual_archives" / builder.name
    elif not is_online():
        raise DataError(
            f"data set {name!r} is not prepared in {builder.data_dir_root} (`data_dir`), and there "
            "is neither a network nor `manual_dir` to get it from.",
            hint="data_dir",
        )
    try:
        builder.download_and_prepare(download_dir=download_dir, download_config=config)
    except Exception as error:
        raise DataError(
            f"data set {name!r} could not be prepared ({first_line(error)}).", hint="data_dir"
        ) from error
    # tensorflow-datasets accepts any existing folder as prepared data.
    if not builder.is_prepared():
        raise DataError(
            f"data set {name!r} is incomplete; delete {builder.data_path} and try again."
        )


def _check_archives(builder, manual_dir):
    """Raise `DataError` if archives are missing and there is no network."""
    folder = user_path(manual_dir)
    if not folder.is_dir():
        raise DataError(f"`manual_dir` must be an existing folder. Received: {manual_dir}.")
    wanted = {info.filename for info in (builder.url_infos or {}).values() if info.filename}
    missing = sorted(name for name in wanted if not (folder / name).exists())
    # The list covers all configurations of a data set, so some archives may not be needed.
    needless = builder.builder_config is not None and len(missing) < len(wanted)
    if missing and not needless and not is_online():
        raise DataError(
            f"`manual_dir` lacks archives of data set {builder.info.full_name!r}, and there is no "
            f"network to download them; put {', '.join(missing[:6])} there. "
            f"Received: {manual_dir}."
        )
