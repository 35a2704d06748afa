"""A call of a flow and its execution: parameters, connections, the plan, the run, its end."""
