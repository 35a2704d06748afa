"""Names of `azureml.pipeline`."""
