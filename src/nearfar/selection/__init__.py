"""What to label next: diverse, typical or uncertain samples of an unlabelled set."""

from nearfar.selection.pool import Pick, Pool
from nearfar.selection.select import Selection, select
from nearfar.selection.strategies import STRATEGIES, facility_location, k_center, typical, uncertain

__all__ = ["STRATEGIES", "Pick", "Pool", "Selection", "facility_location", "k_center", "select", "typical", "uncertain"]
