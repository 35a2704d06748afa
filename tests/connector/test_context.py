"""The context of a partition outside any run: what it keeps, and what it refuses."""

from pathlib import Path

import pytest

from partwise.connector.context import MemoryLink, PartitionContext
from partwise.errors import InputError, TrialPruned


@pytest.mark.parametrize(
    ("first", "second", "given"),
    [
        ("notes.txt", b"content", "a bytes"),
        ("choice.json", {"best": 3}, "a dict"),
        ("notes.txt", "all is\nwell", "text that is not a file name"),
        (b"content", None, "a NoneType"),
        (b"content", 7, "a int"),
    ],
)
def test_swapped_arguments_of_an_upload_are_told(first, second, given) -> None:
    link = MemoryLink()
    with pytest.raises(TypeError, match=f"was given {given} as its second argument") as caught:
        PartitionContext(link=link).upload(first, second)
    expected = repr(first) if isinstance(first, str) else "'curve.png'"
    assert expected in str(caught.value)
    assert link.artifacts == {}


def test_a_name_that_is_not_flat_is_refused_as_such() -> None:
    with pytest.raises(InputError, match="is not a flat file name"):
        PartitionContext().upload(b"content", "a/b.txt")


def test_a_trial_that_is_given_up_is_told_so_whatever_its_metric_is() -> None:
    class Metric:
        def __float__(self) -> float:
            return 0.5

    class Link(MemoryLink):
        def report(self, step: int, value: float) -> bool:
            super().report(step, value)
            return True

    link = Link()
    with pytest.raises(TrialPruned, match=r"^the study gave it up at step 3, with 0\.5$"):
        PartitionContext(link=link).report(3, Metric())
    assert link.reports == {3: 0.5}


@pytest.mark.parametrize(
    ("write", "made"),
    [
        (lambda obj, path: Path(f"{path}.npy").write_bytes(obj), "'a.bin.npy'"),
        (lambda _, path: Path(path).mkdir(), "'a.bin'"),
        (lambda _obj, _path: None, "nothing"),
    ],
)
def test_what_is_not_written_to_the_path_of_an_upload_is_told(write, made) -> None:
    link = MemoryLink()
    message = rf"^write= of the artifact 'a\.bin' made {made}, and no file of the path"
    with pytest.raises(InputError, match=message):
        PartitionContext(link=link).upload(b"content", "a.bin", write=write)
    assert link.artifacts == {}


def test_an_upload_is_kept_under_its_name() -> None:
    link = MemoryLink()
    PartitionContext(link=link).upload("a.txt", "b.txt")
    assert link.artifacts == {"b.txt": b"a.txt"}


@pytest.mark.parametrize(
    ("filename", "content", "expected"),
    [
        ("a.json", b'{"x": [1, null]}', {"x": [1, None]}),
        ("a.txt", "grüße".encode(), "grüße"),
        ("a.log", b"\0", "\0"),
        ("a.bin", b"\xff", b"\xff"),
        ("a.json.gz", b"\xff", b"\xff"),
        ("log.txt", b"a\xff", "a\ufffd"),
        ("a.json", b"{", r"'a.json' is not JSON, as its name says: pass read="),
        ("a.json", b"[" * 100_000, r"is not JSON"),
        ("a.csv", b"\xff\xfe1", r"'a.csv' is not text in UTF-8"),
    ],
)
def test_a_download_and_an_artifact_of_a_run_are_one_object(
    make_run, monkeypatch, filename, content, expected
) -> None:
    make_run.begin()
    make_run.commit(("a", "DONE", 1.0))
    run = make_run.end(1)
    monkeypatch.setattr(type(run), "read_artifact", lambda *_: content)
    context = PartitionContext()
    context._link.upload(filename, content)
    ways = [lambda: run.artifact("a", filename)]
    if filename != "log.txt":
        ways.append(lambda: context.download(filename))
    for way in ways:
        if isinstance(expected, str) and expected.endswith(("read=", "JSON", "UTF-8")):
            with pytest.raises(InputError, match=expected):
                way()
        else:
            assert way() == expected
    assert run.artifact("a", filename, lambda path: Path(path).read_bytes()) == content


def test_what_is_uploaded_before_an_error_is_kept_back() -> None:
    link = MemoryLink()
    context = PartitionContext(link=link)
    context.upload("first", "a.txt")

    def fail(into: PartitionContext) -> None:
        with into.uploads_if_done():
            into.upload("second", "a.txt")
            into.with_params({}, uploads=True).upload("third", "b.txt")
            assert (into.download("a.txt"), into.has_made) == ("second", True)
            raise ValueError("no")

    for each, was in ((context, True), (PartitionContext(), False)):
        with pytest.raises(ValueError, match="no"):
            fail(each)
        assert each.has_made is was
    assert link.artifacts == {"a.txt": b"first"}
    with context.uploads_if_done():
        context.upload("fourth", "c.txt")
        assert "c.txt" not in link.artifacts
    assert link.artifacts == {"a.txt": b"first", "c.txt": b"fourth"}
