"""The examples of docs/extend.md, installed as pip would install them: modules and entry points in a folder of their own."""

import re
import tomllib
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "extend.md").read_text(encoding="utf-8")
MODULES = {
    module: source
    for source in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for module in re.findall(r'\A"""(\w+)\.py"""', source)
}
ENTRY_POINTS = {
    group: entries
    for declared in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for group, entries in tomllib.loads(declared)["project"]["entry-points"].items()
}


def install(site: Path, *groups: str) -> Path:
    """Everything that the page registers in these groups of entry points; the folder is to be on the Python path."""
    metadata = site / "acme-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n", encoding="utf-8")
    lines = []
    for group in groups:
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in ENTRY_POINTS[group].items())]
        for value in ENTRY_POINTS[group].values():
            module = value.partition(":")[0]
            (site / f"{module}.py").write_text(MODULES[module], encoding="utf-8")
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return site
