"""The words that prompts are made of, and how many tokens they become."""

from __future__ import annotations

from dataclasses import dataclass

# Short, common English words: one token each, leading space included, in the vocabularies of today's models.
VOCABULARY = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one you
were all her she there would their we him been has when who will no more if out so up said what its about than into
them can only other time new some could these two may first then do any like my now over such our man me even most
made after also did many off before must well back through years much where your way down should because long each
just state those people too how little good world make very year still see own work men day get here old life both
between being under three never know same last another while us might great go come since against right came take used
few house use place during high without again home around small however found part school thought went say general
once upon course war until always away something fact water less public put thing almost hand enough far took head yet
government system better set told nothing night end why called eyes find going look asked later point next city
business case group face money form kind service best among power important different interest
"""
WORDS = tuple(VOCABULARY.split())
INSTRUCTION = "\n\nWrite a long story that uses these words."
MIN_WORDS = 4  # however short the prompt shall be: fewer would repeat themselves among many users


@dataclass(frozen=True, slots=True)
class WordTokens:
    """What a prompt of `n` of our words becomes: `template + per_word * n` tokens, and `instruction` more with it."""

    template: float
    instruction: float
    per_word: float
    measured: bool  # by the server's tokenizer; otherwise assumed

    def words_for(self, tokens: int) -> tuple[int, bool]:
        """How many words make a prompt of so many tokens, and whether the instruction has room beside them."""
        words = round((tokens - self.template - self.instruction) / self.per_word)
        if words >= MIN_WORDS:
            return words, True
        return max(MIN_WORDS, round((tokens - self.template) / self.per_word)), False


ASSUMED = {
    "chat": WordTokens(template=10.0, instruction=10.0, per_word=1.0, measured=False),
    "completions": WordTokens(template=0.0, instruction=10.0, per_word=1.0, measured=False),
}
