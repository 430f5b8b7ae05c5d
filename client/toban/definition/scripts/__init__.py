"""Scripts and command lines with templates, per shell, and rendering a step to what is started."""
