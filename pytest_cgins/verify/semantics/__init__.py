"""What verification must know of an op to choose inputs that tell right from wrong.

First counts what the user declares, then the entries of torch's ops and what torch's own tests say of them, and
then the words in the names of ops and parameters: functions that users mark are recognised by these. Whatever is
not recognised is treated as an op over its last axis.
"""

from pytest_cgins.verify.semantics.call import Role, Semantics, chooses, lane_dims, of

__all__ = ["Role", "Semantics", "chooses", "lane_dims", "of"]
