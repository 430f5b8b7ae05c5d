"""An import contract that import-linter lacks: modules and packages that may import only listed modules."""

from __future__ import annotations

import sys
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OnlyContract(Contract):
    """Each of `modules` may directly import the standard library, the others of them, and `allowed`.

    A package means every module below it. Packages above a module are not checked: importing `a.b` also runs `a`, so
    `a` needs its own contract if that matters.
    """

    type_name = "only"

    modules = fields.ListField(subfield=fields.StringField())
    allowed = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        modules = cast(list[str], self.modules)
        allowed = [*modules, *cast(list[str], self.allowed)]
        wrong = [f"{module} does not exist" for module in modules if module not in graph.modules]
        present = {module for module in modules if module in graph.modules}
        below = {inner for module in present for inner in graph.find_descendants(module)}
        for module in sorted(present | below):
            for imported in sorted(graph.find_modules_directly_imported_by(module)):
                if not _is_allowed(imported, allowed):
                    details = graph.get_import_details(importer=module, imported=imported)
                    lines = ", ".join(str(detail["line_number"]) for detail in details)
                    wrong.append(f"{module} imports {imported} (line {lines})")
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["wrong"]:
            output.print_error(line)


def _is_allowed(imported: str, allowed: list[str]) -> bool:
    if imported.partition(".")[0] in sys.stdlib_module_names:
        return True
    return any(imported == name or imported.startswith(f"{name}.") for name in allowed)
