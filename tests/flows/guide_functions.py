"""Functions as the guides of other systems write them, line by line in words of our own."""

import time

FEATURES = ["price", "promotion"]


def train_store(data_connector, context):
    import xgboost as xgb

    df = data_connector.to_pandas()
    X, y = df[FEATURES], df["sales"]
    model = xgb.XGBRegressor(n_estimators=3, n_jobs=1)
    model.fit(X, y)
    model.rmse = float(((model.predict(X) - y) ** 2).mean() ** 0.5)
    model.feature_cols = FEATURES
    print(f"Model trained for {context.key_text}")
    return model


def predict_store(data_connector, model, context):
    df = data_connector.to_pandas()
    df["predicted"] = model.predict(df[model.feature_cols])
    context.upload(df, "predictions.csv", write=lambda obj, path: obj.to_csv(path, index=False))


def process_store(data_connector, context):
    time.sleep(context.params.get("takes_s", 0.0))
    df = data_connector.to_pandas()
    summary = {"store": context.key_text, "rows": len(df), "mean": float(df["sales"].mean())}
    context.upload(summary, "summary.json")
    context.upload(df, "rows.parquet", write=lambda obj, path: obj.to_parquet(path))
    print(f"Processed {context.key_text}")


def train_net():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader

    from partwise import get_context

    context = get_context()
    dist.init_process_group(backend=context.default_backend)
    model = DDP(torch.nn.Linear(2, 1).to(context.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=context.params["lr"])
    data = context.data("train").to_torch_dataset(batch_size=8, expand_dims=True, drop_last=True)
    for _ in range(2):
        for batch in DataLoader(data, batch_size=None):
            x = torch.cat([batch[name].float() for name in FEATURES], dim=1)
            loss = torch.nn.functional.mse_loss(model(x), batch["sales"].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    context.report(loss=loss.item())
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), context.model_directory / "model.pt")
    dist.destroy_process_group()
