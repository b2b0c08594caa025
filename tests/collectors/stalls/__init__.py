"""Tests of deepprof.collectors.stalls."""
