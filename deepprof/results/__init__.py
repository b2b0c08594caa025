"""What an analysis of a job and a comparison of two runs result in: values, which renderers read."""
