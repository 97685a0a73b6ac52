"""Train a small language model whose weights are sharded over the ranks: PyTorch's FSDP2.

The model learns to continue a repeating sequence. Each rank keeps a part of every weight, of its gradient and
of the optimizer's state, and gathers a layer only while it computes it.
"""

import argparse
import gc
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

TOKENS = 32


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.before = nn.LayerNorm(width)
        self.after = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        length = x.shape[1]
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool, device=x.device), diagonal=1)
        normal = self.before(x)
        attended, _ = self.attention(normal, normal, normal, attn_mask=mask, need_weights=False)
        x = x + attended
        return x + self.feed_forward(self.after(x))


class Model(nn.Module):
    def __init__(self, width=64, heads=4, depth=2, length=64):
        super().__init__()
        self.token = nn.Embedding(TOKENS, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, TOKENS)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x.flatten(0, 1))


def make_batch(size, generator, length=33, period=8):
    """Sequences that repeat after `period` tokens."""
    pattern = torch.randint(TOKENS, (size, period), generator=generator)
    return pattern.repeat(1, length // period + 1)[:, :length]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32, help="sequences per rank and step")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate")
    parser.add_argument("--output", default="model.pt", help="file of the trained weights")
    options = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = "cuda" if on_gpu else "cpu"
    mesh = init_device_mesh(device, (world_size,))

    torch.manual_seed(0)
    model = Model().to(device)
    whole = sum(weight.numel() for weight in model.parameters())
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    here = sum(weight.to_local().numel() for weight in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    if rank == 0:
        print(f"training on {world_size} ranks; rank 0 holds {here:,} of {whole:,} weights", flush=True)

    generator = torch.Generator().manual_seed(rank)
    for step in range(options.steps):
        batch = make_batch(options.batch_size, generator).to(device)
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits, batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 20 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step + 1}: loss {mean / world_size:.4f}", flush=True)

    # All ranks take part; rank 0 gets the whole weights.
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(weights, options.output)
        print(f"saved {options.output}: {sum(w.numel() for w in weights.values()):,} weights", flush=True)
    del model, optimizer, logits, loss
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
