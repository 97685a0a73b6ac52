"""Fit a curve with Lightning, data-parallel over all ranks."""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    """A network that learns y = sin(3 x)."""

    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.network = nn.Sequential(
            nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
        )

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.mse_loss(self.network(x), y)
        self.log("train_loss", loss, on_epoch=True, on_step=False, sync_dist=True)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self.network(x), y), sync_dist=True)

    def on_validation_epoch_end(self):
        metrics = self.trainer.callback_metrics
        if self.trainer.is_global_zero and not self.trainer.sanity_checking:
            print(f"epoch {self.current_epoch + 1}: val_loss {metrics['val_loss']:.5f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def make_loader(samples, seed, *, shuffle=False):
    x = torch.rand(samples, 1, generator=torch.Generator().manual_seed(seed)) * 4 - 2
    return DataLoader(TensorDataset(x, torch.sin(3 * x)), batch_size=64, shuffle=shuffle)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate")
    options = parser.parse_args()

    lightning.seed_everything(0, verbose=False)
    # No `devices` and no `num_nodes`: Bareboat sets both for the ranks that it starts.
    trainer = lightning.Trainer(
        max_epochs=options.epochs, logger=False, enable_progress_bar=False, enable_model_summary=False
    )
    if trainer.is_global_zero:
        print(f"training on {trainer.world_size} ranks", flush=True)
    trainer.fit(Regression(options.lr), make_loader(8192, seed=1, shuffle=True), make_loader(1024, seed=2))


if __name__ == "__main__":
    main()
