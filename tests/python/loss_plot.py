"""Curves over steps as a small SVG: losses on the left, their differences on a logarithmic scale on the right."""

import math

WIDTH, HEIGHT, TOP, BOTTOM = 420, 300, 30, 40
LEFT, RIGHT = 50, 10
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728")


class Panel:
    """One pair of axes, `offset` pixels from the picture's left edge, the first name `names_at` pixels from its top.
    `position` maps a value to 0..1."""

    def __init__(self, offset, names_at, title, ticks, position, steps):
        self.offset, self.names_at, self.title = offset, names_at, title
        self.ticks, self.position, self.steps = ticks, position, steps

    def x(self, step):
        return self.offset + LEFT + (WIDTH - LEFT - RIGHT) * (step - 1) / (self.steps - 1)

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.position(value)

    def axes(self):
        yield text(self.offset + LEFT, TOP - 12, self.title)
        for tick in self.ticks:
            y = self.y(tick)
            yield (f'<line x1="{self.x(1):.1f}" y1="{y:.1f}" x2="{self.x(self.steps):.1f}" y2="{y:.1f}" '
                   'stroke="#ddd"/>')
            yield text(self.offset + LEFT - 6, y + 4, f"{tick:g}", "end")
        for step in (1, *range(10, self.steps + 1, 10)):
            yield text(self.x(step), HEIGHT - BOTTOM + 16, str(step), "middle")
        yield text(self.x((1 + self.steps) / 2), HEIGHT - 6, "step", "middle")

    def curves(self, named):
        for row, (colour, (name, values)) in enumerate(zip(COLOURS, named.items())):
            points = " ".join(f"{self.x(step):.1f},{self.y(value):.1f}" for step, value in enumerate(values, 1))
            yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
            y = self.names_at + 15 * row
            yield (f'<line x1="{self.x(self.steps) - 200:.1f}" y1="{y - 4:.1f}" x2="{self.x(self.steps) - 182:.1f}" '
                   f'y2="{y - 4:.1f}" stroke="{colour}" stroke-width="2"/>')
            yield text(self.x(self.steps) - 177, y, name)


def text(x, y, content, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{content}</text>'


def panel_of_losses(losses, steps):
    most = math.ceil(2 * max(max(values) for values in losses.values())) / 2
    ticks = [tick / 2 for tick in range(int(2 * most) + 1)]
    return Panel(0, TOP + 14, "loss", ticks, lambda value: value / most, steps)


def panel_of_differences(differences, steps):
    least = min(min(values) for values in differences.values())
    most = max(max(values) for values in differences.values())
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    ticks = [10.0**exponent for exponent in range(low, high + 1)]
    return Panel(WIDTH, HEIGHT - BOTTOM - 60, "difference of the losses", ticks,
                 lambda value: (math.log10(value) - low) / (high - low), steps)


def picture(losses, differences):
    """Both arguments map a name to one value per step; no difference may be zero."""
    steps = len(next(iter(losses.values())))
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{HEIGHT}" '
             'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>']
    for panel, curves in ((panel_of_losses(losses, steps), losses),
                          (panel_of_differences(differences, steps), differences)):
        lines += [*panel.axes(), *panel.curves(curves)]
    return "\n".join([*lines, "</svg>"]) + "\n"
