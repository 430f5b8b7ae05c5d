"""Base of the models of a definition's shape."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class DefinitionPart(BaseModel):
    """Base of the models: nothing is converted silently, nothing unknown is ignored."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)
