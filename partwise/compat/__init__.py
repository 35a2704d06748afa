"""Names of other systems, for programs that come as they are: each is translated to a call of ours."""
