"""What the names of ranges, functions, modules and operators state of the stage that they are part of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import polars as pl

from deepprof.metrics.contexts.code_lines import is_internal
from deepprof.metrics.host import OPTIMIZER as OPTIMIZER_KERNEL
from deepprof.metrics.streams import COLLECTIVE, HOST_COLLECTIVE

STAGES = (
    *("data loading", "forward", "loss", "backward", "optimizer", "communication", "evaluation", "checkpoint"),
    *("other", "unknown"),
)
STAGE = pl.Enum(STAGES)
LOADING, FORWARD, LOSS, BACKWARD, OPTIMIZER, COMMUNICATION, EVALUATION, CHECKPOINT, OTHER, UNKNOWN = range(len(STAGES))

# As a collective; broadcast_in_dim and broadcast_to give an array another shape.
BROADCAST = (
    r"broadcast(?:$|ing|_(?:coalesced|params?|parameters?|weights|buffers?|model|grads?|gradients?|object|state))"
)
# Words of names that are written by people: `## forward ##`, `TrainStep.zero_grad`, `val_epoch`.
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "evaluation": r"eval(?:uate|uation|uating)?|validat(?:e|ion|ing)|val_(?:step|epoch|loop|batch)"
        r"|test_(?:step|epoch|loop)",
        "checkpoint": r"sav(?:e|ing)_(?:\w+_)?(?:checkpoints?|ckpt|model|state|state_dict|weights|pretrained)"
        r"|(?:checkpoint|ckpt)_sav(?:e|ing)|write_(?:checkpoint|ckpt)",
        "data loading": r"data_?(?:load(?:er|ing)?s?|iter(?:ator)?|fetch(?:er|ing)?|wait)"
        r"|load(?:ing)?_(?:\w+_)?(?:batch|data)"
        r"|(?:next|get|fetch|wait_for|copy|read|prepare)_(?:\w+_)?(?:batch|batches|minibatch)(?:es)?"
        r"|batch_(?:load(?:ing)?|fetch|to_(?:device|gpu|cuda))|prefetch(?:er|ing)?|input_(?:pipeline|wait)"
        r"|collate(?:_fn)?|to_device|data_to_(?:gpu|cuda)|h2_?d",
        "forward": r"forward|fwd|fprop",
        "loss": r"loss(?:es|_fn)?|criterion|cross_entropy",
        "backward": r"backwards?|bwd|bprop|backprop\w*",
        "optimizer": r"optim(?:izer|iser)?s?|zero_grads?|clip_grads?(?:_\w+)?|grad(?:ient)?_clip(?:ping)?|unscale"
        r"|lr_scheduler|scheduler_step|(?:fused_)?adamw?|sgd|lamb|lion|muon|adagrad|adafactor|ema_update"
        r"|update_(?:params|parameters|weights|ema)|(?:param|parameter|weight)s?_update|apply_(?:gradients|updates)",
        "communication": rf"all_?reduce|all_?gather|reduce_?scatter|all_?(?:to|2)_?all|{BROADCAST}|nccl|rccl|gloo"
        r"|sync_grads?|grad(?:ient)?_sync|c10_?d",
        "other": r"metrics?|log$|log(?:ging|ger)|log_(?:metrics?|stats?|step|scalars?|losse?s?|progress|info|dict)"
        r"|training_log|accuracy|publish|tensor_?board|wandb",
    }
)
CAMEL = r"([a-z0-9])([A-Z])"
BETWEEN_WORDS = r"[\s-]+"  # the same as an underscore is
PERHAPS = r"(?i)(?:^|_)maybe_"  # a function that looks in every step whether there is something to do
LOSS_FUNCTIONS = (
    r"(?:cross_entropy|nll_loss|mse_loss|l1_loss|bce|binary_cross_entropy|kl_div|ctc_loss|huber_loss|hinge_embedding_loss|"
    r"margin_ranking_loss|multi_margin_loss|multilabel|triplet_margin|cosine_embedding_loss|poisson_nll|gaussian_nll|soft_margin)"
)
# Functions of frameworks by file and name: their words mean other things (`eval_frame`, `Module.eval`).
OF_FRAMEWORKS = (
    ("data loading", r"(?:^|/)torch/utils/data/|(?:^|/)tensorflow/python/data/", r""),
    ("optimizer", r"(?:^|/)torch/optim/|(?:^|/)torch/nn/utils/clip_grad\.py|(?:^|/)optax/", r""),
    ("optimizer", r"(?:^|/)torch/(?:cuda/)?amp/grad_scaler\.py", r"^(?:step|unscale_|update|_maybe_opt_step)$"),
    ("backward", r"(?:^|/)torch/(?:_tensor|tensor|autograd/__init__|autograd/graph)\.py", r"backward"),
    ("backward", r"(?:^|/)torch/autograd/__init__\.py", r"^grad$"),
    (
        "communication",
        r"(?:^|/)torch/distributed/distributed_c10d\.py",
        r"^(?:all_|reduce|broadcast|gather|scatter|send|recv|isend|irecv|batch_isend)",
    ),
    ("checkpoint", r"(?:^|/)torch/serialization\.py", r"^save$"),
    ("checkpoint", r"(?:^|/)torch/distributed/checkpoint/", r"save"),
    ("loss module", r"(?:^|/)torch/nn/modules/loss\.py", r"^forward$"),
    ("loss module", r"(?:^|/)torch/nn/functional\.py", f"^{LOSS_FUNCTIONS}"),
    ("forward", r"(?:^|/)torch/nn/(?:modules|parallel)/", r"^forward$"),
    ("forward", r"(?:^|/)flax/(?:linen/module|nnx/\w+)\.py", r"^__call__$"),
)
DATA_FILE = r"(?i)(?:^|[/_])data_?(?:loader|set|module)s?\.py$"
LOSS_CLASS = r"(?:Loss|Criterion|CrossEntropy)(?:_\d+)?$"
NODE = r"^autograd::engine::evaluate_function|Backward\d*(?:, seq = .*)?$|^torch::autograd::AccumulateGrad"
# Of ranges only: operators are in a node that reports it for certain.
BACKWARD_OPERATOR = r"_backward(?:_\w+)?$"
LOSS_OPERATOR = rf"(?i)^(?:aten::)?_?{LOSS_FUNCTIONS}"
OPTIMIZER_OPERATOR = r"^(?:aten::)?_(?:fused_(?:adam|sgd|adagrad)|amp_(?:foreach_non_finite|update_scale)|foreach_)"
# What emit_nvtx writes behind an operator's name, and ranges that are operators in other recordings.
NUMBERED_OPERATOR = r"(?:, (?:seq|op_id|sizes|input_op_ids) = .*)+$"
OPERATOR_RANGE = (
    rf"{NUMBERED_OPERATOR}|^(?:aten|prims?|torchvision|torch_scatter|torch|autograd|_?quantized|mkldnn|inductor)::"
)
LINEARIZED = r"jvp\("


def _have_word(words: str) -> pl.Expr:
    """Return whether a `name` has one of the words, separated by anything but letters or by capitals."""
    plain = pl.col("name").str.replace_all(CAMEL, "${1}_${2}").str.replace_all(BETWEEN_WORDS, "_").str.to_lowercase()
    return plain.str.contains(f"(?:^|[^a-z])(?:{words})(?:[^a-z]|$)").fill_null(value=False)


def _meant_by_words() -> pl.Expr:
    """Return the stage that the words of a `name` mean, null where they mean none or several."""
    has = {stage: pl.col(f"has {stage}") for stage in WORDS}
    plain = [stage for stage in WORDS if stage not in {"evaluation", "checkpoint", "communication", "other"}]
    one = pl.sum_horizontal(has[stage].cast(pl.Int8) for stage in plain) == 1
    either = pl.coalesce(pl.when(has[stage]).then(pl.lit(stage)) for stage in plain)
    return (
        pl.when(has["evaluation"])
        .then(pl.lit("evaluation"))
        .when(has["checkpoint"])
        .then(pl.lit("checkpoint"))
        .when(has["communication"] & ~has["data loading"])
        .then(pl.lit("communication"))
        .when(has["backward"] & has["loss"] & ~has["forward"] & ~has["optimizer"])  # loss.backward
        .then(pl.lit("backward"))
        .when(one)
        .then(either)
        .when(has["other"] & ~pl.any_horizontal(has[stage] for stage in plain))
        .then(pl.lit("other"))
    )


def _meant_by_file() -> pl.Expr:
    """Return the stage that a function of a framework is part of, by its `file` and `name`."""
    file = pl.col("file").str.replace_all("\\", "/", literal=True)
    return pl.coalesce(
        pl.when(file.str.contains(path) & pl.col("name").str.contains(function)).then(pl.lit(stage))
        for stage, path, function in OF_FRAMEWORKS
    )


def _meant_by_operator(name: pl.Expr) -> pl.Expr:
    """Return the stage that an operator of a name is part of, null where it may be of several."""
    return (
        pl.when(name.str.contains(NODE))
        .then(pl.lit("backward"))
        .when(name.str.contains(HOST_COLLECTIVE))
        .then(pl.lit("communication"))
        .when(name.str.contains(LOSS_OPERATOR))
        .then(pl.lit("loss"))
        .when(name.str.contains(OPTIMIZER_OPERATOR))
        .then(pl.lit("optimizer"))
    )


def name_stages(frames: pl.DataFrame) -> pl.DataFrame:
    """Return `stage` (with "loss module" for what is loss as a whole, null for nothing) and whether it is `certain`.

    `frames` have `kind`, `name` and `file` as in `FRAMES`, a row each; equal ones are read once.
    """
    keys = ["kind", "name", "file"]
    distinct = frames.select(keys).unique(maintain_order=True).with_columns(pl.col("kind").cast(pl.String))
    schema = {**distinct.schema, "stage": pl.String(), "certain": pl.Boolean()}
    found = [pl.DataFrame(schema=schema)]
    for (kind,), rows in distinct.group_by("kind", maintain_order=True):
        named = rows.with_columns(_READERS[str(kind)](rows).alias("stage")) if kind in _READERS else rows
        known = named.with_columns(certain=_is_certain(str(kind)).fill_null(value=False))
        found.append(known.with_columns(stage=pl.col("stage") if kind in _READERS else pl.lit(None, pl.String)))
    known = pl.concat([each.select(list(schema)).cast(schema) for each in found])  # type: ignore[arg-type]
    texts = frames.select(pl.col("kind").cast(pl.String), "name", "file")
    return texts.join(known, on=keys, how="left", nulls_equal=True, maintain_order="left").select("stage", "certain")


def _is_certain(kind: str) -> pl.Expr:
    """Return whether the stage of a frame of a kind is certain by its `name`: those of most operators are not."""
    name = pl.col("name")
    plain = ~name.str.contains("::") & ~name.str.contains(NUMBERED_OPERATOR)
    told = name.str.contains(NODE) | name.str.contains(HOST_COLLECTIVE) | plain
    if kind == "range":
        return ~name.str.contains(OPERATOR_RANGE) | told
    return told if kind in {"operator", "kernel"} else pl.lit(value=True)


def _read_words(rows: pl.DataFrame, wanted: pl.Expr) -> pl.Series:
    """Return the stage that the words of the `wanted` names mean; words are searched for in few of all names."""
    numbered = rows.with_row_index("row").filter(wanted)
    has = numbered.with_columns(_have_word(words).alias(f"has {stage}") for stage, words in WORDS.items())
    meant = has.select("row", stage=_meant_by_words())
    return rows.with_row_index("row").join(meant, on="row", how="left", maintain_order="left")["stage"]


def _read_functions(rows: pl.DataFrame) -> pl.Series:
    """Return the stages of Python functions: a framework's by their files, others by their words."""
    own = pl.col("file").is_not_null() & ~is_internal() & ~pl.col("name").str.contains(PERHAPS)
    data = pl.col("file").str.replace_all("\\", "/", literal=True).str.contains(DATA_FILE)
    words = _read_words(rows, own & ~data)
    of_data = pl.when(own & data).then(pl.lit("data loading"))
    return rows.select(pl.coalesce(_meant_by_file(), of_data, words)).to_series()


def _read_modules(rows: pl.DataFrame) -> pl.Series:
    loss = pl.col("name").str.contains(LOSS_CLASS)
    return rows.select(pl.when(loss).then(pl.lit("loss module")).otherwise(pl.lit("forward"))).to_series()


def _read_scopes(rows: pl.DataFrame) -> pl.Series:
    words = _read_words(rows, pl.col("name") != "log")  # the innermost one is what is computed
    linear = pl.when(pl.col("name").str.contains(LINEARIZED)).then(pl.lit("forward"))
    return rows.select(pl.coalesce(words, linear)).to_series()


def _read_ranges(rows: pl.DataFrame) -> pl.Series:
    """Return the stages of ranges; some are operators, as recorders of other formats write them."""
    operator, backward = (pl.col("name").str.contains(pattern) for pattern in (OPERATOR_RANGE, BACKWARD_OPERATOR))
    words, of_operator = _read_words(rows, ~operator), _meant_by_operator(_without_number())
    whole = pl.when(backward).then(pl.lit("backward")).otherwise(of_operator)
    return rows.select(pl.when(operator).then(whole).otherwise(words)).to_series()


def _read_operators(rows: pl.DataFrame) -> pl.Series:
    """Return the stages of operators; older recorders have ranges among them."""
    words = _read_words(rows, ~pl.col("name").str.contains("::"))
    return rows.select(pl.coalesce(_meant_by_operator(_without_number()), words)).to_series()


def _read_kernels(rows: pl.DataFrame) -> pl.Series:
    """Return the stages of kernels that run in one only."""
    name = pl.col("name")
    collective, updates = (
        name.str.contains(COLLECTIVE),
        name.str.contains(OPTIMIZER_KERNEL) & ~name.str.contains("(?i)backward"),
    )
    return rows.select(
        pl.when(collective).then(pl.lit("communication")).when(updates).then(pl.lit("optimizer"))
    ).to_series()


def _without_number() -> pl.Expr:
    """Return the name of an operator without the number that a recorder adds."""
    return pl.col("name").str.replace(NUMBERED_OPERATOR, "")


_READERS: Mapping[str, Callable[[pl.DataFrame], pl.Series]] = MappingProxyType(
    {
        "python": _read_functions,
        "module": _read_modules,
        "scope": _read_scopes,
        "range": _read_ranges,
        "operator": _read_operators,
        "kernel": _read_kernels,
    }
)
