"""A cluster of unequal machines inside one Linux box, for tests, benchmarks and demos."""

from lab.cluster import Cluster, FirewallRule
from lab.cluster_file import load_cluster, parse_cluster
from lab.errors import LabError, LabTimeoutError, RequirementError
from lab.lab import Lab
from lab.machine import Machine, Usage
from lab.process import Completed, Process
from lab.schedule import Scheduled

__all__ = [
    "Cluster",
    "Completed",
    "FirewallRule",
    "Lab",
    "LabError",
    "LabTimeoutError",
    "Machine",
    "Process",
    "RequirementError",
    "Scheduled",
    "Usage",
    "load_cluster",
    "parse_cluster",
]
