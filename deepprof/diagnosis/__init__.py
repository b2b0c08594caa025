"""Rules over metrics: what is wrong, how sure, what it costs, what to do (floor 3).

`judgement` rates a cost, `causes` puts one root cause first, `on_cpu` has the words for programs without a device.
"""
