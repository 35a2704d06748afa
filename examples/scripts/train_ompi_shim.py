"""Derive torchrun's variables from those of Open MPI, as scripts written for AzureML do."""

import json
import os

import torch
import torch.distributed as dist


def set_environment_variables(master_port: int = 6105) -> None:
    """Have init_process_group("env://") work where Open MPI started this process."""
    environ = os.environ
    environ["RANK"] = environ["OMPI_COMM_WORLD_RANK"]
    environ["WORLD_SIZE"] = environ["OMPI_COMM_WORLD_SIZE"]
    environ["LOCAL_RANK"] = environ["OMPI_COMM_WORLD_LOCAL_RANK"]
    local_size = int(environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
    environ["NODE_RANK"] = str(int(environ["RANK"]) // local_size)
    if local_size == int(environ["WORLD_SIZE"]):
        environ["MASTER_ADDR"] = environ["AZ_BATCHAI_MPI_MASTER_NODE"]
    else:
        environ["MASTER_ADDR"] = environ["AZ_BATCH_MASTER_NODE"].split(":")[0]
    if "MASTER_PORT" not in environ:
        environ["MASTER_PORT"] = str(master_port)
    environ["NCCL_SOCKET_IFNAME"] = "^docker0,lo"


def main() -> None:
    """Train."""
    set_environment_variables()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    total = torch.tensor([float(os.environ["RANK"]) + 1])
    dist.all_reduce(total)
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
    seen = {name.lower(): int(os.environ[name]) for name in names}
    print(json.dumps({"metrics": {**seen, "sum": total.item()}}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
