"""Convert tables of any size to a store, out of core and resumable."""

from pamc.data.ingest.run import LEAST_MEMORY, ingest

__all__ = ["LEAST_MEMORY", "ingest"]
