"""The literature's formulas, one file per family of papers: numbers in, numbers out, numpy only."""
