"""The hints for Google's refusals: messages that people have published, and the page of them."""

import pytest

from pretrain.pod.refusals import REFUSALS, find_remedy

# As published at the sources of the table.
SEEN = (
    ("Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in " "region us-east5.",
     "no quota for this type"),
    (
        "RESOURCE_EXHAUSTED: Quota limit 'TPUV2sPodPerProjectPerRegionForTPUAPI,TPUV2sPodPerProject"
        "PerZoneForTPUAPI' has been exceeded. Limit: 0,0 in region us-central1,zone us-central1-a.",
        "no quota for this type",
    ),
    ("Quota 'TPUV4sPreemptiblePodPerProjectPerRegionForTPUAPI' exhausted. Limit 20800 in region " "us-central2",
     "the quota is used up"),
    ('There is no more capacity in the zone "us-central1-c"; you can try in another zone where ' "Cloud TPU Nodes are offered",
     "no machine is free"),
    ("Insufficient reserved capacity. Contact customer support to increase your reservation.",
     "a type that needs a reservation"),
    ("PERMISSION_DENIED: Cloud TPU API has not been used in project a before or it is disabled.",
     "enable the API once"),
    ("cannot create a TPU Node on a project linked to a free-trial billing account", "upgrade"),
    ("PERMISSION_DENIED: Read access to project 'a' was denied", "the role TPU Admin"),
    ("Request had insufficient authentication scopes.", "gcloud auth login"),
)  # fmt: skip


@pytest.mark.parametrize(("message", "remedy"), SEEN)
def test_a_published_message_has_its_remedy(message, remedy):
    assert remedy in (find_remedy(message) or "")


def test_another_message_has_none():
    assert find_remedy("ERROR: (gcloud) NOT_FOUND: no such queued resource") is None


def test_the_page_has_each_row(root):
    page = (root / "docs/quotas.md").read_text()
    for row in REFUSALS:
        assert f"`{row.pattern}`" in page and row.source in page, row.pattern
        assert row.remedy in page.replace("\n", " "), row.pattern
