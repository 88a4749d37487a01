"""The words of prompts: common English words, and an instruction."""

from __future__ import annotations

from typing import Literal

Kind = Literal["words", "ids"]
Unit = tuple[str, int]
"""A piece of text that begins with white space, and the number of tokens that it adds."""

# Short, common English words: one token each, leading space included, in most models' vocabularies.
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
WORDS = tuple(f" {word}" for word in dict.fromkeys(VOCABULARY.split()))
START = "the"
"""The beginning of every prompt, so that each word after it begins with white space."""
INSTRUCTION = "\n\nWrite a long story that uses these words."
ASSUMED_TEMPLATE = 10  # tokens of an unknown chat template
ASSUMED_INSTRUCTION = 10
