"""What the demonstration prints: short lines, aligned tables, and the checks that must hold."""

from typing import Any, List, Sequence


class Report:
    def __init__(self) -> None:
        self.checks = 0
        self.failed: List[str] = []

    def say(self, text: str = "") -> None:
        print(f"  {text}" if text else "", flush=True)

    def head(self, text: str) -> None:
        print(f"\n{text}\n", flush=True)

    def check(self, held: bool, text: str, details: Sequence[str] = ()) -> None:
        """Prints whether something held that must hold."""
        self.checks += 1
        self.say(f"{'ok    ' if held else 'FAILED'}  {text}")
        if not held:
            self.failed.append(text)
            for detail in details[:10]:
                self.say(f"        {detail}")
            if len(details) > 10:
                self.say(f"        and {len(details) - 10} more")

    def table(self, rows: Sequence[Sequence[Any]], head: Sequence[str] = ()) -> None:
        """Columns as wide as they need to be; numbers to the right."""
        lines = [[str(cell) for cell in row] for row in ([head] if head else []) + list(rows)]
        widths = [max(len(cell) for cell in column) for column in zip(*lines)]
        numeric = [all(isinstance(row[place], int) for row in rows) for place in range(len(widths))]
        if head:
            lines.insert(1, ["-" * width for width in widths])
        print()
        for line in lines:
            cells = [
                cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(line, widths, numeric)
            ]
            print("    " + "  ".join(cells).rstrip())
        print(flush=True)

    def close(self, result: str) -> int:
        """The last lines; returns the exit status."""
        print()
        for text in self.failed:
            print(f"FAILED: {text}")
        print(f"{result}; {self.checks - len(self.failed)} of {self.checks} checks held", flush=True)
        return 1 if self.failed else 0


def shorten(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 3] + "..."
