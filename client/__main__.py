"""``python -m client`` is the ``shoal`` command."""

from client.cli import main

main()
