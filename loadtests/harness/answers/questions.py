"""What is asked, and the text whose perplexity is measured. Written for this purpose."""

from __future__ import annotations

TOPICS = (
    *("the port of Rotterdam", "how bread rises", "the first railway", "why the sea is salt", "a day in a library"),
    *("the moons of Jupiter", "how a bridge carries weight", "the history of chess", "what a compiler does"),
    *(
        "growing tomatoes",
        "the printing press",
        "how birds find their way",
        "a village in winter",
        "the speed of light",
    ),
    *("learning to swim", "how clocks were made"),
)
FORMS = (
    "Tell me in a few sentences about {}.",
    "Write the opening of an article about {}.",
    "Explain {} to a child of ten.",
    "List some facts about {}.",
)
MOST = len(TOPICS) * len(FORMS)

TEXT = (
    "The river is wide where it leaves the hills, and slow. In spring it carries the snow of three valleys, and the "
    "people of the town move their boats to higher ground and wait. When the water falls again it leaves a thin layer "
    "of black earth on the fields, which is why the wheat here grows taller than anywhere else in the country. An old "
    "stone beside the bridge has a mark for every great flood, each with its year, and children measure themselves "
    "against it."
)


def questions(count: int) -> list[str]:
    """`count` different prompts, at most `MOST`."""
    every = [form.format(topic) for form in FORMS for topic in TOPICS]
    return every[:count]
