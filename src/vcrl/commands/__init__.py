"""The commands of `vcrl`: each is a dataclass of its arguments; heavy imports wait until one is chosen."""
