"""Check manifests with the tools that read them: `python manifest_tools.py FORM FILE`.

Any Python runs it that has the tool: kubernetes for a JobSet, xpk, or skypilot. None is a dependency
of the project. test_manifest_tools.py starts it.
"""

import copy
import json
import pathlib
import shlex
import sys
import types

# form -> the module that its check imports.
TOOLS = {"jobset": "kubernetes", "xpk": "xpk", "skypilot": "sky"}


def check_jobset(text):
    """Convert the Job of a JobSet into the models of the Kubernetes client, and back."""
    import yaml
    from kubernetes import client

    spec = yaml.safe_load(text)["spec"]["replicatedJobs"][0]["template"]
    api = client.ApiClient()

    text = json.dumps(spec)
    try:  # of the client's newer versions; each checks the required fields
        job = api.deserialize(text, "V1JobTemplateSpec", "application/json")
    except TypeError:
        job = api.deserialize(types.SimpleNamespace(data=text), "V1JobTemplateSpec")
    assert api.sanitize_for_serialization(job) == spec  # an unknown field would be lost


def check_xpk(text):
    """Parse the command with XPK's own parser, and let XPK look its type up."""
    import argparse

    from xpk.core.system_characteristics import get_system_characteristics_by_device_type
    from xpk.parser.core import set_parser

    words = shlex.split(text.replace("\\\n", " "))
    assert words.pop(0) == "xpk"
    parser = argparse.ArgumentParser()
    set_parser(parser=parser)
    args = parser.parse_args(words)
    _, error = get_system_characteristics_by_device_type(args.tpu_type)
    assert not error, args.tpu_type
    print(args.command)


def check_skypilot(text):
    """Validate a task against SkyPilot's schema, and make its Task object."""
    import jsonschema
    import sky
    import yaml
    from sky.utils import schemas

    task = yaml.safe_load(text)
    jsonschema.validate(task, schemas.get_task_schema())
    jsonschema.validate(task["resources"], schemas.get_resources_schema())
    made = sky.Task.from_yaml_config(copy.deepcopy(task))
    (resources,) = made.resources
    assert resources.use_spot == task["resources"]["use_spot"]
    assert made.num_nodes == task["num_nodes"]
    print(resources)


def list_xpk_slices():
    """Print [type, topology, hosts, chips of a host, GKE's label] of each TPU slice that XPK knows."""
    from xpk.core import system_characteristics

    rows = []
    for name, row in system_characteristics.UserFacingNameToSystemCharacteristics.items():
        if row.accelerator_type.name == "TPU":
            shape = (row.topology, row.vms_per_slice, row.chips_per_vm, row.gke_accelerator)
            rows.append([name, row.device_type, *shape])
    print(json.dumps(rows))


if __name__ == "__main__":
    form, *files = sys.argv[1:]
    if form == "slices":
        list_xpk_slices()
    else:
        {"jobset": check_jobset, "xpk": check_xpk, "skypilot": check_skypilot}[form](
            pathlib.Path(files[0]).read_text()
        )
