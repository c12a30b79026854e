"""What tests of programs that use quorumlog need, and its own tests too.

The outermost room beside the command line: nothing of the product imports it.
"""

from .proxy import Direction, ForwardingProxy

__all__ = ["Direction", "ForwardingProxy"]
