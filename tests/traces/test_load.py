import numpy as np
import pytest

from traces.errors import InputError
from traces.load import load

RECIPE = "poisson:rate=4,n=1000,prompt=lognormal:512:1.0,output=lognormal:128:0.8"


def test_textbook_is_the_batch_of_the_book() -> None:
    trace = load("textbook")
    assert trace.prompt_tokens.tolist() == [10, 30, 5, 20]
    assert trace.output_tokens.tolist() == [15, 10, 20, 12]
    assert trace.arrival_ns.tolist() == [0, 0, 0, 0]


def test_keyword_seed_is_used_only_where_the_recipe_has_none() -> None:
    assert load(RECIPE, seed=7).fingerprint == load(f"{RECIPE},seed=7").fingerprint
    assert load(f"{RECIPE},seed=7", seed=8).fingerprint == load(f"{RECIPE},seed=7").fingerprint
    assert load(RECIPE).fingerprint == load(RECIPE, seed=0).fingerprint != load(RECIPE, seed=1).fingerprint
    assert load(load(RECIPE, seed=7).name).fingerprint == load(RECIPE, seed=7).fingerprint


def test_each_concern_has_its_own_random_stream() -> None:
    base = load(RECIPE)
    other = load("poisson:rate=4,n=1000,prompt=uniform:1:9,output=lognormal:128:0.8,predicted=0.5")
    assert np.array_equal(base.arrival_ns, other.arrival_ns)
    assert np.array_equal(base.output_tokens, other.output_tokens)
    assert not np.array_equal(base.prompt_tokens, other.prompt_tokens)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("textbok", "textbook"),
        ("poison:rate=4,n=1", "poisson"),
        ("none.csv", "none.csv: no such file"),
        ("poisson:rate=0,n=3,prompt=1,output=1", "rate=0"),
        ("poisson:rate=-1,n=3,prompt=1,output=1", "rate=-1"),
        ("poisson:rate=nan,n=3,prompt=1,output=1", "rate=nan"),
        ("poisson:rate=1,n=0,prompt=1,output=1", "n=0"),
        ("poisson:rate=1,n=3,prompt=1", "output missing"),
        ("poisson:rate=1,n=3,prompt=1,output=1,rat=1", "'rat'"),
        ("poisson:rate=1,n=3,prompt=1,output=1,n=3", "n is given twice"),
        ("poisson:rate=1,n=3,prompt=lognorm:1:1,output=1", "lognormal"),
        ("poisson:rate=1,n=3,prompt=lognormal:0:1,output=1", "lognormal:0:1"),
        ("poisson:rate=1,n=3,prompt=lognormal:9:99,output=1", "lognormal:9:99"),
        ("poisson:rate=1,n=3,prompt=0,output=1", "'0'"),
        ("poisson:rate=1,n=3,prompt=uniform:9:1,output=1", "uniform:9:1"),
        ("gamma:rate=1,n=3,prompt=1,output=1", "cv missing"),
        ("gamma:rate=1,n=3,cv=0,prompt=1,output=1", "cv=0"),
        ("closed:clients=3", "missing"),
    ],
)
def test_what_cannot_be_is_one_line_that_names_it(source: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        load(source)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_infinite_rate_means_all_at_once() -> None:
    for process in ("poisson:", "gamma:cv=2,"):
        trace = load(f"{process}rate=inf,n=5,prompt=1,output=1")
        assert trace.arrival_ns.tolist() == [0] * 5
