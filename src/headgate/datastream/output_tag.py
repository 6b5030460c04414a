"""Tags of side outputs, where PyFlink has them."""

from headgate.functions.function import OutputTag

__all__ = ["OutputTag"]
