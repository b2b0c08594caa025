"""Tools: measurements of your own, written by overriding what `Tool` does with kernels, copies, memory, operators …

After PASTA, whose tools are classes that override what is done with an event. `tool` has the class, `hooks` what is
given to which of its methods, `tool_run` the run of one tool over traces, `registry` which tools there are (the
built-in ones, in `builtin`, and those of installed packages), and `options` turns texts into a tool's options.
"""

from __future__ import annotations

from deepprof.tools.registry import find_tool, installed_tools
from deepprof.tools.tool import Report, Tool, ToolError
from deepprof.tools.tool_run import ToolRun, run

__all__ = ["Report", "Tool", "ToolError", "ToolRun", "find_tool", "installed_tools", "run"]
