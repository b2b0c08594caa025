"""The processes of a capture: their names, their contexts, and the devices that their device numbers mean.

Every process numbers its contexts, its streams and its devices separately. Contexts are renumbered here, so that each
belongs to one process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from deepprof.collectors.trace import Process

if TYPE_CHECKING:
    from deepprof.collectors.importers.nsys.nsys_database import NsysDatabase

GPUS, CUDA_DEVICES, SYSTEM = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_SYSTEM_ENV"
PID_BITS = 24
MAX_PROCESSES = 2**16  # processes or device numbers; more are a damaged table


def list_processes(device: pl.DataFrame, host: pl.DataFrame) -> list[int]:
    """Return the ids of the processes that used CUDA, sorted."""
    calls = host.filter(pl.col("category") == "runtime")["process"]
    return sorted(pl.concat([device["process"], calls]).drop_nulls().unique().to_list())


def _list_workers(device: pl.DataFrame) -> list[int]:
    """Return the ids of the processes that had work on a device, sorted."""
    return sorted(device["process"].drop_nulls().unique().to_list())


def scope_contexts(device: pl.DataFrame) -> pl.DataFrame:
    """Return the device rows with contexts that belong to one process each; the first process keeps its contexts.

    `device` has the column `process`. Rows of other processes without a context get one too.
    """
    workers = _list_workers(device)
    if len(workers) < 2:
        return device
    pairs = device.select("process", "context").unique().sort("process", "context").drop_nulls("process")
    others = pairs.filter(pl.col("process") != workers[0])
    own = pairs.filter(pl.col("process") == workers[0])["context"].drop_nulls().to_list()
    first = max(own, default=-1) + 1
    scoped = others.with_columns(scoped=first + pl.int_range(others.height, dtype=pl.UInt32))
    joined = device.join(scoped, on=["process", "context"], how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(context=pl.coalesce("scoped", "context")).drop("scoped")


def read_processes(database: NsysDatabase, device: pl.DataFrame) -> tuple[Process, ...]:
    """Return the processes with work on a device; `device` has `process`, and contexts from `scope_contexts`."""
    names, identities = _read_names(database), _read_identities(database)
    used = device.select("process", "context", "device").unique()
    return tuple(
        Process(
            process,
            names.get(process),
            tuple(sorted(rows["context"].drop_nulls().unique().to_list())),
            tuple((d, known) for d in sorted(rows["device"].unique()) if (known := identities(process, d)) is not None),
        )
        for process in _list_workers(device)
        for rows in [used.filter(pl.col("process") == process)]
    )


def _read_names(database: NsysDatabase) -> dict[int, str]:
    rows = database.integers("PROCESSES", {"globalPid": None})["globalPid"]
    texts = database.texts("PROCESSES", "name")
    pids = (rows // 2**PID_BITS) & (2**PID_BITS - 1)
    return {pid: name for pid, name in zip(pids, texts, strict=True) if pid is not None and name}


class _Identities:
    """The identity of the device that a process's device number means, as far as the capture contains it."""

    def __init__(self, gpus: dict[int, str], known: dict[tuple[int, int], str]) -> None:
        self.gpus, self.known = gpus, known

    def __call__(self, process: int, device: int) -> str | None:
        """Return the identity from the table of devices, or else that of the machine's GPU if it has only one."""
        alone = next(iter(self.gpus.values())) if len(self.gpus) == 1 else None
        return self.known.get((process, device), alone)


def _read_identities(database: NsysDatabase) -> _Identities:
    """Return the identities of the devices that CUDA counts in every process.

    A process sees the devices that CUDA_VISIBLE_DEVICES leaves it, so device 0 of two processes may be different GPUs.
    """
    rows = database.integers(GPUS, {"id": None}).with_columns(
        uuid=database.texts(GPUS, "uuid"), bus=database.texts(GPUS, "busLocation")
    )
    host = _read_host(database)
    gpus = {
        gpu: uuid or f"{host} GPU {bus or gpu}"
        for gpu, uuid, bus in rows.drop_nulls("id").head(MAX_PROCESSES).iter_rows()
    }
    table = database.integers(CUDA_DEVICES, {"pid": None, "cudaId": None, "gpuId": None})
    table = table.with_columns(uuid=database.texts(CUDA_DEVICES, "uuid"))  # of a slice, if the GPU is cut into some
    known = {
        (pid, device): uuid or gpus.get(gpu)
        for pid, device, gpu, uuid in table.drop_nulls(["pid", "cudaId"]).head(MAX_PROCESSES).iter_rows()
    }
    return _Identities(gpus, {key: value for key, value in known.items() if value})


def _read_host(database: NsysDatabase) -> str:
    """Return the name of the host that the capture was taken on, "" if it is not recorded."""
    names, values = database.texts(SYSTEM, "name"), database.texts(SYSTEM, "value")
    return next((value for name, value in zip(names, values, strict=True) if name == "Hostname" and value), "")
