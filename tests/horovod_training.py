"""A training with Horovod that several tests run."""

#: Lines of a program: each rank trains on data of its own, in batches of `batch`; equal weights at the end
#: show that they trained one model, and `right` says so.
TRAINS = """\
import torch
import horovod.torch as hvd
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
for _ in range(30):
    x = torch.randn(batch, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
weights = hvd.allgather(model.weight.detach())
right = bool((weights == weights[0]).all()) and bool((weights - 1).abs().max() < 0.2)
"""
