"""Terminal output of `train --dry-run`."""

import click

from keras_capsule_poe.training.images import described
from keras_capsule_poe.training.plan import plan
from keras_capsule_poe.training.progress import duration


def show_plan(config, data, replicas=1):
    """Print the shapes, parameter counts, memory and time of a run."""
    planned = plan(config, data)
    views = f", familiar {config.split}s" if config.split else ""
    summary, *notes = described(data)
    click.echo(f"{config.dataset}{views}: {summary}")
    for line in notes:
        click.echo(f"  {line}")
    for name, shape in planned["shapes"].items():
        click.echo(f"  {name:18} {' x '.join(map(str, shape))}")
    for name, count in planned["parameters"].items():
        click.echo(f"  {name:18} {count:,} parameters")
    for name, stage in planned["stages"].items():
        line = f"  {name:18} {stage['epochs']} epochs, {stage['steps']} steps"
        if "seconds" in stage:
            line += f" of {1000 * stage['step_seconds']:,.0f} ms: {duration(stage['seconds'])}"
        click.echo(line)
    if replicas > 1:
        click.echo(f"{replicas} replicas share each batch; the times are those of one.")
    click.echo(
        f"About {duration(planned['seconds'])} of training steps, measured on a few images; "
        "encoding the images and exporting come on top. "
        f"Memory so far: {planned['peak_bytes'] / 1e9:.1f} GB."
    )
