"""Runs a composite action's steps as GitHub's runner does, and prints its outputs.

usage: action.py ACTION.YML [INPUT=VALUE…], with GITHUB_STEP_SUMMARY and RUNNER_TEMP in the environment
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml


def main(file, *given):
    action = yaml.safe_load(Path(file).read_text())
    values = {"github.action_path": str(Path(file).resolve().parent)}
    given = dict(each.split("=", 1) for each in given)
    for name, described in action["inputs"].items():
        values[f"inputs.{name}"] = given.pop(name) if described.get("required") else given.pop(name, described.get("default", ""))
    assert not given, f"no such input: {given}"
    code = 0
    for step in action["runs"]["steps"]:
        code = code or run(step, values)
    for name, described in action["outputs"].items():
        print(f"{name}={filled(described['value'], values)}")
    return code


def run(step, values):
    assert step["shell"] == "bash" and set(step) <= {"id", "shell", "env", "run"}, step
    with tempfile.TemporaryDirectory() as place:
        script, output = Path(place) / "script.sh", Path(place) / "output"
        script.write_text(filled(step["run"], values))
        output.touch()
        variables = {name: filled(value, values) for name, value in step["env"].items()}
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script]
        code = subprocess.run(command, env=os.environ | variables | {"GITHUB_OUTPUT": str(output)}).returncode
        for line in output.read_text().splitlines():
            name, value = line.split("=", 1)
            values[f"steps.{step['id']}.outputs.{name}"] = value
    return code


def filled(text, values):
    """What GitHub does not know is empty."""
    return re.sub(r"\$\{\{ *([^ }]*) *\}\}", lambda found: values.get(found[1], ""), text)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
