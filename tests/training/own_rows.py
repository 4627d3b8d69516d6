from pamc.ops.group import row_range


class OwnRows:
    """A store of which a process may read its own rows, and the neighbors of those."""

    def __init__(self, store, group):
        self._store, self._own = store, row_range(store.n_nodes, group.rank, group.size)

    def __getattr__(self, name):
        return getattr(self._store, name)

    @property
    def features(self):
        return self

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        assert self._own.start <= rows.start <= rows.stop <= self._own.stop
        return self._store.features[rows]
