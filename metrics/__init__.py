"""What is measured on a trace and its iterations (layer 2).

`streams` and `sequence` give the main stream as symbols; `host` and `evidence` read what the host recorded of it;
`mined` and `marked` make measured loops, `carried` those of a part of a trace; `iteration_table` has the row of every
iteration and the paper's Table III, `states` which state of the device follows which; every sum of durations goes
through `spans`."""
