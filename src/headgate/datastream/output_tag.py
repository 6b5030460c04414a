"""Tags of side outputs, where PyFlink has them."""

from headgate.core.chain.tags import OutputTag

__all__ = ["OutputTag"]
