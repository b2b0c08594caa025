"""`deepprof tool`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from deepprof.commands.arguments import parse_time
from deepprof.commands.daemons import add_credentials
from deepprof.commands.inputs import add_inputs, find_between, refuse_selection, select_part
from deepprof.commands.output import add_output, capture, check_output, deliver
from deepprof.commands.progress import progress, reading

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from deepprof.analysis import Analysis
    from deepprof.collectors.trace import Trace
    from deepprof.render.tool_report import ToolRecords, ToolReport
    from deepprof.tools import Report, Tool

LIST = "list"


class RunTool:
    """Run a tool over the records of a job: a measurement of your own, or one of those that are built in.

    `deepprof tool list` shows which there are, `deepprof tool NAME -- --help` the options of one. PATH is a file, a
    directory, an archive, a store or a glob of one job's ranks. With --daemon and --job the tool gets the records of a
    running job as they arrive, until all its ranks have ended, until Ctrl-C, or for the time of --for.
    """

    command = "tool"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments; `words` are those after --."""
        add = parser.add_argument
        add("name", metavar="NAME", help=f"the tool, or {LIST}; options of the tool itself come last, after --")
        add("paths", metavar="PATH", nargs="*", help="a trace, a directory or a glob of one job's ranks")
        add_output(parser)
        add_inputs(parser)
        text = "follow a running job instead of reading files: unix:PATH or HOST:PORT of its daemon"
        add("--daemon", metavar="ADDRESS", nargs="?", const="", help=f"{text} (without ADDRESS the usual one)")
        add("--job", metavar="NAME", help="with --daemon: which job")
        add("--for", dest="duration", metavar="TIME", type=parse_time, help="with --daemon: how long, such as 30s")
        add_credentials(parser)
        parser.set_defaults(words=[])

    def run(self, args: argparse.Namespace) -> int:
        """Run the tool and write its report, or write what tools or options there are."""
        from deepprof.tools import find_tool
        from deepprof.tools.options import make_tool

        check_output(args)
        if args.name == LIST:
            _write_list(args)
            return 0
        kind = find_tool(args.name)
        if {"--help", "-h"} & set(args.words):
            deliver(capture(lambda console: _draw_options(console, kind), args.output), args)
            return 0
        tool = make_tool(kind, args.words)
        _check_source(args)
        _write(_run(tool, args), args)
        return 0


def _check_source(args: argparse.Namespace) -> None:
    """Raise `UsageError` unless `args` names files, or a job of a daemon."""
    from deepprof.collectors.errors import UsageError

    if args.daemon is None:
        if args.job is not None or args.duration is not None:
            raise UsageError("--job and --for are for running jobs; add --daemon ADDRESS")
        if not args.paths:
            raise UsageError("no trace is named; name files (PATH), or a running job (--daemon ADDRESS --job NAME)")
        return
    if args.paths or args.job is None:
        raise UsageError("with --daemon name a job and no file: deepprof tool NAME --daemon ADDRESS --job JOB")
    if find_between(args) is not None or args.columns is not None:
        raise UsageError("--from, --to and --columns are for files; leave them out with --daemon")
    refuse_selection(args, "files; leave it out with --daemon")


def _run(tool: Tool, args: argparse.Namespace) -> ToolReport:
    """Return the report of a tool over files or a running job."""
    import msgspec

    from deepprof.render.tool_report import ToolReport
    from deepprof.tools.tool import guard

    options = guard(tool.name, "options", lambda: msgspec.to_builtins(tool))  # before the tool may change them
    if args.daemon is None:
        report, records = _run_on_files(tool, args)
    else:
        from deepprof.commands.tool_live import run_live

        report, records = run_live(tool, args)
    return ToolReport(tool=tool.name, options=options, records=records, report=report)


def _run_on_files(tool: Tool, args: argparse.Namespace) -> tuple[Report, ToolRecords]:
    with reading() as watch:
        from deepprof.job import read_job
        from deepprof.tools import ToolRun

        asked = {"between": find_between(args), "columns": args.columns, "details": tool.details}
        traces = read_job(args.paths, jobs=args.jobs, watch=watch, **asked)
    with progress("measuring"):
        part, options = select_part(traces, args)
        run = ToolRun(tool)
        for trace in part:
            run.feed(trace)
        return run.conclude(lambda: _analyse(part, options)), _count_records(part)


def _analyse(traces: Sequence[Trace], options: dict[str, Any]) -> Analysis:
    """Analyse traces; what that needs is imported only for tools that request it."""
    from deepprof.analysis import analyze

    return analyze(traces, **options)


def _count_records(traces: Sequence[Trace]) -> ToolRecords:
    from deepprof.render.tool_report import ToolRecords

    accounts = [trace.accounting for trace in traces]
    dropped: Counter[str] = sum((Counter(each.dropped) for each in accounts), Counter())
    return ToolRecords(
        ranks=[trace.rank or 0 for trace in traces],
        read=sum(each.read for each in accounts),
        kept=sum(each.kept for each in accounts),
        dropped=dict(dropped),
        notes=[note for trace in traces for note in trace.notes],
    )


def _write(report: ToolReport, args: argparse.Namespace) -> None:
    """Write a report as `args` requests."""
    from deepprof.render.page import TextPage
    from deepprof.render.tool_report import draw_tool_report, encode_tool_report
    from deepprof.tools.tool import guard

    def show() -> str:
        if args.format == "json":
            return encode_tool_report(report)
        return capture(lambda console: draw_tool_report(TextPage(console), report), args.output)

    deliver(guard(report.tool, "report", show), args)


def _write_list(args: argparse.Namespace) -> None:
    from deepprof.collectors.errors import UsageError
    from deepprof.tools import installed_tools
    from deepprof.tools.options import list_options

    if args.paths or args.words or args.daemon is not None:
        raise UsageError("deepprof tool list takes no path and no options of a tool")
    tools = dict(sorted(installed_tools().items()))
    if args.format == "json":
        import msgspec

        from deepprof.version import read_version

        described = [{"name": n, "summary": _summarise(k), "options": list_options(k)} for n, k in tools.items()]
        content = {"schema": "deepprof.tools/1", "deepprof": read_version(), "tools": described}
        deliver(msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n", args)
        return
    deliver(capture(lambda console: _draw_list(console, tools), args.output), args)


def _summarise(kind: type[Tool]) -> str:
    """Return the first line of a tool's docstring."""
    return (kind.__doc__ or "").strip().partition("\n")[0] or "(its class has no docstring)"


def _draw_list(console: Console, tools: Mapping[str, type[Tool]]) -> None:
    """Draw the tools with the first line of their docstrings."""
    from deepprof.render.page import TextPage

    page = TextPage(console)
    for name, kind in tools.items():
        page.line(f"{name}: {_summarise(kind)}", hang=4)


def _draw_options(console: Console, kind: type[Tool]) -> None:
    from inspect import cleandoc

    from deepprof.render.page import TextPage
    from deepprof.tools.options import list_options

    page, options = TextPage(console), list_options(kind)
    for paragraph in cleandoc(kind.__doc__ or _summarise(kind)).split("\n\n"):
        page.line(" ".join(paragraph.split()))
        page.skip()
    page.line("Options, after --:" if options else "It has no options.")
    for each in options:
        text = f"{each.option} {each.type}: {each.description}" if each.description else f"{each.option} {each.type}"
        page.line(f"{text} ({'default ' if each.default != 'required' else ''}{each.default})", indent=2, hang=4)
