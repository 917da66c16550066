"""Options of `capspoe train`, which depend on the model and the recipe."""

import click

from keras_capsule_poe import families as registry
from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.training import RunConfig
from keras_capsule_poe.training.config import read_toml

# Settings with their own options in each section.
_PER_SECTION = {
    "epochs": (int, "epochs"),
    "batch_size": (int, "batch size"),
    "learning_rate": (float, "initial learning rate"),
}
# Descriptions of the default None.
_NONE = {
    "epochs": "enough for {0.steps} steps",
    "learning_rate": "{0.first_rate:g}; other networks and routings have their own",
}
OF_ALL = ("epochs", "batch_size")
# Names of the recipe on the command line and in files.
RECIPE = ("recipe", "preset")


class TrainCommand(click.Command):
    """Command with the options of the model and recipe that the arguments or the file name."""

    def parse_args(self, context, args):
        known = registry.names()
        # Read once: it may be a pipe.
        values, context.meta["config_error"] = _read(_peek(args, "--config"))
        context.meta["config"] = values
        named = values.get("model") if values.get("model") in known else None
        model = _peek(args, "--model") or named or registry.DEFAULT
        recipes = list(registry.get(model).recipes) if model in known else []
        context.meta["model"] = model
        named = [values[name] for name in RECIPE if values.get(name) in recipes]
        asked = _peek(args, *(f"--{name}" for name in RECIPE))
        context.meta["recipe"] = asked or next(iter(named), None)
        return super().parse_args(context, args)

    def get_params(self, context):
        # The documentation builds a context without parsing arguments.
        model, recipe = context.meta.get("model", registry.DEFAULT), context.meta.get("recipe")
        known = registry.names()
        chosen = [
            click.Option(
                ["--model"],
                type=click.Choice(known),
                default=model if model in known else registry.DEFAULT,
                show_default=True,
                help="Model family. The options below belong to it.",
            )
        ]
        if model in known:
            family = registry.get(model)
            recipe = recipe if recipe in family.recipes else next(iter(family.recipes))
            texts = "; ".join(f"`{name}`: {r.text}" for name, r in family.recipes.items())
            chosen += [
                click.Option(
                    [f"--{name}" for name in RECIPE],
                    type=click.Choice(list(family.recipes)),
                    default=recipe,
                    show_default=True,
                    help=f"Settings for {model}. {texts}.",
                ),
                *_section_options(family, recipe),
                click.Option(
                    ["--set", "settings"],
                    multiple=True,
                    metavar="SECTION.KEY=VALUE",
                    help=f"Change any setting, for instance {_example(family)}.",
                ),
                click.Option(
                    ["--stage"],
                    type=click.Choice([stage.name for stage in family.stages]),
                    help="Stop after this stage. With --fresh, start over from it.",
                ),
            ]
        own = super().get_params(context)
        return [*own[:1], *chosen, *own[1:]]


def _peek(args, *options):
    """Return the value of an option in arguments that are not parsed yet, or None."""
    value = None
    for i, argument in enumerate(args):
        name, equals, text = argument.partition("=")
        if name in options and equals:
            value = text
        elif argument in options and i + 1 < len(args):
            value = args[i + 1]
    return value


def _read(path):
    """Return the values of a TOML file and None, or no values and the error."""
    try:
        return (read_toml(path) if path else {}), None
    except ConfigError as error:
        # It is raised by the command, which turns it into one line.
        return {}, error


def _section_options(family, recipe):
    """Return options for the settings of trained sections, with the recipe's defaults."""
    config, options = RunConfig(family, recipe), []
    trained = trained_sections(config)
    for section, settings in trained.items():
        for key, (kind, text) in _PER_SECTION.items():
            if not hasattr(settings, key):
                continue
            default = getattr(settings, key)
            shown = _NONE[key].format(settings) if default is None else f"{default:g}"
            flag = f"--{section}-{key}".replace("_", "-")
            text = f"{section.capitalize()}: {text}.  [default: {shown}]"
            options.append(click.Option([flag, f"{section}__{key}"], type=kind, help=text))
    for name, setting in family.options.items():
        section, _, key = setting.partition(".")
        text = f"Short for --set {setting}=VALUE.  [default: {_shown(config[section], key)}]"
        known = getattr(config[section], "CHOICES", {}).get(key, ["VALUE"])
        options.append(
            click.Option([f"--{name}", f"{section}__{key}"], metavar="|".join(known), help=text)
        )
        for former, (new, _) in getattr(config[section], "ALIASES", {}).items():
            if new == key:
                flag = f"--{former}".replace("_", "-")
                options.append(click.Option([flag, f"{section}__{former}"], hidden=True))
    for key in OF_ALL:
        if any(hasattr(settings, key) for settings in trained.values()):
            kind, text = _PER_SECTION[key]
            flag = f"--{key}".replace("_", "-")
            options.append(click.Option([flag], type=kind, help=f"All stages: {text}."))
    return options


def trained_sections(config):
    """Return the sections of the run's stages, by name."""
    names = dict.fromkeys(stage.section for stage in config.stages)
    return {name: config[name] for name in names if name}


def _shown(settings, key):
    """Return a setting's value as a user would write it."""
    value = getattr(settings, key)
    if key == "classes":
        return "those of the images"
    return str(value).lower() if value is None or isinstance(value, bool) else value


def _example(family):
    """Return a setting of the family with its default."""
    section, settings = next(iter(RunConfig(family).sections.items()))
    key, value = next(iter(vars(settings).items()))
    return f"{section}.{key}={value}"


class ReplicasType(click.ParamType):
    """A whole number of at least 1, or `auto`."""

    name = "N|auto"

    def convert(self, value, parameter, context):
        if value == "auto":
            return value
        try:
            return click.IntRange(min=1).convert(value, parameter, context)
        except click.BadParameter:
            rule = "must be a whole number of at least 1, or auto"
            self.fail(f"{rule}. Received: {value}", parameter, context)
