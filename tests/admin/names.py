"""Every metric and label that a dashboard or a rule names is one that the proxy has."""

import json
import re
import sys

metrics, dashboard, rules = (open(path, encoding="utf-8").read() for path in sys.argv[1:4])
known = {}
for line in metrics.splitlines():
    if match := re.match(r"([a-z_]+)(?:\{(.*)\})? ", line if not line.startswith("#") else ""):
        known.setdefault(match[1], set()).update(re.findall(r"(\w+)=\"", match[2] or ""))
# No fleet here, and nobody has turned a certificate down or shown a password.
absent = {"politely_fleet_up": set(), "politely_distrusted_total": {"how"}}
known["politely_requests_total"].add("user")
expressions = [target["expr"] for panel in json.loads(dashboard)["panels"] for target in panel.get("targets", [])]
expressions += [line for line in rules.splitlines() if "politely_" in line or "process_" in line]
assert len(expressions) > 30
for expression in expressions:
    named = re.findall(r"\b((?:politely|process)_[a-z_]+)(?:\{([^}]*)\})?", expression)
    assert named, expression
    for name, labels in named:
        of = known.get(name, absent.get(name))
        assert of is not None, f"there is no {name}: {expression}"
        for label in re.findall(r"(\w+)[=!]~?\"", labels):
            assert label in of | {"instance", "job"}, f"{name} has no {label}: {expression}"
print(f"{len(known)} metrics, {len(expressions)} expressions")
