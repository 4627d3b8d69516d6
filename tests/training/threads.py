"""A team of threads: the collectives of several processes inside one, for tests that need no torchrun."""

import json
import threading

import torch

from pamc.ops.group import row_range, rows_per_rank


class ThreadTeam:
    def __init__(self, rank, size, shared):
        self.rank, self.size, self._shared = rank, size, shared

    def _exchange(self, value):
        slots, barrier = self._shared
        slots[self.rank] = value
        barrier.wait(timeout=120)
        everyone = list(slots)
        barrier.wait(timeout=120)
        return everyone

    def gather_rows(self, own, n_rows):
        rows_per_rank(n_rows, self.size)
        return torch.cat(self._exchange(own.clone()))

    def sum(self, values):
        first, *others = self._exchange(values.clone())
        for other in others:
            first = first + other
        return first.clone()

    device = torch.device("cpu")

    def broadcast(self, value):
        return json.loads(json.dumps(self._exchange(value)[0]))

    def scatter(self, parts):
        return {name: tensor.clone() for name, tensor in self._exchange(parts)[0][self.rank].items()}


def run_team(size, work):
    """Return what `work(team)` returns in each of `size` threads."""
    shared = ([None] * size, threading.Barrier(size))
    results, errors = [None] * size, []

    def one(rank):
        try:
            results[rank] = work(ThreadTeam(rank, size, shared))
        except BaseException as error:
            errors.append(error)
            shared[1].abort()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    return results


def own_rows(group, n_nodes):
    return row_range(n_nodes, group.rank, group.size)
