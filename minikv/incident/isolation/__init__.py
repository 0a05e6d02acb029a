"""The isolation test kit: does anybody get anybody else's words, and does every part keep the rules that prevent it?

Two layers. *Content* looks at a server from outside: at what was sent and what came back. *Invariants* look inside, and
see defects that no answer shows, because other guards still stand in front of them.
"""

from minikv.incident.isolation.findings import Finding
from minikv.incident.isolation.kit import Report, check_content, check_isolation, check_mix
from minikv.incident.isolation.singles import SingleDefects, single_defects
from minikv.incident.isolation.targets import Answer, Ask, ServerTarget, Target

__all__ = [
    "Answer",
    "Ask",
    "Finding",
    "Report",
    "ServerTarget",
    "SingleDefects",
    "Target",
    "check_content",
    "check_isolation",
    "check_mix",
    "single_defects",
]
