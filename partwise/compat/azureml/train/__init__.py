"""Names of `azureml.train`."""
