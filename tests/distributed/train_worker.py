"""One of several processes that train a small model: writes what it found to a file per rank."""

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from pamc.training.trainer import train
from tests.training.test_distributed import config_of, parts, shared

N_EPOCHS = 20


class CountedBytes:
    """Counts what each process sends by the collectives: a block to all others, or all others' slices."""

    def __init__(self):
        self.sent = 0
        name = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
        gather, exchange = getattr(dist, name), dist.all_to_all_single

        def counted_gather(out, block, *others, **options):
            self.sent += block.numel() * block.element_size() * (dist.get_world_size() - 1)
            return gather(out, block, *others, **options)

        def counted_exchange(out, slices, *others, **options):
            size = dist.get_world_size()
            self.sent += slices.numel() // size * slices.element_size() * (size - 1)
            return exchange(out, slices, *others, **options)

        setattr(dist, name, counted_gather)
        dist.all_to_all_single = counted_exchange


def main(folder):
    from pamc.distributed.group import join_group

    counted = CountedBytes()
    group = join_group("cpu")
    results = {}
    for name, chunk_size in (("whole", None), ("chunked", 50)):
        whole, rows = parts(config_of())
        share, own = shared(group, config_of(), whole, rows._features)
        training = train(share, own, n_epochs=N_EPOCHS, lr=1e-3, chunk_size=chunk_size)
        first = next(training)
        before = counted.sent
        records = [first, *training]
        weights = torch.cat([tensor.ravel() for tensor in share.state_dict().values()])
        results[name] = {
            "bytes_per_epoch": (counted.sent - before) / (N_EPOCHS - 1),
            "loss": [record.values["loss"] for record in records],
            "changed": [record.values["changed"] for record in records],
            "labels": records[-1].labels.tolist(),
            "checksum": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
        }
        np.save(Path(folder) / f"{name}-{group.rank}.npy", weights.numpy())
    # Sums depend on neither sizes nor shapes, and say the same everywhere.
    odd = group.sum(torch.full((5, 1), float(group.rank + 1), dtype=torch.float64))
    results["odd_sum"] = odd.ravel().tolist()
    (Path(folder) / f"rank-{group.rank}.json").write_text(json.dumps(results))
    group.leave()
    # As the command ends: threads of the network library do not always outlive the interpreter in peace.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
