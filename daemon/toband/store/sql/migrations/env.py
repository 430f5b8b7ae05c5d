"""Run by alembic. The connection comes from `toband.store.sql.schema_revision`, which also begins and commits."""

from alembic import context

from toband.store.sql.schema_revision import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
