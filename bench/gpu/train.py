"""What bench/gpu/pair.toml trains: a small transformer's layers on random tokens, on one GPU, in bfloat16."""

import bareboat_meter  # first, so that it sees the imports below it

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--length", type=int, default=512)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--layers", type=int, default=8)
options = parser.parse_args()

torch.manual_seed(0)
device = torch.device(options.device)
layer = nn.TransformerEncoderLayer(
    options.width, nhead=8, dim_feedforward=4 * options.width, dropout=0.0, batch_first=True
)
model = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False).to(device)
head = nn.Linear(options.width, 256).to(device)
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-4)
given = torch.randn(options.batch, options.length, options.width, device=device)
wanted = torch.randint(0, 256, (options.batch, options.length), device=device)

meter = bareboat_meter.Meter(samples_per_step=options.batch)
meter.start()
for _ in range(options.steps):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(head(model(given)).flatten(0, 1).float(), wanted.flatten())
    torch.autograd.backward(loss)
    optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()  # a step that was only put in the queue has not been made
    meter.step()
meter.result(loss=loss.item())
meter.close()
