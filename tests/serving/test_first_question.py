"""What a server has done before its first question, so that nobody waits for it."""

import psutil
import pytest

from tests.serving.onnx_server import make_catalog, serving


@pytest.mark.slow
def test_onnxruntime_is_loaded_before_the_first_question(tmp_path):
    with serving(make_catalog(tmp_path), "--warm", "none") as server:
        files = [each.path for each in psutil.Process(server.process.pid).memory_maps()]
    assert any("onnxruntime_pybind11_state" in path for path in files)
