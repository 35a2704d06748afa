"""Prefect and this machine: deployments, services, the state of health."""
