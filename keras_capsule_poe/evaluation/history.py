"""Chart of the measurements after each epoch of training."""

# Panel titles, and prefixes of the measurements in each panel.
PANELS = {
    "loss": ("loss", "margin_loss", "class_loss"),
    "share named rightly": ("accuracy", "held_out_accuracy"),
    "mean change of a logit": ("logit_change",),
}


def history_chart(history):
    """Return a figure with a panel each for loss, accuracy and change of routing logits."""
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
