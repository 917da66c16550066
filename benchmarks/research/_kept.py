"""Rows of figures that are kept from one run of a script to the next."""

from keras_capsule_poe.errors import ConfigError


def is_of(settings, config):
    """Whether a row's kept settings are a configuration's: of others it is another row.

    Args:
        settings: dict as of `Settings.to_dict`, or some of its parts. A setting that is new since
            then had the value that the preset has, or its default.
        config: `Settings`.
    """
    try:
        kept = type(config).from_dict({"preset": config.preset, **settings})
    except ConfigError:  # one is no more
        return False
    return not config.differences(kept)
