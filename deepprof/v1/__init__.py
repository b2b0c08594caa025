"""Generated from proto/deepprof/v1 by `make proto`; do not edit."""
