"""``python -m autotools.llm.merge ADAPTER --out DIR``: an adapter's weights added to those of its base model.

The result is a full model that every command takes; the adapter stays as it is.
"""

from dataclasses import dataclass, field
from pathlib import Path

from autotools.config import load_config, run_main
from autotools.errors import ConfigError
from autotools.llm.loading import check_dtype, check_model, is_adapter, load_adapter
from autotools.rundir import check_run, open_run, write_manifest


@dataclass(kw_only=True)
class MergeArgs:
    """Keys of the command."""

    adapter: str = field(metadata={"help": "folder with adapter_config.json; also as the first bare word"})
    out: str = field(metadata={"help": "new folder for the merged model and its tokenizer"})
    dtype: str = field(default="auto", metadata={"help": "weights' type: auto, float32, bfloat16 ..."})
    overwrite: bool = field(default=False, metadata={"help": "replace an earlier model in OUT"})

    def __post_init__(self) -> None:
        check_dtype(self.dtype)


def main(argv: list[str] | None = None) -> int:
    """Merge and save; 0. Raises ConfigError if there is no adapter, ModelError if it or its base cannot be loaded."""
    config = load_config(
        argv, {"": MergeArgs}, prog="python -m autotools.llm.merge", description=__doc__ or "", positional="adapter"
    )
    args = config.top(MergeArgs)
    if not is_adapter(args.adapter):
        raise ConfigError(f"no adapter at {args.adapter!r}: there is no adapter_config.json")
    if config.dry_run:
        check_model(args.adapter)
        check_run(args.out, config.resolved(), overwrite=args.overwrite)
        print(f"would merge {args.adapter} into its base model and write {args.out}")
        return 0
    model, tokenizer = load_adapter(args.adapter, args.dtype)
    run = open_run(args.out, config.resolved(), seed=0, overwrite=args.overwrite)
    model.merge_and_unload().save_pretrained(run.path)
    tokenizer.save_pretrained(run.path)
    inputs = [path for path in Path(args.adapter).iterdir() if path.suffix in (".json", ".safetensors")]
    write_manifest(run.path, stage="merge", inputs=inputs, counts={}, seed=0)
    print(f"merged {args.adapter} into {run.path}")
    return 0


if __name__ == "__main__":
    run_main(main)
