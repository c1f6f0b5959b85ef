"""Check manifests with the tools that read them: `python manifest_tools.py FORM FILE`.

Any Python runs it that has the tool: kubernetes for a JobSet, xpk, or skypilot. None is a dependency
of the project. test_manifest_tools.py starts it.
"""

import copy
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
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
    """Let XPK make its JobSet without a cluster, and print the script of its container."""
    import yaml

    words = shlex.split(text.replace("\\\n", " "))
    assert words.pop(0) == "xpk"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "jobset.yaml"
        flags = ["--dry-run", "--skip-validation", "--project=p", f"--output-manifest-file={path}"]
        command = [pathlib.Path(sys.executable).parent / "xpk", *words, *flags]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        jobset = yaml.safe_load(path.read_text())
    (slices,) = jobset["spec"]["replicatedJobs"]
    (container,) = slices["template"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["bash", "-c"]
    print(json.dumps(container["command"][2]))


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
