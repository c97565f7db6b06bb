"""What the gate's comment says of the proposal, where the pull request is one of the bot's."""

from __future__ import annotations

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request import own_branch
from pytest_cgins.pull_request.comment import Place
from pytest_cgins.pull_request.rest import Rest
from pytest_cgins.pull_request.upkeep import BRANCH
from pytest_cgins.regenerate.proposal.report import inline


def proposal(rest: Rest, place: Place) -> str:
    """Markdown about the proposal that a pull request carries; "" where it carries none.

    Told are only a branch of the repository itself and its commit: anybody can write the marker into a description, and
    a fork's branch can have any name.

    Args:
        rest: of the repository.
        place: the pull request.

    Raises:
        GitHubError: GitHub cannot be reached, or has trouble.
    """
    if not BRANCH.fullmatch(place.branch):
        return ""
    try:
        own = own_branch.of_rest(rest.commit(place.commit))
    except GitHubError as error:
        if error.status in (403, 404, 422):
            # The token may not read commits, or GitHub does not know it yet: nothing is said then.
            return ""
        raise
    if own is None:
        return (
            "\n\n<p>This branch is the bot's, and people have committed to it: what the description tells of a proposal "
            "was measured without that.</p>\n"
        )
    return (
        f"\n\n<p>By its commit this pull request carries the proposal {inline(own.proposal)} as it was made, of "
        f"{inline(own.made)}. What its own gate measured then is in the description; what is above was measured anew.</p>\n"
    )
