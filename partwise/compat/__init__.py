"""Names of other systems, for programs that come as they are: each becomes a call of ours."""
