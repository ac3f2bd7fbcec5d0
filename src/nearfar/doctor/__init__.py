"""A data set examined before a run, without an encoder."""

from nearfar.doctor.examine import Findings, Leak, Problem, examine
from nearfar.doctor.summary import summary, write_findings

__all__ = ["Findings", "Leak", "Problem", "examine", "summary", "write_findings"]
