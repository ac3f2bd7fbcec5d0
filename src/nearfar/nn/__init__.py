"""Building blocks of the methods."""

from nearfar.nn.temperature import LogitScale, LogTemperature

__all__ = ["LogTemperature", "LogitScale"]
