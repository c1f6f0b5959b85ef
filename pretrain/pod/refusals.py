"""What Google's refusals of a TPU mean: the table for the hints of `pod` and docs/quotas.md."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """A refusal.

    Attributes:
      pattern: what its message contains.
      remedy: what to do, in one line.
      source: where the message was seen.
    """

    pattern: str
    remedy: str
    source: str


ISSUES = "https://github.com/{}/issues/{}"
REFUSALS = (
    Refusal(
        "Limit: 0",
        "the project has no quota for this type, of this kind (spot or not), in this zone: compare "
        "--zone, --type and --spot with the mail or the page that granted it",
        "https://github.com/marin-community/marin/pull/1612",
    ),
    Refusal(
        "Quota",
        "the quota is used up: queued resources that are suspended or failed hold theirs until "
        "they are deleted (`gcloud compute tpus queued-resources list --zone ZONE`)",
        ISSUES.format("marin-community/marin", 87),
    ),
    Refusal(
        "no more capacity in the zone",
        "no machine is free in this zone, whatever the quota: try later, another zone, or fewer "
        "chips",
        ISSUES.format("hashicorp/terraform-provider-google", 21243),
    ),
    Refusal(
        "Insufficient reserved capacity",
        "no machine is free in this zone for a type that needs a reservation: add --spot if the "
        "quota is for spot, or --create-flag=--reserved",
        ISSUES.format("skypilot-org/skypilot", 4579),
    ),
    Refusal(
        "has not been used in project",
        "enable the API once: gcloud services enable tpu.googleapis.com",
        ISSUES.format("google-gemini/gemini-cli", 1343),
    ),
    Refusal(
        "free-trial billing account",
        "a project in its free trial cannot have a TPU: upgrade its billing account",
        ISSUES.format("tensorflow/tpu", 124),
    ),
    Refusal(
        "insufficient authentication scopes",
        "the account of this machine may not ask for it: gcloud auth login, or give the machine "
        "the scope cloud-platform",
        ISSUES.format("tensorflow/tpu", 596),
    ),
    Refusal(
        "PERMISSION_DENIED",
        "this account may not do it in this project: compare `gcloud config list` with the "
        "project that has the quota, and ask its owner for the role TPU Admin",
        ISSUES.format("tensorflow/tpu", 227),
    ),
)


def find_remedy(message: str) -> str | None:
    """Return the remedy of the first refusal whose pattern a message contains, or None."""
    return next((row.remedy for row in REFUSALS if row.pattern in message), None)
