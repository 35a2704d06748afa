"""What a call comes to before a row is touched, without Prefect: refusals and plans."""
