"""`deepprof report`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.inputs import add_inputs, add_layers, add_paths, add_shapes, add_stacks, analyze_paths
from deepprof.commands.progress import progress
from deepprof.commands.streams import say

if TYPE_CHECKING:
    import argparse

MIB = 1 << 20


class Report:
    """Write what was found as one page to examine and to send: FILE.html, which needs no network and no server.

    It has the findings with what they rest on, every iteration, a timeline that opens level by level, the flame graph,
    ranks, copies and memory. `deepprof view` shows the same page with every iteration in detail.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add_paths(parser)
        parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the page to write")
        add_stacks(parser)
        add_layers(parser)
        add_shapes(parser)
        add_inputs(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read, analyse and write; print on stderr where the page is."""
        from deepprof.files import check_target, write_file
        from deepprof.web.html import require_assets

        check_target(args.output)
        require_assets()
        analysis = analyze_paths(args, details=args.stacks or None)
        with progress("writing"):
            from deepprof.web.html import write_report
            from deepprof.web.package import PageDocuments

            documents = PageDocuments(analysis)
            page = write_report(documents.session.title, [*documents.list_all(), *documents.list_regions()])
        write_file(args.output, page)
        say(f"{args.output}: {len(page) / MIB:.1f} MiB; open it in a browser")
        return 0
