"""`deepprof serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


class Serve:
    """Run the daemon that watches training jobs.

    Listens on a Unix socket unless told otherwise; other hosts need TLS and credentials. Settings come from --config
    (TOML), the variables DEEPPROF_SERVE_…, and flags, the later of which win. Ends on SIGTERM with everything saved.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        from deepprof.live.service.flags import add_flags

        parser.add_argument("--config", metavar="FILE", help="settings as TOML (--print-config shows all)")
        add_flags(parser)
        parser.add_argument("--print-config", action="store_true", help="print all settings as they hold now, and exit")

    def run(self, args: argparse.Namespace) -> int:
        """Serve until instructed to stop."""
        import asyncio
        import os
        from pathlib import Path

        from deepprof.commands.streams import require_stdout
        from deepprof.live.client.extra import explain_missing
        from deepprof.live.service.config import describe_config, load_config, read_flags

        config = load_config(Path(args.config) if args.config else None, read_flags(args), os.environ)
        if args.print_config:
            require_stdout().write(describe_config(config))
            return 0
        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # for tables of this size threads cost more than they save
        from deepprof.live.service.logs import writing_logs

        with writing_logs(config.log):
            try:
                from deepprof.live.service.daemon import serve
            except ImportError as error:
                raise explain_missing(error) from error
            asyncio.run(serve(config))
        return 0
