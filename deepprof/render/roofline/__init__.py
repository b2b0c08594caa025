"""The roofline as a picture: SVG, terminal, one HTML file, and its table as JSON or CSV."""
