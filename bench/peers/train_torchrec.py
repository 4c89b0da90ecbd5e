"""TorchRec on the CPU: tables sharded table-wise, optimizers fused into the backward pass, pipelined.

    train_torchrec.py JOB.json RESULT.json

With RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment it is one of several ranks over gloo. Sharding is
table-wise: TorchRec has no row-wise pooled tables on the CPU, and data-parallel ones would be stepped by the dense
optimizer. Its planner places the tables.
"""
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel, TrainPipelineSparseDist
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.types import ShardingEnv
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.streamable import Pipelineable

from common import Clock, DenseModel, evaluate, loss_of, prepare, rank_and_world, read_job, report, training_slices

OPTIMIZERS = {"sgd": EmbOptimType.EXACT_SGD, "row_wise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}


@dataclass
class Batch(Pipelineable):
    dense: torch.Tensor
    sparse: KeyedJaggedTensor
    labels: torch.Tensor

    def to(self, device, non_blocking=False):
        return self

    def record_stream(self, stream):
        pass

    def pin_memory(self):
        return self


def batch_of(dense, ids, labels):
    names = [f"C{n + 1}" for n in range(len(ids))]
    lengths = torch.ones(ids.numel(), dtype=torch.int32)
    return Batch(dense, KeyedJaggedTensor.from_lengths_sync(names, ids.flatten(), lengths), labels)


class Dlrm(nn.Module):
    def __init__(self, job):
        super().__init__()
        self.tables = EmbeddingBagCollection(device=torch.device("meta"), tables=[
            EmbeddingBagConfig(name=f"t{n + 1}", num_embeddings=rows, embedding_dim=job["dim"], feature_names=[f"C{n + 1}"],
                               weight_init_min=-rows ** -0.5, weight_init_max=rows ** -0.5)
            for n, rows in enumerate(job["rows"])])
        self.dense = DenseModel(job)
        self.shape = (len(job["rows"]), job["dim"])

    def forward(self, batch):
        vectors = self.tables(batch.sparse).values()
        logits = self.dense(batch.dense, vectors.view(-1, *self.shape))
        return loss_of(logits, batch.labels), logits


def sharded(job, model):
    """The model with its tables dealt over the ranks."""
    of = job["sparse"]
    fused = {"optimizer": OPTIMIZERS[of["type"]], "learning_rate": of["learning_rate"],
             "bounds_check_mode": BoundsCheckMode.NONE}
    if of["type"] == "row_wise_adagrad":
        fused["eps"] = of["eps"]
    sharders = [EmbeddingBagCollectionSharder(fused_params=fused)]
    tables = {f"t{n + 1}": ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])
              for n in range(len(job["rows"]))}
    _, world = rank_and_world()
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=world, compute_device="cpu", local_world_size=world), constraints=tables,
        batch_size=job["batch"] // world, storage_reservation=FixedPercentageStorageReservation(0.0))
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    return DistributedModelParallel(model, env=ShardingEnv.from_process_group(dist.group.WORLD),
                                    device=torch.device("cpu"), plan=plan, sharders=sharders)


def main():
    job = read_job(sys.argv[1])
    prepare(job)
    rank, _ = rank_and_world()
    dist.init_process_group("gloo")
    model = sharded(job, Dlrm(job))
    dense = KeyedOptimizerWrapper({k: v for k, v in model.named_parameters() if k.startswith("dense.")},
                                  lambda parameters: torch.optim.SGD(parameters, lr=job["dense_learning_rate"]))
    batches = iter([batch_of(*part) for part in training_slices(job)])
    pipeline = TrainPipelineSparseDist(model, CombinedOptimizer([model.fused_optimizer, dense]), torch.device("cpu"),
                                       execute_all_batches=True)
    clock = Clock(job)
    while True:
        try:
            pipeline.progress(batches)
        except StopIteration:
            break
        clock.step()
    pipeline.detach()
    model.eval()
    report(f"{sys.argv[2]}.{rank}", clock, evaluate(job, lambda *part: model(batch_of(*part))[1]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
