"""A data set examined before a run, without an encoder its files, with one its labels too.

`nearfar.doctor(data)` examines and prints: `nearfar.doctor.doctor_function`.
"""

from nearfar.doctor.audit import Audit, audit, write_audit
from nearfar.doctor.examine import Diagnosis, examine
from nearfar.doctor.summary import summary, write_findings
from nearfar.lazy import make_callable

__all__ = ["Audit", "Diagnosis", "audit", "examine", "summary", "write_audit", "write_findings"]

make_callable(__name__)
