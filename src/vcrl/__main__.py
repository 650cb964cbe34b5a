"""`python -m vcrl` is `vcrl`."""

from vcrl.cli import command

command()
