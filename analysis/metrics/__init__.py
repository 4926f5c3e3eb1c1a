"""How each metric is predicted and measured: one file per family, and the registry that everything else asks."""
