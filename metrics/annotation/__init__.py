"""What the parts of an iteration are: its stages, the layers of the model, sections of both."""
