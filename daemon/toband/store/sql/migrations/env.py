"""Run by alembic. The connection comes from `toband.store.sql.schema`, which also begins and commits."""

from alembic import context

from toband.store.sql.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
