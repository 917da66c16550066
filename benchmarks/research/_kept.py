"""Rows of figures that are kept from one run of a script to the next."""

from keras_capsule_poe.errors import ConfigError

# Images of MNIST, for which `epochs` and `steps` may say the same.
IMAGES = 60_000


def is_of(settings, config):
    """Whether a row's kept settings are a configuration's: of others it is another row.

    Args:
        settings: dict as of `Settings.to_dict`, or some of its parts. A setting that is new since
            then had the value that the preset has, or its default. One that has no effect in
            either may have any value.
        config: `Settings`.
    """
    try:
        kept = type(config).from_dict({"preset": config.preset, **settings})
    except ConfigError:  # one is no more
        return False
    found = set(config.differences(kept)) - (set(config.idle()) & set(kept.idle()))
    for stage in filter(config.trained, config.stages):
        lengths = [each.trained(stage).schedule.over(IMAGES) for each in (config, kept)]
        if lengths[0] == lengths[1]:
            found -= {f"{stage}.epochs", f"{stage}.steps"}
    return not found
