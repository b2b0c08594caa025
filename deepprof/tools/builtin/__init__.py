"""The tools that DeepProf brings, one in every module; `deepprof.tools.registry` lists them."""
