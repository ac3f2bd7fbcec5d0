"""A data set examined before a run, without an encoder its files, with one its labels too.

`nearfar.doctor(data)` examines and prints: `nearfar.doctor.doctor_function`.

Needs no encoder: each picture at 16 × 16 RGB, every channel minus its mean, compared by cosine with the same law as
above. It sees through size, format, compression, brightness and contrast, not through mirroring or rotation; a part
of a picture is found by aligning neighbors (`doctor/crops.py`). Training and test data are compared as one set, so a
leak is a group with members on both sides. The groups go to training as `ids`, the mechanism that every loss has; the
validation split never cuts through one.
"""

from nearfar.doctor.audit import Audit, audit, write_audit
from nearfar.doctor.examine import Diagnosis, examine
from nearfar.doctor.summary import summary, write_findings
from nearfar.lazy import make_callable

__all__ = ["Audit", "Diagnosis", "audit", "examine", "summary", "write_audit", "write_findings"]

make_callable(__name__)
