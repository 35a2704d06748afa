"""What the partitions of `test_fallback.py` are inferred by."""


def predict(data, model, context):
    context.upload("a level", "tried.txt")
    if 13 in data.to_arrow()["shop"].to_pylist():
        raise ValueError("13 is not served")
    return model.predict(data.to_arrow())
