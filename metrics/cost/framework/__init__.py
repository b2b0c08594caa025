"""What operators of a framework cost, by the shapes, types and values of their operands that a profiler records.

`operator_call` reads what was recorded of one call; each other module has the rules of one family, functions of a call
that return its cost; `operator_rules` finds the rule of a name.
"""
