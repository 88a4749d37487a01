"""Which GPUs this server may use: the energy of the others does not belong to this engine."""

from __future__ import annotations

from collections.abc import Mapping


class Visible:
    """`CUDA_VISIBLE_DEVICES`, or for AMD `HIP_VISIBLE_DEVICES`: numbers, or the beginnings of UUIDs; unset means all.

    Numbers are taken in the driver's order, by PCI bus. CUDA's own order differs from it only on machines with unlike
    GPUs, unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    """

    def __init__(self, environment: Mapping[str, str], variable: str) -> None:
        given = environment.get(variable)
        self._chosen = None if given is None else [part.strip() for part in given.split(",") if part.strip()]

    def holds(self, index: str, uuid: str) -> bool:
        if self._chosen is None:
            return True
        return any(chosen == index if chosen.isdecimal() else uuid.startswith(chosen) for chosen in self._chosen)

    def names_slices(self) -> bool:
        """MIG slices are named by their UUIDs only."""
        return any(chosen.startswith("MIG-") for chosen in self._chosen or ())
