"""The order of the prompts, also after a resumption."""

from collections.abc import Callable, Iterator

import torch
from torch.utils.data import Sampler
from trl.trainer.utils import RepeatSampler


class ResumableSampler(Sampler):
    """TRL's prompt order, also after a resumption in a later pass over the data.

    TRL shuffles each pass with the next numbers of one generator, so a resumed run would take the first pass's order
    again. ``passes_done()`` is asked when a pass begins. Transformers skips what the pass has had before.
    """

    def __init__(self, sampler: RepeatSampler, passes_done: Callable[[], int]):
        self._sampler, self._passes_done = sampler, passes_done

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        generator = self._sampler.generator.manual_seed(self._sampler.seed)
        for _ in range(self._passes_done()):
            torch.randperm(self._sampler.num_samples, generator=generator)
        yield from self._sampler
