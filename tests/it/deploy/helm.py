"""Helm as a library. Reads a list of jobs as JSON and answers with a list: {"chart", "values" (YAML), and to render
"name" and "namespace"}; without a name the chart is linted."""

import json
import sys

import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError


def render(chart, name, namespace, values):
    with Chart.load(chart) as loaded:
        files = loaded.render(values=values, name=name, namespace=namespace, is_install=True)
    files = sorted((path, text.strip()) for path, text in files.items() if path.endswith(".yaml"))
    # As `helm template` writes them, without the spaces at ends of lines.
    text = "".join(f"---\n# Source: {path}\n{text}\n" for path, text in files if text)
    text = "".join(line.rstrip() + "\n" for line in text.splitlines())
    return {"text": text, "documents": [document for document in yaml.safe_load_all(text) if document]}


def do(job):
    values = yaml.safe_load(job["values"]) or {}
    try:
        if "name" in job:
            return render(job["chart"], job["name"], job["namespace"], values)
        return lint(job["chart"], values, strict=True)
    except HelmError as error:
        return {"refused": str(error)}


print(json.dumps([do(job) for job in json.load(sys.stdin)], default=str))
