"""What storing a model costs beyond making it: tiny ones, and one of a library's trainer."""

from benchmarks.frame.row import Contestant, Goal, Place, Row

US = "partwise, tiny models and small ones"
FORMATS, LIBRARIES = ("pickle", "lightgbm"), ("lightgbm", "xgboost")


def row(place: Place) -> Row:
    """Run benchmarks/stored_models.py, whose last line names these figures as JSON."""
    tiny, small = place.size(100_000, 3_000), place.size(400, 40)
    sizes = ("--partitions", tiny, "--models", small, "--turns", place.size(3, 1))
    of_tiny = [(f"{name} us", 60.0, "us beyond a function that stores nothing") for name in FORMATS]
    of_small = [(f"{name} of alone", 1.1, "a small model / the library") for name in LIBRARIES]
    return Row(
        title="Stored models",
        work=f"{tiny:,} tiny models, beside as many of a function that stores nothing; and {small} "
        "models of 600 rows x 8, 100 rounds, by a trainer, beside the library's cheapest call.",
        contestants=[
            Contestant(US, place.ours("benchmarks.stored_models", *sizes, "--json"), "a run")
        ],
        goals=[
            Goal(f"{text}: {name}", most, lambda found, name=name: found[US][name])
            for name, most, text in (*of_tiny, *of_small)
        ],
        shown="",
        turns=1,
        limit_s=place.size(900, 90),
    )
