"""Tags of side outputs, where PyFlink has them."""

from headgate.core.chain.collector import OutputTag

__all__ = ["OutputTag"]
