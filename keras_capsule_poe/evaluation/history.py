"""What was measured after each epoch of training, as a chart."""

# Panels, by what the names of their measurements begin with.
PANELS = {
    "loss": ("loss", "margin_loss", "class_loss"),
    "share named rightly": ("accuracy", "held_out_accuracy"),
    "mean change of a logit": ("logit_change",),
}


def history_chart(history):
    """A panel each of the loss, the accuracy and, where there is routing, how far it moves logits.

    The last is what the 2017 paper's Figure A.1 shows.

    Args:
        history: list of dicts of numbers, one an epoch.

    Returns:
        matplotlib `Figure`.

    Examples:

    >>> epochs = [{"loss": 0.3, "accuracy": 0.9}, {"loss": 0.1, "accuracy": 0.95}]
    >>> len(history_chart(epochs).axes)
    2

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Appendix A
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    found = {
        title: [name for name in history[-1] if name.startswith(starts)]
        for title, starts in PANELS.items()
    }
    found = {title: names for title, names in found.items() if names}
    figure = Figure(figsize=(4.2 * len(found), 3.4), layout="constrained")
    epochs = range(1, len(history) + 1)
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for panel, (title, names) in zip(panels, found.items()):
        for name in names:
            values = [epoch.get(name) for epoch in history]
            panel.plot(epochs, values, marker=".", label=name.replace("_", " "))
        panel.set(xlabel="epoch", ylabel=title)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.legend(fontsize=8, frameon=False)
    return figure
