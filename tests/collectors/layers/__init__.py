"""Tests of deepprof.collectors.layers."""
