"""What the report of an inference says of labels that it kept, which its training names."""

import pyarrow as pa

from partwise.flows import run_inference, train_models
from partwise.reports.report import render_report
from partwise.trainers import Mean


def test_predictions_stand_against_the_label_of_their_training(cluster, tmp_path) -> None:
    rows = pa.table({"k": list("aabbb"), "y": [1.0, 3.0, 5.0, 6.0, 7.0], "row": range(5)})
    given = {"store": str(tmp_path / "store"), "cluster": cluster}
    train_models(rows, "k", Mean(label="y"), run_id="own", **given)
    run = run_inference(rows, "k", "own", run_id="i", keep_columns=["y", "row"], **given)
    page = render_report(run)
    assert "5 rows with a prediction and <bdi>y</bdi>" in page
    assert "<li><bdi>a</bdi> <b>0.5</b></li>" in page
