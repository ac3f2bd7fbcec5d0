"""A run told to a reader: one HTML page that needs neither network nor server, and one that compares several."""

from nearfar.report.compare import write_comparison
from nearfar.report.page import write_report

__all__ = ["write_comparison", "write_report"]
