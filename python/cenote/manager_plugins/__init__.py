"""Plug-ins of `cenote manager`: programs that delete and probe in storages that it does not know itself. See
docs/manager.md, "Plug-ins".

A plug-in is an object with the calls of Plugin, and serve() is its main(): it reads a question a line from stdin, and
writes an answer a line to stdout. What libraries print to stdout goes to stderr meanwhile, and from there to the log of
the manager.
"""

from ._protocol import Address, Outcome, Plugin, Room, Storage, serve

__all__ = ["Address", "Outcome", "Plugin", "Room", "Storage", "serve"]
