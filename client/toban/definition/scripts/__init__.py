"""Scripts and command lines with templates, per shell, and the rendering of a step for its launch."""
