"""A run told to a reader: one HTML page that needs neither network nor server."""

from nearfar.report.page import write_report

__all__ = ["write_report"]
