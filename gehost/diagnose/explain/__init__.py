"""Why a pass did not match: a compile up to that pass, with the nearest miss of each candidate."""
