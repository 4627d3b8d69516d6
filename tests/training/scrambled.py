"""Training that ends with other clusters, for tests of what happens if training makes them worse."""

import torch


def scrambled(train_epochs):
    """Return `train_epochs` followed by a change of the centers: all are close to their mean, in random directions."""

    def train(model, rows, config, **options):
        yield from train_epochs(model, rows, config, **options)
        with torch.no_grad():
            directions = torch.randn(model.centers.shape, generator=torch.Generator().manual_seed(0))
            model.centers.copy_(model.centers.mean(dim=0) + 0.1 * directions)

    return train
