"""Train, run, export and prove one model per partition, thousands at a time.

The code lives in three rooms at the top of the repository, `blocks <- tasks <- flows`, and is
imported through this package only: `partwise.flows`, `partwise.tasks`, `partwise.blocks`.
"""
