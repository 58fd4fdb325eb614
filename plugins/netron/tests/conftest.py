"""The fixtures of the core."""

from tests.conftest import no_default_vendors, vendors  # noqa: F401 - fixtures
