"""What the demonstration prints: short lines, aligned tables, and the checks that must hold."""


class Report:
    def __init__(self):
        self.checks = 0
        self.failed = []

    def say(self, text=""):
        print(f"  {text}" if text else "", flush=True)

    def head(self, text):
        print(f"\n{text}\n", flush=True)

    def check(self, held, text, detail=None):
        """Prints whether something held that must hold."""
        self.checks += 1
        self.say(f"{'ok    ' if held else 'FAILED'}  {text}")
        if not held:
            self.failed.append(text)
            if detail is not None:
                self.say(f"        {detail}")

    def table(self, head, rows):
        print("\n" + aligned(head, rows, indent="    ") + "\n", flush=True)

    def close(self):
        """The last lines; returns the exit status."""
        print()
        for text in self.failed:
            print(f"FAILED: {text}")
        print(f"{self.checks - len(self.failed)} of {self.checks} checks held", flush=True)
        return 1 if self.failed else 0


def aligned(head, rows, indent=""):
    """Columns as wide as they need to be; what looks like a number to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells)]
    right = [all(cell.replace(",", "").replace(".", "").isdigit() for cell in column) for column in zip(*cells)]
    lines = [head, ["-" * width for width in widths], *cells]
    pad = [str.rjust if numeric else str.ljust for numeric in right] or [str.ljust] * len(head)
    return "\n".join(
        (indent + "  ".join(put(cell, width) for put, cell, width in zip(pad, line, widths))).rstrip() for line in lines
    )


def shorten(text, width):
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 3] + "..."
