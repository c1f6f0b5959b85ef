"""constraints.txt, the versions that launch.sh installs: it has one of each requirement of setup.cfg, on
each Python and system, and names no address.
"""

import configparser
import os
import pathlib
import shutil
import subprocess

import pytest
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).parents[1]
LEFT_OUT = {"torch", "peft", "apache-beam"}  # .ci/lock says why
SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    "arm": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
    "darwin": {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
}


def read_requirements():
    """Return {extra, or "" for every installation: its requirements in setup.cfg}."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    values = {"": setup["options"]["install_requires"], **setup["options.extras_require"]}
    return {
        extra: [Requirement(line) for line in value.strip().splitlines()]
        for extra, value in values.items()
    }


def is_needed(requirement, environment):
    return requirement.marker is None or requirement.marker.evaluate(environment)


def find_misfits(requirements, constraints, environment):
    """Return what is wrong for these requirements of a Python and system, one line each."""
    misfits = []
    for requirement in requirements:
        if requirement.name in LEFT_OUT or not is_needed(requirement, environment):
            continue
        pins = [
            pin
            for pin in constraints
            if pin.name == requirement.name.lower().replace("_", "-")
            and is_needed(pin, environment)
        ]
        versions = [specifier.version for pin in pins for specifier in pin.specifier]
        if len(versions) != 1 or versions[0] not in requirement.specifier:
            misfits.append(f"{requirement}: constraints.txt has {', '.join(versions) or 'nothing'}")
    return misfits


@pytest.fixture(scope="module")
def constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [number for number, line in enumerate(lines) if line.startswith("#")] == [0]
    return [Requirement(line) for line in lines[1:]]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_each_requirement_has_one_version_within_its_range(constraints, version, system):
    environment = {"python_version": version, "python_full_version": f"{version}.9"}
    misfits = [
        line
        for requirements in read_requirements().values()
        for line in find_misfits(requirements, constraints, environment | SYSTEMS[system])
    ]
    assert not misfits, "\n".join(["run .ci/lock, which makes constraints.txt anew:", *misfits])


@pytest.mark.parametrize("version", ["3.11", "3.13", "3.14"])
@pytest.mark.parametrize(
    ("system", "name"),
    [("linux", "tensorflow-cpu"), ("arm", "tensorflow"), ("darwin", "tensorflow")],
)
@pytest.mark.parametrize("extra", ["tfdata", "test"])
def test_each_system_has_the_tensorflow_that_has_wheels_for_it(extra, system, name, version):
    """An installation without the extra has none; nor has Python 3.14, for which there are none."""
    requirements, environment = read_requirements(), SYSTEMS[system] | {"python_version": version}

    def find_tensorflow(extra):
        needed = [part for part in requirements[extra] if is_needed(part, environment)]
        return [part.name for part in needed if part.name.startswith("tensorflow")]

    assert find_tensorflow("") == []
    wanted = [] if version == "3.14" else [name, "tensorflow-datasets"]
    assert find_tensorflow(extra) == wanted


def test_the_tests_have_what_the_feed_has():
    requirements = read_requirements()
    assert {*map(str, requirements["tfdata"])} <= {*map(str, requirements["test"])}


def test_each_line_is_a_name_and_a_version(constraints):
    for pin in constraints:
        assert pin.url is None and [part.operator for part in pin.specifier] == ["=="], pin
        assert pin.name not in LEFT_OUT


def test_misfits_are_found():
    python = {"python_version": "3.12", "python_full_version": "3.12.1"}
    wanted = [
        Requirement("Ab_c>=2,<3"),
        Requirement("torch>=9"),
        Requirement("d; sys_platform == 'x'"),
    ]

    def check(*lines):
        return find_misfits(wanted, [Requirement(line) for line in lines], python)

    assert check("ab-c==2.1") == []
    assert check("ab-c==2.1; python_version < '3.12'", "ab-c==2.2; python_version >= '3.12'") == []
    assert check() == ["Ab_c<3,>=2: constraints.txt has nothing"]
    assert check("ab-c==1.9") == ["Ab_c<3,>=2: constraints.txt has 1.9"]
    assert check("ab-c==2.1", "ab-c==2.2") == ["Ab_c<3,>=2: constraints.txt has 2.1, 2.2"]


def test_the_lowest_versions_are_written_where_the_caller_is(tmp_path):
    """A stand-in for Python, which has no uv, prints what uv resolves."""
    checkout, caller = tmp_path / "check out", tmp_path / "caller"
    for folder in (checkout / ".ci", caller):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / ".ci/lock", checkout / ".ci/lock")
    shutil.copy(ROOT / "setup.cfg", checkout / "setup.cfg")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$*" in "-m uv "*) echo "jax==0.10.2" ;; esac\n')
    python.chmod(0o755)
    env = os.environ | {"CLOZE_PYTHON": str(python)}
    for file in ("lowest.txt", str(caller / "absolute.txt")):
        command = [checkout / ".ci/lock", "--lowest", "3.12", file]
        subprocess.run(command, cwd=caller, env=env, check=True)
        assert (caller / file).read_text() == "jax==0.10.2\n"
    assert sorted(os.listdir(checkout)) == [".ci", "setup.cfg"]
