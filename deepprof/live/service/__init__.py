"""The daemon that watches training jobs: records in, iterations, metrics and findings out."""
