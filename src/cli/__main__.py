"""`python -m quorumlog.cli`: the command where no script is on the path."""

from .main import main

main()
