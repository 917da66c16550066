"""Output of `capspoe train --dry-run`."""

import click

from keras_capsule_poe.training.plan import plan


def show_plan(config, data, replicas=1):
    """Print the shapes, parameter counts, memory and time of a run."""
    planned = plan(config, data)
    views = f", familiar {config.split}s" if config.split else ""
    click.echo(f"{config.dataset}{views}: {data.summary()}")
    for name, shape in planned["shapes"].items():
        click.echo(f"  {name:18} {' x '.join(map(str, shape))}")
    for name, count in planned["parameters"].items():
        click.echo(f"  {name:18} {count:,} parameters")
    for name, stage in planned["stages"].items():
        click.echo(
            f"  {name:18} {stage['epochs']} epochs, {stage['steps']} steps, "
            f"{stage['gflop']:,.0f} GFLOP, about {_duration(stage['seconds'])}"
            + (f"; {stage['note']}" if stage["note"] else "")
        )
    if replicas > 1:
        click.echo(f"{replicas} replicas share each batch; the times are those of one.")
    click.echo(
        f"About {_duration(planned['seconds'])} in all, {planned['peak_bytes'] / 1e9:.1f} GB of "
        f"memory, {planned['disk_bytes'] / 1e9:.2f} GB of disk while it trains."
    )


def _duration(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
