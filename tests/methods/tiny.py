"""Small settings for any method: what its config has of these."""

from pamc.models.method import METHODS

TINY = {
    "hidden": (32,),
    "n_hidden": 32,
    "n_dims": 8,
    "pretrain_epochs": 20,
    "n_epochs": 30,
    "n_init": 3,
    "lr": 1e-3,
    "batch_size": 64,
}


def tiny(name, **changes):
    """Return settings under which a method is fitted in a moment."""
    names = METHODS[name].config.names()
    return {key: value for key, value in {**TINY, **changes}.items() if key in names}
