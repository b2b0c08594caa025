"""The tools that DeepProf brings, one in each module; `deepprof.tools.registry` lists them."""
