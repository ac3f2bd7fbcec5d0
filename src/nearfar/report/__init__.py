"""A run told to a reader: one HTML page that needs neither network nor server, and one that compares several.

`nearfar.report(run, ...)` writes them: `nearfar.report.report_function`.
"""

from nearfar.lazy import make_callable
from nearfar.report.compare import write_comparison
from nearfar.report.page import write_report

__all__ = ["write_comparison", "write_report"]

make_callable(__name__)
