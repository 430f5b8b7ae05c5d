"""The last part of a run, in which only its `finally` steps run: the state that it will have, and since when."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("finally_part", sa.Text()))
