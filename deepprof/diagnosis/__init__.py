"""Rules over metrics: what is wrong, how sure, what it costs, what to do (layer 3).

`judgement` rates a cost, `causes` puts one root cause first, `on_cpu` rewords findings for programs without a device.
"""
