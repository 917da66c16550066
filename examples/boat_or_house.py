"""A boat or a house? A rectangle and a triangle vote, and routing finds out whether they agree.

Each part knows where it is and how it is turned, and says where a house, or a boat, would be
that it is a part of. Where both say the same there is one. A house upside down is refused: a
rectangle looks the same upside down, so that it goes on voting for an upright house, below the
roof. Draws votes and couplings after each iteration, in seconds, without data:

    python examples/boat_or_house.py boat-or-house.png
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from keras_capsule_poe.functions import route, squash

SHOWN = (1, 3, 5, 7)  # routing iterations
OBJECTS, PARTS = ("house", "boat"), ("rectangle", "triangle")
CORNERS = {
    "rectangle": np.array([[-0.4, -0.25], [0.4, -0.25], [0.4, 0.25], [-0.4, 0.25]]),
    "triangle": np.array([[-0.65, -0.17], [0.65, -0.17], [0, 0.17]]),
}
# How a part is turned in its object, in degrees, and where it is; the picture spans -1 to 1.
PLANS = {
    "house": {"rectangle": (0, (0, -0.17)), "triangle": (0, (0, 0.25))},
    "boat": {"rectangle": (90, (0.1, 0.25)), "triangle": (180, (0, -0.4))},
}
# What is seen: an object, and how it is turned.
SCENES = {
    "a house": ("house", 0),
    "a heeling boat": ("boat", -15),
    "a house upside down": ("house", 180),
}
BLUE, ORANGE, WHITE, BLACK, GREY = (
    np.array(rgb) for rgb in ((31, 90, 180), (225, 110, 10), (255,) * 3, (20,) * 3, (120,) * 3)
)


def turn(degrees):
    """The matrix of a rotation."""
    angle = np.deg2rad(degrees)
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def pose(degrees, place):
    """A capsule: cosine and sine of the angle, x, y. Of whole objects and of parts."""
    return np.array([*turn(degrees)[:, 0], *place])


def placed(pose, corners):
    """Corners of what has this pose; a pose of any length."""
    cos, sin = pose[:2] / np.linalg.norm(pose[:2])
    return corners @ np.array([[cos, sin], [-sin, cos]]) + pose[2:]


def vote_map(degrees, place):
    """W_ij: from the pose of a part to that of its whole, whatever the viewpoint."""
    x, y = place
    w = np.eye(4)
    w[:2, :2] = turn(-degrees)
    w[2:, :2] = -np.array([[x, -y], [y, x]]) @ turn(-degrees)
    return w


def see(plan, degrees):
    """Poses of the parts of an object that is turned; a rectangle has no up and down."""
    poses = []
    for part in PARTS:
        angle, place = PLANS[plan][part]
        angle += degrees
        if part == "rectangle":
            angle = (angle + 89) % 180 - 89
        poses.append(pose(angle, turn(degrees) @ place))
    return np.array(poses)


def outline(thing, pose):
    """Corners of the parts of an object with this pose."""
    for part in PARTS:
        angle, place = PLANS[thing][part]
        own = CORNERS[part] @ turn(angle).T + place
        yield placed(pose, own)


# Routing with leaks: a part may belong to neither, and an object must outbid that by 1. Logits are
# replaced: agreements that add up would in the end give every part away, however little it agrees.
W = np.array([[vote_map(*PLANS[thing][part]) for thing in OBJECTS] for part in PARTS])
BIAS = np.full(len(OBJECTS), -1.0)
OPTIONS = {"agreement": "dot", "logits": "replaced", "agreement_scale": 4.0, "leaky": True}


def routing(x, iterations):
    """Couplings (scenes, parts, objects), and the length of each object's capsule."""
    c, z = route(x, W, BIAS, routing_iterations=iterations, softmax_over="outputs", **OPTIONS)
    return np.asarray(c), np.asarray(z), np.linalg.norm(squash(z), axis=-1)


def draw(path, scenes, votes, routings):
    """One row a scene and object, one column an iteration."""
    size, fine = 170, 3  # pixels of a panel; drawn finer and made smaller, for smooth lines
    columns, head, left = len(SHOWN), 84, 190
    width, height = left + columns * size, head + len(scenes) * (2 * size + 24)
    image = Image.new("RGB", (fine * width, fine * height), "white")
    pen = ImageDraw.Draw(image)

    def text(x, y, words, colour=BLACK, points=14):
        font = ImageFont.load_default(fine * points)
        pen.text((fine * x, fine * y), words, fill=tuple(colour), font=font)

    def shape(corners, x, y, colour, thick=0):
        """A polygon in the panel at (x, y), filled or as an outline."""
        at = fine * (np.array([x, y - 8]) + size * (0.5 + corners * [0.42, -0.42]))
        points = [tuple(point) for point in (*at, at[0], at[1])]
        if thick:
            pen.line(points, fill=tuple(colour), width=fine * thick, joint="curve")
        else:
            pen.polygon(points, fill=tuple(colour))

    text(12, 8, "Each part votes for where the whole would be: ", points=16)
    text(372, 8, "the rectangle's vote", BLUE, 16)
    text(540, 8, "the triangle's vote", ORANGE, 16)
    text(
        12,
        32,
        "Strong lines: coupled to this object. Numbers: the probability that it is there.",
        GREY,
    )
    text(12, 60, "what is seen")
    for t, iteration in enumerate(SHOWN):
        words = f"iteration {iteration}" if iteration else "before routing"
        text(left + t * size + 8, 60, words)
    for s, (name, parts) in enumerate(scenes.items()):
        top = head + s * (2 * size + 24)
        pen.line([(0, fine * (top - 2)), (fine * width, fine * (top - 2))], tuple(GREY), fine)
        for part, where, colour in zip(PARTS, parts, (BLUE, ORANGE)):
            shape(placed(where, CORNERS[part]), 6, top + 70, colour)
        text(12, top + 6, name, points=16)
        for t, (c, _, lengths) in enumerate(routings):
            for j, thing in enumerate(OBJECTS):
                x, y = left + t * size, top + j * size
                for i, colour, thick in ((0, BLUE, 5), (1, ORANGE, 2)):
                    strength = 0.1 + 0.9 * c[s, i, j]
                    faded = (WHITE + strength * (colour - WHITE)).astype(int)
                    for corners in outline(thing, votes[s, i, j]):
                        shape(corners, x, y, faded, thick)
                last = t == columns - 1
                words = f"{thing}: {lengths[s, j]:.2f}"
                if last:
                    words += ", yes" if lengths[s, j] > 0.5 else ", no"
                text(x + 8, y + size - 20, words, BLACK if last else GREY)
    image.resize((width, height), Image.LANCZOS).save(path)


def main(path):
    scenes = {name: see(*what) for name, what in SCENES.items()}
    x = np.array(list(scenes.values()))  # (scenes, parts, 4)
    votes = np.einsum("ijed,bid->bije", W, x)
    routings = [routing(x, iterations) for iterations in SHOWN]
    (c, z, lengths), at_rest = routings[-1], routing(x, 101)[-1]
    for s, name in enumerate(scenes):
        house, boat = lengths[s]
        j = int(lengths[s].argmax())
        angle = np.rad2deg(np.arctan2(z[s, j, 1], z[s, j, 0]))
        found = f"{OBJECTS[j]}, turned by {angle:.0f} degrees" if lengths[s, j] > 0.5 else "refused"
        shares = "  ".join(
            f"{part} {c[s, i, 0]:.2f} {c[s, i, 1]:.2f}" for i, part in enumerate(PARTS)
        )
        print(f"{name}: house {house:.2f}, boat {boat:.2f}; couplings {shares}; {found}")
        print("  after 101 iterations house {:.2f}, boat {:.2f}".format(*at_rest[s]))
    draw(path, scenes, votes, routings)
    print(f"Votes and couplings: {Path(path).resolve()}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "boat-or-house.png")
