"""AzureML's names of its first SDK: each makes a call of a flow, and shows its run.

A module stands where theirs does. What has no counterpart is refused by a sentence.
"""
