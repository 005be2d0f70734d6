"""Text that looks to a compressor like English prose: common words are common, and hardly a phrase comes twice."""

import random
from itertools import accumulate
from pathlib import Path

WORDS = (Path(__file__).parent / "words.txt").read_text(encoding="utf-8").split()
# Zipf's law as Mandelbrot corrected it: how often a word is used falls with its rank.
WEIGHTS = list(accumulate(1 / (rank + 2.7) for rank in range(len(WORDS))))


class Prose:
    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def text(self, length: int) -> str:
        """Sentences of exactly `length` characters in all."""
        sentences: list[str] = []
        missing = length
        while missing > 0:
            sentence = self.sentence()
            sentences.append(sentence)
            missing -= len(sentence) + 1
        return " ".join(sentences)[: length - 1] + "."

    def sentence(self) -> str:
        words = self.random.choices(WORDS, cum_weights=WEIGHTS, k=self.random.randint(6, 20))
        comma = self.random.randint(2, 12)
        if comma < len(words) - 1:
            words[comma] += ","
        words[0] = words[0].capitalize()
        return " ".join(words) + "."
