"""Rows of figures that are kept from one run of a script to the next."""

from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.training import RunConfig


def is_of(settings, config):
    """Whether a row's kept settings are a configuration's: of others it is another row.

    Args:
        settings: dict as of `RunConfig.to_dict`, or some of its sections. A setting that is new
            since then had the value that the recipe has, or its default.
        config: `RunConfig`.
    """
    try:
        kept = RunConfig.from_dict(config.family, {"recipe": config.recipe, **settings})
    except ConfigError:  # one is no more
        return False
    return not config.differences(kept)
