"""The other side of a notebook: the Jupyter server, which draws what the kernel sends.

plotly figures and widgets need a piece in the kernel's environment and a piece in the server's. On a
hub or with a kernel of its own these are two environments, and each can lack its piece.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from dataclasses import dataclass

# the browser extension that the server must deliver, and the package that brings it there
EXTENSIONS = {
    "jupyterlab-plotly": "plotly",
    "@jupyter-widgets/jupyterlab-manager": "ipywidgets",
    "anywidget": "anywidget",
}
_CONFIG = re.compile(r'<script id="jupyter-config-data" type="application/json">(.*?)</script>', re.DOTALL)
_WAIT = 3.0  # seconds


@dataclass(frozen=True)
class LabServer:
    """What the server of this kernel said: where it is, and which packages it lacks."""

    url: str
    missing: tuple[str, ...]


def started_by_a_server() -> bool:
    """Whether a Jupyter server started this kernel (and not nbclient, VS Code or a plain Python)."""
    return "JPY_SESSION_NAME" in os.environ


def ask_server() -> LabServer | None:
    """Ask the server that started this kernel for its extensions; None if it cannot be asked."""
    try:
        from jupyter_server.serverapp import list_running_servers
    except ImportError:
        return None
    parents = {os.environ.get("JPY_PARENT_PID"), str(os.getppid())}
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for server in list_running_servers():
        if str(server.get("pid")) not in parents:
            continue
        url = str(server.get("url"))
        token = {"Authorization": f"token {server.get('token', '')}"}
        try:
            with direct.open(urllib.request.Request(f"{url}lab", headers=token), timeout=_WAIT) as answer:
                page = answer.read().decode("utf-8", "replace")
        except OSError:
            continue
        missing = missing_from_page(page)
        if missing is not None:
            return LabServer(url, missing)
    return None


def missing_from_page(page: str) -> tuple[str, ...] | None:
    """The packages whose extension a page of JupyterLab does not deliver; None if it is no such page."""
    found = _CONFIG.search(page)
    if not found:
        return None
    config = json.loads(found[1])
    there = {extension.get("name") for extension in config.get("federated_extensions", [])}
    off = config.get("disabledExtensions", {})
    return tuple(package for name, package in EXTENSIONS.items() if name not in there or name in off)
