"""A data set examined before a run, without an encoder."""

from nearfar.doctor.examine import Diagnosis, examine
from nearfar.doctor.summary import summary, write_findings

__all__ = ["Diagnosis", "examine", "summary", "write_findings"]
